//! Search and batching: which words a sentence gets, and who is in the batch at each step.
//!
//! [`Beam`](beam) is the search of one sentence and knows nothing of batches; [`Decoder`] steps all
//! sentences of a batch together through one network or an [ensemble](scorer); [`batching`] decides
//! which sentences make a batch.

#![forbid(unsafe_code)]

pub mod batching;
mod beam;
mod decoder;
mod hypothesis;
mod scorer;
mod settings;

pub use decoder::{Decoder, Job};
pub use hypothesis::Hypothesis;
pub use scorer::Member;
pub use settings::Settings;
