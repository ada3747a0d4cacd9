//! `peregrine convert`

use std::path::PathBuf;

use peregrine::Precision;

use crate::args::model::{OpenArgs, parse_precision};
use crate::io::console::remark;

/// Convert a model of any format to a single .peregrine file
///
/// The file holds weights, vocabularies, search settings and shortlist, and opens by memory map.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model file or directory of any format; without one, the built-in model
    #[arg(value_name = "MODEL")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    open: OpenArgs,

    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Precision in which matrices are stored: float32, float16, int16 or int8 [default: as they are]
    #[arg(long, value_name = "PRECISION", value_parser = parse_precision)]
    precision: Option<Precision>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let model = args.open.read(&args.model)?;
    peregrine::model::save(&model, &args.output, args.precision)?;
    for note in &model.notes {
        remark!("note: {note}");
    }
    let size = std::fs::metadata(&args.output)?.len() as f64 / 1e6;
    remark!("wrote {} ({size:.1} MB)", args.output.display());
    Ok(())
}
