//! What can be wrong with a model: one line that names the file and the place.

use std::path::{Path, PathBuf};

/// A model that cannot be opened or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file's bytes are not what its format says.
    #[error(transparent)]
    Format(#[from] peregrine_formats::Error),
    /// A vocabulary or SentencePiece model cannot be used.
    #[error(transparent)]
    Text(#[from] peregrine_text::Error),
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The place in the file, what was found and what was expected.
        problem: String,
    },
    /// A file is valid but needs something this engine does not support.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// The path of the file.
        path: PathBuf,
        /// The unsupported feature, by the name the file uses.
        what: String,
    },
    /// Weights are missing or have other shapes than the description says.
    #[error("{}: {}", path.display(), problems.join("; "))]
    Weights {
        /// The path of the file.
        path: PathBuf,
        /// All problems, each with the name of a tensor.
        problems: Vec<String>,
    },
    /// An option of the caller makes no sense for this model.
    #[error("{0}")]
    Option(String),
}

impl ModelError {
    pub(crate) fn invalid(path: &Path, problem: impl Into<String>) -> ModelError {
        ModelError::Invalid { path: path.into(), problem: problem.into() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> ModelError {
        ModelError::Unsupported { path: path.into(), what: what.into() }
    }

    /// Makes an error of a path for `map_err`, with the system's message. (Rust's own text ends in
    /// an error number.)
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ModelError {
        let path = path.into();
        move |cause| {
            let source = std::io::Error::new(cause.kind(), peregrine_formats::reason(&cause));
            ModelError::Io { path, source }
        }
    }
}
