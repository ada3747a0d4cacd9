//! Search and batching: which words a sentence gets, and who is in the batch at each step.
//!
//! A beam (`beam.rs`) is the search of one sentence and knows nothing of batches; a [`Decoder`] steps
//! the sentences of a batch together through one network or an ensemble (`scorer.rs`); [`batching`]
//! decides who is in the batch; [`guard`] stops sentences that run away.

#![forbid(unsafe_code)]

pub mod batching;
mod beam;
mod decoder;
pub mod guard;
mod hypothesis;
mod job;
mod scorer;
mod sentence;
mod settings;
mod stats;

pub use decoder::Decoder;
pub use guard::{Guard, Verdict};
pub use hypothesis::Hypothesis;
pub use job::{Done, Job};
pub use scorer::Member;
pub use settings::Settings;
pub use stats::{Stats, TracedStep};
