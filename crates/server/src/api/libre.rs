//! LibreTranslate.

use axum::response::Response;
use peregrine::document::{DocumentOptions, Format};
use peregrine::registry::Pair;
use peregrine::text::Language;
use serde_json::{Value, json};

use super::{Context, file_answer, json_answer};
use crate::dispatch::{Side, Translated};
use crate::documents::name_with;
use crate::files::{File, State, safe_name};
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

pub(crate) const TRANSLATE: &[(&str, &str, &str)] = &[
    ("q*", "strings", "A text or a list of texts"),
    ("source*", "string", "Language of the text, or auto"),
    ("target*", "string", "Language to translate to"),
    ("format", "string", "text or html"),
    ("alternatives", "integer", "Further translations wanted"),
    ("api_key", "string", "API key"),
];

pub(crate) const FILE: &[(&str, &str, &str)] = &[
    ("file*", "file", "A document; `supportedFilesFormat` in /frontend/settings lists the endings"),
    ("source*", "string", "Language of the file, or auto"),
    ("target*", "string", "Language to translate to"),
];

/// The most alternatives of a text.
const MOST_ALTERNATIVES: usize = 10;

/// LibreTranslate's code of a language.
fn code(code: &str) -> &str {
    match code {
        "zh" => "zh-Hans",
        code => code,
    }
}

/// The detected language with its confidence in percent.
fn detection(translated: &Translated) -> Value {
    let detected = translated.detected.as_ref();
    let language = detected.and_then(|detected| detected.language);
    match (language, detected) {
        (Some(language), Some(detected)) => {
            json!({"confidence": percent(detected.confidence), "language": code(language)})
        }
        _ => json!({"confidence": 0.0, "language": "en"}),
    }
}

fn percent(confidence: f32) -> f64 {
    f64::from((confidence * 1000.0).round()) / 10.0
}

pub(crate) async fn translate(context: Context) -> Outcome<Response> {
    let missing = || Problem::bad("Invalid request: missing q parameter");
    let texts = context.params.texts("q")?.ok_or_else(missing)?;
    if texts.texts.is_empty() || (!texts.is_list && texts.texts[0].is_empty()) {
        return Err(missing());
    }
    let source = context.needed("source")?;
    let target = context.needed("target")?;
    let alternatives = context.params.string("alternatives")?.filter(|text| !text.is_empty());
    let alternatives = alternatives.map_or(Ok(0), |text| text.trim().parse::<i64>());
    let alternatives = alternatives
        .map_err(|_| Problem::bad("Invalid request: alternatives parameter is not a number"))?;
    if alternatives > MOST_ALTERNATIVES as i64 {
        return Err(Problem::bad(format!(
            "Invalid request: alternatives parameter must be <= {MOST_ALTERNATIVES}"
        )));
    }
    let alternatives = alternatives.max(0) as usize;
    let format = context.params.filled("format")?.unwrap_or_else(|| "text".to_owned());
    let markup = match format.as_str() {
        "text" => None,
        "html" => Some((Format::Html, DocumentOptions::default())),
        format => {
            let format: String = format.chars().take(20).collect();
            return Err(Problem::bad(format!("{format} format is not supported")));
        }
    };
    let mut job = context.job(texts.texts, Some(source), target)?;
    let detects = job.from.is_none();
    let n_best = if alternatives > 0 { alternatives + 1 } else { 1 };
    job.wanted = Wanted { n_best, ..job.wanted };
    job.markup = markup;
    let translated = context.app.translate(context.client, job).await?;
    let others = |translated: &Translated| -> Value {
        let mut seen = vec![translated.text()];
        for other in &translated.translation.alternatives {
            if !seen.contains(&other.text.as_str()) {
                seen.push(&other.text);
            }
        }
        seen[1..].iter().take(alternatives).copied().collect()
    };
    let shaped = |value: &dyn Fn(&Translated) -> Value| -> Value {
        match texts.is_list {
            true => translated.iter().map(value).collect(),
            false => translated.first().map(value).unwrap_or_default(),
        }
    };
    let mut answer = json!({"translatedText": shaped(&|translated| translated.text().into())});
    if detects {
        answer["detectedLanguage"] = shaped(&detection);
    }
    if alternatives > 0 {
        answer["alternatives"] = shaped(&others);
    }
    Ok(json_answer(&answer))
}

pub(crate) async fn detect(context: Context) -> Outcome<Response> {
    let texts = context.params.texts("q")?;
    let texts = texts.ok_or_else(|| Problem::bad("Invalid request: missing q parameter"))?.texts;
    let text = texts.join("\n");
    if text.is_empty() {
        return Err(Problem::bad("Invalid request: missing q parameter"));
    }
    context.app.access.charge(context.client, 1, std::time::Instant::now())?;
    let found = super::native::detect_any(&context.app, &text);
    let mut answer: Vec<Value> = Vec::new();
    if let Some(language) = found.language {
        answer.push(json!({"confidence": percent(found.confidence), "language": code(language)}));
    }
    if answer.is_empty() {
        answer.push(json!({"confidence": 0.0, "language": "en"}));
    }
    Ok(json_answer(&answer.into()))
}

pub(crate) async fn languages(context: Context) -> Outcome<Response> {
    let routes = context.app.registry.routes();
    let sources = context.app.codes(Side::Source);
    let language = |from: &String| {
        let first = Pair::new(from, "");
        let from_it = routes.range(&first..).take_while(|(pair, _)| &pair.from == from);
        let mut targets: Vec<&str> = from_it.map(|(pair, _)| code(&pair.to)).collect();
        targets.push(code(from));
        targets.sort_unstable();
        targets.dedup();
        json!({"code": code(from), "name": name(from), "targets": targets})
    };
    // A language that is only a target has no targets but itself. It is listed because clients look
    // its code up here.
    let targets = context.app.codes(Side::Target);
    let all = sources.union(&targets);
    Ok(json_answer(&all.map(language).collect()))
}

fn name(code: &str) -> &str {
    Language::find(code).map_or(code, |language| language.name)
}

pub(crate) async fn translate_file(context: Context) -> Outcome<Response> {
    let missing = || Problem::bad("Invalid request: missing file parameter");
    let file = context.file().ok_or_else(missing)?;
    let (source, target) = (context.needed("source")?, context.needed("target")?);
    let name = name_with(&safe_name(&file.name), &format!("_{target}"));
    let job = context.job(Vec::new(), Some(source), target)?;
    let made = context.app.translate_file(context.client, job, &file).await;
    let made = made.map_err(|problem| match problem.kind {
        Kind::NotSupported => Problem::bad("Invalid request: file format not supported"),
        _ => problem,
    })?;
    let ending = made.format.endings().first().copied().unwrap_or("txt");
    let (id, _) = context.app.files.begin(&name)?;
    context.app.files.finish(&id, Ok(made))?;
    let url = format!("{}/download_file/{id}.{ending}", base_url(&context));
    Ok(json_answer(&json!({"translatedFileUrl": url})))
}

/// The server's URL as the client sees it.
fn base_url(context: &Context) -> String {
    let header = |name: &str| context.headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = |name: &str| header(name).filter(|_| context.app.config.trust_proxy);
    let scheme =
        forwarded("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or("http");
    let host = forwarded("x-forwarded-host").or_else(|| header("host")).unwrap_or("localhost");
    let is_host =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    let host: String = host.chars().filter(|&c| is_host(c)).collect();
    format!("{scheme}://{host}{}", context.app.config.url_prefix)
}

pub(crate) async fn download_file(context: Context) -> Outcome<Response> {
    let id = context.in_path("id").split('.').next().unwrap_or_default().to_owned();
    match context.app.files.get(&id) {
        Some(File { name, state: State::Done(made), .. }) => Ok(file_answer(&name, made)),
        _ => Err(Problem::new(Kind::NotFound, "There is no such file")),
    }
}

pub(crate) async fn settings(context: Context) -> Outcome<Response> {
    let app = &context.app;
    let from = app.registry.sources().into_iter().next().unwrap_or_default();
    let to = app.registry.targets().into_iter().find(|to| app.registry.find(&from, to).is_some());
    let to = to.unwrap_or_default();
    let language = |of: &str| json!({"code": code(of), "name": name(of)});
    let endings = Format::readable().flat_map(Format::endings).map(|ending| format!(".{ending}"));
    Ok(json_answer(&json!({
        "apiKeys": app.access.wants_key(),
        "charLimit": app.config.max_characters,
        "filesTranslation": true,
        "frontendTimeout": 500,
        "keyRequired": app.access.wants_key(),
        "language": {"source": language(&from), "target": language(&to)},
        "suggestions": false,
        "supportedFilesFormat": endings.collect::<Value>(),
    })))
}

pub(crate) async fn suggest(_: Context) -> Outcome<Response> {
    Err(Problem::new(Kind::WrongKey, "Suggestions are disabled on this server."))
}

pub(crate) async fn health(_: Context) -> Outcome<Response> {
    Ok(json_answer(&json!({"status": "ok"})))
}
