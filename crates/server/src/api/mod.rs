//! The dialects: their routes, handlers and forms of errors.
//!
//! One table, [`ROUTES`], drives the router, the OpenAPI description and the list in docs/serve.md.

mod deepl;
mod describe;
pub(crate) mod extensions;
mod glossaries;
mod google;
mod libre;
mod native;
mod operations;
mod shape;
mod stream;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::access::Client;
use crate::app::App;
use crate::dispatch::TranslationJob;
use crate::files::TranslatedFile;
use crate::params::{Params, Upload};
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

/// A dialect: an API with its own paths, parameters and forms of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Dialect {
    /// The server's own API.
    Native,
    /// LibreTranslate.
    Libre,
    /// DeepL, versions 2 and 3.
    DeepL,
    /// Google Cloud Translation, version 2.
    Google,
    /// MTranServer, and the browser extensions it serves.
    MTran,
    /// DeepLX.
    DeepLx,
    /// Health, metrics and the page.
    Operations,
}

/// The input of a handler.
pub(crate) struct Context {
    pub(crate) app: Arc<App>,
    pub(crate) dialect: Dialect,
    pub(crate) params: Params,
    pub(crate) client: Client,
    pub(crate) headers: HeaderMap,
    /// The variable parts of the path.
    pub(crate) path: Vec<(String, String)>,
}

type Answer = Pin<Box<dyn Future<Output = Outcome<Response>> + Send>>;

/// A path and its handler.
pub(crate) struct Route {
    /// The method; GET answers HEAD too.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) dialect: Dialect,
    /// Whether the route needs no API key.
    pub(crate) open: bool,
    pub(crate) summary: &'static str,
    /// The parameters: name, type and description. A name that ends with `*` is required.
    pub(crate) fields: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) handler: fn(Context) -> Answer,
}

impl Route {
    /// Whether the route has a file as parameter.
    pub(crate) fn takes_file(&self) -> bool {
        self.fields.iter().any(|(_, kind, _)| *kind == "file")
    }
}

/// A row of the table.
macro_rules! route {
    ($method:literal $path:literal $dialect:ident $handler:path, $summary:literal) => {
        route!($method $path $dialect $handler, $summary, &[])
    };
    ($method:literal $path:literal $dialect:ident open $handler:path, $summary:literal) => {
        Route {
            method: $method, path: $path, dialect: Dialect::$dialect, open: true, summary: $summary, fields: &[],
            handler: |context| Box::pin($handler(context)),
        }
    };
    ($method:literal $path:literal $dialect:ident $handler:path, $summary:literal, $fields:expr) => {
        Route {
            method: $method, path: $path, dialect: Dialect::$dialect, open: false, summary: $summary, fields: $fields,
            handler: |context| Box::pin($handler(context)),
        }
    };
}

/// Every path of the server.
pub(crate) const ROUTES: &[Route] = &[
    route!("POST" "/v1/translate" Native native::translate, "Translate texts", native::TRANSLATE),
    route!("POST" "/v1/documents" Native native::document, "Translate a file; the answer is the file", native::DOCUMENT),
    route!("POST" "/v1/detect" Native native::detect, "Find the language of texts", native::DETECT),
    route!("GET" "/v1/languages" Native native::languages, "Languages and pairs that can be translated"),
    route!("GET" "/v1/models" Native native::models, "Models: what is loaded, precision, device, memory"),
    route!("GET" "/openapi.json" Native open describe::openapi, "This description"),
    route!("POST" "/translate" Libre extensions::translate, "Translate (LibreTranslate; also DeepLX and MTranServer by their parameters)", libre::TRANSLATE),
    route!("POST" "/detect" Libre libre::detect, "Find the language of a text", &[("q*", "string", "The text")]),
    route!("GET" "/languages" Libre open libre::languages, "Languages and their targets"),
    route!("POST" "/languages" Libre open libre::languages, "Languages and their targets"),
    route!("POST" "/translate_file" Libre libre::translate_file, "Translate a file", libre::FILE),
    route!("GET" "/download_file/{id}" Libre open libre::download_file, "A translated file"),
    route!("GET" "/frontend/settings" Libre open libre::settings, "Settings of the page"),
    route!("POST" "/suggest" Libre libre::suggest, "Suggest a translation: not supported"),
    route!("GET" "/health" Libre open libre::health, "Whether the server answers"),
    route!("GET" "/spec" Libre open describe::swagger, "LibreTranslate's description"),
    route!("POST" "/v2/translate" DeepL deepl::translate, "Translate texts", deepl::TRANSLATE),
    route!("GET" "/v2/translate" DeepL deepl::translate, "Translate texts", deepl::TRANSLATE),
    route!("GET" "/v2/usage" DeepL deepl::usage, "Characters used"),
    route!("POST" "/v2/usage" DeepL deepl::usage, "Characters used"),
    route!("GET" "/v2/languages" DeepL deepl::languages, "Languages", deepl::LANGUAGES),
    route!("POST" "/v2/languages" DeepL deepl::languages, "Languages", deepl::LANGUAGES),
    route!("POST" "/v2/document" DeepL deepl::upload, "Translate a file", deepl::DOCUMENT),
    route!("POST" "/v2/document/{id}" DeepL deepl::document_status, "State of a document"),
    route!("POST" "/v2/document/{id}/result" DeepL deepl::document_result, "A translated document"),
    route!("GET" "/v2/glossary-language-pairs" DeepL glossaries::pairs, "Pairs that may have glossaries"),
    route!("GET" "/v2/glossaries" DeepL glossaries::list, "Glossaries of one direction"),
    route!("POST" "/v2/glossaries" DeepL glossaries::make, "Make a glossary", glossaries::MAKE),
    route!("GET" "/v2/glossaries/{id}" DeepL glossaries::get, "A glossary"),
    route!("GET" "/v2/glossaries/{id}/entries" DeepL glossaries::entries, "Entries of a glossary"),
    route!("DELETE" "/v2/glossaries/{id}" DeepL glossaries::remove, "Delete a glossary"),
    route!("GET" "/v3/glossaries" DeepL glossaries::list_many, "Glossaries"),
    route!("POST" "/v3/glossaries" DeepL glossaries::make_many, "Make a glossary", glossaries::MAKE_MANY),
    route!("GET" "/v3/glossaries/{id}" DeepL glossaries::get_many, "A glossary"),
    route!("DELETE" "/v3/glossaries/{id}" DeepL glossaries::remove, "Delete a glossary"),
    route!("PATCH" "/v3/glossaries/{id}" DeepL glossaries::change, "Rename a glossary, or add entries"),
    route!("GET" "/v3/glossaries/{id}/entries" DeepL glossaries::entries_many, "Entries of a direction", glossaries::DIRECTION),
    route!("PUT" "/v3/glossaries/{id}/dictionaries" DeepL glossaries::replace, "Replace the entries of a direction"),
    route!("DELETE" "/v3/glossaries/{id}/dictionaries" DeepL glossaries::remove_direction, "Delete the entries of a direction", glossaries::DIRECTION),
    route!("POST" "/v2/write/rephrase" DeepL deepl::missing, "Rephrase: not supported"),
    route!("POST" "/v2/write/correct" DeepL deepl::missing, "Correct: not supported"),
    route!("GET" "/v3/style_rules" DeepL deepl::missing, "Style rules: not supported"),
    route!("GET" "/v3/translation_memories" DeepL deepl::missing, "Translation memories: not supported"),
    route!("POST" "/language/translate/v2" Google google::translate, "Translate texts", google::TRANSLATE),
    route!("GET" "/language/translate/v2" Google google::translate, "Translate texts", google::TRANSLATE),
    route!("POST" "/language/translate/v2/" Google google::translate, "Translate texts", google::TRANSLATE),
    route!("GET" "/language/translate/v2/" Google google::translate, "Translate texts", google::TRANSLATE),
    route!("POST" "/language/translate/v2/detect" Google google::detect, "Find the language of texts", &[("q*", "strings", "The texts")]),
    route!("GET" "/language/translate/v2/detect" Google google::detect, "Find the language of texts", &[("q*", "strings", "The texts")]),
    route!("GET" "/language/translate/v2/languages" Google google::languages, "Languages", &[("target", "string", "Only sources of this target")]),
    route!("POST" "/language/translate/v2/languages" Google google::languages, "Languages", &[("target", "string", "Only sources of this target")]),
    route!("POST" "/google/language/translate/v2" MTran google::translate, "Translate texts (Google's shape)", google::TRANSLATE),
    route!("GET" "/google/translate_a/single" MTran extensions::google_single, "Translate a text (Google's page)", &[("q*", "string", "The text"), ("sl", "string", "Source language"), ("tl*", "string", "Target language")]),
    route!("POST" "/translate/batch" MTran extensions::batch, "Translate texts (MTranServer)", &[("from", "string", "Source language"), ("to*", "string", "Target language"), ("texts*", "strings", "The texts")]),
    route!("POST" "/imme" MTran extensions::immersive, "Translate texts (Immersive Translate)", &[("source_lang", "string", "Source language"), ("target_lang*", "string", "Target language"), ("text_list*", "strings", "The texts")]),
    route!("POST" "/kiss" MTran extensions::kiss, "Translate texts (kiss-translator)", &[("from", "string", "Source language"), ("to*", "string", "Target language"), ("text", "string", "A text"), ("texts", "strings", "Texts")]),
    route!("POST" "/deepl" MTran extensions::deepl, "Translate texts (DeepL's shape)", deepl::TRANSLATE),
    route!("POST" "/deeplx" DeepLx extensions::deeplx, "Translate a text (DeepLX)", extensions::DEEPLX),
    route!("POST" "/hcfy" MTran extensions::hcfy, "Translate lines (hcfy)", &[("text*", "string", "The text"), ("destination*", "strings", "Target languages by their Chinese names"), ("source", "string", "Source language")]),
    route!("GET" "/version" MTran open extensions::version, "The version"),
    route!("GET" "/__heartbeat__" MTran open extensions::heartbeat, "Whether the server answers"),
    route!("GET" "/__lbheartbeat__" MTran open extensions::heartbeat, "Whether the server answers"),
    route!("GET" "/healthz" Operations open operations::live, "Whether the server answers"),
    route!("GET" "/readyz" Operations open operations::ready, "Whether models are loaded and warm"),
    route!("GET" "/metrics" Operations open operations::metrics, "Counts for Prometheus"),
    route!("GET" "/" Operations open operations::page, "The page"),
    route!("GET" "/page/{name}" Operations open operations::page_file, "A file of the page"),
];

impl Dialect {
    /// The dialect's name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::Libre => "libretranslate",
            Dialect::DeepL => "deepl",
            Dialect::Google => "google",
            Dialect::MTran => "mtranserver",
            Dialect::DeepLx => "deeplx",
            Dialect::Operations => "operations",
        }
    }

    /// The dialect of a path that does not exist.
    pub(crate) fn of_path(path: &str) -> Dialect {
        match path.split('/').nth(1).unwrap_or_default() {
            "v1" => Dialect::Native,
            "v2" | "v3" => Dialect::DeepL,
            "language" => Dialect::Google,
            _ => Dialect::Libre,
        }
    }

    /// The API key of a request, from where this dialect's clients put it.
    pub(crate) fn key(self, params: &Params, headers: &HeaderMap) -> Option<String> {
        let field = |name: &str| params.string(name).ok().flatten();
        let query = |name: &str| params.in_query(name).map(str::to_owned);
        let header =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let authorization = header("authorization").and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            let known =
                ["bearer", "deepl-auth-key"].contains(&scheme.to_ascii_lowercase().as_str());
            known.then(|| key.trim().to_owned())
        });
        let own = match self {
            Dialect::Libre => field("api_key").or_else(|| query("api_key")),
            Dialect::DeepL => field("auth_key").or_else(|| query("auth_key")),
            Dialect::Google => {
                query("key").or_else(|| field("key")).or_else(|| header("x-goog-api-key"))
            }
            Dialect::MTran | Dialect::DeepLx => {
                query("token").or_else(|| query("api_token")).or_else(|| header("x-api-token"))
            }
            Dialect::Native | Dialect::Operations => None,
        };
        own.filter(|key| !key.is_empty()).or(authorization)
    }

    /// The HTTP status of a problem that this dialect's clients understand.
    fn status(self, kind: Kind) -> u16 {
        match (self, kind) {
            (Dialect::Libre, Kind::NoKey | Kind::TooLarge | Kind::NotSupported) => 400,
            // DeepL's clients retry after most 5xx statuses, and do not treat 401 as a wrong key.
            (Dialect::DeepL, Kind::NoKey) | (Dialect::Google, Kind::NoKey) => 403,
            (Dialect::DeepL | Dialect::Google, Kind::NotSupported) => 400,
            (Dialect::DeepL, Kind::Busy | Kind::Deadline) => 429,
            (Dialect::MTran | Dialect::DeepLx, Kind::WrongKey) => 401,
            (Dialect::MTran | Dialect::DeepLx, Kind::NotSupported) => 400,
            _ => kind.status(),
        }
    }

    /// A problem in the dialect's own form.
    pub(crate) fn problem(self, problem: &Problem, request_id: &str) -> Response {
        let status = self.status(problem.kind);
        let message = &problem.message;
        let body = match self {
            Dialect::Native | Dialect::Operations => {
                json!({"error": {"code": problem.kind.name(), "message": message}})
            }
            Dialect::Libre => match problem.kind {
                Kind::NoKey => {
                    json!({"error": "Please contact the server operator to get an API key"})
                }
                _ => json!({"error": message}),
            },
            Dialect::DeepL => json!({"message": message}),
            Dialect::Google => {
                let reason = match problem.kind {
                    Kind::NoKey | Kind::WrongKey => "forbidden",
                    Kind::RateLimited => "rateLimitExceeded",
                    Kind::Busy | Kind::Stopping | Kind::Deadline | Kind::Internal => "backendError",
                    _ => "invalid",
                };
                json!({"error": {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}})
            }
            Dialect::MTran => json!({"error": message, "requestId": request_id}),
            Dialect::DeepLx => json!({"code": status, "message": message}),
        };
        let mut response = with_status(status, &body);
        if let Some(wait) = problem.retry_after {
            let seconds = (wait.as_secs_f64().ceil() as u64).clamp(1, 3600);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// An answer in JSON.
pub(crate) fn json_answer(value: &Value) -> Response {
    with_status(200, value)
}

fn with_status(status: u16, value: &Value) -> Response {
    // LibreTranslate and others end their bodies with a line feed.
    bytes_answer(status, "application/json", Bytes::from(format!("{value}\n")))
}

/// An answer of bytes with a content type.
pub(crate) fn bytes_answer(status: u16, kind: &'static str, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An answer with a file, to be saved under `name`.
pub(crate) fn file_answer(name: &str, file: TranslatedFile) -> Response {
    let mut response = bytes_answer(200, file.format.media_type(), file.bytes);
    let ascii: String = name.chars().map(|c| if c.is_ascii() { c } else { '_' }).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{ascii}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

impl Context {
    /// A variable part of the path.
    pub(crate) fn in_path(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The timeout of this request: that of its header, up to ten minutes, or the configured one.
    pub(crate) fn timeout(&self) -> Outcome<Duration> {
        let Some(value) = self.headers.get("x-request-timeout") else {
            return Ok(self.app.config.timeout);
        };
        let seconds = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= 600.0);
        let seconds = seconds.ok_or_else(|| {
            Problem::bad("X-Request-Timeout must be a number of seconds up to 600")
        })?;
        Ok(Duration::from_secs_f64(seconds))
    }

    /// A job that translates texts with default settings. An empty source language or `auto` is
    /// detected.
    pub(crate) fn job(
        &self,
        texts: Vec<String>,
        from: Option<String>,
        to: String,
    ) -> Outcome<TranslationJob> {
        let from = from.filter(|from| !from.is_empty() && !from.eq_ignore_ascii_case("auto"));
        Ok(TranslationJob {
            texts,
            from,
            to,
            markup: None,
            wanted: Wanted::default(),
            priority: None,
            timeout: self.timeout()?,
        })
    }

    /// The file of a request.
    pub(crate) fn file(&self) -> Option<Upload> {
        let named = self.params.files.iter().find(|file| file.field == "file");
        named.or(self.params.files.first()).cloned()
    }

    /// A required parameter.
    pub(crate) fn needed(&self, name: &str) -> Outcome<String> {
        let missing = || Problem::bad(format!("Invalid request: missing {name} parameter"));
        self.params.filled(name)?.ok_or_else(missing)
    }
}
