//! Amun's mini-batches: hypotheses and sentences that have ended leave at once, so each
//! step of a batch is cheaper than the one before. The last steps have few rows.

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::Arrival, joins_running: false, computes_finished: false };
