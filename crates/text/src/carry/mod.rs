//! Carry-through: text that a model cannot spell survives a translation.
//!
//! A model cannot write text for which its vocabulary has no pieces: `{name}`, `john@example.org`,
//! 🦀. Such stretches are found, replaced by masks, which models copy, and restored in the
//! translation. ALL CAPITALS become sentence case and are converted back, typographic characters
//! become those of the vocabulary, and white space is preserved.
//!
//! ```text
//! text ─▶ segments ─▶ stretches ─▶ written for the model ─▶ translation ─▶ restored
//!         (tabs …)    ({name} …)   (masks, case, quotes)    (verified)     (ranges kept)
//! ```
//!
//! Each mask must come back exactly once ([`Carried::returned`]). If one does not, there are three
//! fallbacks: another [`MaskStyle`], the text in parts around the carried stretches
//! ([`Carried::in_parts`]), or the place given by the alignment ([`Carried::restore`] with
//! [`Link`]s).
//!
//! ```
//! use peregrine_text::carry::Speller;
//!
//! // A model that has no braces.
//! let speller = Speller::from_fn(|text| !text.contains(['{', '}']));
//! let text = "Hello {name}, you are welcome.";
//! let stretches = speller.stretches(text, &[]);
//! let carried = speller.write(text, &stretches, speller.styles().first().copied(), false);
//! assert_eq!(carried.text(), "Hello X1, you are welcome.");
//!
//! let output = "Olá X1, seja bem-vindo.";
//! assert!(carried.returned(output));
//! assert_eq!(carried.restore(output, &[]).text.text, "Olá {name}, seja bem-vindo.");
//! ```

mod carried;
mod case;
mod mask;
mod numbers;
mod patterns;
mod rewritten;
mod segments;
mod speller;
mod typography;

use std::ops::Range;

pub use carried::{Carried, Link, Restored};
pub use case::{Case, copied_share};
pub use mask::MaskStyle;
pub use numbers::missing_numbers;
pub(crate) use numbers::numbers;
pub use patterns::placeholders;
pub use rewritten::{Replacement, Rewritten};
pub use segments::{Segment, segments};
pub use speller::Speller;

/// Splits a text at stretches, which are kept.
pub fn segments_around(text: &str, stretches: &[Range<usize>]) -> Vec<Segment> {
    segments::around(text, stretches)
}

/// Whether a text has a word outside its stretches. A text without one is copied.
pub fn has_words(text: &str, stretches: &[Range<usize>]) -> bool {
    let gaps = carried::gaps(text, stretches);
    gaps.into_iter().any(|gap| text[gap].contains(char::is_alphabetic))
}
