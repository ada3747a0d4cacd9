//! `peregrine calibrate`

use std::path::PathBuf;

use anyhow::{Context, bail};
use peregrine::model::write_whole;
use peregrine::{Calibration, Translator};
use peregrine_args::console::{print, remark};
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::{Lines, is_standard};
use peregrine_args::model::ModelArgs;
use peregrine_args::search::SearchArgs;

use crate::io::clash::{self, Named};

/// Measure how sure a model is of ordinary text, for `translate --quality`
///
/// Translates at least 500 sentences and stores 33 quantiles of their log-probabilities, of those of words, and the usual ratio of
/// lengths, beside the model: MODEL_FILE.quality.json. They are read whenever the model is opened. The text should be like what
/// will be translated, and so should search and shortlist.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ordinary text in the source language, a sentence a line; `-` is standard input
    #[arg(value_name = "TEXT_FILE")]
    text: PathBuf,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    languages: PairArgs,

    /// Write the table to this file, for `translate --quality=FILE`; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    search: SearchArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let lines = Lines::read_all(&args.text)?;
    let translator = args.languages.apply(args.model.open()?)?;
    let file = match &args.output {
        Some(file) => file.clone(),
        None => beside(&translator)?,
    };
    // A table may be there from before.
    let mut files = args.model.files();
    files.retain(|(_, path)| !path.as_os_str().to_string_lossy().ends_with(".quality.json"));
    let mut read: Vec<_> = files.iter().map(|(name, path)| Named::read(name, path)).collect();
    read.push(Named::read("TEXT_FILE", &args.text));
    clash::refuse(&[Named::written("--output", &file)], &read)?;
    let options = args.search.options(&translator);
    let workers = args.search.workers(&translator, &args.model.settings());
    let table = translator.calibrate(&lines, &options, &workers);
    let table = table.with_context(|| args.text.display().to_string())?;
    let text = format!("{:#}\n", table.to_json());
    if is_standard(&file) {
        print(format_args!("{text}"));
        return Ok(());
    }
    let hint = "if its folder cannot be written to, name another file by --output";
    write_whole(&file, text.as_bytes()).context(match args.output {
        None => hint,
        Some(_) => "the table was not stored",
    })?;
    remark!("{}: a table of {} sentences", file.display(), table.sentence_count);
    Ok(())
}

/// The place of a model's table.
fn beside(translator: &Translator) -> anyhow::Result<PathBuf> {
    match &translator.model().members[..] {
        [member] if member.path.is_file() => Ok(Calibration::beside(&member.path)),
        [_] => {
            bail!("the built-in model has its table built in: name a file for another by --output")
        }
        _ => bail!("an ensemble has no place for a table: name a file by --output"),
    }
}
