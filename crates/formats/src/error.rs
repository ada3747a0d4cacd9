//! The error type of this crate: one line that names file, place and problem.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a file, and where: `FILE: PLACE: what is wrong, what was expected`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct Error {
    /// The file as it was named by the caller.
    pub file: PathBuf,
    /// The byte offset, item or member; empty when the whole file is meant.
    pub place: String,
    /// What was found, and what was expected.
    pub problem: String,
}

impl Error {
    /// An error at a place within a file; an empty place means the whole file. Both texts may hold
    /// parts of a hostile file, so control characters are escaped and long texts cut.
    pub fn new(
        file: impl Into<PathBuf>,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self { file: file.into(), place: one_line(place.into()), problem: one_line(problem.into()) }
    }

    /// An error of the operating system: `FILE: cannot be opened: No such file or directory`.
    pub(crate) fn io(file: &Path, failed: &str, cause: &io::Error) -> Self {
        Self::new(file, "", format!("{failed}: {}", reason(cause)))
    }

    fn line(&self) -> String {
        let file = self.file.display();
        if self.place.is_empty() {
            format!("{file}: {}", self.problem)
        } else {
            format!("{file}: {}: {}", self.place, self.problem)
        }
    }
}

/// The operating system's error message, without the error number that Rust appends.
pub fn reason(cause: &io::Error) -> String {
    let text = cause.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Makes a text fit for one line of a terminal or a log.
fn one_line(text: String) -> String {
    const LONGEST: usize = 400;
    let mut kept: String = text.chars().take(LONGEST).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    if !kept.contains(char::is_control) {
        return kept;
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    kept.chars().map(escaped).collect()
}
