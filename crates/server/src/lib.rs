//! `peregrine serve`: an HTTP server for translation.
//!
//! It has its own API and those that clients already use (LibreTranslate, DeepL, Google, browser
//! extensions), and serves a page. Requests of all clients share the running batches of
//! [`peregrine::Service`]; this crate only parses requests, routes them and formats answers.
//!
//! ```text
//! connection ── http ──▶ params ──▶ api/<dialect> ──▶ translate ──▶ registry ──▶ Service
//!                        (body)     (shape, errors)   (languages, cache, jobs)
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod api;
mod app;
mod cache;
mod config;
mod dispatch;
mod documents;
mod files;
mod glossaries;
mod http;
mod log;
mod metrics;
mod params;
mod problem;
mod server;
mod translate;
mod wanted;

/// Reads the parameters of a request, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub async fn read_parameters(kind: &str, query: &str, body: &[u8]) -> bool {
    let mut headers = axum::http::HeaderMap::new();
    if let Ok(kind) = axum::http::HeaderValue::from_str(kind) {
        headers.insert("content-type", kind);
    }
    let Ok(params) = params::Params::read(Some(query), &headers, body.to_vec().into()).await else {
        return false;
    };
    let _ = (
        params.texts("q"),
        params.flag("html"),
        params.count("alternatives", 0..=9),
        params.string("source"),
    );
    let _ = (
        api::extensions::dialect_of(&params),
        params.files.iter().map(|file| files::safe_name(&file.name)).count(),
    );
    true
}

pub use config::{Config, ConfigError, LogFormat, NamedModel, OPTIONS, ServeOption};
pub use server::{ServeError, Server, check, run};
