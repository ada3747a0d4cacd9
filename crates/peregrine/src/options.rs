//! How to translate.

use peregrine_decode::batching::BatchSize;
use peregrine_model::Search;

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
    /// Workers, each translating a batch at a time.
    pub threads: usize,
    /// How large a batch may be.
    pub batch: BatchSize,
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
            threads: 1,
            batch: BatchSize { sentences: 64, tokens: 4096 },
        }
    }

    /// The same with another beam.
    pub fn with_beam(mut self, beam: usize) -> Options {
        self.search.beam = beam;
        self
    }
}
