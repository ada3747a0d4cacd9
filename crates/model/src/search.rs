//! The search settings of a model, from its own configuration or the defaults of its dialect. The
//! crate `decode` applies them.

use serde::{Deserialize, Serialize};

/// The tool whose file format and defaults a model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Marian, and Bergamot.
    Marian,
    /// CTranslate2.
    Ctranslate2,
    /// Hugging Face.
    HuggingFace,
    /// Amun.
    Amun,
    /// The decoder of "Sharp Models on Dull Hardware".
    Devlin,
}

/// How a beam ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// A finished hypothesis leaves and the beam shrinks by one (Marian).
    Shrink,
    /// The beam stays full; the search ends when as many hypotheses have finished as the beam is
    /// wide, or, without length normalisation, when the best one has (CTranslate2).
    Full,
    /// The beam stays full; the search ends when no running hypothesis can beat the worst of a
    /// full list of finished ones (Hugging Face).
    FullBounded,
}

/// When a search with [`Finish::FullBounded`] ends, once its list of finished hypotheses is full
/// (Hugging Face's `early_stopping`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// When the best open hypothesis, normalised by its present length, is no better than the worst
    /// of the list: `false`.
    #[default]
    Length,
    /// The same, normalised by the greatest length: `"never"`.
    LengthLimit,
    /// At once: `true`.
    List,
}

/// When suppressed words are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suppression {
    /// After the softmax: the other words keep their log-probabilities (Marian, Hugging Face).
    AfterSoftmax,
    /// Before the softmax: the other words share the probability mass (CTranslate2).
    BeforeSoftmax,
}

/// What happens to hypotheses that reach the length limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtLimit {
    /// They are cut.
    Cut,
    /// Their last token is the end symbol, whose score counts as 0 (Hugging Face's `forced_eos_token_id`).
    ForceEnd,
}

/// Settings of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The beam size: the number of hypotheses of a sentence.
    pub beam: usize,
    /// How the beam ends.
    pub finish: Finish,
    /// When a bounded search ends.
    #[serde(default)]
    pub bound: Bound,
    /// The exponent of length normalisation (length penalty): a score is divided by the length to this power.
    pub normalize: f32,
    /// The penalty subtracted for every token before length normalisation.
    pub word_penalty: f32,
    /// The most target tokens (end symbol included) for each source token (frame included).
    pub max_length_factor: Option<f32>,
    /// The number of tokens added to the limit by `max_length_factor`.
    #[serde(default)]
    pub max_length_extra: usize,
    /// The most target tokens, end symbol included.
    pub max_length: Option<usize>,
    /// What happens to hypotheses at the length limit.
    pub at_limit: AtLimit,
    /// The fewest target tokens before the end symbol.
    pub min_length: usize,
    /// Whether the unknown word may be produced.
    pub allow_unk: bool,
    /// Words that may never be produced.
    pub suppress: Vec<u32>,
    /// When suppressed words are removed.
    pub suppression: Suppression,
    /// Whether the log-probabilities of a forced prefix count in the score.
    pub score_prefix: bool,
    /// The longest source, frame included; a longer line is split.
    pub max_source: usize,
    /// Early stopping: the search ends when the best open hypothesis is worse than the best
    /// finished one by this much, as sums of log-probabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<f32>,
}

impl Search {
    /// The score of a hypothesis: `(sum − penalty · length) / length^normalize`. The length
    /// includes the end symbol.
    ///
    /// ```
    /// use peregrine_model::{Dialect, Search};
    /// let search = Search { normalize: 1.0, word_penalty: 0.5, ..Search::of(Dialect::Marian) };
    /// assert_eq!(search.final_score(-3.0, 2), -2.0);
    /// ```
    pub fn final_score(&self, path: f32, length: usize) -> f32 {
        let length = length as f32;
        let penalised = path - self.word_penalty * length;
        if self.normalize == 0.0 { penalised } else { penalised / length.powf(self.normalize) }
    }

    /// The defaults of a tool.
    ///
    /// ```
    /// use peregrine_model::{Dialect, Finish, Search};
    /// assert_eq!(Search::of(Dialect::Ctranslate2).finish, Finish::Full);
    /// ```
    pub fn of(dialect: Dialect) -> Search {
        let marian = Search {
            beam: 12,
            finish: Finish::Shrink,
            bound: Bound::Length,
            normalize: 0.0,
            word_penalty: 0.0,
            max_length_factor: Some(3.0),
            max_length_extra: 0,
            max_length: None,
            at_limit: AtLimit::Cut,
            min_length: 0,
            allow_unk: false,
            suppress: Vec::new(),
            suppression: Suppression::AfterSoftmax,
            score_prefix: true,
            max_source: 1000,
            early_stop: None,
        };
        match dialect {
            Dialect::Marian => marian,
            Dialect::Ctranslate2 => Search {
                beam: 2,
                finish: Finish::Full,
                normalize: 1.0,
                max_length_factor: None,
                max_length: Some(256),
                min_length: 1,
                allow_unk: true,
                suppression: Suppression::BeforeSoftmax,
                score_prefix: false,
                max_source: 1024,
                ..marian
            },
            Dialect::HuggingFace => Search {
                beam: 1,
                finish: Finish::FullBounded,
                normalize: 1.0,
                max_length_factor: None,
                max_length: Some(511),
                at_limit: AtLimit::ForceEnd,
                allow_unk: true,
                max_source: 512,
                ..marian
            },
            Dialect::Amun => {
                Search { beam: 1, max_length_factor: Some(2.0), max_source: 200, ..marian }
            }
            Dialect::Devlin => Search {
                beam: 6,
                max_length_factor: Some(2.0),
                max_length_extra: 5,
                allow_unk: true,
                ..marian
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_penalty_is_taken_off_before_dividing() {
        let search = Search { normalize: 0.6, word_penalty: 0.2, ..Search::of(Dialect::Marian) };
        assert!((search.final_score(-0.496532, 6) + 0.57899).abs() < 1e-5);
    }
}
