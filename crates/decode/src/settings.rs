//! What a search is asked to do.

use std::sync::OnceLock;

use peregrine_model::{AtLimit, Search, Suppression};
use peregrine_nn::Scoring;

use crate::beam::Banned;
use crate::guard::Guard;

/// Search settings with what only the tokenizers know, and what the caller wants back.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How to search.
    pub search: Search,
    /// The end symbol.
    pub end: u32,
    /// The unknown word, if the target vocabulary has one.
    pub unknown: Option<u32>,
    /// Whether scores are wanted. Without them a greedy search computes no probabilities.
    pub scores: bool,
    /// Whether attention to the source is wanted.
    pub alignments: bool,
    /// How many translations of a sentence are wanted.
    pub n_best: usize,
    /// What is done against runaway output; nothing where the original's words are wanted.
    pub guard: Option<Guard>,
    /// Worked out by the first sentence that has these settings.
    banned: OnceLock<Banned>,
}

impl Settings {
    /// A search that gives its best translation and nothing else.
    pub fn new(search: Search, end: u32, unknown: Option<u32>) -> Settings {
        Settings {
            search,
            end,
            unknown,
            scores: false,
            alignments: false,
            n_best: 1,
            guard: None,
            banned: OnceLock::new(),
        }
    }

    /// Words that may never be produced, as a search asks for them.
    pub(crate) fn bans(&self) -> &Banned {
        self.banned.get_or_init(|| Banned::new(self))
    }

    /// Words that may never be produced, sorted; with the end symbol if `no_end`.
    pub(crate) fn banned(&self, no_end: bool) -> Vec<u32> {
        let unknown = self.unknown.filter(|_| !self.search.allow_unk);
        let end = no_end.then_some(self.end);
        let mut banned: Vec<u32> =
            self.search.suppress.iter().copied().chain(unknown).chain(end).collect();
        banned.sort_unstable();
        banned.dedup();
        banned
    }

    /// How words must be scored for this search.
    pub(crate) fn scoring(&self) -> Scoring {
        if self.search.beam == 1 && !self.scores {
            Scoring::Logit
        } else if self.search.suppression == Suppression::BeforeSoftmax {
            Scoring::LogProbabilityOfAllowed
        } else {
            Scoring::LogProbability
        }
    }

    /// Most tokens for a source of that length; at least one, or nothing could end.
    pub(crate) fn limit(&self, source_length: usize, position_limit: usize) -> usize {
        let by_factor = self.search.max_length_factor.map_or(usize::MAX, |factor| {
            // As a float cast saturates, a huge factor means no limit.
            ((factor * source_length as f32).ceil() as usize)
                .saturating_add(self.search.max_length_extra)
        });
        let fixed = self.search.max_length.unwrap_or(usize::MAX);
        by_factor.min(fixed).min(position_limit).max(1)
    }

    /// Whether hypotheses at the limit are given an end symbol at no cost.
    pub(crate) fn forces_end(&self) -> bool {
        self.search.at_limit == AtLimit::ForceEnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peregrine_model::Dialect;

    fn settings() -> Settings {
        Settings::new(Search::of(Dialect::Marian), 0, Some(1))
    }

    #[test]
    fn limits_round_up_and_never_reach_zero() {
        let mut s = settings();
        s.search.max_length_factor = Some(0.6);
        assert_eq!(s.limit(5, 1000), 3);
        assert_eq!(s.limit(6, 1000), 4);
        assert_eq!(s.limit(0, 1000), 1);
        assert_eq!(s.limit(100, 50), 50);
    }

    #[test]
    fn banned_words_are_sorted() {
        let mut s = settings();
        s.search.suppress = vec![9, 3];
        assert_eq!(s.banned(false), [1, 3, 9]);
        assert_eq!(s.banned(true), [0, 1, 3, 9]);
        s.search.allow_unk = true;
        assert_eq!(s.banned(false), [3, 9]);
    }
}
