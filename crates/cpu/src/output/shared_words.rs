//! Scores of many shortlists, where each word is read once for all the rows that have it.
//!
//! The shortlists of a batch share most of their words, and their union does not fit L2. A table therefore holds for every word
//! which shortlists have it, a bit for each of up to 64 shortlists. A step goes through the words in order, sixteen pairs of a word
//! and a shortlist at a time:
//!
//! ```text
//! word 7:  lists 0 and 3          (7, 0) (7, 3) (9, 0) (9, 1) (9, 5) …
//! word 9:  lists 0, 1 and 5
//! ```
//!
//! The few input rows stay in L1. A pair's score is compared with the top-k threshold of its row; nearly always it is not above, and
//! nothing is stored. Int8 dot products and their scaling are those of `scattered`.
//!
//! Cost: a byte for each input of every word that some shortlist has, from L3; the instructions of `scattered` for every pair.

use super::membership::{LISTS_IN_TABLE, MASKS, MembershipTable};
use super::scattered::OutputRows;
use crate::gemm::int8::{PackedInt8, QuantisedInt8};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// The input rows that a pass over a table serves, at most one for each shortlist.
pub(super) struct ActiveRows {
    /// The bits of the shortlists that have a row.
    present: u64,
    /// The row of each bit.
    rows: [usize; LISTS_IN_TABLE],
    /// The top-k threshold of each bit's row.
    thresholds: [f32; LISTS_IN_TABLE],
}

impl ActiveRows {
    pub(super) fn none() -> ActiveRows {
        ActiveRows { present: 0, rows: [0; LISTS_IN_TABLE], thresholds: [0.0; LISTS_IN_TABLE] }
    }

    /// Adds a row, unless its shortlist has one. Returns whether it was added.
    pub(super) fn add(&mut self, bit: usize, row: usize, threshold: f32) -> bool {
        let free = self.present & 1 << bit == 0;
        if free {
            self.present |= 1 << bit;
            (self.rows[bit], self.thresholds[bit]) = (row, threshold);
        }
        free
    }
}

/// Computes the score of every word of each active row's shortlist from the word `first` on. Calls `consider(row, word, score)` for
/// scores above the row's threshold; it returns the new threshold.
pub(super) fn multiply(
    isa: Isa,
    x: &QuantisedInt8,
    (packed, rows): (&PackedInt8, &OutputRows),
    (table, first): (&MembershipTable, usize),
    active: &mut ActiveRows,
    consider: &mut impl FnMut(usize, u32, f32) -> f32,
) {
    assert!(first.is_multiple_of(MASKS), "whole vectors of masks");
    assert!(OutputRows::is_fast(isa), "there is a kernel");
    assert_eq!(x.stride, rows.output_bytes(), "as many inputs as weights");
    assert_eq!(x.bytes.len(), x.scales.len() * x.stride, "whole rows");
    let present = |bit: &usize| active.present >> bit & 1 == 1;
    for bit in (0..LISTS_IN_TABLE).filter(present) {
        assert!(active.rows[bit] < x.scales.len(), "rows that exist");
        let last = table.lists[bit].last().map_or(0, |&last| last as usize);
        assert!(last < packed.outputs() && last < rows.outputs(), "words that exist");
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = consider;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the level proves the instructions; rows and words of all bits that are present have just been checked.
    unsafe {
        let prefetch = isa.uses(Technique::Prefetch);
        vnni::multiply(prefetch, x, (packed, rows), (table, first), active, consider);
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;
    use std::cell::RefCell;

    use super::*;
    use crate::gemm::int8::INPUT_MULTIPLE;
    use crate::isa::lanes::{LANES, array};
    use crate::output::scattered::vnni::add_lanes;

    /// Words whose pairs are made before they are multiplied: few enough to stay in L1.
    const BLOCK: usize = 128;

    thread_local! {
        /// Scratch memory of a worker, kept between steps.
        static PAIRS: RefCell<[Pairs; 2]> = RefCell::new([Pairs::new(), Pairs::new()]);
    }

    /// Pairs of a run of words, and the words that have any.
    struct Pairs {
        /// A pair is `word · 64 + bit`.
        pairs: Vec<u32>,
        /// The start, scale and bias of each pair's word. Gathering them from the layer would take longer.
        starts: Vec<i32>,
        scales: Vec<f32>,
        bias: Vec<f32>,
        /// Number of pairs; the rest of the memory is unused.
        count: usize,
        words: Vec<u32>,
        /// Number of words; the rest of the memory is unused.
        words_count: usize,
    }

    /// Whether the processor has what [`Pairs::list_bits_at_once`] needs.
    fn has_vbmi2() -> bool {
        is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512bw")
    }

    /// Width of the bit number in a pair.
    const BIT_WIDTH: u32 = LISTS_IN_TABLE.trailing_zeros();

    impl Pairs {
        fn new() -> Pairs {
            // Whole vectors are written, also behind the last pair.
            let room = LANES + BLOCK * LISTS_IN_TABLE + LANES;
            Pairs {
                pairs: vec![0; room],
                starts: vec![0; room],
                scales: vec![0.0; room],
                bias: vec![0.0; room],
                count: 0,
                words: vec![0; BLOCK + LANES],
                words_count: 0,
            }
        }

        /// Starts with the pairs of the block before from `first` on, fewer than sixteen.
        fn begin(&mut self, before: &Pairs, first: usize) {
            fn copy<T: Copy>(to: &mut [T], from: &[T], first: usize) {
                to[..LANES].copy_from_slice(&from[first..first + LANES]);
            }
            copy(&mut self.pairs, &before.pairs, first);
            copy(&mut self.starts, &before.starts, first);
            copy(&mut self.scales, &before.scales, first);
            copy(&mut self.bias, &before.bias, first);
            (self.count, self.words_count) = (before.count - first, 0);
        }

        /// Adds the pairs of consecutive words of `packed` with these masks, from the word `first` on.
        ///
        /// # Safety
        /// AVX-512F; at most [`BLOCK`] masks, a multiple of [`MASKS`], and fewer than sixteen pairs before. Words of present lists
        /// exist.
        #[target_feature(enable = "avx512f,avx512vl,popcnt")]
        unsafe fn add(&mut self, packed: &PackedInt8, masks: &[u64], present: u64, first: usize) {
            let mut nonzero = [0u64; BLOCK + MASKS];
            let eight = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let present_bits = _mm512_set1_epi64(present as i64);
            // SAFETY: there is room for eight more than there are masks, and for sixteen more than there are pairs.
            unsafe {
                for (i, masks) in masks.chunks_exact(MASKS).enumerate() {
                    let masks =
                        _mm512_and_si512(_mm512_loadu_si512(masks.as_ptr().cast()), present_bits);
                    let any = _mm512_test_epi64_mask(masks, masks);
                    let words =
                        _mm256_add_epi32(eight, _mm256_set1_epi32((first + i * MASKS) as i32));
                    let n = self.words_count;
                    let to = self.words.as_mut_ptr().add(n).cast();
                    _mm256_storeu_si256(to, _mm256_maskz_compress_epi32(any, words));
                    let to = nonzero.as_mut_ptr().add(n).cast();
                    _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(any, masks));
                    self.words_count += any.count_ones() as usize;
                }
                let nonzero = &nonzero[..self.words_count];
                if has_vbmi2() {
                    self.list_bits_at_once(packed, nonzero);
                } else {
                    self.list(packed, nonzero, present);
                }
            }
        }

        /// Adds the pairs of the words found, which have these masks, sixteen bits at a time.
        ///
        /// # Safety
        /// As above.
        #[target_feature(enable = "avx512f,popcnt")]
        unsafe fn list(&mut self, packed: &PackedInt8, masks: &[u64], present: u64) {
            let sixteen = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let sixteens = (u64::BITS - present.leading_zeros()).div_ceil(LANES as u32);
            for (i, &mask) in masks.iter().enumerate() {
                // SAFETY: the caller's.
                let (of_word, mut to) = unsafe { self.begin_word(packed, i, mask) };
                for i in 0..sixteens {
                    let bits = (mask >> (LANES as u32 * i)) as u16;
                    let first = _mm512_set1_epi32((LANES as u32 * i) as i32);
                    let pairs = _mm512_or_si512(_mm512_or_si512(of_word, first), sixteen);
                    // SAFETY: as above.
                    unsafe {
                        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(bits, pairs));
                    }
                    to = to.wrapping_add(bits.count_ones() as usize);
                }
            }
        }

        /// As [`Pairs::list`], all bits of a mask at once.
        ///
        /// # Safety
        /// As above; AVX-512 BW and VBMI2.
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        unsafe fn list_bits_at_once(&mut self, packed: &PackedInt8, masks: &[u64]) {
            let numbers: [u8; LISTS_IN_TABLE] = array(|i| i as u8);
            // SAFETY: 64 bytes.
            let numbers = unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) };
            for (i, &mask) in masks.iter().enumerate() {
                // SAFETY: the caller's.
                let (of_word, to) = unsafe { self.begin_word(packed, i, mask) };
                let bits = _mm512_maskz_compress_epi8(mask, numbers);
                let quarters = [
                    _mm512_castsi512_si128(bits),
                    _mm512_extracti32x4_epi32::<1>(bits),
                    _mm512_extracti32x4_epi32::<2>(bits),
                    _mm512_extracti32x4_epi32::<3>(bits),
                ];
                let count = mask.count_ones() as usize;
                // Most words have one quarter at most.
                for (at, bits) in (0..count).step_by(LANES).zip(quarters) {
                    let pairs = _mm512_or_si512(of_word, _mm512_cvtepu8_epi32(bits));
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_si512(to.wrapping_add(at).cast(), pairs) };
                }
            }
        }

        /// Stores the start, scale and bias of the pairs of the word at `index` of those found. Returns its share of a pair, and where its pairs go.
        ///
        /// # Safety
        /// As above.
        #[target_feature(enable = "avx512f,popcnt")]
        #[inline]
        unsafe fn begin_word(
            &mut self,
            packed: &PackedInt8,
            index: usize,
            mask: u64,
        ) -> (__m512i, *mut u32) {
            let (word, first) = (self.words[index] as usize, self.count);
            let count = mask.count_ones() as usize;
            self.count += count;
            // SAFETY: the caller's.
            unsafe {
                let start = _mm512_set1_epi32(*packed.starts.as_ptr().cast::<i32>().add(word));
                let scale = _mm512_set1_ps(*packed.scales.as_ptr().cast::<f32>().add(word));
                let bias = _mm512_set1_ps(*packed.bias.as_ptr().cast::<f32>().add(word));
                for i in (0..count).step_by(LANES) {
                    let at = first + i;
                    _mm512_storeu_si512(self.starts.as_mut_ptr().add(at).cast(), start);
                    _mm512_storeu_ps(self.scales.as_mut_ptr().add(at), scale);
                    _mm512_storeu_ps(self.bias.as_mut_ptr().add(at), bias);
                }
                let of_word = _mm512_set1_epi32((word << BIT_WIDTH) as i32);
                (of_word, self.pairs.as_mut_ptr().add(first))
            }
        }
    }

    /// Weights and input rows.
    struct Operands<'a> {
        packed: &'a PackedInt8,
        /// Weights of the first word.
        weights: *const u8,
        /// Bytes of a word's weights.
        stride: usize,
        /// Whether words are prefetched.
        prefetch: bool,
        /// Input row of each bit.
        inputs: [*const u8; LISTS_IN_TABLE],
        /// Quantisation scale of each bit's input row.
        scales: [f32; LISTS_IN_TABLE],
    }

    /// # Safety
    /// AVX-512F and VNNI; the rows and the words of the lists that are present exist.
    #[target_feature(enable = "avx512f,avx512vl,avx512vnni,popcnt")]
    pub(super) unsafe fn multiply(
        prefetch: bool,
        x: &QuantisedInt8,
        (packed, rows): (&PackedInt8, &OutputRows),
        table: (&MembershipTable, usize),
        active: &mut ActiveRows,
        consider: &mut impl FnMut(usize, u32, f32) -> f32,
    ) {
        let mut operands = Operands {
            packed,
            weights: rows.weights(0),
            stride: x.stride,
            prefetch,
            inputs: [x.bytes.as_ptr(); LISTS_IN_TABLE],
            scales: [0.0; LISTS_IN_TABLE],
        };
        for bit in (0..LISTS_IN_TABLE).filter(|bit| active.present >> bit & 1 == 1) {
            let row = active.rows[bit];
            operands.scales[bit] = x.scales[row];
            operands.inputs[bit] = x.bytes[row * x.stride..].as_ptr();
        }
        PAIRS.with_borrow_mut(|pairs| {
            let pairs = pairs.each_mut();
            // SAFETY: the caller's.
            unsafe {
                // With a constant number of lines, sums stay in registers.
                match x.stride / INPUT_MULTIPLE {
                    4 => operands.score_words::<4>(pairs, table, active, consider),
                    8 => operands.score_words::<8>(pairs, table, active, consider),
                    _ => operands.score_words::<0>(pairs, table, active, consider),
                }
            }
        });
    }

    /// The numbers of sixteen bits. Only the low six bits of an index count.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn of_bits(numbers: &[f32; LISTS_IN_TABLE], bits: __m512i) -> __m512 {
        // SAFETY: there are four vectors of numbers.
        let [a, b, c, d] = array(|i| unsafe { _mm512_loadu_ps(numbers.as_ptr().add(i * LANES)) });
        let low = _mm512_permutex2var_ps(a, bits, b);
        let high = _mm512_permutex2var_ps(c, bits, d);
        let is_high = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(2 * LANES as i32));
        _mm512_mask_blend_ps(is_high, low, high)
    }

    impl Operands<'_> {
        /// Scores all words, double buffered: while the pairs of one block are multiplied, the words of the next are prefetched.
        ///
        /// # Safety
        /// As above; a word has `LINES` lines, or any number of them if that is 0.
        #[target_feature(enable = "avx512f,avx512vl,avx512vnni,popcnt")]
        unsafe fn score_words<const LINES: usize>(
            &self,
            [mut now, mut next]: [&mut Pairs; 2],
            (table, first): (&MembershipTable, usize),
            active: &mut ActiveRows,
            consider: &mut impl FnMut(usize, u32, f32) -> f32,
        ) {
            now.count = 0;
            let masks = &table.masks[first.min(table.masks.len())..];
            let blocks = masks.chunks(BLOCK).map(Some).chain([None]);
            for (i, masks) in blocks.enumerate() {
                // Pairs that do not fill a vector are left to the next block.
                let whole = now.count / LANES * LANES;
                next.begin(now, whole);
                if let Some(masks) = masks {
                    // SAFETY: the caller's; blocks are not too long.
                    unsafe { next.add(self.packed, masks, active.present, first + i * BLOCK) };
                }
                let prefetched = if self.prefetch { next.words_count } else { 0 };
                let mut next_words = &next.words[..prefetched];
                let share = next_words.len().div_ceil((whole / LANES).max(1));
                for first in (0..whole).step_by(LANES) {
                    let words;
                    (words, next_words) = next_words.split_at(share.min(next_words.len()));
                    words.iter().for_each(|&word| self.prefetch_word(word));
                    // SAFETY: the caller's; these are pairs of lists that are present.
                    unsafe { self.score_pairs::<LINES>(now, first, !0, active, consider) };
                }
                std::mem::swap(&mut now, &mut next);
            }
            if let Some(&any) = now.pairs[..now.count].first() {
                now.pairs[now.count..LANES].fill(any);
                let lanes = (1 << now.count) - 1;
                // SAFETY: as above.
                unsafe { self.score_pairs::<LINES>(now, 0, lanes, active, consider) };
            }
        }

        fn weights(&self, word: u32) -> *const u8 {
            self.weights.wrapping_add(word as usize * self.stride)
        }

        fn prefetch_word(&self, word: u32) {
            for line in 0..(self.stride / INPUT_MULTIPLE).min(8) {
                let at = self.weights(word).wrapping_add(line * INPUT_MULTIPLE);
                // SAFETY: a prefetch may have any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }

        /// Scores sixteen pairs from `first` on, or those of them whose bit in `lanes` is set.
        ///
        /// # Safety
        /// As above; the pairs' rows and words exist, and there is memory for sixteen pairs.
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        unsafe fn score_pairs<const LINES: usize>(
            &self,
            of: &Pairs,
            first: usize,
            lanes: u16,
            active: &mut ActiveRows,
            consider: &mut impl FnMut(usize, u32, f32) -> f32,
        ) {
            let pairs = &of.pairs[first..first + LANES];
            // SAFETY: the caller's; all arrays of pairs are equally long.
            let (y, threshold) = unsafe {
                let sums = array(|i| {
                    let inputs = self.inputs[pairs[i] as usize % LISTS_IN_TABLE];
                    self.dot::<LINES>(inputs, self.weights(pairs[i] >> BIT_WIDTH))
                });
                let bits = _mm512_loadu_si512(pairs.as_ptr().cast());
                let (row_scale, threshold) =
                    (of_bits(&self.scales, bits), of_bits(&active.thresholds, bits));
                let start = _mm512_loadu_si512(of.starts.as_ptr().add(first).cast());
                let scale = _mm512_loadu_ps(of.scales.as_ptr().add(first));
                let bias = _mm512_loadu_ps(of.bias.as_ptr().add(first));
                let sum = _mm512_cvtepi32_ps(_mm512_add_epi32(add_lanes(sums), start));
                // Not fused: every kernel must round alike.
                let y = _mm512_mul_ps(sum, _mm512_mul_ps(scale, row_scale));
                (_mm512_add_ps(y, bias), threshold)
            };
            let mut above = _mm512_mask_cmp_ps_mask::<_CMP_GT_OQ>(lanes, y, threshold);
            // SAFETY: a register is sixteen floats.
            let scores: [f32; LANES] = unsafe { std::mem::transmute(y) };
            while above != 0 {
                let lane = above.trailing_zeros() as usize;
                above &= above - 1;
                let (word, bit) = (pairs[lane] >> BIT_WIDTH, pairs[lane] as usize % LISTS_IN_TABLE);
                active.thresholds[bit] = consider(active.rows[bit], word, scores[lane]);
            }
        }

        /// The int8 dot product of a row and a word, lanes not yet summed.
        ///
        /// # Safety
        /// As above; `x` and `w` have the bytes of a word.
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        unsafe fn dot<const LINES: usize>(&self, x: *const u8, w: *const u8) -> __m512i {
            let lines = if LINES == 0 { self.stride / INPUT_MULTIPLE } else { LINES };
            let mut sum = _mm512_setzero_si512();
            for line in 0..lines {
                // SAFETY: the caller's; rows and words begin at cache lines.
                unsafe {
                    let x = _mm512_load_si512(x.add(line * INPUT_MULTIPLE).cast());
                    let w = _mm512_load_si512(w.add(line * INPUT_MULTIPLE).cast());
                    sum = _mm512_dpbusd_epi32(sum, x, w);
                }
            }
            sum
        }
    }

    #[cfg(test)]
    mod tests {
        use peregrine_model::{Precision, Weight};
        use peregrine_nn::Dense;

        use super::*;
        use crate::gemm::linear::Linear;
        use crate::isa::Level;
        use crate::memory::arena::Arena;

        /// The pairs that `list` adds behind three others, and their starts, scales and biases.
        fn listed(words: &[u32], list: impl FnOnce(&mut Pairs)) -> Vec<(u32, i32, f32, f32)> {
            let mut pairs = Pairs::new();
            pairs.words[..words.len()].copy_from_slice(words);
            (pairs.words_count, pairs.count) = (words.len(), 3);
            list(&mut pairs);
            let of = |i| (pairs.pairs[i], pairs.starts[i], pairs.scales[i], pairs.bias[i]);
            (3..pairs.count).map(of).collect()
        }

        #[test]
        fn pairs_are_the_bits_of_masks() {
            if Isa::new(Level::Avx512Vnni).is_none() {
                return;
            }
            let numbers: Vec<f32> = (0..200 * 8).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
            let (weight, bias) = (
                Weight::from_f32(vec![200, 8], &numbers),
                Weight::from_f32(vec![200], &numbers[..200]),
            );
            let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
            let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
            let Linear::Int8(packed) = &linear else { unreachable!("that precision") };
            let words: Vec<u32> = (0..100).map(|i| i * 2).collect();
            let odd = 0x9e37_79b9_7f4a_7c15u64;
            let masks: Vec<u64> = (1..=100u64)
                .map(|i| match i % 5 {
                    0 => !0,
                    1 => 1 << (i % 64),
                    2 => i.wrapping_mul(odd),
                    _ => i.wrapping_mul(odd) & (i * i).wrapping_mul(odd) | 1 << 63,
                })
                .collect();
            let expected: Vec<(u32, i32, f32, f32)> = (words.iter().zip(&masks))
                .flat_map(|(&word, mask)| {
                    let bits = (0..64).filter(move |bit| mask >> bit & 1 == 1);
                    bits.map(move |bit| (word << BIT_WIDTH | bit, word as usize))
                })
                .map(|(pair, word)| {
                    let (panel, lane) = (word / LANES, word % LANES);
                    let start = packed.starts[panel].0[lane];
                    (pair, start, packed.scales[panel].0[lane], packed.bias[panel].0[lane])
                })
                .collect();
            // SAFETY: the processor has AVX-512; there are such words, and as many masks.
            let in_quarters = |pairs: &mut Pairs| unsafe { pairs.list(packed, &masks, !0) };
            assert_eq!(listed(&words, in_quarters), expected);
            if has_vbmi2() {
                // SAFETY: as above.
                let at_once =
                    |pairs: &mut Pairs| unsafe { pairs.list_bits_at_once(packed, &masks) };
                assert_eq!(listed(&words, at_once), expected);
            }
        }
    }
}
