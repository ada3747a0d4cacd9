//! The settings of a search.

use std::sync::OnceLock;

use peregrine_model::{AtLimit, Search, Suppression};
use peregrine_nn::Scoring;

use crate::guard::Guard;

/// Search settings, with the ids of special words and the results that the caller wants.
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
    /// The number of translations wanted of a sentence.
    pub n_best: usize,
    /// The guard against runaway output; none if the original tool's words are wanted.
    pub guard: Option<Guard>,
    /// The banned words, computed for the first sentence that has these settings.
    banned: OnceLock<Banned>,
}

/// Words that may not be produced, worked out once for all sentences of a request.
#[derive(Debug, Clone)]
pub(crate) struct Banned {
    pub(crate) always: Vec<u32>,
    pub(crate) without_end: Vec<u32>,
}

impl Settings {
    /// Settings of a search that returns its best translation only.
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

    /// Words that may never be produced, with and without the end symbol.
    pub(crate) fn bans(&self) -> &Banned {
        self.banned
            .get_or_init(|| Banned { always: self.banned(false), without_end: self.banned(true) })
    }

    /// Words that may never be produced, sorted; with the end symbol if `no_end`.
    fn banned(&self, no_end: bool) -> Vec<u32> {
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

    /// The most target tokens for a source of that length; at least one, or no hypothesis could end.
    pub(crate) fn limit(&self, source_length: usize, position_limit: usize) -> usize {
        let by_factor = self.search.max_length_factor.map_or(usize::MAX, |factor| {
            // As a float cast saturates, a huge factor means no limit.
            ((factor * source_length as f32).ceil() as usize)
                .saturating_add(self.search.max_length_extra)
        });
        let fixed = self.search.max_length.unwrap_or(usize::MAX);
        by_factor.min(fixed).min(position_limit).max(1)
    }

    /// Whether hypotheses at the limit get an end symbol whose score counts as 0.
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
