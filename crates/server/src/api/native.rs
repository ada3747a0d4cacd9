//! The server's own API.

use std::time::{Duration, Instant};

use axum::response::Response;
use peregrine::Priority;
use peregrine::document::DocumentOptions;
use peregrine::registry::{Pair, Route};
use peregrine::text::{Detection, Language, detect as detect_language};
use peregrine::text::{Split, Unit};
use serde_json::{Value, json};

use super::shape::{Shape, answer, detection};
use super::{Context, file_answer, json_answer, stream};
use crate::app::App;
use crate::dispatch::{Side, TranslationJob};
use crate::documents::name_with;
use crate::files::safe_name;
use crate::glossaries::Terms;
use crate::problem::{Outcome, Problem};
use crate::wanted::Wanted;

pub(crate) const TRANSLATE: &[(&str, &str, &str)] = &[
    ("text*", "strings", "A text or a list of texts"),
    ("to*", "string", "Language to translate to"),
    ("from", "string", "Language of the text; auto, the default, detects it"),
    (
        "format",
        "string",
        "text, or a kind of document whose markup stays with its words: html, xml, md, srt, ...",
    ),
    ("beam", "integer", "Hypotheses kept for a sentence; 1 is greedy search"),
    ("n_best", "integer", "Translations of each text and sentence"),
    ("scores", "boolean", "Scores of sentences and words"),
    ("alignments", "boolean", "Which words of the text became which words"),
    ("split", "string", "sentence, or none: the text is a sentence"),
    (
        "carry",
        "boolean",
        "Placeholders, addresses, emoji and capitals survive; true is the default",
    ),
    (
        "glossary",
        "object",
        "Terms and their translations; a term with an empty translation is kept",
    ),
    ("offsets", "string", "What offsets count: codepoint, utf16 or byte"),
    ("priority", "string", "interactive or bulk"),
    ("timeout", "number", "Seconds it may take"),
    ("stream", "boolean", "Server-sent events: sentences as they end"),
];

pub(crate) const DOCUMENT: &[(&str, &str, &str)] = &[
    ("file*", "file", "The document; its name tells its kind"),
    ("to*", "string", "Language to translate to"),
    ("from", "string", "Language of the document; auto, the default, detects it"),
    ("beam", "integer", "Hypotheses kept for a sentence; 1 is greedy search"),
    ("carry", "boolean", "As with texts"),
    ("glossary", "string", "Terms: lines of a term, a tab and its translation"),
    ("priority", "string", "interactive or bulk; bulk is the default"),
];

pub(crate) const DETECT: &[(&str, &str, &str)] =
    &[("text*", "strings", "A text or a list of texts")];

/// The most alternatives of a text.
const MOST_N_BEST: usize = 20;

fn one_of<'a, T: Copy>(name: &str, value: Option<&str>, known: &'a [(&'a str, T)]) -> Outcome<T> {
    let default = known[0].1;
    let Some(value) = value else { return Ok(default) };
    let found = known.iter().find(|(name, _)| *name == value).map(|(_, value)| *value);
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    found.ok_or_else(|| Problem::bad(format!("{name} must be one of {}", names.join(", "))))
}

fn needed_target(context: &Context) -> Outcome<String> {
    let missing = || Problem::bad("to is missing: the language to translate to");
    context.params.filled("to")?.ok_or_else(missing)
}

/// Reads a request.
fn read(context: &Context) -> Outcome<(TranslationJob, Shape)> {
    let params = &context.params;
    let texts = params
        .texts("text")?
        .ok_or_else(|| Problem::bad("text is missing: a string or a list of strings"))?;
    let to = needed_target(context)?;
    let mut job = context.job(texts.texts, params.filled("from")?, to)?;
    job.markup = match params.filled("format")?.as_deref() {
        None | Some("text") => None,
        Some(name) => Some((name.parse().map_err(Problem::bad)?, DocumentOptions::default())),
    };
    read_wanted(context, &mut job)?;
    let units = [("codepoint", Unit::CodePoint), ("utf16", Unit::Utf16), ("byte", Unit::Byte)];
    let Wanted { scores, alignments, n_best, .. } = job.wanted;
    let shape = Shape {
        unit: one_of("offsets", params.filled("offsets")?.as_deref(), &units)?,
        sentences: scores || alignments || n_best > 1,
        scores,
        alignments,
        n_best,
    };
    Ok((job, shape))
}

/// Reads the options of a translation.
fn read_wanted(context: &Context, job: &mut TranslationJob) -> Outcome<()> {
    let params = &context.params;
    let split = [("sentence", Split::Sentence), ("none", Split::None)];
    job.wanted = Wanted {
        beam: params.count("beam", 1..=100)?,
        n_best: params.count("n_best", 1..=MOST_N_BEST)?.unwrap_or(1),
        scores: params.flag("scores")?.unwrap_or(false),
        alignments: params.flag("alignments")?.unwrap_or(false),
        split: one_of("split", params.filled("split")?.as_deref(), &split)?,
        carry: params.flag("carry")?.unwrap_or(true),
        quality: params.flag("quality")?.unwrap_or(false),
        terms: terms(context)?,
        keep: Vec::new(),
    };
    let priority = [
        ("auto", None),
        ("interactive", Some(Priority::Interactive)),
        ("bulk", Some(Priority::Bulk)),
    ];
    job.priority = one_of("priority", params.filled("priority")?.as_deref(), &priority)?;
    if let Some(text) = params.filled("timeout")? {
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 600.0);
        let seconds =
            seconds.ok_or_else(|| Problem::bad("timeout must be a number of seconds up to 600"))?;
        job.timeout = Duration::from_secs_f64(seconds);
    }
    Ok(())
}

/// The glossary terms of a request: an object, or lines of a source, a tab and a target.
fn terms(context: &Context) -> Outcome<Option<Terms>> {
    let wrong = || Problem::bad("glossary must be an object of strings");
    match context.params.value("glossary") {
        None => context.params.filled("glossary")?.map(|tsv| Terms::read(&tsv)).transpose(),
        Some(Value::String(tsv)) => Terms::read(tsv).map(Some),
        Some(Value::Object(entries)) => {
            let pair = |(source, target): (&'_ String, &'_ Value)| {
                Ok((source.clone(), target.as_str().ok_or_else(wrong)?.to_owned()))
            };
            let pairs = entries.iter().map(pair).collect::<Outcome<Vec<_>>>()?;
            Terms::of(pairs.iter().map(|(a, b)| (a.as_str(), b.as_str()))).map(Some)
        }
        Some(_) => Err(wrong()),
    }
}

pub(crate) async fn translate(context: Context) -> Outcome<Response> {
    let (job, shape) = read(&context)?;
    if context.params.flag("stream")?.unwrap_or(false) {
        if job.markup.is_some() {
            return Err(Problem::bad("stream needs the format text"));
        }
        return stream::translate(&context.app, context.client, job, shape).await;
    }
    let start = Instant::now();
    let texts = job.texts.clone();
    let translated = context.app.translate(context.client, job).await?;
    Ok(json_answer(&answer(&texts, &translated, shape, start)))
}

pub(crate) async fn document(context: Context) -> Outcome<Response> {
    let file = context.file().ok_or_else(|| Problem::bad("file is missing: a multipart form"))?;
    let to = needed_target(&context)?;
    let mut job = context.job(Vec::new(), context.params.filled("from")?, to)?;
    read_wanted(&context, &mut job)?;
    let name = name_with(&safe_name(&file.name), &format!(".{}", job.to));
    let made = context.app.translate_file(context.client, job, &file).await?;
    Ok(file_answer(&name, made))
}

/// The language of a text among the source languages or, if there is only one, among all known
/// languages.
pub(crate) fn detect_any(app: &App, text: &str) -> Detection {
    let sources = app.codes(Side::Source);
    let targets = app.codes(Side::Target);
    let all: Vec<&str> = sources.union(&targets).map(String::as_str).collect();
    detect_language(text, if all.len() > 2 { &all } else { &[] })
}

pub(crate) async fn detect(context: Context) -> Outcome<Response> {
    let texts = context
        .params
        .texts("text")?
        .ok_or_else(|| Problem::bad("text is missing: a string or a list of strings"))?
        .texts;
    context.app.access.charge(context.client, texts.len(), Instant::now())?;
    let detections: Value =
        texts.iter().map(|text| detection(&detect_any(&context.app, text))).collect();
    Ok(json_answer(&json!({"detections": detections})))
}

pub(crate) async fn languages(context: Context) -> Outcome<Response> {
    let app = &context.app;
    let (sources, targets) = (app.codes(Side::Source), app.codes(Side::Target));
    let language = |code: &String| match Language::find(code) {
        Some(language) => {
            json!({"code": code, "name": language.name, "native": language.native, "rtl": language.is_right_to_left()})
        }
        None => json!({"code": code, "name": code, "native": code, "rtl": false}),
    };
    let languages: Value = sources.union(&targets).map(language).collect();
    let routes = app.registry.routes();
    let pair = |(pair, route): (&Pair, &Route)| json!({"from": pair.from, "to": pair.to, "model": route.models.join(" + "), "through": route.through.iter().collect::<Vec<_>>()});
    let pairs: Value = routes.iter().map(pair).collect();
    Ok(json_answer(&json!({"languages": languages, "pairs": pairs})))
}

pub(crate) async fn models(context: Context) -> Outcome<Response> {
    let model = |state: peregrine::registry::ModelState| {
        let pairs = state.entry.pairs.iter().map(|pair| json!({"from": pair.from, "to": pair.to}));
        let mut model = json!({"name": state.entry.name, "pairs": pairs.collect::<Value>(), "loaded": state.open.is_some()});
        if !state.entry.languages.is_empty() {
            model["languages"] = state.entry.languages.clone().into();
        }
        if let Some(open) = &state.open {
            let translator = open.service.translator();
            model["precision"] = translator.precision().into();
            model["device"] = translator.device().into();
            model["memory"] = translator.weight_bytes().into();
        }
        if state.problem.is_some() {
            // The reason names files of this machine, so it is only in the log.
            model["problem"] = "it cannot be opened".into();
        }
        model
    };
    let models: Value = context.app.registry.models().into_iter().map(model).collect();
    Ok(json_answer(&json!({"models": models})))
}
