//! Errors.

use peregrine_decode::Failure;
use peregrine_decode::batching::Refusal;
use peregrine_model::ModelError;
use peregrine_nn::{Fault, MissingWeight};

/// Why a model cannot be used, or a text was not translated. The message is one line, which names file and place
/// if there is one.
///
/// Every line has a translation, whatever it holds: errors of a request come from its options, from
/// the device, or from the end of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or does not fit.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A network that lacks a weight.
    #[error(transparent)]
    Weight(#[from] MissingWeight),
    /// Instructions this processor does not have.
    #[error("this processor has no {0} instructions")]
    Instructions(&'static str),
    /// A GPU that is not there or cannot be used; any in a build without the feature `cuda`.
    #[error(transparent)]
    Gpu(#[from] crate::gpu::Error),
    /// The built-in model in a build without the feature `builtin`.
    #[error("this build has no built-in model")]
    NoBuiltin,
    /// A model of a [registry](crate::registry) that cannot be opened.
    #[error("{name}: {reason}")]
    Unusable {
        /// The name of the model.
        name: String,
        /// Why it cannot be opened.
        reason: String,
    },
    /// A device that failed while it translated.
    #[error("{0}")]
    Device(String),
    /// A device without memory for a single sentence.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The request's deadline has passed.
    #[error("the deadline has passed")]
    Deadline,
    /// The request was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The service has no room for more.
    #[error("the queue is full")]
    Full,
    /// The service has ended, or takes no more.
    #[error("the service has ended")]
    Stopped,
    /// The process was forked after the service had begun to work: its threads are in the parent.
    #[error("this process was forked after the service began: make a new service in it")]
    Forked,
    /// A text from which no [table](crate::Calibration) can be made.
    #[error("{0} sentences: expected {least} or more", least = crate::Calibration::LEAST_SENTENCES)]
    TooFewSentences(usize),
    /// A sentence that is too long for the model, if such sentences are refused.
    #[error("a sentence of {tokens} tokens is too long for the model (at most {most})")]
    TooLong {
        /// The tokens of the sentence, its frame included.
        tokens: usize,
        /// The most tokens the model can read.
        most: usize,
    },
    /// A request's known sentences are not those of its text.
    #[error(
        "sentence {number} of a request: expected bytes of its text, behind those of the sentence before"
    )]
    Sentences {
        /// The first that is wrong, counted from 0.
        number: usize,
    },
    /// A request to a multilingual model that lacks a language.
    #[error(
        "no {side} language: a model of {count} languages needs {option} (`{field}` of a request)",
        option = if *side == "source" { "--from" } else { "--to" },
        field = if *side == "source" { "from" } else { "to" },
    )]
    NoLanguage {
        /// The side: `source` or `target`.
        side: &'static str,
        /// The number of the model's languages.
        count: usize,
    },
    /// A language that the model does not have.
    #[error("the model has no language {name:?} among its {count}{hint}")]
    UnknownLanguage {
        /// The language.
        name: String,
        /// The number of the model's languages.
        count: usize,
        /// The languages that may be meant, if there are any.
        hint: String,
    },
    /// A model whose weights do not fit the free memory.
    #[error("the weights take {} in {precision}, but only {} of memory are free", gigabytes(*needed), gigabytes(*free))]
    TooLarge {
        /// Bytes of the packed weights.
        needed: u64,
        /// Bytes of memory that are free.
        free: u64,
        /// The precision.
        precision: &'static str,
    },
    /// A thread that cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A bug.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Cancelled => Error::Cancelled,
            Failure::Deadline => Error::Deadline,
            Failure::Device(Fault { reason, out_of_memory: true }) => Error::OutOfMemory(reason),
            Failure::Device(Fault { reason, out_of_memory: false }) => Error::Device(reason),
            Failure::Panic(reason) => Error::Internal(reason),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Full => Error::Full,
            Refusal::Deadline => Error::Deadline,
            Refusal::Closed => Error::Stopped,
        }
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
