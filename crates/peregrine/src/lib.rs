//! Neural machine translation with the models people already have.
//!
//! [`Translator::open`] reads Marian, Bergamot/Firefox, CTranslate2, Hugging Face (MarianMT, M2M-100,
//! NLLB-200, mBART) and `.peregrine` models and translates with them as the original tools would. A small
//! English-Portuguese model is built in:
//!
//! ```
//! # if cfg!(not(feature = "builtin")) { return Ok(()); }
//! let translator = peregrine::Translator::builtin()?;
//! assert_eq!(translator.translate("Two dogs play in the snow.")?, "Dois cães brincam na neve.");
//! # Ok::<(), peregrine::Error>(())
//! ```
//!
//! A sentence's translation never depends on the sentences it is translated with. More than one
//! sentence at a time is faster:
//!
//! ```
//! use peregrine::{Request, Translator};
//!
//! # if cfg!(not(feature = "builtin")) { return Ok(()); }
//! let translator = Translator::builtin()?;
//! let options = translator.options().with_beam(4).with_n_best(2);
//! let requests = [Request::new("Good morning!"), Request::new("Where is the station?")];
//! let translations = translator.translate_batch(&requests, &options)?;
//! assert_eq!(translations.len(), 2);
//! assert_eq!(translations[0].alternatives.len(), 2);
//! # Ok::<(), peregrine::Error>(())
//! ```
//!
//! Where many callers share a model, a [`Service`] runs workers all the time. The `guide` has an example
//! of everything.
//!
//! Three features are on by default: `cuda`, the GPU backend, `builtin`, the built-in model, and `detect`, language identification
//! in [`text`]. Without the first two a GPU or that model is refused with an [`Error`] that says so.

#![forbid(unsafe_code)]

mod builtin;
mod carry;
mod compute;
pub mod document;
mod error;
mod framing;
mod glossary;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
#[cfg(feature = "builtin")]
pub mod guide;
mod line;
mod machine;
pub mod marian_format;
pub mod measure;
mod options;
mod part;
mod pivot;
mod quality;
pub mod registry;
mod replace;
mod request;
mod score;
mod sentence;
mod service;
pub mod settings;
mod stream;
mod translation;
mod translator;
mod words;

pub use builtin::builtin_model;
pub use carry::Carry;
pub use compute::{Compute, Device};
pub use error::Error;
pub use glossary::{GlossaryMode, How, Term};
pub use gpu::GpuPrecision;
pub use machine::{available_memory, cores};
pub use options::{Options, Workers};
pub use pivot::{Legs, Pivot};
pub use quality::{Calibration, Flag, Flags, Quality};
pub use replace::Dictionary;
pub use request::Request;
pub use score::Scored;
pub use sentence::{Sentence, Target};
pub use service::{Caller, Latencies, Pending, Progress, Service, ServiceOptions, ServiceStats};
pub use stream::{Answer, Line, StreamOptions, Summary};
pub use translation::{Alternative, Translation};
pub use translator::Translator;
pub use words::{Word, WordLink};

/// The examples of docs/text.md.
#[cfg(all(doctest, feature = "builtin"))]
#[doc = include_str!("../../../docs/text.md")]
mod text_examples {}

/// The instruction set this machine computes with.
pub fn instruction_set() -> &'static str {
    peregrine_cpu::Isa::best().level().name()
}

/// Whether this processor has these instructions.
pub fn has_instructions(level: Level) -> bool {
    peregrine_cpu::Isa::new(level).is_some()
}

pub use peregrine_cpu::{CachePrecision, Level, Tuner};
pub use peregrine_decode::batching::{BatchSize, Policy, Priority, Scope};
pub use peregrine_decode::{Counts, Guard, Stats, Verdict};
pub use peregrine_model::{
    self as model, AtLimit, Compat, Dialect, Finish, Model, ModelError, OpenOptions, Precision,
    Search, ShortlistChoice, ShortlistFile, Suppression,
};
pub use peregrine_nn::Speedups;
pub use peregrine_text::{self as text, Entry, Glossary, Split};
