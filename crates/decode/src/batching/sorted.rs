//! Maxi-batches: sentences are read ahead, sorted by length and cut into batches by count and
//! tokens. Sentences of similar length end at about the same step. The longest come first, so that the
//! last batches, which idle workers wait for, are short.

use super::{BatchSize, Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::LongestFirst, joins_running: false, computes_finished: false };

/// Cuts sentences of these lengths into batches, longest first; each batch is a list of indexes of
/// `lengths`. Sentences of equal length keep their order.
///
/// ```
/// use peregrine_decode::batching::{BatchSize, sorted_batches};
/// let size = BatchSize { sentences: 2, tokens: 10 };
/// assert_eq!(sorted_batches(&[3, 9, 4, 3], size), [vec![1], vec![2, 0], vec![3]]);
/// ```
pub fn sorted_batches(lengths: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    let mut rest = order.as_slice();
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(size.fitting(rest.iter().map(|&i| lengths[i])));
        batches.push(batch.to_vec());
        rest = after;
    }
    batches
}
