//! What can be wrong with a file of tokens: one line that names file, place and problem.

/// A vocabulary, SentencePiece model or list of BPE codes that cannot be used.
///
/// Text never fails to encode; only the files that describe tokens can be at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}: {problem}")]
pub struct Error {
    /// The name the caller gave for the bytes.
    pub file: String,
    /// Where in the file: a line, a piece, a field.
    pub place: String,
    /// What was found and what was expected.
    pub problem: String,
}

impl Error {
    pub(crate) fn new(
        file: impl Into<String>,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self { file: file.into(), place: place.into(), problem: problem.into() }
    }
}

/// No vocabulary is larger than this, and indices inside tables are kept in 32 bits.
const LARGEST_FILE: usize = 1 << 30;

/// Refuses files whose size alone shows that they are something else.
pub(crate) fn check_size(name: &str, bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > LARGEST_FILE {
        let problem = format!("{} bytes, more than any vocabulary has", bytes.len());
        return Err(Error::new(name, "file size", problem));
    }
    Ok(())
}
