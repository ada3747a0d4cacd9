//! The extension module of the Python package `peregrine-mt`.
//!
//! What people see is written in Python (`peregrine/`). Here is what that needs of the library: an [`Engine`](engine::Engine) that
//! holds a model and computes with the interpreter lock released. A file each: opening (`open`), options (`options`), waiting so that
//! Ctrl-C counts (`wait`), iterators (`iterate`), futures (`submit`), results (`results`), Arrow arrays (`arrow`).

mod arrow;
mod both;
mod engine;
mod errors;
mod iterate;
mod open;
mod options;
mod results;
mod submit;
mod wait;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The language of a text among those allowed: code, confidence, whether it can be relied on, other languages that it may be, script.
#[pyfunction]
fn detect<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyAny>,
    among: Vec<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let text = options::text(text, || "text".to_owned())?;
    for name in &among {
        if peregrine::text::Language::find(name).is_none() {
            return Err(errors::value(format!("among: no language has the name {name:?}")));
        }
    }
    let among: Vec<&str> = among.iter().map(String::as_str).collect();
    let found = peregrine::text::detect(&text, &among);
    let fields = (found.language, found.confidence, found.reliable, found.others, found.script);
    fields.into_pyobject(py).map(Bound::into_any)
}

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
    use super::{command, detect};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
