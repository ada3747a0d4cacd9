//! The file of kernel choices that `peregrine tune` writes beside a model.

use std::path::Path;

use anyhow::Context;
use peregrine::measure::Tuned;
use serde_json::{Value, json};

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
