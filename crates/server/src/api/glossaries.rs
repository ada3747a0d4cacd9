//! DeepL's glossaries: version 2 with one language direction each, version 3 with several.

use axum::body::Bytes;
use axum::response::Response;
use serde_json::{Value, json};

use super::deepl::code;
use super::{Context, bytes_answer, json_answer};
use crate::glossaries::{Dictionary, Stored};
use crate::log::timestamp;
use crate::problem::{Outcome, Problem};

pub(crate) const MAKE: &[(&str, &str, &str)] = &[
    ("name*", "string", "Its name"),
    ("source_lang*", "string", "Language of the terms"),
    ("target_lang*", "string", "Language of their translations"),
    ("entries*", "string", "Terms and translations, a line each"),
    ("entries_format", "string", "tsv or csv"),
];

pub(crate) const MAKE_MANY: &[(&str, &str, &str)] = &[
    ("name*", "string", "Its name"),
    (
        "dictionaries*",
        "strings",
        "Objects with source_lang, target_lang, entries and entries_format",
    ),
];

pub(crate) const DIRECTION: &[(&str, &str, &str)] = &[
    ("source_lang", "string", "Language of the terms"),
    ("target_lang", "string", "Language of their translations"),
];

fn missing(name: &str) -> Problem {
    Problem::bad(format!("Bad request. Reason: value for '{name}' is missing"))
}

/// A glossary in the form of version 2, which has one dictionary.
fn shape(stored: &Stored) -> Value {
    let mut shape = shape_many(stored);
    let first = shape["dictionaries"][0].clone();
    for name in ["source_lang", "target_lang", "entry_count"] {
        shape[name] = first[name].clone();
    }
    shape["ready"] = true.into();
    shape
}

/// A glossary in the form of version 3.
fn shape_many(stored: &Stored) -> Value {
    let dictionaries: Value = stored.dictionaries.iter().map(shape_dictionary).collect();
    let created = timestamp(stored.created.0, stored.created.1);
    json!({"glossary_id": stored.id, "name": stored.name, "creation_time": created, "dictionaries": dictionaries})
}

fn shape_dictionary(dictionary: &Dictionary) -> Value {
    // Clients of version 2 expect codes in capitals; those of version 3 accept both.
    json!({"source_lang": code(&dictionary.from), "target_lang": code(&dictionary.to), "entry_count": dictionary.len()})
}

/// Reads a dictionary by a function that returns its fields.
fn read(field: impl Fn(&str) -> Outcome<Option<String>>) -> Outcome<Dictionary> {
    let needed = |name: &str| field(name)?.ok_or_else(|| missing(name));
    let format = field("entries_format")?.unwrap_or_else(|| "tsv".to_owned());
    Dictionary::read(&needed("source_lang")?, &needed("target_lang")?, &format, &needed("entries")?)
}

/// The dictionaries of a body: a list of objects, or fields `dictionaries[0].source_lang` of a form.
fn dictionaries(context: &Context) -> Outcome<Vec<Dictionary>> {
    let params = &context.params;
    if let Some(list) = params.value("dictionaries") {
        let list = list.as_array().ok_or_else(|| Problem::bad("dictionaries must be a list"))?;
        let field = |object: &Value, name: &str| object[name].as_str().map(str::to_owned);
        return list.iter().map(|object| read(|name| Ok(field(object, name)))).collect();
    }
    let mut list = Vec::new();
    while params.has(&format!("dictionaries[{}].entries", list.len())) {
        let number = list.len();
        list.push(read(|name| params.filled(&format!("dictionaries[{number}].{name}")))?);
    }
    Ok(list)
}

pub(crate) async fn pairs(context: Context) -> Outcome<Response> {
    let pair = |pair: &peregrine::registry::Pair| json!({"source_lang": pair.from, "target_lang": pair.to});
    let pairs: Value = context.app.registry.routes().keys().map(pair).collect();
    Ok(json_answer(&json!({"supported_languages": pairs})))
}

pub(crate) async fn list(context: Context) -> Outcome<Response> {
    // Version 2 cannot represent a glossary with several directions.
    let of_one = context.app.glossaries.list().into_iter().filter(|g| g.dictionaries.len() == 1);
    Ok(json_answer(&json!({"glossaries": of_one.map(|g| shape(&g)).collect::<Vec<_>>()})))
}

pub(crate) async fn list_many(context: Context) -> Outcome<Response> {
    let all: Vec<Value> = context.app.glossaries.list().iter().map(shape_many).collect();
    Ok(json_answer(&json!({"glossaries": all})))
}

fn name(context: &Context) -> Outcome<String> {
    context.params.filled("name")?.ok_or_else(|| missing("name"))
}

pub(crate) async fn make(context: Context) -> Outcome<Response> {
    let dictionary = read(|name| context.params.filled(name))?;
    let made = context.app.glossaries.make(&name(&context)?, vec![dictionary])?;
    Ok(created(&shape(&made)))
}

pub(crate) async fn make_many(context: Context) -> Outcome<Response> {
    let dictionaries = dictionaries(&context)?;
    if dictionaries.is_empty() {
        return Err(missing("dictionaries"));
    }
    let made = context.app.glossaries.make(&name(&context)?, dictionaries)?;
    Ok(created(&shape_many(&made)))
}

fn created(value: &Value) -> Response {
    bytes_answer(201, "application/json", Bytes::from(value.to_string()))
}

pub(crate) async fn get(context: Context) -> Outcome<Response> {
    Ok(json_answer(&shape(&context.app.glossaries.get(context.in_path("id"))?)))
}

pub(crate) async fn get_many(context: Context) -> Outcome<Response> {
    Ok(json_answer(&shape_many(&context.app.glossaries.get(context.in_path("id"))?)))
}

pub(crate) async fn remove(context: Context) -> Outcome<Response> {
    context.app.glossaries.remove(context.in_path("id"))?;
    Ok(bytes_answer(204, "application/json", Bytes::new()))
}

pub(crate) async fn entries(context: Context) -> Outcome<Response> {
    let stored = context.app.glossaries.get(context.in_path("id"))?;
    let text = stored.dictionaries.first().map(Dictionary::tsv).unwrap_or_default();
    Ok(bytes_answer(200, "text/tab-separated-values; charset=utf-8", Bytes::from(text)))
}

/// The direction that a request names.
fn direction(context: &Context) -> Outcome<(String, String)> {
    let needed = |name: &str| context.params.filled(name)?.ok_or_else(|| missing(name));
    Ok((needed("source_lang")?, needed("target_lang")?))
}

pub(crate) async fn entries_many(context: Context) -> Outcome<Response> {
    let stored = context.app.glossaries.get(context.in_path("id"))?;
    let (from, to) = direction(&context)?;
    let found = stored.dictionary(&from, &to).ok_or_else(no_dictionary)?;
    let mut shape = shape_dictionary(found);
    shape["entries"] = found.tsv().into();
    shape["entries_format"] = "tsv".into();
    Ok(json_answer(&json!({"dictionaries": [shape]})))
}

fn no_dictionary() -> Problem {
    Problem::new(
        crate::problem::Kind::NotFound,
        "The glossary has no dictionary of these languages",
    )
}

/// Renames a glossary and adds entries.
pub(crate) async fn change(context: Context) -> Outcome<Response> {
    let dictionaries = dictionaries(&context)?;
    let name = context.params.filled("name")?;
    let changed = context.app.glossaries.change(context.in_path("id"), |stored| {
        stored.name = name.unwrap_or_else(|| stored.name.clone());
        dictionaries.into_iter().try_for_each(|dictionary| stored.add(dictionary))
    })?;
    Ok(json_answer(&shape_many(&changed)))
}

/// Replaces the entries of a direction.
pub(crate) async fn replace(context: Context) -> Outcome<Response> {
    let dictionary = read(|name| context.params.filled(name))?;
    let shape = shape_dictionary(&dictionary);
    context.app.glossaries.change(context.in_path("id"), |stored| {
        stored.put(dictionary);
        Ok(())
    })?;
    Ok(json_answer(&shape))
}

/// Removes the entries of a direction.
pub(crate) async fn remove_direction(context: Context) -> Outcome<Response> {
    let (from, to) = direction(&context)?;
    context.app.glossaries.change(context.in_path("id"), |stored| {
        stored.dictionary(&from, &to).ok_or_else(no_dictionary)?;
        stored.dictionaries.retain(|d| {
            (&*d.from, &*d.to) != (&crate::glossaries::base(&from), &crate::glossaries::base(&to))
        });
        Ok(())
    })?;
    Ok(bytes_answer(204, "application/json", Bytes::new()))
}
