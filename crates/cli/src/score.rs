//! `peregrine score`

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use peregrine::marian_format::{significant, word_scores};

use crate::lines::{Lines, open_output};
use crate::model_args::ModelArgs;

/// Score given translations: the log-probability of each, one per line
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Source text, a sentence a line
    #[arg(value_name = "SOURCE_FILE")]
    source: PathBuf,

    /// Its translations, line by line
    #[arg(value_name = "TARGET_FILE")]
    target: PathBuf,

    #[command(flatten)]
    model: ModelArgs,

    /// Print the log-probability of every token too
    #[arg(long)]
    word_scores: bool,

    /// Workers, each with a batch of its own
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let sources = Lines::read_all(&args.source)?;
    let targets = Lines::read_all(&args.target)?;
    if sources.len() != targets.len() {
        bail!(
            "{} has {} lines, {} has {}: expected a translation for each line",
            args.source.display(),
            sources.len(),
            args.target.display(),
            targets.len()
        );
    }
    let translator = args.model.open()?;
    let mut options = translator.options();
    options.threads = args.threads as usize;
    let pairs: Vec<(&str, &str)> =
        sources.iter().map(String::as_str).zip(targets.iter().map(String::as_str)).collect();
    let mut output = open_output(None)?;
    for (number, scored) in translator.score(&pairs, &options).iter().enumerate() {
        if scored.cut {
            let line = number + 1;
            eprintln!(
                "peregrine: note: line {line} is too long for the model: its beginning was scored"
            );
        }
        write!(output, "{}", significant(scored.score))?;
        if args.word_scores {
            write!(output, " ||| {}", word_scores(&scored.token_scores))?;
        }
        writeln!(output)?;
    }
    output.flush()?;
    Ok(())
}
