//! The word cache: segmentations of words that came up before.
//!
//! Where no piece continues beyond a blank, a word is segmented by itself. Of the text before it only the sum of scores counts,
//! through the rounding of later sums. A segmentation that is better than all others by more than rounding can change is that of
//! the word in every line. It is kept, and other lines need no trie walks for it.
//!
//! A word has two slots by its hash. A slot keeps its first word for good: most of the first words of a text are frequent ones.

use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHasher;

use super::file::Piece;
use super::normalizer::ESCAPED_BLANK;

/// A power of two.
const SLOTS: usize = 1 << 14;
/// Longer words are not kept.
const MAX_BYTES: usize = 64;
/// No score may be further from zero.
const MAX_SCORE: f64 = 100.0;
/// Where the sum of scores is further from zero, words are segmented as usual.
const MAX_SUM: f32 = 8192.0;
/// By how much a segmentation must be better than the others. Sums stay below 8192 + 64 · 100 < 2¹⁴, where rounding to float32
/// changes them by 2⁻¹¹ at most. A segmentation has 64 pieces at most, so two of them can come 2 · 64 · 2⁻¹¹ = 0.0625 closer.
const MARGIN: f64 = 0.07;

/// Shared by all clones of a model.
#[derive(Debug, Clone)]
pub(super) struct WordCache {
    slots: Arc<[OnceLock<Word>]>,
}

#[derive(Debug)]
struct Word {
    text: Box<[u8]>,
    /// None if the segmentation depends on the sum before the word.
    pieces: Option<Pieces>,
}

/// A segmentation: the length in bytes and the id of each piece.
pub(super) type Pieces = Box<[(u8, u32)]>;

impl WordCache {
    /// No cache if a piece continues beyond a blank, or if scores are so large that rounding matters more than [`MARGIN`].
    pub(super) fn new(pieces: &[Piece<'_>], scores: &[f64]) -> Option<Self> {
        let continues = |piece: &Piece<'_>| {
            piece.kind.matches_text() && piece.text.rfind(ESCAPED_BLANK).is_some_and(|at| at > 0)
        };
        let all_small = scores.iter().all(|score| score.abs() <= MAX_SCORE);
        (all_small && !pieces.iter().any(continues))
            .then(|| Self { slots: (0..SLOTS).map(|_| OnceLock::new()).collect() })
    }

    /// The segmentation of a word behind scores of this sum, if it is known. `find` finds the best segmentation without rounding,
    /// and by how much it is better than all others.
    #[inline]
    pub(super) fn get(
        &self,
        word: &[u8],
        sum: f32,
        find: impl Fn() -> (Pieces, f64),
    ) -> Option<&[(u8, u32)]> {
        if word.len() > MAX_BYTES || sum.abs() > MAX_SUM {
            return None;
        }
        let mut hasher = FxHasher::default();
        hasher.write(word);
        let hash = hasher.finish() as usize;
        let slots = [hash, hash / SLOTS].map(|slot| &self.slots[slot % SLOTS]);
        let keep = || {
            let (pieces, lead) = find();
            Word { text: word.into(), pieces: (lead > MARGIN).then_some(pieces) }
        };
        let mut kept = slots.into_iter().map(|slot| slot.get_or_init(keep));
        kept.find(|kept| *kept.text == *word)?.pieces.as_deref()
    }

    /// How many words have a segmentation.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let words = self.slots.iter().filter_map(OnceLock::get);
        words.filter(|word| word.pieces.is_some()).count()
    }
}

/// The length of the first word of a text: up to the next blank.
#[inline]
pub(super) fn first_word(text: &[u8]) -> usize {
    let blank = ESCAPED_BLANK.as_bytes();
    let begins = |&at: &usize| text[at] == blank[0] && text[at..].starts_with(blank);
    (1..text.len()).find(begins).unwrap_or(text.len())
}
