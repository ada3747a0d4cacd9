//! `peregrine make-model`

use std::path::PathBuf;

use anyhow::bail;
use peregrine::Precision;
use peregrine::model::{PRESETS, made_up_model, preset};

use peregrine_args::console::{remark, show};

/// Write a model of random numbers, to measure speed with
///
/// Its words are `w2`, `w3` and so on. Without a name, the known shapes are listed.
#[derive(clap::Args)]
pub struct Args {
    /// Shape of the network
    #[arg(value_name = "SHAPE", required_unless_present = "list")]
    shape: Option<String>,

    /// File to write
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    output: Option<PathBuf>,

    /// Words of each vocabulary, in place of the shape's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..10_000_000))]
    words: Option<u32>,

    /// Other numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Precision in which matrices are stored [default: float32]
    #[arg(long, value_name = "PRECISION", value_parser = parse_precision)]
    precision: Option<Precision>,

    /// List the known shapes
    #[arg(long)]
    list: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (Some(shape), Some(output), false) = (&args.shape, &args.output, args.list) else {
        for (name, what) in PRESETS {
            show!("{name:10} {what}");
        }
        return Ok(());
    };
    let Some(architecture) = preset(shape, args.words.map(|words| words as usize)) else {
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        bail!("{shape:?}: known shapes are {}", names.join(", "));
    };
    let model = made_up_model(architecture, args.seed)?;
    peregrine::model::save(&model, output, args.precision)?;
    let size = std::fs::metadata(output)?.len() as f64 / 1e6;
    remark!("wrote {} ({size:.1} MB)", output.display());
    Ok(())
}

/// A precision by name.
fn parse_precision(name: &str) -> Result<Precision, String> {
    let found = Precision::ALL.into_iter().find(|precision| precision.name() == name);
    let names = || Precision::ALL.map(Precision::name).join(", ");
    found.ok_or_else(|| format!("expected one of {}", names()))
}
