//! The library from outside: services, requests, ranges, glossaries, quality, pivots.

mod carry;
mod common;
#[cfg(feature = "cuda")]
mod device_errors;
mod glossary;
mod glossary_models;
mod lines;
mod parts;
mod pivot;
mod policies;
mod quality;
mod ranges;
#[path = "../../../../tests/src/reference.rs"]
mod reference;
mod service;
mod techniques;
