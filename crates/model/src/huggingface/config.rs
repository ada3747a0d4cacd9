//! `config.json` and `generation_config.json`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{Activation, AtLimit, Dialect, Finish, ModelError, Search, Suppression, files};

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

    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn complain(&self, key: &str, expected: &str) -> ModelError {
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

    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        self.typed(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "text", Value::as_str)
    }

    pub(crate) fn activation(&self) -> Result<Activation, ModelError> {
        match self.text("activation_function")?.unwrap_or("gelu") {
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

/// Unsupported options of beam search, and the value that turns each off.
const NOT_FOLLOWED: [(&str, f64); 5] = [
    ("repetition_penalty", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("num_beam_groups", 1.0),
    ("diversity_penalty", 0.0),
];

/// The search settings of a checkpoint. The first of `configs` takes precedence.
pub(crate) fn search(configs: &[&Config], notes: &mut Vec<String>) -> Result<Search, ModelError> {
    let mut search = Search::of(Dialect::HuggingFace);
    // Apply the last first, so that the others override it.
    for config in configs.iter().rev() {
        override_lengths(config, &mut search)?;
        override_words(config, &mut search, notes)?;
        let name = config.path().display();
        for (key, off) in NOT_FOLLOWED {
            if config.get(key).and_then(Value::as_f64).is_some_and(|value| value != off) {
                notes.push(format!("{name}: {key} is not followed"));
            }
        }
        if config.flag("do_sample")? == Some(true) {
            notes.push(format!("{name}: do_sample is not followed"));
        }
    }
    Ok(search)
}

/// Hugging Face counts the start token in lengths; here it is not part of a translation.
fn override_lengths(config: &Config, search: &mut Search) -> Result<(), ModelError> {
    match config.count("num_beams")? {
        Some(0) => return Err(config.complain("num_beams", "at least 1")),
        beams => search.beam = beams.unwrap_or(search.beam),
    }
    match config.count("max_length")? {
        Some(0 | 1) => return Err(config.complain("max_length", "at least 2")),
        Some(length) => search.max_length = Some(length - 1),
        None => {}
    }
    if let Some(length) = config.count("min_length")? {
        search.min_length = length.saturating_sub(1);
    }
    search.normalize = config.number("length_penalty")?.unwrap_or(search.normalize);
    Ok(())
}

fn override_words(
    config: &Config,
    search: &mut Search,
    notes: &mut Vec<String>,
) -> Result<(), ModelError> {
    let name = config.path().display();
    match config.get("early_stopping") {
        None => {}
        Some(Value::Bool(false)) => search.finish = Finish::FullBounded,
        Some(Value::Bool(true)) => {
            search.finish = Finish::Full;
            notes.push(format!("{name}: early_stopping: a search ends when the beam has finished"));
        }
        Some(_) => notes.push(format!("{name}: early_stopping is taken for false")),
    }
    if let Some(Value::Array(sequences)) = config.get("bad_words_ids") {
        search.suppress = sequences.iter().filter_map(single_word).collect();
        if search.suppress.len() < sequences.len() {
            notes.push(format!("{name}: bad_words_ids of several words are not followed"));
        }
    }
    if config.map.contains_key("forced_eos_token_id") {
        let forced = config.id("forced_eos_token_id")?.is_some();
        search.at_limit = if forced { AtLimit::ForceEnd } else { AtLimit::Cut };
    }
    match config.flag("renormalize_logits")? {
        Some(true) => search.suppression = Suppression::BeforeSoftmax,
        Some(false) => search.suppression = Suppression::AfterSoftmax,
        None => {}
    }
    Ok(())
}

fn single_word(sequence: &Value) -> Option<u32> {
    match sequence.as_array()?.as_slice() {
        [word] => word.as_u64().and_then(|id| u32::try_from(id).ok()),
        _ => None,
    }
}
