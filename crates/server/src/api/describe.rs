//! Descriptions of the API for programs, made from the table of routes.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Context, Dialect, ROUTES, Route, json_answer};
use crate::problem::Outcome;

/// The OpenAPI description of all routes.
pub(crate) async fn openapi(context: Context) -> Outcome<Response> {
    let mut description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Peregrine",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Machine translation, with an API of its own and those of LibreTranslate, DeepL, Google and browser extensions",
        },
        "servers": [{"url": match context.app.config.url_prefix.as_str() { "" => "/", prefix => prefix }}],
        "paths": paths(|_| true, schema),
    });
    if context.app.access.wants_key() {
        description["components"] =
            json!({"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}});
        description["security"] = json!([{"key": []}]);
    }
    Ok(json_answer(&description))
}

/// The description of LibreTranslate's API in Swagger 2.0.
pub(crate) async fn swagger(context: Context) -> Outcome<Response> {
    let form = |route: &Route| {
        let field = |(name, kind, help): &(&str, &str, &str)| {
            let kind = match *kind {
                "strings" => "string",
                kind => kind,
            };
            json!({"name": name.trim_end_matches('*'), "in": "formData", "type": kind, "required": name.ends_with('*'), "description": help})
        };
        let fields: Value = route.fields.iter().map(field).collect();
        ("parameters", fields)
    };
    Ok(json_answer(&json!({
        "swagger": "2.0",
        "info": {"title": "LibreTranslate", "version": env!("CARGO_PKG_VERSION")},
        "basePath": match context.app.config.url_prefix.as_str() { "" => "/", prefix => prefix },
        "paths": paths(|route| route.dialect == Dialect::Libre, form),
    })))
}

fn paths(wanted: impl Fn(&Route) -> bool, body: impl Fn(&Route) -> (&'static str, Value)) -> Value {
    let mut paths = Map::new();
    for route in ROUTES.iter().filter(|route| wanted(route)) {
        let mut operation = json!({
            "summary": route.summary,
            "tags": [route.dialect.name()],
            "responses": {"200": {"description": "The answer"}, "default": {"description": "What was wrong, in a sentence"}},
        });
        if !route.fields.is_empty() {
            let (key, value) = body(route);
            operation[key] = value;
        }
        let parameters =
            route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        for name in parameters {
            let parameter =
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
            match operation.get_mut("parameters").and_then(Value::as_array_mut) {
                Some(list) => list.push(parameter),
                None => operation["parameters"] = json!([parameter]),
            }
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation;
    }
    Value::Object(paths)
}

/// The schema of a route's parameters: a query for GET, an object otherwise.
fn schema(route: &Route) -> (&'static str, Value) {
    let kind = |kind: &str| match kind {
        "strings" => {
            json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
        }
        "file" => json!({"type": "string", "format": "binary"}),
        kind => json!({"type": kind}),
    };
    if route.method == "GET" {
        let parameter = |(name, of, help): &(&str, &str, &str)| json!({"name": name.trim_end_matches('*'), "in": "query", "required": name.ends_with('*'), "description": help, "schema": kind(of)});
        return ("parameters", route.fields.iter().map(parameter).collect());
    }
    let mut properties = Map::new();
    for (name, of, help) in route.fields {
        let mut property = kind(of);
        property["description"] = (*help).into();
        properties.insert(name.trim_end_matches('*').to_owned(), property);
    }
    let required: Vec<&str> =
        route.fields.iter().filter_map(|(name, _, _)| name.strip_suffix('*')).collect();
    let schema =
        json!({"schema": {"type": "object", "properties": properties, "required": required}});
    let has_file = route.fields.iter().any(|(_, kind, _)| *kind == "file");
    let content = match (has_file, route.dialect) {
        (true, _) => json!({"multipart/form-data": schema}),
        (false, Dialect::Native) => json!({"application/json": schema}),
        (false, _) => {
            json!({"application/json": schema, "application/x-www-form-urlencoded": schema})
        }
    };
    ("requestBody", json!({"required": true, "content": content}))
}
