//! Options of a call: a Python dictionary by the names of the command.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use peregrine::{Carry, Dictionary, Entry, Guard, Options, Translator};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::errors::{failed, kind, value};

/// Terms and their translations, made ready once for many calls.
#[pyclass(frozen, module = "peregrine")]
pub(crate) struct Glossary(peregrine::Glossary);

#[pymethods]
impl Glossary {
    #[new]
    fn new(terms: &Bound<'_, PyAny>) -> PyResult<Glossary> {
        glossary(terms).map(Glossary)
    }

    fn __len__(&self) -> usize {
        self.0.entries().len()
    }

    fn __repr__(&self) -> String {
        format!("<peregrine.Glossary of {} terms>", self.0.entries().len())
    }
}

/// The options of a call, from the usual ones of a model.
pub(crate) fn options(
    translator: &Translator,
    bare: bool,
    given: &Bound<'_, PyDict>,
) -> PyResult<Options> {
    let usual = if bare { translator.options() } else { translator.text_options() };
    let mut options = usual.with_guard(Some(Guard::default()));
    for (name, value) in given {
        let name = name.cast::<PyString>()?.to_string();
        // None is the default.
        if !value.is_none() {
            set(&mut options, &name, &value)?;
        }
    }
    Ok(options)
}

fn set(options: &mut Options, name: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let search = &mut options.search;
    match name {
        "beam" => search.beam = number(name, given, 1..=1000)?,
        "normalize" => search.normalize = real(name, given, 0.0..=10.0)?,
        "word_penalty" => search.word_penalty = real(name, given, -100.0..=100.0)?,
        "max_length_factor" => {
            search.max_length_factor = Some(real(name, given, 0.1..=1000.0)?);
        }
        "max_length" => search.max_length = Some(number(name, given, 1..=1_000_000)?),
        "min_length" => search.min_length = number(name, given, 0..=1_000_000)?,
        "max_source" => search.max_source = number(name, given, 1..=1_000_000)?,
        "early_stop" => search.early_stop = Some(real(name, given, 0.0..=1000.0)?),
        "from_" => options.from = Some(text(given, || name.to_owned())?.into()),
        "to" => options.to = Some(text(given, || name.to_owned())?.into()),
        "allow_unk" => search.allow_unk = switch(name, given)?,
        "guards" => options.guard = switch(name, given)?.then(Guard::default),
        "shortlist" => options.shortlist = switch(name, given)?,
        "refuse_long" => options.refuse_long = switch(name, given)?,
        "carry" => options.carry = if switch(name, given)? { Carry::On } else { Carry::Off },
        "split" => options.split = named(name, given)?,
        "glossary" => options.glossary = Some(glossary(given)?),
        "glossary_mode" => options.glossary_mode = named(name, given)?,
        "replace_unknown" => options.replace_unknown = dictionary(given)?,
        "n_best" => options.n_best = number(name, given, 1..=1000)?,
        "scores" => options.scores = switch(name, given)?,
        "alignments" => options.alignments = switch(name, given)?,
        "quality" => options.quality = switch(name, given)?,
        "tokens" if switch(name, given)? => *options = options.clone().of_tokens(),
        "tokens" => {}
        _ => return Err(kind(format!("there is no option {name:?}"))),
    }
    Ok(())
}

/// A str. Halves of surrogate pairs, which are no text, become U+FFFD.
pub(crate) fn text(given: &Bound<'_, PyAny>, name: impl Fn() -> String) -> PyResult<String> {
    match given.cast::<PyString>() {
        Ok(text) => Ok(text.to_string_lossy().into_owned()),
        Err(_) => Err(kind(format!("{}: expected str, not {}", name(), given.get_type().name()?))),
    }
}

/// That something is of a wrong type.
pub(crate) fn wrong_type(name: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let found = given.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    kind(format!("{name}: expected {expected}, not {found}"))
}

fn switch(name: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let given = given.cast::<PyBool>().map_err(|_| wrong_type(name, "bool", given))?;
    Ok(given.is_true())
}

fn number(name: &str, given: &Bound<'_, PyAny>, range: RangeInclusive<usize>) -> PyResult<usize> {
    let is_int = !given.is_instance_of::<PyBool>() && given.extract::<i64>().is_ok();
    if !is_int {
        return Err(wrong_type(name, "int", given));
    }
    let (least, most) = (*range.start(), *range.end());
    let number = given.extract::<usize>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| value(format!("{name}: expected a number from {least} to {most}")))
}

fn real(name: &str, given: &Bound<'_, PyAny>, range: RangeInclusive<f32>) -> PyResult<f32> {
    let number: f32 = given.extract().map_err(|_| wrong_type(name, "float", given))?;
    let (least, most) = (*range.start(), *range.end());
    let number = Some(number).filter(|number| range.contains(number));
    number.ok_or_else(|| value(format!("{name}: expected a number from {least} to {most}")))
}

fn named<T: FromStr<Err = String>>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<T> {
    let text = text(given, || name.to_owned())?;
    text.parse().map_err(|problem| value(format!("{name}: {problem}, not {text:?}")))
}

/// A path: a str or what `os.fspath` makes one of.
fn path(name: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    given.extract().map_err(|_| wrong_type(name, expected, given))
}

/// A glossary that is ready, a dictionary, or the path of a file.
fn glossary(given: &Bound<'_, PyAny>) -> PyResult<peregrine::Glossary> {
    if let Ok(ready) = given.cast::<Glossary>() {
        return Ok(ready.get().0.clone());
    }
    if let Ok(terms) = given.cast::<PyDict>() {
        let entries = terms.iter().map(|(source, target)| entry(&source, &target));
        let entries = entries.collect::<PyResult<Vec<Entry>>>()?;
        return peregrine::Glossary::new(entries).map_err(value);
    }
    let path = path("glossary", "dict, path or Glossary", given)?;
    let name = path.display().to_string();
    let bytes = std::fs::read(&path).map_err(|error| failed(format!("{name}: {error}")))?;
    peregrine::Glossary::read(&name, &bytes).map_err(failed)
}

/// A term: its target is a str, a list of forms, or None to keep it as it is.
fn entry(source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<Entry> {
    let source = text(source, || "glossary: a term".to_owned())?;
    let form = |form: &Bound<'_, PyAny>| text(form, || format!("glossary: {source:?}"));
    let mut entry = Entry { source: source.clone(), ..Entry::default() };
    if target.is_none() {
        return Ok(entry);
    }
    entry.targets = match target.is_instance_of::<PyString>() {
        true => vec![form(target)?],
        false => target.try_iter()?.map(|item| form(&item?)).collect::<PyResult<_>>()?,
    };
    entry.targets.retain(|form| !form.is_empty());
    Ok(entry)
}

/// Whether unknown words are replaced: True, False, or the path of a dictionary.
fn dictionary(given: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Dictionary>>> {
    if let Ok(given) = given.cast::<PyBool>() {
        return Ok(given.is_true().then(Arc::default));
    }
    let path = path("replace_unknown", "bool or path", given)?;
    Ok(Some(Arc::new(Dictionary::read(&path).map_err(failed)?)))
}
