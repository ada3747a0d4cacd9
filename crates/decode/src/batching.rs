//! Which sentences make a batch.
//!
//! Sentences of like length together waste least, and long ones first means that the last batches,
//! which the others wait for, are short ones.

/// How large a batch may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Most sentences.
    pub sentences: usize,
    /// Most source tokens; a single longer sentence is a batch of its own.
    pub tokens: usize,
}

/// Cuts sentences of these lengths into batches, longest first; each batch is a list of places in
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
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for i in order {
        let fits = batches.last().is_some_and(|batch| {
            batch.len() < size.sentences && tokens + lengths[i] <= size.tokens
        });
        if fits {
            tokens += lengths[i];
            batches[..].last_mut().into_iter().for_each(|batch| batch.push(i));
        } else {
            tokens = lengths[i];
            batches.push(vec![i]);
        }
    }
    batches
}
