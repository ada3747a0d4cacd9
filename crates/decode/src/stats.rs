//! The times of a worker, and the number of sentences and rows in its batches.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::clock::{self, Moment};

/// The counters that are always on, shared by all workers.
#[derive(Debug, Default)]
pub struct Counters {
    steps: AtomicU64,
    rows: AtomicU64,
    sentences: AtomicU64,
    source_tokens: AtomicU64,
    target_tokens: AtomicU64,
    finished: AtomicU64,
}

/// A snapshot of [`Counters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decoder steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Sentences in the batch, summed over the steps.
    pub sentences: u64,
    /// Source tokens encoded.
    pub source_tokens: u64,
    /// Target tokens of finished sentences.
    pub target_tokens: u64,
    /// Finished sentences.
    pub finished: u64,
}

impl Counters {
    pub(crate) fn step(&self, sentences: usize, rows: usize) {
        self.steps.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        self.sentences.fetch_add(sentences as u64, Relaxed);
    }

    pub(crate) fn encoded(&self, tokens: usize) {
        self.source_tokens.fetch_add(tokens as u64, Relaxed);
    }

    pub(crate) fn finished(&self, tokens: usize) {
        self.target_tokens.fetch_add(tokens as u64, Relaxed);
        self.finished.fetch_add(1, Relaxed);
    }

    /// A snapshot of the counters.
    pub fn counts(&self) -> Counts {
        Counts {
            steps: self.steps.load(Relaxed),
            rows: self.rows.load(Relaxed),
            sentences: self.sentences.load(Relaxed),
            source_tokens: self.source_tokens.load(Relaxed),
            target_tokens: self.target_tokens.load(Relaxed),
            finished: self.finished.load(Relaxed),
        }
    }
}

/// Counts and times of one worker, or of several added up.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Time for splitting and tokenising, measured by the caller of the workers.
    pub tokenise: Duration,
    /// Time for detokenising, measured by the caller of the workers.
    pub detokenise: Duration,
    /// Time in the encoder, and for the decoder's keys and values of the source.
    pub encode: Duration,
    /// Time in the decoder's layers.
    pub decode: Duration,
    /// Time in the output layer: product, softmax and top-k.
    pub output: Duration,
    /// Time in the search and in batching.
    pub search: Duration,
    /// Time spent waiting for sentences.
    pub waiting: Duration,
    /// Decoder steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Rows of hypotheses that had ended.
    pub dead_rows: u64,
    /// Sentences in the batch, summed over the steps.
    pub sentences: u64,
    /// The batch size in sentences, summed over the steps.
    pub places: u64,
    /// Runs of the encoder.
    pub encodings: u64,
    /// Source tokens encoded.
    pub source_tokens: u64,
    /// Padding tokens that a padded encoder batch would have had.
    pub source_padding: u64,
    /// Source positions the decoder's rows read, summed over the steps.
    pub source_reads: u64,
    /// Padding positions that the rows would have read in a padded batch.
    pub read_padding: u64,
    /// `occupancy[n]` is the number of steps with n sentences alive.
    pub occupancy: Vec<u64>,
    /// The sum over refills of the sentences waiting.
    pub queue_sum: u64,
    /// The number of refills.
    pub queue_looks: u64,
    /// The most sentences waiting at a refill.
    pub queue_most: u64,
    /// The time of each decoder step, layers and output, with the sentences alive; for plots.
    pub trace: Vec<TracedStep>,
    /// Whether steps are traced.
    pub tracing: bool,
    /// Times inside the networks by the name of the part, in the order in which they run.
    pub parts: Vec<(String, Duration)>,
}

/// A step for a plot.
#[derive(Debug, Clone, Copy)]
pub struct TracedStep {
    /// How long it took.
    pub time: Duration,
    /// Sentences alive in it.
    pub sentences: usize,
    /// Rows computed.
    pub rows: usize,
}

impl Stats {
    /// Counts a step.
    pub(crate) fn step(&mut self, step: TracedStep, dead_rows: usize, places: usize) {
        self.steps += 1;
        self.rows += step.rows as u64;
        self.dead_rows += dead_rows as u64;
        self.sentences += step.sentences as u64;
        self.places += places as u64;
        if self.occupancy.len() <= step.sentences {
            self.occupancy.resize(step.sentences + 1, 0);
        }
        self.occupancy[step.sentences] += 1;
        if self.tracing {
            self.trace.push(step);
        }
    }

    /// Counts the source positions that the rows of a step read: for each its source's length.
    pub(crate) fn reads(&mut self, lengths: impl Iterator<Item = usize> + Clone) {
        let longest = lengths.clone().max().unwrap_or(0);
        for length in lengths {
            self.source_reads += length as u64;
            self.read_padding += (longest - length) as u64;
        }
    }

    /// Counts an encoder run over sources of these lengths.
    pub(crate) fn encoded(&mut self, lengths: impl Iterator<Item = usize> + Clone) {
        let longest = lengths.clone().max().unwrap_or(0);
        self.encodings += 1;
        for length in lengths {
            self.source_tokens += length as u64;
            self.source_padding += (longest - length) as u64;
        }
    }

    /// Counts the sentences waiting at a refill.
    pub(crate) fn queue(&mut self, waiting: usize) {
        self.queue_sum += waiting as u64;
        self.queue_looks += 1;
        self.queue_most = self.queue_most.max(waiting as u64);
    }

    /// Adds another worker's counts and times.
    pub fn add(&mut self, other: &Stats) {
        self.tokenise += other.tokenise;
        self.detokenise += other.detokenise;
        self.encode += other.encode;
        self.decode += other.decode;
        self.output += other.output;
        self.search += other.search;
        self.waiting += other.waiting;
        self.steps += other.steps;
        self.rows += other.rows;
        self.dead_rows += other.dead_rows;
        self.sentences += other.sentences;
        self.places += other.places;
        self.encodings += other.encodings;
        self.source_tokens += other.source_tokens;
        self.source_padding += other.source_padding;
        self.source_reads += other.source_reads;
        self.read_padding += other.read_padding;
        self.queue_sum += other.queue_sum;
        self.queue_looks += other.queue_looks;
        self.queue_most = self.queue_most.max(other.queue_most);
        if self.occupancy.len() < other.occupancy.len() {
            self.occupancy.resize(other.occupancy.len(), 0);
        }
        for (sum, steps) in self.occupancy.iter_mut().zip(&other.occupancy) {
            *sum += steps;
        }
        self.trace.extend_from_slice(&other.trace);
        for (name, time) in &other.parts {
            self.part(name, *time);
        }
    }

    /// Adds to the time of a part.
    pub(crate) fn part(&mut self, name: &str, time: Duration) {
        match self.parts.iter_mut().find(|(n, _)| n == name) {
            Some((_, sum)) => *sum += time,
            None => self.parts.push((name.to_owned(), time)),
        }
    }
}

/// A clock that runs only if times are measured.
pub(crate) struct Clock(Option<Moment>);

impl Clock {
    pub(crate) fn new(on: bool) -> Clock {
        Clock(on.then(clock::now))
    }

    /// The time since the last lap, or since the start.
    pub(crate) fn lap(&mut self) -> Duration {
        let Some(last) = self.0 else { return Duration::ZERO };
        let now = clock::now();
        self.0 = Some(now);
        now - last
    }
}
