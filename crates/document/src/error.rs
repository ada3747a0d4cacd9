//! What can be wrong with a document.

/// A document that cannot be read: one line that says where and why. The name of the file is for the caller to add.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something at one place of the document.
    #[error("line {line}, column {column}: {problem}")]
    At {
        /// Counted from one.
        line: usize,
        /// Counted in characters from one.
        column: usize,
        /// What was found, or what was expected.
        problem: String,
    },
    /// Something at one place of a part of the document.
    #[error("{part}, line {line}, column {column}: {problem}")]
    InPart {
        /// The name of the part in its archive.
        part: String,
        /// Counted from one.
        line: usize,
        /// Counted in characters from one.
        column: usize,
        /// What was found, or what was expected.
        problem: String,
    },
    /// The document could not be read to its end.
    #[error("{0}")]
    Unreadable(String),
    /// Something about the document as a whole.
    #[error("{0}")]
    Whole(String),
}

impl Error {
    /// A problem at a byte of the document.
    pub(crate) fn at(bytes: &[u8], offset: usize, problem: impl Into<String>) -> Error {
        let before = &bytes[..offset.min(bytes.len())];
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        Error::At {
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
            column: String::from_utf8_lossy(&before[start..]).chars().count() + 1,
            problem: one_line(&problem.into()),
        }
    }

    /// The same problem, in a document behind so many lines of another one.
    pub(crate) fn behind_lines(self, lines: usize) -> Error {
        match self {
            Error::At { line, column, problem } => {
                Error::At { line: line + lines, column, problem }
            }
            other => other,
        }
    }

    /// The same problem, in a part of a document.
    pub(crate) fn in_part(self, name: &str) -> Error {
        let part = one_line(name);
        match self {
            Error::At { line, column, problem } => Error::InPart { part, line, column, problem },
            Error::Whole(problem) => Error::Whole(format!("{part}: {problem}")),
            named => named,
        }
    }

    pub(crate) fn whole(problem: impl Into<String>) -> Error {
        Error::Whole(one_line(&problem.into()))
    }
}

/// Messages may quote the document, whose line ends have no place in them.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let error = Error::at("a\nçã<".as_bytes(), 6, "a tag\nwithout end");
        assert_eq!(error.to_string(), "line 2, column 3: a tag without end");
        assert_eq!(Error::at(b"", 9, "x").to_string(), "line 1, column 1: x");
    }
}
