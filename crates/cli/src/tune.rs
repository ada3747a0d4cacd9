//! `peregrine tune`, and the file it writes.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::Request;
use peregrine::measure::Tuned;
use peregrine::model::write_whole;
use serde_json::{Value, json};

use crate::args::model::ModelArgs;
use crate::args::search::SearchArgs;
use crate::io::console::{self, remark};
use crate::io::lines::Lines;

/// Time this machine's kernels for the shapes of a model, and store the fastest beside it
///
/// The text should be translated as later ones will be: batch and beam decide how many rows products
/// have. Kernels give the same bits, so translations do not change. The file is read whenever the model
/// is opened with the same instructions; delete it to forget. Only int8 products have kernels to choose
/// from.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Text to translate while kernels are timed
    #[arg(long, value_name = "FILE")]
    source: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Some(file) = args.model.tuning_file() else {
        bail!("--model: choices are stored beside a model; the built-in one has no place");
    };
    let lines = Lines::read_all(&args.source)?;
    let tuner = args.model.new_tuner();
    let translator = args.model.open_tuned(Some(tuner.clone()))?;
    let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
    args.search.setup(&translator).translate(&translator, &requests)?;
    let choices = tuner.choices();
    let text = serde_json::to_string_pretty(&written(&choices, args.model.isa()))? + "\n";
    write_whole(&file, text.as_bytes())?;
    remark!("{}: {} choices", file.display(), choices.len());
    console::print(format_args!("{}", table(&choices)));
    Ok(())
}

/// Choices as a person reads them.
pub(crate) fn table(choices: &[Tuned]) -> String {
    let line = |choice: &Tuned| {
        let times = choice.microseconds.iter().map(|(name, us)| format!("{name} {us:.1} µs"));
        let rows = if choice.rows == usize::MAX { "more".into() } else { choice.rows.to_string() };
        let shape = format!("{}x{}", choice.inputs, choice.outputs);
        let times = times.collect::<Vec<_>>().join(", ");
        format!("{shape:>12} up to {rows:>4} rows: {:18} {times}\n", choice.kernel)
    };
    choices.iter().map(line).collect()
}

fn written(choices: &[Tuned], isa: &str) -> Value {
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

/// Reads a file of choices; those for other instructions are none.
pub(crate) fn read(file: &Path, isa: &str) -> anyhow::Result<Vec<Tuned>> {
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
