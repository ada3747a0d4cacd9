//! The small dialects of browser extensions and local servers: MTranServer, DeepLX, kiss-translator, Immersive Translate, hcfy.

use axum::body::Bytes;
use axum::response::Response;
use peregrine::document::{DocumentOptions, Format};
use peregrine::text::Language;
use serde_json::{Value, json};

use super::{Context, Dialect, bytes_answer, deepl, json_answer, libre};
use crate::dispatch::Translated;
use crate::params::Params;
use crate::problem::{Outcome, Problem};
use crate::wanted::Wanted;

pub(crate) const DEEPLX: &[(&str, &str, &str)] = &[
    ("text*", "string", "The text"),
    ("source_lang", "string", "Language of the text, or auto"),
    ("target_lang*", "string", "Language to translate to"),
];

/// The dialect of a request to `/translate`, a path of three dialects: LibreTranslate has `q`,
/// DeepLX `target_lang`, MTranServer `to`.
pub(crate) fn dialect_of(params: &Params) -> Dialect {
    match params {
        params if params.has("q") => Dialect::Libre,
        params if params.has("target_lang") => Dialect::DeepLx,
        params if params.has("to") => Dialect::MTran,
        _ => Dialect::Libre,
    }
}

pub(crate) async fn translate(context: Context) -> Outcome<Response> {
    match context.dialect {
        Dialect::DeepLx => deeplx(context).await,
        Dialect::MTran => mtranserver(context).await,
        _ => libre::translate(context).await,
    }
}

/// Translates the texts of a parameter between the languages of two others; with `html` the texts
/// have tags.
async fn between(
    context: &Context,
    texts: Vec<String>,
    from: &str,
    to: &str,
) -> Outcome<Vec<Translated>> {
    let mut job = context.job(texts, context.params.filled(from)?, context.needed(to)?)?;
    if context.params.flag("html")? == Some(true) {
        job.markup = Some((Format::Html, DocumentOptions::default()));
    }
    context.app.translate(context.client, job).await
}

/// The texts of a required parameter.
fn texts(context: &Context, name: &str) -> Outcome<Vec<String>> {
    let missing = || Problem::bad(format!("Invalid request: missing {name} parameter"));
    Ok(context.params.texts(name)?.ok_or_else(missing)?.texts)
}

fn first(translated: &[Translated]) -> &str {
    translated.first().map(Translated::text).unwrap_or_default()
}

async fn mtranserver(context: Context) -> Outcome<Response> {
    let text = context.params.string("text")?;
    let text = text.ok_or_else(|| Problem::bad("Invalid request: missing text parameter"))?;
    let translated = between(&context, vec![text], "from", "to").await?;
    Ok(json_answer(&json!({"result": first(&translated)})))
}

pub(crate) async fn batch(context: Context) -> Outcome<Response> {
    let texts = texts(&context, "texts")?;
    let translated = between(&context, texts, "from", "to").await?;
    let results: Value = translated.iter().map(Translated::text).collect();
    Ok(json_answer(&json!({"results": results})))
}

pub(crate) async fn immersive(context: Context) -> Outcome<Response> {
    let texts = texts(&context, "text_list")?;
    let translated = between(&context, texts, "source_lang", "target_lang").await?;
    let shape = |translated: &Translated| json!({"detected_source_lang": translated.from, "text": translated.text()});
    let translations: Value = translated.iter().map(shape).collect();
    Ok(json_answer(&json!({"translations": translations})))
}

pub(crate) async fn kiss(context: Context) -> Outcome<Response> {
    let shape =
        |translated: &Translated| json!({"text": translated.text(), "src": translated.from});
    if context.params.has("texts") {
        let texts = texts(&context, "texts")?;
        let translated = between(&context, texts, "from", "to").await?;
        let translations: Value = translated.iter().map(shape).collect();
        return Ok(json_answer(&json!({"translations": translations})));
    }
    let texts = texts(&context, "text")?;
    let translated = between(&context, texts, "from", "to").await?;
    Ok(json_answer(&translated.first().map(shape).unwrap_or_default()))
}

pub(crate) async fn deepl(context: Context) -> Outcome<Response> {
    deepl::translate(context).await
}

pub(crate) async fn deeplx(context: Context) -> Outcome<Response> {
    let text = texts(&context, "text")?.join("\n");
    let mut job = context.job(
        vec![text],
        context.params.filled("source_lang")?,
        context.needed("target_lang")?,
    )?;
    job.wanted = Wanted { n_best: 4, ..job.wanted };
    job.markup = deepl::markup(&context)?;
    let translated = context.app.translate(context.client, job).await?;
    let Some(best) = translated.first() else { return Err(Problem::bad("No text")) };
    let others = best.translation.alternatives.iter().skip(1).map(|other| other.text.as_str());
    let others: Value = others.filter(|other| *other != best.text()).collect();
    Ok(json_answer(&json!({
        "code": 200,
        "id": u32::from_be_bytes(random()),
        "data": best.text(),
        "alternatives": others,
        "source_lang": deepl::code(&best.from),
        "target_lang": deepl::code(&best.to),
        "method": "Free",
    })))
}

/// A random id for clients that expect one.
fn random() -> [u8; 4] {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// Names of languages in hcfy's spelling.
const CHINESE_NAMES: &[(&str, &str)] = &[
    ("中文(简体)", "zh"),
    ("中文(繁体)", "zh-Hant"),
    ("英语", "en"),
    ("日语", "ja"),
    ("韩语", "ko"),
    ("法语", "fr"),
    ("德语", "de"),
    ("西班牙语", "es"),
    ("葡萄牙语", "pt"),
    ("俄语", "ru"),
    ("意大利语", "it"),
    ("阿拉伯语", "ar"),
    ("泰语", "th"),
    ("越南语", "vi"),
    ("荷兰语", "nl"),
    ("波兰语", "pl"),
    ("瑞典语", "sv"),
    ("丹麦语", "da"),
    ("芬兰语", "fi"),
    ("希腊语", "el"),
    ("捷克语", "cs"),
    ("匈牙利语", "hu"),
    ("罗马尼亚语", "ro"),
    ("保加利亚语", "bg"),
    ("爱沙尼亚语", "et"),
    ("斯洛文尼亚语", "sl"),
    ("土耳其语", "tr"),
    ("乌克兰语", "uk"),
    ("印地语", "hi"),
    ("印尼语", "id"),
];

pub(crate) async fn hcfy(context: Context) -> Outcome<Response> {
    let text = context.params.string("text")?.unwrap_or_default();
    let wanted = texts(&context, "destination")?;
    let plain = |name: &str| {
        CHINESE_NAMES
            .iter()
            .find(|(chinese, _)| *chinese == name)
            .map_or(name.to_owned(), |(_, code)| (*code).to_owned())
    };
    let source = context.params.filled("source")?.map(|name| plain(&name));
    let mut targets = wanted.iter().map(|name| plain(name));
    let first = targets
        .next()
        .ok_or_else(|| Problem::bad("Invalid request: missing destination parameter"))?;
    let second = targets.next();
    let code = |name: &str| Language::find(name).map(|language| language.code);
    let same = source.as_deref().is_some_and(|source| code(source) == code(&first));
    let target = second.filter(|_| same).unwrap_or(first);
    let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let job = context.job(lines, source, target)?;
    let translated = context.app.translate(context.client, job).await?;
    let chinese = |code: &str| {
        CHINESE_NAMES
            .iter()
            .find(|(_, of)| *of == code)
            .map_or(code.to_owned(), |(name, _)| (*name).to_owned())
    };
    let (from, to) =
        translated.first().map(|t| (chinese(&t.from), chinese(&t.to))).unwrap_or_default();
    let result: Value = translated.iter().map(Translated::text).collect();
    Ok(json_answer(&json!({"text": text, "from": from, "to": to, "result": result})))
}

pub(crate) async fn google_single(context: Context) -> Outcome<Response> {
    let text = context.needed("q")?;
    let translated = between(&context, vec![text.clone()], "sl", "tl").await?;
    let from = translated.first().map(|translated| translated.from.clone()).unwrap_or_default();
    let best = first(&translated);
    // kiss-translator expects an object, older extensions an array.
    Ok(json_answer(&match context.params.in_query("dj") {
        Some("1") => json!({"sentences": [{"trans": best, "orig": text}], "src": from}),
        _ => json!([[[best, text, null, null, 1]], null, from]),
    }))
}

pub(crate) async fn version(_: Context) -> Outcome<Response> {
    Ok(json_answer(&json!({"version": env!("CARGO_PKG_VERSION")})))
}

pub(crate) async fn heartbeat(_: Context) -> Outcome<Response> {
    Ok(bytes_answer(200, "text/plain", Bytes::new()))
}
