//! The real program, run as users run it. It needs all features; `builds.rs` is about builds with fewer.

#[cfg(unix)]
mod chaos;
#[cfg(unix)]
mod clashes;
mod commands;
mod common;
mod convert;
mod detect;
mod docs;
mod doctor;
mod documents;
mod glossary;
mod lines;
mod pages;
mod quality;
mod shortlist;
mod streams;
mod ways;
