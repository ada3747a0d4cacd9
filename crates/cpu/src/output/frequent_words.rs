//! Scores of the vocabulary's first words, with AMX tiles.
//!
//! Vocabularies are sorted by frequency, so that many shortlists of a batch have the first words. Computing a score of every row for
//! such a word, wanted or not, takes less time with tiles than computing those that are wanted one by one (`shared_words`):
//!
//! ```text
//! words:   0 … 255 │ 256 … 511 │ …        chunks that a twelfth of the rows or more have: packed product
//!          1024 …                         the rest: `shared_words`
//! ```
//!
//! Each row has a bit for every word, and scores of words that its shortlist lacks are dropped while they are in registers. The others
//! have the same bits, and come in the same order.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use crate::gemm::int8::{self, PIECE, PackedInt8, Piece, QuantisedInt8, ScoreSink};
use crate::isa::Isa;
use crate::isa::lanes::LANES;

/// Most words that are computed so.
pub(super) const MAX_WORDS: usize = 2048;

/// Words that are taken together or not at all. Tests have small vocabularies.
const CHUNK: usize = if cfg!(test) { 2 * PIECE } else { 8 * PIECE };

/// One score in so many must be wanted.
const WANTED_SHARE: usize = 12;

/// A bit for each of the first words: whether a shortlist has it.
#[derive(Clone)]
pub(super) struct Members([u32; MAX_WORDS / PIECE]);

impl Members {
    /// Those of a shortlist, whose words are in ascending order.
    pub(super) fn of(list: &[u32]) -> Members {
        let mut members = Members([0; MAX_WORDS / PIECE]);
        for &word in list.iter().take_while(|&&word| (word as usize) < MAX_WORDS) {
            members.0[word as usize / PIECE] |= 1 << (word as usize % PIECE);
        }
        members
    }

    /// How many of these words it has, which are whole pieces.
    fn count(&self, words: Range<usize>) -> usize {
        self.0[words.start / PIECE..words.end / PIECE]
            .iter()
            .map(|bits| bits.count_ones() as usize)
            .sum()
    }
}

/// The number of first words whose scores pay to be computed for all rows: none without AMX or with few rows.
pub(super) fn worthwhile<'a>(
    isa: Isa,
    packed: &PackedInt8,
    rows: impl ExactSizeIterator<Item = &'a Members> + Clone,
) -> usize {
    if !int8::can_feed_sink(isa, rows.len(), packed) {
        return 0;
    }
    let chunks = packed.outputs().min(MAX_WORDS) / CHUNK;
    let pays = |chunk: &usize| {
        let words = chunk * CHUNK..(chunk + 1) * CHUNK;
        let wanted: usize = rows.clone().map(|members| members.count(words.clone())).sum();
        wanted * WANTED_SHARE >= CHUNK * rows.len()
    };
    (0..chunks).take_while(pays).count() * CHUNK
}

/// Computes the scores of the first `words` words for all rows. Calls `consider(row, word, score)` for scores above the row's
/// threshold whose word is a member; it returns the new threshold.
pub(super) fn multiply<'a>(
    isa: Isa,
    x: &QuantisedInt8,
    (packed, words): (&PackedInt8, usize),
    rows: impl Iterator<Item = (&'a Members, f32)>,
    consider: &mut impl FnMut(usize, u32, f32) -> f32,
) {
    let (members, thresholds): (Vec<&Members>, Vec<f32>) = rows.unzip();
    let mut sink = MemberSink { members, thresholds, consider };
    int8::multiply_to_sink(isa, x, packed, 0..words / LANES, &mut sink);
}

/// Considers the scores of members that are above their row's threshold.
struct MemberSink<'a, F> {
    members: Vec<&'a Members>,
    thresholds: Vec<f32>,
    consider: F,
}

// SAFETY: no function computes a product; a register sink points at as many members and thresholds as there are rows.
unsafe impl<F: FnMut(usize, u32, f32) -> f32> ScoreSink for MemberSink<'_, F> {
    #[cfg(target_arch = "x86_64")]
    type RegisterSink = RegisterSink;

    fn rows(&self) -> usize {
        self.members.len()
    }

    fn take_block(&mut self, _: Isa, _: Range<usize>, _: &[f32]) {
        unreachable!("scores come in registers");
    }

    #[cfg(target_arch = "x86_64")]
    fn register_sink(&mut self, column: usize) -> Option<RegisterSink> {
        let (members, thresholds) = (self.members.as_ptr().cast(), self.thresholds.as_ptr());
        Some(RegisterSink { members, thresholds, piece: column / PIECE })
    }

    #[inline(always)]
    fn threshold(&self, row: usize) -> f32 {
        self.thresholds[row]
    }

    #[inline(always)]
    fn take_piece<const FMA: bool>(
        &mut self,
        row: usize,
        column: usize,
        (scores, above): (Piece, u32),
        _: bool,
    ) {
        let mut wanted = above & self.members[row].0[column / PIECE];
        while wanted != 0 {
            let i = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            let score = scores.as_flattened()[i];
            self.thresholds[row] = (self.consider)(row, (column + i) as u32, score);
        }
    }

    fn end(&mut self, _: Range<usize>, _: usize) {}
}

/// The sinks of a piece while it is in registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct RegisterSink {
    members: *const *const Members,
    thresholds: *const f32,
    piece: usize,
}

#[cfg(target_arch = "x86_64")]
impl int8::RegisterSink for RegisterSink {
    /// Branchless, as that of `score_sinks`.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    unsafe fn accept(self, row: usize, [left, right]: [__m512; 2]) -> bool {
        // SAFETY: the caller's: there is such a row; the product's words have pieces of members.
        let (members, threshold) = unsafe {
            ((**self.members.add(row)).0.get_unchecked(self.piece), *self.thresholds.add(row))
        };
        let threshold = _mm512_set1_ps(threshold);
        let above = |scores, members| {
            _mm512_mask_cmp_ps_mask::<_CMP_GT_OQ>(members as __mmask16, scores, threshold)
        };
        above(left, *members) | above(right, members >> LANES) == 0
    }
}

#[cfg(test)]
mod tests {
    use peregrine_model::{Activation, Precision, Weight};
    use peregrine_nn::Dense;

    use super::*;
    use crate::gemm::linear::{Linear, with_quantised_rows};
    use crate::isa::Level;
    use crate::memory::arena::Arena;

    #[test]
    fn every_member_is_considered_once_and_in_order() {
        let (inputs, outputs) = (70, 3 * CHUNK + 40);
        let values = |n: usize, k: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * k % 101) as f32 - 50.0) / 50.0).collect()
        };
        let weight = Weight::from_f32(vec![outputs, inputs], &values(outputs * inputs, 37));
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
        let Linear::Int8(packed) = &linear else { unreachable!("that precision") };
        for rows in [13, 16, 33, 70] {
            let x = values(rows * inputs, 29);
            let mut logits = vec![0.0; rows * outputs];
            let portable = Isa::new(Level::Portable).unwrap();
            linear.multiply(portable, Activation::Identity, &x, &mut logits);
            // The words of the third chunk are too few to pay.
            let has = |row: usize, word: usize| match word / CHUNK {
                0 | 1 => (row + word).is_multiple_of(3),
                _ => (row + word).is_multiple_of(50),
            };
            let list = |row: usize| -> Vec<u32> {
                (0..outputs).filter(|&word| has(row, word)).map(|word| word as u32).collect()
            };
            let members: Vec<Members> = (0..rows).map(|row| Members::of(&list(row))).collect();
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let words = worthwhile(isa, packed, members.iter());
                assert_eq!(words, if isa.level() == Level::Amx { 2 * CHUNK } else { 0 });
                if words == 0 {
                    continue;
                }
                let mut considered = vec![Vec::new(); rows];
                with_quantised_rows(isa, &x, packed, |x, _| {
                    let rows = members.iter().map(|members| (members, -0.5));
                    multiply(isa, x, (packed, words), rows, &mut |row, word, score| {
                        considered[row].push((word, score));
                        -0.5
                    });
                });
                for (row, considered) in considered.iter().enumerate() {
                    let expected: Vec<(u32, f32)> = list(row)
                        .into_iter()
                        .filter(|&word| (word as usize) < words)
                        .map(|word| (word, logits[row * outputs + word as usize]))
                        .filter(|&(_, score)| score > -0.5)
                        .collect();
                    assert_eq!(considered, &expected, "row {row} of {rows}");
                }
            }
        }
    }
}
