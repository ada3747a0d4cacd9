//! Quality estimation without another model: how sure the model is of a translation, and its
//! possible faults.
//!
//! The score is the *rank* of the mean log-probability of a translation's tokens among those of
//! ordinary text ([`Calibration`]). Flags ([`Flags`]) show faults that the score does not: a model
//! is quite sure of a copied sentence.

mod calibration;
mod flags;
mod judge;

use std::sync::Arc;

pub use calibration::Calibration;
pub use flags::{Flag, Flags};
pub(crate) use judge::{Judged, languages};

/// The estimated quality of the translation of a text or a sentence.
///
/// ```
/// use peregrine::{Flag, Request, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let options = translator.options().with_quality(true);
/// let request = Request::new("Two dogs play in the snow.");
/// let translation = translator.translate_batch(&[request], &options)?.remove(0);
/// let quality = translation.quality().expect("quality was asked for");
/// assert!(quality.score().is_some_and(|score| score > 0.5));
/// assert!(quality.is_calibrated() && quality.flags.is_empty());
///
/// let flags = translator.check("It was 147 metres high.", "Tinha 122 metros de altura.");
/// assert!(flags.has(Flag::Numbers));
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The possible faults.
    pub flags: Flags,
    /// The sum of the token scores, and the number of tokens that have one.
    path_score: f32,
    scored: usize,
    table: Arc<Calibration>,
    calibrated: bool,
}

impl Quality {
    /// The share of ordinary sentences of which the model is less sure than of this one, from 0 to 1. It ranks translations of
    /// one model, and is no probability of being right. None if nothing was translated.
    pub fn score(&self) -> Option<f32> {
        Some(self.table.sentence_rank(self.mean_log_probability()?))
    }

    /// The mean natural logarithm of the tokens' probabilities, end symbols included. Those of two models cannot be compared. None
    /// if nothing was translated.
    pub fn mean_log_probability(&self) -> Option<f32> {
        (self.scored > 0).then(|| self.path_score / self.scored as f32)
    }

    /// Whether the score uses the model's own table. If not, it only tells which of two
    /// translations the model is surer of.
    pub fn is_calibrated(&self) -> bool {
        self.calibrated
    }

    /// The share of words in ordinary text of which the model is less sure, by the sum of a word's token scores and their number.
    pub(crate) fn word_score(&self, sum: f32, tokens: usize) -> Option<f32> {
        (tokens > 0).then(|| self.table.word_rank(sum / tokens as f32))
    }

    /// Adds the quality of a text's next part.
    pub(crate) fn append(&mut self, next: &Quality) {
        self.path_score += next.path_score;
        self.scored += next.scored;
        self.flags = self.flags.union(next.flags);
    }
}
