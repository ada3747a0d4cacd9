//! `peregrine serve`: an HTTP server for translation.
//!
//! It has an API of its own, speaks those that clients already have (LibreTranslate, DeepL, Google, browser extensions), and
//! serves a page. Requests of all callers meet in the running batches of [`peregrine::Service`]; this crate only reads, routes
//! and writes.
//!
//! ```text
//! connection ── http ──▶ params ──▶ api/<dialect> ──▶ translate ──▶ registry ──▶ Service
//!                        (body)     (shape, errors)   (languages, cache, flights)
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod api;
mod app;
mod cache;
mod config;
mod files;
mod http;
mod log;
mod metrics;
mod params;
mod problem;
mod server;
mod translate;

pub use config::{Config, ConfigError, LogFormat, NamedModel, OPTIONS, ServeOption};
pub use server::{ServeError, Server, check, run};
