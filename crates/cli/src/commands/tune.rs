//! `peregrine tune`

use std::path::PathBuf;

use anyhow::bail;
use peregrine::Request;
use peregrine::model::write_whole;
use peregrine_args::console::{self, remark};
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::Lines;
use peregrine_args::model::ModelArgs;
use peregrine_args::search::SearchArgs;
use peregrine_args::tuning_file::{table, written};

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
    languages: PairArgs,

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
    let translator = args.languages.apply(args.model.open_tuned(Some(tuner.clone()))?)?;
    let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
    args.search.setup(&translator, &args.model.settings()).translate(&translator, &requests)?;
    let choices = tuner.choices();
    let text = serde_json::to_string_pretty(&written(&choices, args.model.isa()))? + "\n";
    write_whole(&file, text.as_bytes())?;
    remark!("{}: {} choices", file.display(), choices.len());
    console::print(format_args!("{}", table(&choices)));
    Ok(())
}
