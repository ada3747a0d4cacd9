//! The `peregrine` command: a thin face on the library.
//!
//! Each subcommand has a file. `model_args` and `search_args` are the options several of them
//! share; `lines` reads and writes text, one line in, one line out; `feed` and `resume` are the two
//! ends of a stream.

#![forbid(unsafe_code)]

mod bench;
mod bench_ablate;
mod bench_amun;
mod bench_batching;
mod bench_devlin;
mod bench_gpu;
mod convert;
mod doctor;
mod feed;
mod hash;
mod inspect;
mod interrupt;
mod lines;
mod make_model;
mod measures;
mod model_args;
mod notes;
mod plot;
mod resume;
mod score;
mod search_args;
mod selftest;
mod shortlist;
mod speedup_args;
mod stats;
mod translate;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Translates with the neural models people already have: Marian, Bergamot/Firefox, CTranslate2,
/// Hugging Face MarianMT and Peregrine's own files.
///
/// Without a model, `peregrine translate` uses a small English-Portuguese one that is built in.
#[derive(Parser)]
#[command(name = "peregrine", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Translate(Box<translate::Args>),
    Score(Box<score::Args>),
    Inspect(inspect::Args),
    Convert(convert::Args),
    Bench(Box<bench::Args>),
    MakeModel(make_model::Args),
    Doctor(doctor::Args),
    Selftest(selftest::Args),
    Shortlist(Box<shortlist::Args>),
    Tune(Box<tune::Args>),
}

/// The exit code for input that cannot be used: arguments, models, files.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // A device that fails unwinds with its reason.
    let result = std::panic::catch_unwind(|| run(command)).unwrap_or_else(|reason| {
        match reason.downcast::<peregrine::Fault>() {
            Ok(fault) => Err(anyhow::anyhow!(fault.reason)),
            Err(other) => std::panic::resume_unwind(other),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has enough of it: nothing went wrong.
        Err(error) if lines::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            ExitCode::from(interrupt::INTERRUPTED)
        }
        Err(error) => {
            eprintln!("peregrine: {}", told(&error));
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Translate(args) => translate::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::MakeModel(args) => make_model::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Shortlist(args) => shortlist::run(&args),
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
