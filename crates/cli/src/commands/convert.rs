//! `peregrine convert`

use std::path::{Path, PathBuf};

use anyhow::bail;
use peregrine::model::verify;
use peregrine::{Model, Precision};

use peregrine_args::console::remark;
use peregrine_args::model::OpenArgs;

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

    /// File to write; its name ends in .peregrine
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if there is one already
    #[arg(long)]
    force: bool,

    /// Precision in which matrices are stored; `auto` leaves them as they are
    #[arg(long, value_name = "PRECISION", default_value = "auto",
          value_parser = ["auto", "float32", "float16", "bfloat16", "int16", "int8"])]
    precision: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let output = &args.output;
    if output.is_file() && !args.force {
        bail!("{}: there is such a file already; --force replaces it", output.display());
    }
    let model = args.open.read(&args.model)?;
    refuse_own_files(output, &args.model, &model)?;
    verify::checksums(&model)?;
    let precision = Precision::ALL.into_iter().find(|known| known.name() == args.precision);
    peregrine::model::save(&model, output, precision)?;
    for note in &model.notes {
        remark!("note: {note}");
    }
    let size = std::fs::metadata(output)?.len() as f64 / 1e6;
    remark!("wrote {} ({size:.1} MB)", output.display());
    Ok(())
}

/// A file that the model was read from is never replaced, and none is put into a directory that is a
/// model: it might be taken for the model next time.
fn refuse_own_files(output: &Path, given: &[PathBuf], model: &Model) -> anyhow::Result<()> {
    let members = model.members.iter().map(|member| &member.path);
    let mut own = given.iter().chain(members).filter_map(|path| path.canonicalize().ok());
    let (file, folder) = (output.canonicalize().ok(), folder_of(output));
    let within = |own: &PathBuf| {
        file.as_ref() == Some(own) || folder.as_ref().is_some_and(|folder| folder.starts_with(own))
    };
    match own.find(within) {
        Some(own) => {
            let (output, own) = (output.display(), own.display());
            bail!("{output}: is part of the model that is read ({own}); write another file")
        }
        None => Ok(()),
    }
}

/// The folder a file is in or will be.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    if folder == Path::new("") { Path::new(".") } else { folder }.canonicalize().ok()
}
