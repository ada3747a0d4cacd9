//! Marian's YAML: a flat map in which a scalar may replace a list of one, numbers may be quoted and
//! `~` means "not set".

use std::path::{Path, PathBuf};

use serde_norway::{Mapping, Value};

use crate::ModelError;

/// A flat YAML map and the file it came from.
pub(crate) struct Yaml {
    path: PathBuf,
    map: Mapping,
}

impl Yaml {
    /// Reads the text of a configuration.
    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Yaml, ModelError> {
        let value: Value = serde_norway::from_slice(text).map_err(|e| {
            let line = e.to_string().replace('\n', " ");
            ModelError::invalid(path, format!("not a YAML configuration: {line}"))
        })?;
        match value {
            Value::Mapping(map) => Ok(Yaml { path: path.into(), map }),
            _ => Err(ModelError::invalid(path, "not a YAML configuration: no `key: value` lines")),
        }
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The value of a key; `None` if it is null.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }

    /// Whether a key exists and is not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// An error that names file, key and value.
    pub(crate) fn complain(&self, key: &str, problem: &str) -> ModelError {
        let value = self.get(key).map(show).unwrap_or_default();
        ModelError::invalid(&self.path, format!("{key}: {value}: {problem}"))
    }

    /// Like [`Self::complain`], for a valid value that is not supported.
    pub(crate) fn unsupported(&self, key: &str) -> ModelError {
        let value = self.get(key).map(show).unwrap_or_default();
        ModelError::unsupported(&self.path, format!("{key}: {value} is not supported"))
    }

    /// A scalar as text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match scalar(value) {
                Some(text) => Ok(Some(text)),
                None => Err(self.complain(key, "expected a single value")),
            },
        }
    }

    fn parsed<T: std::str::FromStr>(&self, key: &str, what: &str) -> Result<Option<T>, ModelError> {
        match self.text(key)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| self.complain(key, what)),
        }
    }

    /// A whole number.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.parsed(key, "expected a whole number")
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.parsed::<f32>(key, "expected a number")? {
            Some(number) if !number.is_finite() => Err(self.complain(key, "expected a number")),
            number => Ok(number),
        }
    }

    /// A switch; not set means false.
    pub(crate) fn flag(&self, key: &str) -> Result<bool, ModelError> {
        match self.text(key)?.as_deref() {
            None => Ok(false),
            Some(text) => switch(text).ok_or_else(|| self.complain(key, "expected true or false")),
        }
    }

    /// A list of scalars, or one scalar.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let texts: Option<Vec<_>> = match self.get(key) {
            None => Some(Vec::new()),
            Some(Value::Sequence(values)) => values.iter().map(scalar).collect(),
            Some(value) => scalar(value).map(|text| vec![text]),
        };
        texts.ok_or_else(|| self.complain(key, "expected a list"))
    }

    /// A list of numbers.
    pub(crate) fn numbers<T: std::str::FromStr>(&self, key: &str) -> Result<Vec<T>, ModelError> {
        let numbers: Result<_, _> = self.list(key)?.iter().map(|text| text.parse()).collect();
        numbers.map_err(|_| self.complain(key, "expected numbers"))
    }
}

/// Parses a boolean of YAML 1.1, which Marian reads.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Sequence(values) => {
            let parts: Vec<_> = values.iter().filter_map(scalar).collect();
            format!("[{}]", parts.join(", "))
        }
        other => format!("{:?}", scalar(other).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Yaml {
        Yaml::parse(Path::new("c.yml"), text.as_bytes()).unwrap()
    }

    #[test]
    fn scalars_stand_for_lists_and_null_for_nothing() {
        let y = yaml("models: a.npz\nbeam-size: \"6\"\nnormalize: ~\nweights: [1, 0.5]\nq: yes\n");
        assert_eq!(y.list("models").unwrap(), ["a.npz"]);
        assert_eq!(y.count("beam-size").unwrap(), Some(6));
        assert_eq!(y.number("normalize").unwrap(), None);
        assert_eq!(y.numbers::<f32>("weights").unwrap(), [1.0, 0.5]);
        assert!(y.flag("q").unwrap() && !y.flag("none").unwrap());
        assert!(!y.has("normalize"));
    }

    #[test]
    fn errors_name_file_key_and_value() {
        let error = yaml("beam-size: [1, 2]").count("beam-size").unwrap_err().to_string();
        assert_eq!(error, "c.yml: beam-size: [1, 2]: expected a single value");
        let error = yaml("beam-size: many").count("beam-size").unwrap_err().to_string();
        assert_eq!(error, "c.yml: beam-size: \"many\": expected a whole number");
        for bad in ["- a", "", "a: [", "\u{0}"] {
            let error = Yaml::parse(Path::new("c.yml"), bad.as_bytes()).err().unwrap().to_string();
            assert!(error.starts_with("c.yml: not a YAML") && !error.contains('\n'), "{error}");
        }
    }
}
