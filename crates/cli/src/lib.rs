//! The `peregrine` command: a thin face on the library.
//!
//! `commands` has a file for each subcommand; those of the laboratory are in the crate `peregrine-lab`. `io` reads and writes
//! text, one line in, one line out. Options that several commands share are in the crate `peregrine-args`.
//!
//! It is a library so that the Python package has the command too.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod io;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use peregrine_args::console::{BAD_INPUT, in_words, remark};
use peregrine_args::{lines, values};
use peregrine_lab::{bench, gpu, make_model};

#[cfg(feature = "detect")]
use crate::commands::detect;
#[cfg(feature = "server")]
use crate::commands::serve;
use crate::commands::{
    calibrate, completions, convert, doctor, help, inspect, man, score, shortlist, translate, tune,
};
use crate::io::signals;

/// Translates with the neural models people already have: Marian, Bergamot/Firefox, CTranslate2,
/// Hugging Face (MarianMT, M2M-100, NLLB-200, mBART) and Peregrine's own files.
#[cfg_attr(
    feature = "builtin",
    doc = "\nWithout a model, `peregrine translate` uses a small English-Portuguese one that is built in."
)]
#[derive(Parser)]
#[command(name = "peregrine", version, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Translate(Box<translate::Args>),
    #[cfg(feature = "server")]
    Serve(serve::Args),
    Score(Box<score::Args>),
    Inspect(inspect::Args),
    Convert(convert::Args),
    #[cfg(feature = "detect")]
    Detect(detect::Args),
    Bench(Box<bench::Args>),
    MakeModel(make_model::Args),
    Doctor(doctor::Args),
    Selftest(gpu::selftest::Args),
    Shortlist(Box<shortlist::Args>),
    Tune(Box<tune::Args>),
    Calibrate(Box<calibrate::Args>),
    Completions(completions::Args),
    Man(man::Args),
    Help(help::Args),
}

/// Runs the command with these arguments, the first of which is its name. Its exit code; where arguments are wrong, or help is asked
/// for, the process ends.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = values::tie(arguments);
    let matches = Cli::command().get_matches_from(arguments);
    let command = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    };
    match run(command, &matches) {
        Ok(()) => 0,
        // Whoever read our output has enough of it: nothing went wrong.
        Err(error) if lines::is_broken_pipe(&error) => 0,
        Err(error) if error.is::<signals::Interrupted>() => signals::exit_code(),
        Err(error) => {
            remark!("{}", in_words(&told(&error)));
            BAD_INPUT
        }
    }
}

fn run(command: Command, matches: &clap::ArgMatches) -> anyhow::Result<()> {
    match command {
        Command::Translate(args) => {
            let options = matches.subcommand_matches("translate").unwrap_or(matches);
            translate::run(&args, options)
        }
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Convert(args) => convert::run(&args),
        #[cfg(feature = "detect")]
        Command::Detect(args) => detect::run(&args),
        Command::MakeModel(args) => make_model::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Selftest(args) => gpu::selftest::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Shortlist(args) => shortlist::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Help(args) => help::run(&args, Cli::command()),
    }
}

/// An error and its causes in one line. Some errors name their cause themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| {
        match (told.is_empty(), told.ends_with(&cause)) {
            (true, _) => cause,
            (false, true) => told,
            (false, false) => format!("{told}: {cause}"),
        }
    })
}
