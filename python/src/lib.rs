//! The extension module of the Python package `peregrine-mt`.
//!
//! What people see is written in Python (`peregrine/`). Here is what that needs of the library: an [`Engine`](engine::Engine) that
//! holds a model and computes with the interpreter lock released. A file each: opening (`open`), options (`options`), waiting so that
//! Ctrl-C counts (`wait`), iterators (`iterate`), futures (`submit`), results (`results`), Arrow arrays (`arrow`), languages (`languages`).

mod arrow;
mod both;
mod engine;
mod errors;
mod iterate;
mod languages;
mod open;
mod options;
mod results;
mod submit;
mod wait;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments. Its exit code.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| peregrine_cli::main(arguments))
}

/// The extension module.
#[pymodule]
mod _peregrine {
    #[pymodule_export]
    use super::arrow::Strings;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::errors::Error;
    #[pymodule_export]
    use super::iterate::Translations;
    #[pymodule_export]
    use super::options::Glossary;
    #[pymodule_export]
    use super::submit::Ticket;
    #[pymodule_export]
    use super::{command, languages::detect, languages::models_between};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
