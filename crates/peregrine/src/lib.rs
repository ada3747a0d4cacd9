//! Neural machine translation with the models people already have.
//!
//! [`Translator::open`] reads Marian, Bergamot/Firefox, CTranslate2, Hugging Face MarianMT and
//! `.peregrine` models and translates with them as the original tools would. A small
//! English-Portuguese model is built in:
//!
//! ```
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
//! let translator = Translator::builtin()?;
//! let options = translator.options().with_beam(4).with_n_best(2);
//! let requests = [Request::new("Good morning!"), Request::new("Where is the station?")];
//! let translations = translator.translate_batch(&requests, &options)?;
//! assert_eq!(translations.len(), 2);
//! assert_eq!(translations[0].alternatives.len(), 2);
//! # Ok::<(), peregrine::Error>(())
//! ```

#![forbid(unsafe_code)]

mod builtin;
mod compute;
mod error;
mod line;
pub mod marian_format;
pub mod measure;
mod options;
mod replace;
mod request;
mod score;
mod service;
mod stream;
mod translation;
mod translator;

pub use compute::{Compute, Device};
pub use error::Error;
pub use options::{Options, Workers};
pub use replace::Dictionary;
pub use request::Request;
pub use score::Scored;
pub use service::{Caller, Latencies, Pending, Progress, Service, ServiceOptions, ServiceStats};
pub use stream::{Answer, Line, StreamOptions, Summary};
pub use translation::{Alternative, Translation};
pub use translator::Translator;

/// The built-in model as it is stored.
pub fn builtin_model() -> Result<Model, Error> {
    let (name, bytes) = builtin::english_portuguese();
    Ok(peregrine_model::open_bytes(name, bytes)?)
}

/// The instruction set this machine computes with.
pub fn instruction_set() -> &'static str {
    peregrine_cpu::Isa::best().level().name()
}

/// Whether this processor has these instructions.
pub fn has_instructions(level: Level) -> bool {
    peregrine_cpu::Isa::new(level).is_some()
}

pub use peregrine_cpu::{Keeping, Level, Tuner};
pub use peregrine_cuda::Numbers;
pub use peregrine_decode::batching::{BatchSize, Policy, Priority, Scope};
pub use peregrine_decode::{Counts, Guard, Stats, Verdict};
pub use peregrine_model::{
    self as model, AtLimit, Compat, Dialect, Finish, Model, ModelError, OpenOptions, Precision,
    Search, ShortlistChoice, ShortlistFile, Suppression,
};
pub use peregrine_nn::Speedups;
pub use peregrine_text::{self as text, Split};
