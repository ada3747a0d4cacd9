//! The `peregrine` command.

use std::process::ExitCode;

/// A line's memory is allocated by the thread that reads it and freed by others, which this allocator does without their
/// locking each other out.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(peregrine_cli::main(std::env::args_os()))
}
