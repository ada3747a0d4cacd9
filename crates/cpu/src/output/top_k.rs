//! The top-k of a row: its best words so far.

use std::cmp::Reverse;

use peregrine_nn::Choice;

/// Keys that are compared at once: 64 bytes of them.
const BLOCK: usize = 8;

/// Smallest k for which a heap is faster than a sorted list: an insertion moves few of its keys.
const HEAP_MIN: usize = 65;

/// The k best words, best first. Of words with equal scores, the one with the lower number is better.
///
/// A word is one integer key of its score and its number, where the larger key is better. The list is padded with a key that is
/// smaller than all others. An insertion then shifts the keys behind it without a branch; where a word is inserted is hard to
/// predict. From [`HEAP_MIN`] on the list is a heap with the smallest key in front, and is sorted when it is read.
#[derive(Default)]
pub(super) struct TopK {
    /// At least k keys, padded to whole blocks. Those behind the k-th are not part of the top-k.
    keys: Vec<[i64; BLOCK]>,
    k: usize,
}

/// An empty entry. No word with this score is inserted.
const EMPTY: Choice = Choice { token: u32::MAX, score: f32::NEG_INFINITY };

/// The key of a choice: integers in the order of choices.
#[inline(always)]
const fn to_key(Choice { token, score }: Choice) -> i64 {
    ((flip_negative(score.to_bits() as i32) as i64) << 32) | (!token) as i64
}

/// The choice of a key.
const fn from_key(key: i64) -> Choice {
    Choice { token: !(key as u32), score: f32::from_bits(flip_negative((key >> 32) as i32) as u32) }
}

/// The bits of a float as an integer of the same order, and back: inverts all bits but the sign of negative numbers.
#[inline(always)]
const fn flip_negative(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

impl TopK {
    /// Empties the list and sets k.
    pub(super) fn clear(&mut self, k: usize) {
        self.keys.clear();
        self.keys.resize(k.div_ceil(BLOCK), [to_key(EMPTY); BLOCK]);
        self.k = k;
    }

    /// The k-th best score, negative infinity while there are fewer words. None if k is 0.
    #[inline(always)]
    pub(super) fn kth_score(&self) -> Option<f32> {
        let last = if self.k >= HEAP_MIN { Some(0) } else { self.k.checked_sub(1) };
        last.map(|last| from_key(self.keys.as_flattened()[last]).score)
    }

    /// Inserts a word. Worse words move back by one, and the worst falls out.
    #[inline(always)]
    pub(super) fn insert(&mut self, Choice { token, score }: Choice) {
        // Adding zero makes −0 equal to 0.
        let mut key = to_key(Choice { token, score: score + 0.0 });
        if self.k >= HEAP_MIN {
            return replace_min(&mut self.keys.as_flattened_mut()[..self.k], key);
        }
        for keys in &mut self.keys {
            let old = *keys;
            let mut before = [i64::MAX; BLOCK];
            before[1..].copy_from_slice(&old[..BLOCK - 1]);
            for i in 0..BLOCK {
                keys[i] = old[i].max(before[i].min(key));
            }
            key = key.min(old[BLOCK - 1]);
        }
    }

    /// The words, best first. After this, [`clear`](TopK::clear) comes before the next insertion.
    pub(super) fn choices(&mut self) -> impl Iterator<Item = Choice> {
        let all = &mut self.keys.as_flattened_mut()[..self.k];
        if self.k >= HEAP_MIN {
            all.sort_unstable_by_key(|&key| Reverse(key));
        }
        all.iter().map(|&key| from_key(key)).take_while(|word| word.score > EMPTY.score)
    }
}

/// Replaces the smallest key of a min-heap, if the new key is larger.
#[inline(never)]
fn replace_min(heap: &mut [i64], key: i64) {
    if key <= heap[0] {
        return;
    }
    let mut node = 0;
    while let Some(&left) = heap.get(2 * node + 1) {
        let right = heap.get(2 * node + 2).copied().unwrap_or(i64::MAX);
        let (smaller, child) =
            if right < left { (right, 2 * node + 2) } else { (left, 2 * node + 1) };
        if key <= smaller {
            break;
        }
        (heap[node], node) = (smaller, child);
    }
    heap[node] = key;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as a stable sort of all words.
        #[test]
        fn top_k_is_the_head_of_the_sorted_list(
            k in prop::sample::select((1usize..40).chain([64, 65, 66, 90, 200]).collect::<Vec<_>>()),
            scores in prop::collection::vec(prop::sample::select(vec![f32::MIN, -2.0, -0.0, 0.0, 0.5, 3.0, 7.0, f32::INFINITY]), 0..300),
        ) {
            let words = (0..).zip(scores).map(|(token, score)| Choice { token, score });
            let mut top_k = TopK::default();
            top_k.clear(3);
            top_k.insert(Choice { token: 9, score: 9.0 });
            top_k.clear(k);
            words.clone().filter(|word| word.token % 2 == 0).for_each(|word| top_k.insert(word));
            words.clone().filter(|word| word.token % 2 == 1).for_each(|word| top_k.insert(word));
            let mut sorted: Vec<Choice> = words.collect();
            sorted.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap());
            sorted.truncate(k);
            let kth = sorted.get(k - 1).map_or(f32::NEG_INFINITY, |word| word.score);
            prop_assert_eq!(top_k.kth_score(), Some(kth));
            prop_assert_eq!(top_k.choices().collect::<Vec<_>>(), sorted);
        }
    }
}
