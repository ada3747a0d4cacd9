//! The `peregrine` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(peregrine_cli::main(std::env::args_os()))
}
