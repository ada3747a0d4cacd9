//! Amun's mini-batches: what has ended leaves at once, hypotheses and sentences alike, so each
//! step of a batch is cheaper than the one before. The last steps have few rows.

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::Arrival, joins_running: false, computes_finished: false };
