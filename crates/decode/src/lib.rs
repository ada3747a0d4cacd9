//! Search and batching: which words a sentence gets, and which sentences are in the batch at each step.
//!
//! A beam (`beam.rs`) is the search of one sentence and independent of batches; a decoder
//! (`decoder.rs`) steps the sentences of a batch together through one network or an ensemble
//! (`scorer.rs`), each by its own [`Settings`]; [`Constraints`] are what a translation must and must not hold; [`batching`] decides which sentences are in the batch; [`guard`]
//! stops runaway output. A [`Worker`] runs all this on one thread and reports the result of
//! each sentence.

#![forbid(unsafe_code)]

pub mod batching;
mod beam;
pub mod clock;
mod constraints;
mod decoder;
pub mod guard;
mod hypothesis;
mod job;
mod scorer;
mod sentence;
mod settings;
mod stats;
mod worker;

pub use constraints::{Constraints, LEAST_ATTENTION, MOST_TERMS, Term, WordEdges};
pub use guard::{Guard, Verdict};
pub use hypothesis::Hypothesis;
pub use job::{Call, Done, Event, Failure, Job};
pub use scorer::Member;
pub use settings::Settings;
pub use stats::{Counters, Counts, Stats, TracedStep};
pub use worker::{Worker, Workplace};
