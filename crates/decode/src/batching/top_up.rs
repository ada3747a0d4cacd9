//! Top-up batches (the draft paper's section 6.1; elsewhere continuous or in-flight batching): the encoder runs ahead, and a sentence that has
//! ended is replaced by an encoded one, so the batch stays full to the end of the text.
//!
//! The paper refills when half the batch is empty, since it copies the caches of the whole batch to
//! do so. Here a sentence has a slot of its own in every cache from the moment it is encoded:
//! joining costs nothing and happens at once. The encoder's batch must not be small, so
//! sentences are encoded [`ENCODE_TOKENS`](super::ENCODE_TOKENS) tokens at a time and wait until the batch has
//! room. The paper's rule is an option, [`Batching::top_up_threshold`](super::Batching::top_up_threshold).

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::Arrival, joins_running: true, computes_finished: false };
