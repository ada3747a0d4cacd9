//! The default: top-up batches from sorted read-ahead.
//!
//! Refilling keeps the batch full while there is something to refill it with; taking the longest
//! first makes the end of a text, when there is nothing more, short.

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::LongestFirst, joins_running: true, computes_finished: false };
