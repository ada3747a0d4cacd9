//! The language of a text, and the models of a folder that translate from one language to another.

use std::ffi::OsString;
use std::path::PathBuf;

use peregrine::registry::{Registry, RegistryOptions, find_models};
use peregrine::text::Language;
use pyo3::prelude::*;

use crate::errors::{failed, value};
use crate::options::text;

/// The language of a text among those allowed: code, confidence, whether it can be relied on, other languages that it may be, script.
#[pyfunction]
pub(crate) fn detect<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    among: Vec<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let text = text(given, || "text".to_owned())?;
    for name in &among {
        if Language::find(name).is_none() {
            return Err(value(format!("among: no language has the name {name:?}")));
        }
    }
    let among: Vec<&str> = among.iter().map(String::as_str).collect();
    let found = peregrine::text::detect(&text, &among);
    let fields = (found.language, found.confidence, found.reliable, found.others, found.script);
    fields.into_pyobject(py).map(Bound::into_any)
}

/// The path of the model in a folder that translates from a language to another, or those of two in a row.
#[pyfunction]
pub(crate) fn models_between(folder: PathBuf, from: &str, to: &str) -> PyResult<Vec<OsString>> {
    let found = find_models(&folder);
    let (entries, _) = found.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let registry = Registry::new(entries, RegistryOptions::default());
    let code = |name: &str| Language::find(name).map_or(name.to_owned(), |l| l.code.to_owned());
    let (from, to) = (code(from), code(to));
    let Some(route) = registry.route(&from, &to) else {
        return Err(value(format!("{} has no model from {from} to {to}", folder.display())));
    };
    let states = registry.models();
    let path = |name: &String| {
        let entry = &states.iter().find(|state| state.entry.name == *name)?.entry;
        entry.path.clone().map(PathBuf::into_os_string)
    };
    Ok(route.models.iter().filter_map(path).collect())
}
