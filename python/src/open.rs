//! Opening models by what the command calls `--model`, `--device` and so on.

use std::path::PathBuf;

use peregrine::settings::Settings;
use peregrine::{
    BatchSize, Calibration, Compat, Compute, Device, Model, OpenOptions, Translator, Workers,
};
use peregrine_args::stats::parse_bytes;
use peregrine_args::{model::parse_shortlist, tuning_file};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{failed, value};
use crate::options::wrong_type;

/// The settings of an engine, as Python gives them.
pub(crate) struct Opening {
    model: Vec<PathBuf>,
    from: Option<String>,
    to: Option<String>,
    then: Option<PathBuf>,
    device: String,
    precision: String,
    threads: Option<i64>,
    threads_per_sentence: Option<i64>,
    batch_sentences: Option<i64>,
    batch_tokens: Option<i64>,
    memory: Option<String>,
    vocab: Option<(PathBuf, PathBuf)>,
    config: Option<PathBuf>,
    weights: Vec<f32>,
    shortlist: Vec<String>,
    compat: Vec<String>,
    calibration: Option<PathBuf>,
    settings: Vec<String>,
}

/// A model ready to translate, or two in a row.
pub(crate) struct Opened {
    /// The first of two models in a row.
    pub(crate) first: Option<Translator>,
    /// The model whose translations are wanted.
    pub(crate) translator: Translator,
    pub(crate) workers: Workers,
    /// Whether an original tool is followed: texts are translated as they are then.
    pub(crate) bare: bool,
}

impl Opening {
    /// The settings from a dictionary.
    pub(crate) fn new(given: &Bound<'_, PyDict>) -> PyResult<Opening> {
        Ok(Opening {
            model: field(given, "model", "a path or several")?,
            from: field(given, "from_", "str")?,
            to: field(given, "to", "str")?,
            then: field(given, "then", "a path")?,
            device: field(given, "device", "str")?,
            precision: field(given, "precision", "str")?,
            threads: field(given, "threads", "int")?,
            threads_per_sentence: field(given, "threads_per_sentence", "int")?,
            batch_sentences: field(given, "batch_sentences", "int")?,
            batch_tokens: field(given, "batch_tokens", "int")?,
            memory: field(given, "memory", "int or str")?,
            vocab: field(given, "vocab", "two paths")?,
            config: field(given, "config", "a path")?,
            weights: field(given, "weights", "floats")?,
            shortlist: field(given, "shortlist", "a name, or a path and numbers")?,
            compat: field(given, "compat", "names")?,
            calibration: field(given, "calibration", "a path")?,
            settings: field(given, "settings", "names and values")?,
        })
    }

    /// Opens the models.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Opened> {
        let mut settings = Settings::default();
        for assignment in &self.settings {
            settings.set(assignment).map_err(|problem| value(format!("settings: {problem}")))?;
        }
        let device: Device =
            self.device.parse().map_err(|problem| value(format!("device: {problem}")))?;
        let compute = settings.compute.clone().on(device, &self.precision);
        let compute = compute.map_err(|problem| value(format!("precision: {problem}")))?;
        let compat =
            self.compat.iter().map(|name| name.parse::<Compat>()).collect::<Result<_, _>>();
        let compat: Vec<Compat> = compat.map_err(|problem| value(format!("compat: {problem}")))?;
        let shortlist = parse_shortlist(&self.shortlist);
        let options = OpenOptions {
            vocabularies: self.vocab.clone(),
            config: self.config.clone(),
            member_weights: self.weights.clone(),
            shortlist: shortlist.map_err(|e| value(e.to_string().trim_start_matches('-')))?,
            compat,
        };
        py.detach(|| self.open_models(&settings, compute, &options))
    }

    fn open_models(
        &self,
        settings: &Settings,
        compute: Compute,
        options: &OpenOptions,
    ) -> PyResult<Opened> {
        let tuner = tuning_file::tuner(settings, self.model.first().map(PathBuf::as_path));
        let tuned = Compute { tuner: tuner.map_err(failed)?, ..compute.clone() };
        let model = self.read(options).map_err(failed)?;
        let mut translator = Translator::prepare(model, &tuned).map_err(failed)?;
        let mut first = None;
        if self.then.is_none() {
            let (from, to) = (self.from.as_deref(), self.to.as_deref());
            translator = translator.between(from, to).map_err(failed)?;
        }
        if let Some(path) = &self.then {
            let other = OpenOptions { compat: options.compat.clone(), ..OpenOptions::default() };
            let model = peregrine::model::open(std::slice::from_ref(path), &other);
            let second = Translator::prepare(model.map_err(failed)?, &compute).map_err(failed)?;
            first = Some(std::mem::replace(&mut translator, second));
        }
        if let Some(table) = &self.calibration {
            translator = translator.with_calibration(Calibration::read(table).map_err(failed)?);
        }
        let workers = self.workers(settings, &translator)?;
        Ok(Opened { first, translator, workers, bare: !self.compat.is_empty() })
    }

    fn read(&self, options: &OpenOptions) -> Result<Model, peregrine::Error> {
        if !self.model.is_empty() || self.config.is_some() {
            return Ok(peregrine::model::open(&self.model, options)?);
        }
        let mut model = peregrine::builtin_model()?;
        peregrine::model::choose_shortlist(&mut model, &options.shortlist)?;
        Ok(model)
    }

    fn workers(&self, settings: &Settings, translator: &Translator) -> PyResult<Workers> {
        let memory = self.memory.as_deref().map(parse_bytes).transpose();
        let memory = memory.map_err(|problem| value(format!("memory: {problem}")))?;
        let mut workers = settings.apply_to(translator.workers()).with_memory(memory);
        let BatchSize { sentences, tokens } = workers.batch;
        let number = |name: &str, given: Option<i64>, usual: usize, most: usize| {
            let Some(given) = given else { return Ok(usual) };
            let number = usize::try_from(given).ok().filter(|number| (1..=most).contains(number));
            let problem = || format!("{name}: expected a number from 1 to {most}, not {given}");
            number.ok_or_else(|| value(problem()))
        };
        const MOST: usize = u32::MAX as usize;
        workers.threads = number("threads", self.threads, translator.auto_threads(), 1024)?;
        workers.threads_per_sentence =
            number("threads_per_sentence", self.threads_per_sentence, 1, 64)?;
        workers.batch = BatchSize {
            sentences: number("batch_sentences", self.batch_sentences, sentences, MOST)?,
            tokens: number("batch_tokens", self.batch_tokens, tokens, MOST)?,
        };
        Ok(workers)
    }
}

/// A setting of that name.
fn field<'py, T>(given: &Bound<'py, PyDict>, name: &str, expected: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let value = given.as_any().get_item(name)?;
    value.extract().map_err(|_| wrong_type(name, expected, &value))
}
