//! What goes into a worker, and what comes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine_nn::Fault;

use crate::clock::Moment;
use crate::guard::Verdict;
use crate::hypothesis::Hypothesis;
use crate::settings::Settings;

/// A sentence to translate.
#[derive(Debug, Clone)]
pub struct Job {
    /// Source ids with their frame.
    pub source: Vec<u32>,
    /// Target words allowed, sorted and holding the end symbol; all if there is no list.
    pub words: Option<Arc<[u32]>>,
    /// The first target words; the search goes on from there. If the end symbol is among them the
    /// whole translation is given, and only its scores are worked out.
    pub prefix: Vec<u32>,
    /// Exactly this many target tokens, whatever they are: for measuring.
    pub length: Option<usize>,
    /// How its search is done; shared by the sentences of a request.
    pub settings: Arc<Settings>,
    /// What its owner may still say; shared by the sentences of a request.
    pub call: Arc<Call>,
}

impl Job {
    /// A sentence without word list and prefix.
    pub fn new(source: Vec<u32>, settings: &Arc<Settings>, call: &Arc<Call>) -> Job {
        Job {
            source,
            words: None,
            prefix: Vec::new(),
            length: None,
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

/// What the owner of a request may still say while its sentences wait or are translated, and how long
/// it waits for them.
#[derive(Debug, Default)]
pub struct Call {
    cancelled: AtomicBool,
    deadline: Option<Moment>,
    tokens: bool,
}

impl Call {
    /// A request that is given up at `deadline`. With `tokens`, greedy searches tell each word as it
    /// comes.
    pub fn new(deadline: Option<Moment>, tokens: bool) -> Call {
        Call { cancelled: AtomicBool::new(false), deadline, tokens }
    }

    /// Nobody waits for it any more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// When it is given up.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Whether words are wanted as they come.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.tokens
    }

    /// Why it is not translated any further, if so.
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
    /// Its owner gave it up.
    Cancelled,
    /// Its deadline has passed.
    Deadline,
    /// The device failed.
    Device(Fault),
    /// There is a bug.
    Panic(String),
}

/// What a worker tells.
#[derive(Debug, Clone)]
pub enum Event {
    /// A sentence has been translated.
    Done(Done),
    /// It will not be.
    Failed {
        /// The number it came with.
        ticket: u64,
        /// Why.
        failure: Failure,
    },
    /// The next word of a greedy search.
    Token {
        /// The number its sentence came with.
        ticket: u64,
        /// Number of words before it. At 0 the search begins, perhaps again.
        position: usize,
        /// The word.
        token: u32,
    },
}

/// A sentence that has been translated.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The number it came with.
    pub ticket: u64,
    /// Its translations, best first.
    pub hypotheses: Vec<Hypothesis>,
    /// What the guards found.
    pub verdict: Verdict,
}
