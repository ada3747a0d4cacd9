//! Google Cloud Translation, version 2.

use axum::response::Response;
use peregrine::document::{DocumentOptions, Format};
use peregrine::text::Language;
use serde_json::{Value, json};

use super::{Context, json_answer};
use crate::dispatch::{Side, Translated};
use crate::problem::{Kind, Outcome, Problem};

pub(crate) const TRANSLATE: &[(&str, &str, &str)] = &[
    ("q*", "strings", "A text or a list of at most 128 texts"),
    ("target*", "string", "Language to translate to"),
    ("source", "string", "Language of the text; detected if it is not given"),
    ("format", "string", "text or html; without it text with tags is HTML"),
];

/// The most texts of a request, which is Google's limit.
const MOST_TEXTS: usize = 128;

/// Google's code of a language.
fn code(code: &str) -> &str {
    match code {
        "zh" | "zh-Hans" => "zh-CN",
        "zh-Hant" => "zh-TW",
        code => code,
    }
}

fn texts(context: &Context) -> Outcome<Vec<String>> {
    let texts = context.params.texts("q")?.map(|texts| texts.texts).unwrap_or_default();
    match texts.len() {
        0 => Err(Problem::bad("Required Text")),
        1..=MOST_TEXTS => Ok(texts),
        count => {
            Err(Problem::bad(format!("Too many text segments: {count}, at most {MOST_TEXTS}")))
        }
    }
}

pub(crate) async fn translate(context: Context) -> Outcome<Response> {
    let texts = texts(&context)?;
    let target = context
        .params
        .filled("target")?
        .ok_or_else(|| Problem::bad("Required parameter: target"))?;
    let source = context.params.filled("source")?;
    let format = context.params.filled("format")?;
    let is_html = match format.as_deref() {
        // Google treats text without a format as HTML and escapes it, which few clients expect.
        // Here it is HTML only if it has tags.
        None => texts.iter().any(|text| has_tag(text)),
        Some("text") => false,
        Some("html") => true,
        Some(_) => return Err(Problem::bad("Invalid value for format: text or html is expected")),
    };
    let mut job = context.job(texts, source, target)?;
    job.markup = is_html.then(|| (Format::Html, DocumentOptions::default()));
    let translated = context.app.translate(context.client, job).await?;
    let shape = |translated: &Translated| {
        let mut shaped = json!({"translatedText": translated.text(), "model": "nmt"});
        if translated.detected.is_some() {
            let language = if translated.from.is_empty() { "und" } else { code(&translated.from) };
            shaped["detectedSourceLanguage"] = language.into();
        }
        shaped
    };
    let translations: Value = translated.iter().map(shape).collect();
    Ok(json_answer(&json!({"data": {"translations": translations}})))
}

/// Whether a text looks as if it had a tag.
fn has_tag(text: &str) -> bool {
    text.match_indices('<').any(|(at, _)| {
        text[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!'))
    })
}

pub(crate) async fn detect(context: Context) -> Outcome<Response> {
    let texts = texts(&context)?;
    context.app.access.charge(context.client, texts.len(), std::time::Instant::now())?;
    let shape = |text: &String| {
        let found = super::native::detect_any(&context.app, text);
        let language = found.language.map_or("und", code);
        json!([{"language": language, "confidence": found.confidence, "isReliable": found.reliable}])
    };
    let detections: Value = texts.iter().map(shape).collect();
    Ok(json_answer(&json!({"data": {"detections": detections}})))
}

pub(crate) async fn languages(context: Context) -> Outcome<Response> {
    let named = context.params.filled("target")?;
    let sources = context.app.codes(Side::Source);
    let targets = context.app.codes(Side::Target);
    let shape = |of: &String| match &named {
        None => json!({"language": code(of)}),
        Some(_) => {
            json!({"language": code(of), "name": Language::find(of).map_or(of.as_str(), |language| language.name)})
        }
    };
    if named.as_deref().is_some_and(|name| Language::find(name).is_none()) {
        return Err(Problem::new(
            Kind::UnknownLanguage,
            "Invalid value for target: it is no language",
        ));
    }
    let languages: Value = sources.union(&targets).map(shape).collect();
    Ok(json_answer(&json!({"data": {"languages": languages}})))
}
