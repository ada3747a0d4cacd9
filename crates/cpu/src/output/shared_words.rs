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

use std::sync::Arc;

use super::frequent_words::Members;
use super::scattered::OutputRows;
use crate::gemm::int8::{PackedInt8, QuantisedInt8};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// Shortlists of a table: the bits of a mask.
const LISTS_IN_TABLE: usize = u64::BITS as usize;

/// Masks processed at once.
const MASKS: usize = 8;

/// Which of up to 64 shortlists have each word.
#[derive(Default)]
pub(crate) struct MembershipTable {
    /// The mask of every word, padded to a multiple of [`MASKS`].
    masks: Vec<u64>,
    /// The shortlist of each bit. A shortlist that is no longer used keeps its bit until another needs it.
    lists: Vec<Arc<[u32]>>,
    /// The first words of each shortlist.
    members: Vec<Members>,
    /// The bits of the shortlists that this step uses.
    used: u64,
}

impl MembershipTable {
    /// The first words of the shortlist of a bit.
    pub(super) fn members(&self, bit: usize) -> &Members {
        &self.members[bit]
    }

    fn bit_of(&self, list: &Arc<[u32]>) -> Option<usize> {
        // The table owns its lists, so that no other list can have the address of one of them.
        self.lists.iter().position(|own| Arc::ptr_eq(own, list))
    }

    /// Assigns an unused bit to a shortlist. None if all bits are used.
    fn assign_bit(&mut self, list: &Arc<[u32]>) -> Option<usize> {
        let bit = (!self.used).trailing_zeros() as usize;
        if bit == LISTS_IN_TABLE {
            return None;
        }
        self.used |= 1 << bit;
        // Bits are assigned from the lowest on.
        if let Some(before) = self.lists.get_mut(bit) {
            for &word in before.iter() {
                self.masks[word as usize] &= !(1 << bit);
            }
            *before = Arc::clone(list);
            self.members[bit] = Members::of(list);
        } else {
            self.lists.push(Arc::clone(list));
            self.members.push(Members::of(list));
        }
        assert!(list.is_sorted(), "words in ascending order");
        let words = list.last().map_or(0, |&last| last as usize + 1).next_multiple_of(MASKS);
        if self.masks.len() < words {
            self.masks.resize(words, 0);
        }
        for &word in list.iter() {
            self.masks[word as usize] |= 1 << bit;
        }
        Some(bit)
    }
}

/// Writes the table and the bit of each row's shortlist to `bits`. `lists` are the rows' shortlists, with words in ascending order.
/// Tables are added where the bits of the others are all used.
pub(crate) fn assign_bits<'a>(
    tables: &mut Vec<MembershipTable>,
    lists: impl Iterator<Item = &'a Arc<[u32]>> + Clone,
    bits: &mut Vec<(usize, usize)>,
) {
    let find = |tables: &[MembershipTable], list| {
        let mut tables = tables.iter().enumerate();
        tables.find_map(|(t, table)| table.bit_of(list).map(|bit| (t, bit)))
    };
    tables.iter_mut().for_each(|table| table.used = 0);
    for list in lists.clone() {
        if let Some((table, bit)) = find(tables, list) {
            tables[table].used |= 1 << bit;
        }
    }
    let mut find_or_assign = |list| {
        if let Some(found) = find(tables, list) {
            return found;
        }
        loop {
            for (t, table) in tables.iter_mut().enumerate() {
                if let Some(bit) = table.assign_bit(list) {
                    return (t, bit);
                }
            }
            tables.push(MembershipTable::default());
        }
    };
    bits.clear();
    bits.extend(lists.map(&mut find_or_assign));
}

/// The input rows that a pass over a table serves, at most one for each shortlist.
pub(crate) struct ActiveRows {
    /// The bits of the shortlists that have a row.
    present: u64,
    /// The row of each bit.
    rows: [usize; LISTS_IN_TABLE],
    /// The top-k threshold of each bit's row.
    thresholds: [f32; LISTS_IN_TABLE],
}

impl ActiveRows {
    pub(crate) fn none() -> ActiveRows {
        ActiveRows { present: 0, rows: [0; LISTS_IN_TABLE], thresholds: [0.0; LISTS_IN_TABLE] }
    }

    /// Adds a row, unless its shortlist has one. Returns whether it was added.
    pub(crate) fn add(&mut self, bit: usize, row: usize, threshold: f32) -> bool {
        let free = self.present & 1 << bit == 0;
        if free {
            self.present |= 1 << bit;
            (self.rows[bit], self.thresholds[bit]) = (row, threshold);
        }
        free
    }
}

/// Computes the score of every word of each active row's shortlist from the word `first` on. Calls `consider(row, word, score)` for scores above the row's
/// threshold; it returns the new threshold.
pub(crate) fn multiply(
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
                let sixteen =
                    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let sixteens = (u64::BITS - present.leading_zeros()).div_ceil(LANES as u32);
                let starts = packed.starts.as_ptr().cast::<i32>();
                let scales = packed.scales.as_ptr().cast::<f32>();
                let biases = packed.bias.as_ptr().cast::<f32>();
                for (&mask, &word) in nonzero.iter().zip(&self.words[..self.words_count]) {
                    let at = word as usize;
                    let start = _mm512_set1_epi32(*starts.add(at));
                    let scale = _mm512_set1_ps(*scales.add(at));
                    let bias = _mm512_set1_ps(*biases.add(at));
                    for i in (0..mask.count_ones() as usize).step_by(LANES) {
                        let at = self.count + i;
                        _mm512_storeu_si512(self.starts.as_mut_ptr().add(at).cast(), start);
                        _mm512_storeu_ps(self.scales.as_mut_ptr().add(at), scale);
                        _mm512_storeu_ps(self.bias.as_mut_ptr().add(at), bias);
                    }
                    let of_word = _mm512_set1_epi32((word << BIT_WIDTH) as i32);
                    for i in 0..sixteens {
                        let bits = (mask >> (LANES as u32 * i)) as u16;
                        let pairs =
                            _mm512_or_si512(of_word, _mm512_set1_epi32((LANES as u32 * i) as i32));
                        let pairs = _mm512_or_si512(pairs, sixteen);
                        let to = self.pairs.as_mut_ptr().add(self.count).cast();
                        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(bits, pairs));
                        self.count += bits.count_ones() as usize;
                    }
                }
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
}
