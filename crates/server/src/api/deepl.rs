//! The dialect of DeepL, versions 2 and 3, for its own clients.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures_util::FutureExt;
use peregrine::document::{DocumentOptions, Format};
use peregrine::text::Language;
use peregrine::text::Split;
use serde_json::{Value, json};

use super::{Context, file_answer, json_answer};
use crate::dispatch::{Side, Translated};
use crate::files::{File, State, safe_name};
use crate::glossaries::Terms;
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

pub(crate) const TRANSLATE: &[(&str, &str, &str)] = &[
    ("text*", "strings", "A text or a list of texts"),
    ("target_lang*", "string", "Language to translate to"),
    ("source_lang", "string", "Language of the text; detected if it is not given"),
    ("split_sentences", "string", "0 takes each text for a sentence"),
    ("tag_handling", "string", "html or xml: tags stay with their words"),
    ("ignore_tags", "strings", "Elements whose content stays as it is"),
    ("splitting_tags", "strings", "Elements that are texts of their own"),
    ("non_splitting_tags", "strings", "Elements that are part of the text round them"),
    ("glossary_id", "string", "A glossary; source_lang must be given then"),
    ("glossary_ids", "strings", "Several; of two that have a term the first counts"),
];

pub(crate) const LANGUAGES: &[(&str, &str, &str)] = &[("type", "string", "source or target")];

pub(crate) const DOCUMENT: &[(&str, &str, &str)] = &[
    ("file*", "file", "A document"),
    ("target_lang*", "string", "Language to translate to"),
    ("source_lang", "string", "Language of the file"),
];

/// The character limit reported to clients, far above any use.
const LIMIT: u64 = 1_000_000_000_000;

/// The time that the response to an upload waits for the translation.
const UPLOAD_WAITS: Duration = Duration::from_secs(2);

/// DeepL's code of a language.
pub(crate) fn code(code: &str) -> String {
    code.to_ascii_uppercase()
}

/// Refuses parameters that would change the translation and are not supported.
fn refuse(context: &Context) -> Outcome<()> {
    for name in ["style_id", "translation_memory_id", "custom_instructions"] {
        let given = context.params.texts(name).map_or(true, |given| {
            given.is_some_and(|given| given.texts.iter().any(|text| !text.is_empty()))
        });
        if given {
            return Err(Problem::not_supported(name));
        }
    }
    match context.params.filled("formality")?.as_deref() {
        // The last two apply only if the language has formality.
        None | Some("default" | "prefer_less" | "prefer_more") => Ok(()),
        Some(_) => Err(Problem::not_supported("formality")),
    }
}

pub(crate) async fn translate(context: Context) -> Outcome<Response> {
    let missing =
        |name: &str| Problem::bad(format!("Bad request. Reason: value for '{name}' is missing"));
    let texts = context.params.texts("text")?.ok_or_else(|| missing("text"))?.texts;
    let target = context.params.filled("target_lang")?.ok_or_else(|| missing("target_lang"))?;
    if texts.is_empty() {
        return Err(missing("text"));
    }
    refuse(&context)?;
    let source = context.params.filled("source_lang")?;
    let split = match context.params.filled("split_sentences")?.as_deref() {
        None | Some("1" | "nonewlines" | "true") => Split::Sentence,
        Some("0" | "false") => Split::None,
        Some(_) => return Err(Problem::bad("Value for 'split_sentences' not supported.")),
    };
    let counts: Vec<usize> = texts.iter().map(|text| text.chars().count()).collect();
    let mut job = context.job(texts, source, target)?;
    let terms = terms(&context, job.from.as_deref(), &job.to)?;
    job.wanted = Wanted { split, terms, ..job.wanted };
    job.markup = markup(&context)?;
    let translated = context.app.translate(context.client, job).await?;
    let shape = |(translated, count): (&Translated, &usize)| {
        // DeepL's clients fail without a language: if none was detected, say English.
        let from =
            if translated.from.is_empty() { "EN".to_owned() } else { code(&translated.from) };
        json!({"detected_source_language": from, "text": translated.text(), "billed_characters": count})
    };
    let translations: Value = translated.iter().zip(&counts).map(shape).collect();
    Ok(json_answer(&json!({"translations": translations})))
}

/// The format and options of texts with tags; `None` for plain text.
pub(crate) fn markup(context: &Context) -> Outcome<Option<(Format, DocumentOptions)>> {
    let params = &context.params;
    let format = match params.filled("tag_handling")?.as_deref() {
        None => return Ok(None),
        Some("html") => Format::Html,
        Some("xml") => Format::Xml,
        Some(_) => return Err(Problem::bad("Value for 'tag_handling' not supported.")),
    };
    let mut options = DocumentOptions::default();
    options.elements.keep = params.names("ignore_tags")?;
    options.elements.block = params.names("splitting_tags")?;
    options.elements.inline = params.names("non_splitting_tags")?;
    Ok(Some((format, options)))
}

/// The terms of the glossaries that a request names, in its language direction.
fn terms(context: &Context, from: Option<&str>, to: &str) -> Outcome<Option<Terms>> {
    let mut ids = context.params.names("glossary_id")?;
    ids.extend(context.params.names("glossary_ids")?);
    if ids.is_empty() {
        return Ok(None);
    }
    let from = from.ok_or_else(|| {
        Problem::bad("Use of a glossary requires the source_lang parameter to be specified")
    })?;
    let mut entries = BTreeMap::new();
    for id in &ids {
        let stored = context.app.glossaries.get(id)?;
        let dictionary = stored
            .dictionary(from, to)
            .ok_or_else(|| Problem::bad("The glossary has no dictionary of these languages"))?;
        // The first glossary that has a term takes precedence.
        for (source, target) in dictionary.entries() {
            entries.entry(source.to_owned()).or_insert_with(|| target.to_owned());
        }
    }
    Terms::of(entries.iter().map(|(source, target)| (source.as_str(), target.as_str()))).map(Some)
}

pub(crate) async fn usage(_: Context) -> Outcome<Response> {
    Ok(json_answer(&json!({"character_count": 0, "character_limit": LIMIT})))
}

pub(crate) async fn languages(context: Context) -> Outcome<Response> {
    // Clients in Python send the type as the body of a GET.
    let side = match context.params.filled("type")?.as_deref() {
        None | Some("source") => Side::Source,
        Some("target") => Side::Target,
        Some(_) => {
            return Err(Problem::bad(
                "Value for 'type' not supported: source or target is expected",
            ));
        }
    };
    let shape = |of: &String| {
        let name = Language::find(of).map_or(of.as_str(), |language| language.name);
        match side {
            Side::Source => json!({"language": code(of), "name": name}),
            Side::Target => {
                json!({"language": code(of), "name": name, "supports_formality": false})
            }
        }
    };
    let codes = context.app.codes(side);
    let listed = codes.iter().flat_map(|code| match side {
        Side::Source => vec![code.clone()],
        Side::Target => variants(code),
    });
    let listed: BTreeSet<String> = listed.collect();
    Ok(json_answer(&listed.iter().map(shape).collect()))
}

/// The target codes of a language: DeepL's clients refuse plain `EN` and `PT` before they send a
/// request.
fn variants(code: &str) -> Vec<String> {
    let variants: &[&str] = match code {
        "en" => &["en-GB", "en-US"],
        "pt" => &["pt-BR", "pt-PT"],
        "zh" => &["zh-Hans"],
        code => &[code],
    };
    variants.iter().map(|variant| (*variant).to_owned()).collect()
}

pub(crate) async fn upload(context: Context) -> Outcome<Response> {
    refuse(&context)?;
    let missing =
        |name: &str| Problem::bad(format!("Bad request. Reason: value for '{name}' is missing"));
    let file = context.file().ok_or_else(|| missing("file"))?;
    let target = context.params.filled("target_lang")?.ok_or_else(|| missing("target_lang"))?;
    let name = safe_name(&file.name);
    let other = |format: &String| Format::from_name(&name) != format.parse().ok();
    if context.params.filled("output_format")?.as_ref().is_some_and(other) {
        return Err(Problem::not_supported("output_format other than that of the file"));
    }
    let source = context.params.filled("source_lang")?;
    let mut job = context.job(Vec::new(), source, target)?;
    job.wanted.terms = terms(&context, job.from.as_deref(), &job.to)?;
    let (id, key) = context.app.files.begin(&name)?;
    let (app, client, file_id) = (Arc::clone(&context.app), context.client, id.clone());
    let mut work = tokio::spawn(async move {
        let made = AssertUnwindSafe(app.translate_file(client, job, &file)).catch_unwind().await;
        let bug = |_| Err(Problem::new(Kind::Internal, "An internal error: this is a bug"));
        app.files.finish(&file_id, made.unwrap_or_else(bug))
    });
    // Wait a little: most translations finish before the client polls, which it does every five
    // seconds.
    if let Ok(Ok(Err(problem))) = tokio::time::timeout(UPLOAD_WAITS, &mut work).await {
        context.app.files.remove(&id);
        return Err(problem);
    }
    Ok(json_answer(&json!({"document_id": id, "document_key": key})))
}

/// The document that a request names, if the request has the document's key.
fn document(context: &Context) -> Outcome<File> {
    let key = context.params.string("document_key")?.unwrap_or_default();
    let file = context.app.files.get(context.in_path("id"));
    let is_known = |file: &File| {
        bool::from(subtle::ConstantTimeEq::ct_eq(file.key.as_bytes(), key.as_bytes()))
    };
    let file = file.filter(is_known);
    file.ok_or_else(|| Problem::new(Kind::NotFound, "There is no such document"))
}

pub(crate) async fn document_status(context: Context) -> Outcome<Response> {
    let file = document(&context)?;
    let id = context.in_path("id");
    Ok(json_answer(&match &file.state {
        State::Translating => {
            json!({"document_id": id, "status": "translating", "seconds_remaining": 5})
        }
        State::Done(made) => {
            json!({"document_id": id, "status": "done", "billed_characters": made.characters})
        }
        State::Failed(problem) => {
            json!({"document_id": id, "status": "error", "error_message": problem.message})
        }
    }))
}

pub(crate) async fn document_result(context: Context) -> Outcome<Response> {
    let file = document(&context)?;
    let made = match file.state {
        State::Done(made) => made,
        State::Translating => return Err(Problem::busy(Duration::from_secs(5))),
        State::Failed(problem) => return Err(problem),
    };
    context.app.files.remove(context.in_path("id"));
    Ok(file_answer(&file.name, made))
}

pub(crate) async fn missing(_: Context) -> Outcome<Response> {
    Err(Problem::new(Kind::NotFound, "This is not supported by this server"))
}
