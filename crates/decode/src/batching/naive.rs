//! Constant batches: the papers' baseline.
//!
//! As many rows are computed at every step as at the first: every sentence keeps its beam until
//! the last sentence of the batch has ended. The results of ended hypotheses' rows are ignored.
//! It serves for comparison.

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::Arrival, joins_running: false, computes_finished: true };
