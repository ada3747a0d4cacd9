//! Running the real program.

pub(crate) mod nonsense;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, with nothing of the surroundings that could change what it prints.
pub(crate) fn peregrine(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(arguments).env_remove("COLUMNS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    peregrine(arguments).output().unwrap()
}

/// Runs with something on standard input.
pub(crate) fn run_with(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = peregrine(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that stops early closes the pipe; that is for the caller to notice.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Whether the program ignores Ctrl-C, since this process does and it inherits that: a shell without job control starts
/// what runs in its background so.
pub(crate) fn ignores_interrupts() -> bool {
    const SIGINT: u32 = 2;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let ignores = mask.is_some_and(|mask| mask >> (SIGINT - 1) & 1 == 1);
    if ignores {
        eprintln!("skipped: whoever started the tests has Ctrl-C ignored");
    }
    ignores
}

/// Standard output of a run that must succeed.
pub(crate) fn stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a run that must end with exit code 2 and one line of complaint.
pub(crate) fn complaint(output: Output) -> String {
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(output.stdout.is_empty());
    let line = errors.strip_suffix('\n').unwrap_or(&errors);
    assert!(!line.contains('\n') && line.starts_with("peregrine: "), "{errors:?}");
    line.to_owned()
}

/// The repository's small English-German model.
pub(crate) fn model() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.join("../../tests/fixtures/transformer-post").display().to_string()
}

/// A file for this test alone.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub(crate) fn scratch_with(name: &str, content: &[u8]) -> String {
    let path = scratch(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}
