//! For measurements only: techniques and variants that can be switched for comparison, and their
//! measured effects. Translating needs nothing from here, as the defaults are the fastest known.

pub use peregrine_cpu::{FAST_ERROR, Functions, Int8Options, Technique, Tuned, narrowed_rows};
#[cfg(feature = "cuda")]
pub use peregrine_cuda as cuda;
pub use peregrine_decode::TracedStep;

pub use crate::gpu::OutputLayer;

use crate::Request;

/// A text whose translation has exactly that many tokens, whatever they are, to compare speeds.
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let request = peregrine::measure::of_length("Good morning!", 9);
/// let translations = translator.translate_batch(&[request], &translator.options().with_beam(1))?;
/// assert_eq!(translations[0].alternatives[0].tokens.len(), 9);
/// # Ok::<(), peregrine::Error>(())
/// ```
pub fn of_length(text: &str, tokens: usize) -> Request<'_> {
    Request { length: Some(tokens), ..Request::new(text) }
}
