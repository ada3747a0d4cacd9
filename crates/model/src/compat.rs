//! Switches that follow another tool, or another version of it, where it differs from this engine.
//!
//! All of them are applied in one place, [`Compat::apply`], to the description or the search
//! settings; only `raw-source` is read while files are opened. The code that computes is
//! independent of them.

use std::fmt;
use std::str::FromStr;

use crate::{
    Architecture, Dialect, Model, ModelError, Op, Positions, Search, SelfKeys, Spacing,
    Suppression, Transformer,
};

/// A switch by which a model is read or searched as by another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// `marian-1.12-prenorm`: decode pre-norm models as Marian 1.12 does, which normalises decoder
    /// keys and values at the first step only.
    Marian112Prenorm,
    /// `raw-keys`: self-attention's keys and values are never normalised in pre-norm models, as
    /// Marian trained them before February 2022.
    RawKeys,
    /// `normalised-keys`: keys and values are computed from the normalised input, as the queries
    /// are.
    NormalisedKeys,
    /// `marian-positions`: Marian's sinusoids replace the positions of a converted model.
    MarianPositions,
    /// `marian-epsilon`: norms with Marian's epsilon, 1e-6.
    MarianEpsilon,
    /// `search-marian`: end beams and suppress words as Marian; beam, lengths and normalisation stay.
    SearchMarian,
    /// `search-ctranslate2`: end beams and suppress words as CTranslate2.
    SearchCtranslate2,
    /// `search-huggingface`: end beams and suppress words as Hugging Face.
    SearchHuggingFace,
    /// `drop-pad`: remove suppressed words (Hugging Face's padding word) before the softmax, so
    /// that scores are those of the model before its conversion.
    DropPad,
    /// `raw-source`: source lines of CTranslate2 models are that library's input: pieces separated
    /// by blanks, with the language tokens and end symbols that the model needs.
    RawSource,
}

impl Compat {
    /// All switches, in the order of the documentation.
    pub const ALL: [Compat; 10] = [
        Compat::Marian112Prenorm,
        Compat::RawKeys,
        Compat::NormalisedKeys,
        Compat::MarianPositions,
        Compat::MarianEpsilon,
        Compat::SearchMarian,
        Compat::SearchCtranslate2,
        Compat::SearchHuggingFace,
        Compat::DropPad,
        Compat::RawSource,
    ];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Compat::Marian112Prenorm => "marian-1.12-prenorm",
            Compat::RawKeys => "raw-keys",
            Compat::NormalisedKeys => "normalised-keys",
            Compat::MarianPositions => "marian-positions",
            Compat::MarianEpsilon => "marian-epsilon",
            Compat::SearchMarian => "search-marian",
            Compat::SearchCtranslate2 => "search-ctranslate2",
            Compat::SearchHuggingFace => "search-huggingface",
            Compat::DropPad => "drop-pad",
            Compat::RawSource => "raw-source",
        }
    }

    /// A description in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Compat::Marian112Prenorm => "pre-norm models as Marian 1.12's decoder computes them",
            Compat::RawKeys => "pre-norm models with keys and values that are not normalised",
            Compat::NormalisedKeys => "pre-norm models with normalised keys and values",
            Compat::MarianPositions => "Marian's sinusoidal positions",
            Compat::MarianEpsilon => "layer norms with Marian's epsilon, 1e-6",
            Compat::SearchMarian => "beams that shrink as Marian's",
            Compat::SearchCtranslate2 => "beams that end as CTranslate2's",
            Compat::SearchHuggingFace => "beams that end as Hugging Face's",
            Compat::DropPad => "suppressed words left out before the softmax",
            Compat::RawSource => {
                "source lines as CTranslate2 takes them: pieces, language tokens and all"
            }
        }
    }

    /// Applies the switch to a model.
    pub fn apply(self, model: &mut Model) {
        match self {
            Compat::SearchMarian => adopt_search(&mut model.search, Dialect::Marian),
            Compat::SearchCtranslate2 => adopt_search(&mut model.search, Dialect::Ctranslate2),
            Compat::SearchHuggingFace => adopt_search(&mut model.search, Dialect::HuggingFace),
            Compat::DropPad => model.search.suppression = Suppression::BeforeSoftmax,
            // It is applied when the files are opened.
            Compat::RawSource => {}
            _ => {
                for member in &mut model.members {
                    if let Architecture::Transformer(description) = &mut member.architecture {
                        self.apply_to_description(description);
                    }
                }
            }
        }
    }

    fn apply_to_description(self, t: &mut Transformer) {
        match self {
            Compat::Marian112Prenorm => {
                t.encoder.self_keys = SelfKeys::Processed;
                t.decoder.self_keys = SelfKeys::RawAfterFirst;
            }
            Compat::RawKeys => set_keys(t, SelfKeys::Raw),
            Compat::NormalisedKeys => set_keys(t, SelfKeys::Processed),
            Compat::MarianPositions => use_marian_positions(t),
            Compat::MarianEpsilon => {
                t.encoder.norm_epsilon = MARIAN_EPSILON;
                t.decoder.norm_epsilon = MARIAN_EPSILON;
            }
            _ => {}
        }
    }
}

/// Epsilon of the norms of Marian's transformers.
pub(crate) const MARIAN_EPSILON: f32 = 1e-6;
/// Positions of Marian's transformers.
pub(crate) const MARIAN_POSITIONS: Positions =
    Positions::Sinusoid { first: 0, spacing: Spacing::HalfLessOne };

/// Whether a list of processing ops has a norm.
pub(crate) fn normalises(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Norm | Op::RmsNorm))
}

fn set_keys(t: &mut Transformer, keys: SelfKeys) {
    t.encoder.self_keys = keys;
    t.decoder.self_keys = keys;
}

/// Sets Marian's positions, which are computed and have no limit.
fn use_marian_positions(t: &mut Transformer) {
    for stack in [&mut t.encoder, &mut t.decoder] {
        if stack.positions != Positions::None {
            stack.positions = MARIAN_POSITIONS;
        }
    }
    t.position_limit = None;
}

fn adopt_search(search: &mut Search, dialect: Dialect) {
    let theirs = Search::of(dialect);
    search.finish = theirs.finish;
    search.suppression = theirs.suppression;
    search.at_limit = theirs.at_limit;
    search.score_prefix = theirs.score_prefix;
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compat {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Compat, ModelError> {
        Compat::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| {
            let names = Compat::ALL.map(Compat::name).join(", ");
            ModelError::Option(format!("unknown compatibility switch {name:?}; known are {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for compat in Compat::ALL {
            assert_eq!(compat.name().parse::<Compat>().unwrap(), compat);
            assert!(!compat.summary().is_empty());
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "marian-9".parse::<Compat>().unwrap_err().to_string();
        assert!(message.contains("marian-9") && message.contains("raw-keys, normalised-keys"));
    }
}
