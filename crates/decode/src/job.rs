//! The input and the output of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine_nn::Fault;

use crate::clock::Moment;
use crate::constraints::Constraints;
use crate::guard::Verdict;
use crate::hypothesis::Hypothesis;
use crate::settings::Settings;

/// A sentence to translate.
#[derive(Debug, Clone)]
pub struct Job {
    /// Source ids with their frame.
    pub source: Vec<u32>,
    /// The shortlist: target words allowed, sorted, the end symbol included. Without one all words are allowed.
    pub words: Option<Arc<[u32]>>,
    /// The first target words, after which the search begins. If the end symbol is among them the
    /// whole translation is given, and only its scores are computed.
    pub prefix: Vec<u32>,
    /// The language token that is the first target word. It costs nothing, counts in the length, and is not part of the
    /// translation.
    pub language: Option<u32>,
    /// The first input of the decoder in place of the model's own.
    pub start: Option<u32>,
    /// If given, the exact number of target tokens, for measuring.
    pub length: Option<usize>,
    /// What the translation must and must not hold. Attention to the source counts if the settings ask for alignments. Such a
    /// search has no guard against runaway output.
    pub constraints: Option<Arc<Constraints>>,
    /// The search settings, shared by the sentences of a request.
    pub settings: Arc<Settings>,
    /// The cancellation and deadline of the request, shared by its sentences.
    pub call: Arc<Call>,
}

impl Job {
    /// A sentence without shortlist, prefix and constraints.
    pub fn new(source: Vec<u32>, settings: &Arc<Settings>, call: &Arc<Call>) -> Job {
        Job {
            source,
            words: None,
            prefix: Vec::new(),
            language: None,
            start: None,
            length: None,
            constraints: None,
            settings: Arc::clone(settings),
            call: Arc::clone(call),
        }
    }

    /// Bytes it takes while it waits.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.words.as_ref().map_or(0, |words| words.len());
        size_of::<Job>() + 4 * (self.source.len() + self.prefix.len() + words)
    }
}

/// The cancellation flag and the deadline of a request, read while its sentences wait or are translated.
#[derive(Debug, Default)]
pub struct Call {
    cancelled: AtomicBool,
    deadline: Option<Moment>,
    tokens: bool,
}

impl Call {
    /// A request that fails at `deadline`. With `tokens`, greedy searches report each word as it
    /// comes.
    pub fn new(deadline: Option<Moment>, tokens: bool) -> Call {
        Call { cancelled: AtomicBool::new(false), deadline, tokens }
    }

    /// Cancels the request.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// The deadline.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Whether each word is reported as it comes.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.tokens
    }

    /// Why the request is not translated any further, if so.
    pub fn ended(&self, now: Moment) -> Option<Failure> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Some(Failure::Cancelled);
        }
        self.deadline.filter(|&deadline| deadline <= now).map(|_| Failure::Deadline)
    }
}

/// Why a sentence has no translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The caller cancelled it.
    Cancelled,
    /// Its deadline has passed.
    Deadline,
    /// The device failed.
    Device(Fault),
    /// The worker panicked, which is a bug.
    Panic(String),
}

/// What a worker reports.
#[derive(Debug, Clone)]
pub enum Event {
    /// A sentence has been translated.
    Done(Done),
    /// A sentence has failed.
    Failed {
        /// The sentence's ticket.
        ticket: u64,
        /// The reason.
        failure: Failure,
    },
    /// A greedy search has found its next word.
    Token {
        /// The sentence's ticket.
        ticket: u64,
        /// The number of words before it. At 0 the search begins, perhaps for a further attempt.
        position: usize,
        /// The word.
        token: u32,
    },
}

/// A sentence that has been translated.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The sentence's ticket.
    pub ticket: u64,
    /// Its translations, best first.
    pub hypotheses: Vec<Hypothesis>,
    /// What the guards against runaway output found.
    pub verdict: Verdict,
}
