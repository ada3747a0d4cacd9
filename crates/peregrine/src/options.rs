//! How to translate: what belongs to a request, and what belongs to those who work on it.

use std::sync::Arc;

use peregrine_decode::Guard;
use peregrine_decode::batching::{BatchSize, Batching, ENCODE_TOKENS, Policy, Scope};
use peregrine_model::Search;
use peregrine_text::Split;

use crate::Dictionary;

/// How a text is translated. [`Translator::options`](crate::Translator::options) gives what the
/// model's own configuration says. Requests with different options run in the same batch, and none
/// changes what another one gets.
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let options = translator.options().with_beam(4).with_n_best(2);
/// assert_eq!((options.search.beam, options.n_best), (4, 2));
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
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
    /// How a line is split into sentences.
    pub split: Split,
    /// Replace unknown words by the source word they attend to, or by its translation in a dictionary.
    pub replace_unknown: Option<Arc<Dictionary>>,
    /// What is done against runaway output; nothing unless asked for, as in the original tools.
    pub guard: Option<Guard>,
    /// Whether a sentence that is too long for the model is an error
    /// ([`Error::TooLong`](crate::Error::TooLong)). If not, it is cut.
    pub refuse_long: bool,
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
            split: Split::None,
            replace_unknown: None,
            guard: None,
            refuse_long: false,
        }
    }

    /// The same with another beam.
    pub fn with_beam(mut self, beam: usize) -> Options {
        self.search.beam = beam;
        self
    }

    /// The same with so many translations of each sentence.
    pub fn with_n_best(self, n_best: usize) -> Options {
        Options { n_best, ..self }
    }

    /// The same with or without scores.
    pub fn with_scores(self, scores: bool) -> Options {
        Options { scores, ..self }
    }

    /// The same with or without attention to the source.
    pub fn with_alignments(self, alignments: bool) -> Options {
        Options { alignments, ..self }
    }

    /// The same with or without the model's shortlist.
    pub fn with_shortlist(self, shortlist: bool) -> Options {
        Options { shortlist, ..self }
    }

    /// The same with lines split in another way.
    pub fn with_split(self, split: Split) -> Options {
        Options { split, ..self }
    }

    /// The same with a guard against runaway output, or without.
    pub fn with_guard(self, guard: Option<Guard>) -> Options {
        Options { guard, ..self }
    }
}

/// Who works on requests. Translations do not depend on it, but for
/// [`shortlist_scope`](Self::shortlist_scope). [`Translator::workers`](crate::Translator::workers)
/// gives what suits the device.
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let workers = translator.workers().with_threads(2);
/// assert_eq!(workers.threads, 2);
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Workers {
    /// Threads, each translating a batch at a time.
    pub threads: usize,
    /// Threads that share the products of a worker, for latency; 1 splits none.
    pub threads_per_sentence: usize,
    /// How large a batch may be.
    pub batch: BatchSize,
    /// Who is in the batch at each step.
    pub batching: Policy,
    /// For policies that refill a running batch: refill it only when at most this share is left.
    pub top_up_threshold: Option<f32>,
    /// Most source tokens encoded in one go.
    pub encode_tokens: usize,
    /// Whose words a shortlist allows a sentence. A [`Service`](crate::Service) has
    /// [`Scope::Sentence`] always.
    pub shortlist_scope: Scope,
    /// Bytes the whole process may use, the model included, where texts are streamed or a service
    /// runs. It bounds what waits and sizes the batch.
    pub memory: Option<u64>,
}

impl Default for Workers {
    /// One thread with batches that suit a processor.
    fn default() -> Workers {
        Workers {
            threads: 1,
            threads_per_sentence: 1,
            batch: BatchSize { sentences: 64, tokens: 4096 },
            batching: Policy::Auto,
            top_up_threshold: None,
            encode_tokens: ENCODE_TOKENS,
            shortlist_scope: Scope::Sentence,
            memory: None,
        }
    }
}

impl Workers {
    /// The same with so many threads.
    pub fn with_threads(self, threads: usize) -> Workers {
        Workers { threads, ..self }
    }

    /// The same with batches of another size.
    pub fn with_batch(self, batch: BatchSize) -> Workers {
        Workers { batch, ..self }
    }

    /// The same with another policy.
    pub fn with_batching(self, batching: Policy) -> Workers {
        Workers { batching, ..self }
    }

    /// The same within so many bytes.
    pub fn with_memory(self, memory: Option<u64>) -> Workers {
        Workers { memory, ..self }
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
}
