//! The file of kernel choices that `peregrine tune` writes beside a model.

use std::path::{Path, PathBuf};

use anyhow::Context;
use peregrine::measure::Tuned;
use peregrine::settings::{Settings, Tuning};
use peregrine::{Level, Tuner};
use serde_json::{Value, json};

/// Where the choices for a model are stored: beside it.
pub fn beside(model: &Path) -> Option<PathBuf> {
    if model.is_dir() {
        return Some(model.join("peregrine.tuning.json"));
    }
    let mut name = model.file_name()?.to_owned();
    name.push(".tuning.json");
    Some(model.with_file_name(name))
}

/// The tuner that settings ask for: one that knows what is written beside the model, or begins anew.
pub fn tuner(settings: &Settings, model: Option<&Path>) -> anyhow::Result<Option<Tuner>> {
    let stored = model.and_then(beside).filter(|file| file.exists());
    match settings.tuning {
        Tuning::Off => return Ok(None),
        Tuning::Stored if stored.is_none() => return Ok(None),
        Tuning::Stored | Tuning::On | Tuning::Precisions => {}
    }
    let tuner = new_tuner(settings.tuning);
    if let Some(file) = stored {
        tuner.restore(&read(&file, isa(settings))?);
    }
    Ok(Some(tuner))
}

/// A tuner that knows nothing yet.
pub fn new_tuner(tuning: Tuning) -> Tuner {
    match tuning {
        Tuning::Precisions => Tuner::across_precisions(),
        _ => Tuner::default(),
    }
}

/// The instructions products are computed with.
pub fn isa(settings: &Settings) -> &'static str {
    settings.compute.isa.map_or_else(peregrine::instruction_set, Level::name)
}

/// A table of choices as text.
pub fn table(choices: &[Tuned]) -> String {
    let line = |choice: &Tuned| {
        let times = choice.microseconds.iter().map(|(name, us)| format!("{name} {us:.1} µs"));
        let rows = if choice.rows == usize::MAX { "more".into() } else { choice.rows.to_string() };
        let shape = format!("{}x{}", choice.inputs, choice.outputs);
        let times = times.collect::<Vec<_>>().join(", ");
        format!("{shape:>12} up to {rows:>4} rows: {:18} {times}\n", choice.kernel)
    };
    choices.iter().map(line).collect()
}

/// The content of the file, as JSON.
pub fn written(choices: &[Tuned], isa: &str) -> Value {
    let choice = |choice: &Tuned| {
        let rows = (choice.rows != usize::MAX).then_some(choice.rows);
        json!({
            "inputs": choice.inputs,
            "outputs": choice.outputs,
            "rows": rows,
            "kernel": choice.kernel,
        })
    };
    json!({ "isa": isa, "choices": choices.iter().map(choice).collect::<Vec<_>>() })
}

/// Reads a file of choices. The result is empty if they were made for another instruction set.
pub fn read(file: &Path, isa: &str) -> anyhow::Result<Vec<Tuned>> {
    let place = || format!("{}", file.display());
    let text = std::fs::read_to_string(file).with_context(place)?;
    let value: Value = serde_json::from_str(&text).with_context(place)?;
    if value["isa"] != isa {
        return Ok(Vec::new());
    }
    let number = |choice: &Value, name: &str| choice[name].as_u64().map(|n| n as usize);
    let choice = |choice: &Value| {
        Some(Tuned {
            inputs: number(choice, "inputs")?,
            outputs: number(choice, "outputs")?,
            rows: number(choice, "rows").unwrap_or(usize::MAX),
            kernel: choice["kernel"].as_str()?.to_owned(),
            microseconds: Vec::new(),
        })
    };
    let choices = value["choices"].as_array().into_iter().flatten().map(choice);
    choices
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("{}: not a file of choices", place()))
}
