//! The best words so far.

use std::cmp::Reverse;

use peregrine_nn::Choice;

/// Places that are looked at together: 64 bytes of them.
const BLOCK: usize = 8;

/// Places from which on a newcomer costs less in a heap: of a long list a small part moves.
const MANY: usize = 65;

/// A list of the best words, best first; of equals the one with the lower number.
///
/// A word is one integer, of its score and its number, so that the larger one is better. Free places have one that is smaller than
/// all others: a newcomer then has all places move on behind it without a branch, and most come to a place that nobody could have
/// guessed. A list of many places is a heap until it is read, with its last word in front.
#[derive(Default)]
pub(super) struct TopK {
    /// Filled up to whole blocks: what is behind the last place has fallen out.
    words: Vec<[i64; BLOCK]>,
    places: usize,
}

/// Nobody: with this score no word is taken in.
const FREE: Choice = Choice { token: u32::MAX, score: f32::NEG_INFINITY };

/// Integers in the order of choices.
#[inline(always)]
const fn ordered(Choice { token, score }: Choice) -> i64 {
    ((turned(score.to_bits() as i32) as i64) << 32) | (!token) as i64
}

const fn choice(word: i64) -> Choice {
    Choice { token: !(word as u32), score: f32::from_bits(turned((word >> 32) as i32) as u32) }
}

/// The bits of a float, of which negative ones are the larger the further they are from zero, and back.
#[inline(always)]
const fn turned(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

impl TopK {
    /// Makes it a list with so many places that are all free.
    pub(super) fn clear(&mut self, places: usize) {
        self.words.clear();
        self.words.resize(places.div_ceil(BLOCK), [ordered(FREE); BLOCK]);
        self.places = places;
    }

    /// The score of the last place, if there is one.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<f32> {
        let last = if self.places >= MANY { Some(0) } else { self.places.checked_sub(1) };
        last.map(|last| choice(self.words.as_flattened()[last]).score)
    }

    /// Takes a word in. Who is behind it moves on by a place.
    #[inline(always)]
    pub(super) fn insert(&mut self, Choice { token, score }: Choice) {
        // Zeros are alike.
        let mut word = ordered(Choice { token, score: score + 0.0 });
        if self.places >= MANY {
            return replace_last(&mut self.words.as_flattened_mut()[..self.places], word);
        }
        for words in &mut self.words {
            let old = *words;
            let mut before = [i64::MAX; BLOCK];
            before[1..].copy_from_slice(&old[..BLOCK - 1]);
            for i in 0..BLOCK {
                words[i] = old[i].max(before[i].min(word));
            }
            word = word.min(old[BLOCK - 1]);
        }
    }

    /// The words in their order. To take in more, it has to be cleared.
    pub(super) fn choices(&mut self) -> impl Iterator<Item = Choice> {
        let all = &mut self.words.as_flattened_mut()[..self.places];
        if self.places >= MANY {
            all.sort_unstable_by_key(|&word| Reverse(word));
        }
        all.iter().map(|&word| choice(word)).take_while(|word| word.score > FREE.score)
    }
}

/// Puts a word in place of a heap's first, if it is larger, and then where it belongs: no word is larger than those at twice its
/// place.
#[inline(never)]
fn replace_last(heap: &mut [i64], word: i64) {
    if word <= heap[0] {
        return;
    }
    let mut place = 0;
    while let Some(&left) = heap.get(2 * place + 1) {
        let right = heap.get(2 * place + 2).copied().unwrap_or(i64::MAX);
        let (smaller, at) =
            if right < left { (right, 2 * place + 2) } else { (left, 2 * place + 1) };
        if word <= smaller {
            break;
        }
        (heap[place], place) = (smaller, at);
    }
    heap[place] = word;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as sorting all words, with an order that keeps equals as they are.
        #[test]
        fn the_best_come_first(
            places in prop::sample::select((1usize..40).chain([64, 65, 66, 90, 200]).collect::<Vec<_>>()),
            scores in prop::collection::vec(prop::sample::select(vec![f32::MIN, -2.0, -0.0, 0.0, 0.5, 3.0, 7.0, f32::INFINITY]), 0..300),
        ) {
            let words = (0..).zip(scores).map(|(token, score)| Choice { token, score });
            let mut ranking = TopK::default();
            ranking.clear(3);
            ranking.insert(Choice { token: 9, score: 9.0 });
            ranking.clear(places);
            words.clone().filter(|word| word.token % 2 == 0).for_each(|word| ranking.insert(word));
            words.clone().filter(|word| word.token % 2 == 1).for_each(|word| ranking.insert(word));
            let mut sorted: Vec<Choice> = words.collect();
            sorted.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap());
            sorted.truncate(places);
            let last = sorted.get(places - 1).map_or(f32::NEG_INFINITY, |word| word.score);
            prop_assert_eq!(ranking.last(), Some(last));
            prop_assert_eq!(ranking.choices().collect::<Vec<_>>(), sorted);
        }
    }
}
