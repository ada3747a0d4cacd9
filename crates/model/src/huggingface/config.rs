//! A JSON file of a checkpoint, such as `config.json`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{Activation, ModelError, files};

/// A JSON object and the file it came from.
pub(crate) struct Config {
    path: PathBuf,
    map: Map<String, Value>,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config, ModelError> {
        let value: Value = serde_json::from_slice(&files::read(path)?)
            .map_err(|error| ModelError::invalid(path, error.to_string()))?;
        match value {
            Value::Object(map) => Ok(Config { path: path.into(), map }),
            _ => Err(ModelError::invalid(path, "not a JSON object")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn complain(&self, key: &str, expected: &str) -> ModelError {
        let value = self.get(key).map(Value::to_string).unwrap_or_default();
        ModelError::invalid(&self.path, format!("{key}: {value}: expected {expected}"))
    }

    pub(crate) fn unsupported(&self, key: &str) -> ModelError {
        let value = self.get(key).map(Value::to_string).unwrap_or_default();
        ModelError::unsupported(&self.path, format!("{key}: {value} is not supported"))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.complain(key, expected)),
        }
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let convert =
            |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        self.typed(key, "a whole number", convert)
    }

    pub(crate) fn id(&self, key: &str) -> Result<Option<u32>, ModelError> {
        let convert = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        self.typed(key, "a word's number", convert)
    }

    /// A word's number, or a list of them.
    pub(crate) fn ids(&self, key: &str) -> Result<Option<Vec<u32>>, ModelError> {
        let id = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let convert = |value: &Value| match value {
            Value::Array(list) => list.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        self.typed(key, "a word's number, or several", convert)
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        self.typed(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "text", Value::as_str)
    }

    /// The text of a field inside another one.
    pub(crate) fn nested_text(&self, key: &str, inner: &str) -> Option<&str> {
        self.get(key)?.get(inner)?.as_str()
    }

    pub(crate) fn activation(&self, default: Activation) -> Result<Activation, ModelError> {
        let Some(name) = self.text("activation_function")? else { return Ok(default) };
        match name {
            "swish" | "silu" => Ok(Activation::Swish),
            "relu" => Ok(Activation::Relu),
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "quick_gelu" => Ok(Activation::GeluSigmoid),
            "tanh" => Ok(Activation::Tanh),
            "sigmoid" => Ok(Activation::Sigmoid),
            _ => Err(self.unsupported("activation_function")),
        }
    }
}
