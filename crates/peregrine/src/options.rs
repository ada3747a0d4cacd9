//! How to translate.

use std::sync::Arc;

use peregrine_decode::Guard;
use peregrine_decode::batching::{BatchSize, Batching, ENCODE_TOKENS, Policy, Scope};
use peregrine_model::Search;
use peregrine_text::Split;

use crate::Dictionary;

/// How to translate. [`Translator::options`](crate::Translator::options) gives what the model's own
/// configuration says.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to search.
    pub search: Search,
    /// How many translations of each sentence.
    pub n_best: usize,
    /// Whether scores are wanted.
    pub scores: bool,
    /// Whether attention to the source is wanted.
    pub alignments: bool,
    /// Whether the model's shortlist, if it has one, limits the words.
    pub shortlist: bool,
    /// Whose words it allows a sentence.
    pub shortlist_scope: Scope,
    /// Workers, each translating a batch at a time.
    pub threads: usize,
    /// Threads that share the products of a worker, for latency; 1 splits none. Translations do not
    /// depend on it.
    pub threads_per_sentence: usize,
    /// How large a batch may be.
    pub batch: BatchSize,
    /// Who is in the batch at each step. Translations do not depend on it.
    pub batching: Policy,
    /// For policies that refill a running batch: refill it only when at most this share is left.
    pub top_up_threshold: Option<f32>,
    /// Most source tokens encoded in one go; changes no translation.
    pub encode_tokens: usize,
    /// How a line is split into sentences.
    pub split: Split,
    /// Replace unknown words by the source word they attend to, or by its translation in a dictionary.
    pub replace_unknown: Option<Arc<Dictionary>>,
    /// What is done against runaway output; nothing unless asked for, as in the original tools.
    pub guard: Option<Guard>,
}

impl Options {
    /// Defaults around a search.
    pub fn new(search: Search) -> Options {
        Options {
            search,
            n_best: 1,
            scores: false,
            alignments: false,
            shortlist: true,
            shortlist_scope: Scope::Sentence,
            threads: 1,
            threads_per_sentence: 1,
            batch: BatchSize { sentences: 64, tokens: 4096 },
            batching: Policy::Auto,
            top_up_threshold: None,
            encode_tokens: ENCODE_TOKENS,
            split: Split::None,
            replace_unknown: None,
            guard: None,
        }
    }

    /// What workers are told about batches.
    pub(crate) fn batching(&self) -> Batching {
        Batching {
            top_up_threshold: self.top_up_threshold,
            encode_tokens: self.encode_tokens,
            scope: self.shortlist_scope,
            ..Batching::new(self.batching, self.batch)
        }
    }

    /// The same with another beam.
    pub fn with_beam(mut self, beam: usize) -> Options {
        self.search.beam = beam;
        self
    }
}
