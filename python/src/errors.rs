//! Errors as Python has them.

use std::fmt::Display;

use peregrine_args::console::in_words;
use pyo3::PyErr;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};

pyo3::create_exception!(
    peregrine,
    Error,
    PyException,
    "A model that cannot be used, or a text that cannot be translated: one line, which names file and place if there is one."
);

/// What went wrong in the library, in one line.
pub(crate) fn failed(error: impl Display) -> PyErr {
    Error::new_err(in_words(&error.to_string()))
}

/// A wrong value.
pub(crate) fn value(problem: impl Display) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

/// A wrong type, or an option that there is none of.
pub(crate) fn kind(problem: impl Display) -> PyErr {
    PyTypeError::new_err(problem.to_string())
}
