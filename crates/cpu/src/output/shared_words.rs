//! Products with the words of many lists, where each word is read once for all the rows that have it.
//!
//! The lists of a batch have most of their words in common, and those they have between them do not stay in the second
//! cache. So it is kept for every word which lists have it, a bit for each of up to 64 lists, and a step goes through the
//! words in their order, sixteen pairs of a word and a list at a time:
//!
//! ```text
//! word 7:  lists 0 and 3          (7, 0) (7, 3) (9, 0) (9, 1) (9, 5) …
//! word 9:  lists 0, 1 and 5
//! ```
//!
//! The rows, of which there are few, stay in the first cache. A pair's score is compared with what its row's words have to
//! beat; nearly always it does not, and nothing is stored. Sums are the integers of `rows`, and the rest is computed as there.
//!
//! Cost: a byte for each input of every word that some list has, from the third cache; the instructions of `rows` for
//! every pair.

use std::sync::Arc;

use super::scattered::OutputRows;
use crate::gemm::int8::{PackedInt8, QuantisedInt8};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// Lists of a table: the bits of a mask.
const LISTS_IN_TABLE: usize = u64::BITS as usize;

/// Masks looked at together.
const MASKS: usize = 8;

/// Which of up to 64 lists have each word.
#[derive(Default)]
pub(crate) struct Table {
    /// For every word, up to a multiple of [`MASKS`].
    masks: Vec<u64>,
    /// Who has each bit. Lists that are no longer asked for keep theirs until others need it.
    bits: Vec<Arc<[u32]>>,
    /// The bits of lists that are asked for now.
    taken: u64,
}

impl Table {
    fn seat_of(&self, list: &Arc<[u32]>) -> Option<usize> {
        // Lists are held here, so that no other can be where one was.
        self.bits.iter().position(|holder| Arc::ptr_eq(holder, list))
    }

    /// Gives a list one of the seats that are not taken, if there is any.
    fn bit(&mut self, list: &Arc<[u32]>) -> Option<usize> {
        let bit = (!self.taken).trailing_zeros() as usize;
        if bit == LISTS_IN_TABLE {
            return None;
        }
        self.taken |= 1 << bit;
        // Seats are filled from the first on.
        if let Some(before) = self.bits.get_mut(bit) {
            for &word in before.iter() {
                self.masks[word as usize] &= !(1 << bit);
            }
            *before = Arc::clone(list);
        } else {
            self.bits.push(Arc::clone(list));
        }
        assert!(list.is_sorted(), "words in their order");
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

/// Who sits where: for each row a table and a seat, put into `bits`. `lists` are those of the rows, each with its words in
/// order; as many tables are made as they need.
pub(crate) fn assign_bits<'a>(
    tables: &mut Vec<Table>,
    lists: impl Iterator<Item = &'a Arc<[u32]>> + Clone,
    bits: &mut Vec<(usize, usize)>,
) {
    let find = |tables: &[Table], list| {
        let holder = tables.iter().enumerate();
        holder.filter_map(|(t, table)| table.seat_of(list).map(|bit| (t, bit))).next()
    };
    tables.iter_mut().for_each(|table| table.taken = 0);
    for list in lists.clone() {
        if let Some((table, bit)) = find(tables, list) {
            tables[table].taken |= 1 << bit;
        }
    }
    let mut bit = |list| {
        if let Some(place) = find(tables, list) {
            return place;
        }
        loop {
            for (t, table) in tables.iter_mut().enumerate() {
                if let Some(bit) = table.bit(list) {
                    return (t, bit);
                }
            }
            tables.push(Table::default());
        }
    };
    bits.clear();
    bits.extend(lists.map(&mut bit));
}

/// A row of inputs for some of the lists of a table.
pub(crate) struct ActiveRows {
    /// Those lists.
    present: u64,
    /// The row of each,
    rows: [usize; LISTS_IN_TABLE],
    /// and what a score must be above to be looked at.
    thresholds: [f32; LISTS_IN_TABLE],
}

impl ActiveRows {
    pub(crate) fn none() -> ActiveRows {
        ActiveRows { present: 0, rows: [0; LISTS_IN_TABLE], thresholds: [0.0; LISTS_IN_TABLE] }
    }

    /// Lets a row in, if no other is there for its list.
    pub(crate) fn admit(&mut self, bit: usize, row: usize, threshold: f32) -> bool {
        let free = self.present & 1 << bit == 0;
        if free {
            self.present |= 1 << bit;
            (self.rows[bit], self.thresholds[bit]) = (row, threshold);
        }
        free
    }
}

/// Computes the score of every word of each guest's list. Those above a guest's threshold are handed to `rise`, with the
/// row and the word, which tells the threshold from there on.
pub(crate) fn multiply(
    isa: Isa,
    x: &QuantisedInt8,
    (packed, rows): (&PackedInt8, &OutputRows),
    table: &Table,
    active: &mut ActiveRows,
    rise: &mut impl FnMut(usize, u32, f32) -> f32,
) {
    assert!(OutputRows::is_fast(isa), "there is a kernel");
    assert_eq!(x.stride, rows.output_bytes(), "as many inputs as weights");
    assert_eq!(x.bytes.len(), x.scales.len() * x.stride, "whole rows");
    let present = |bit: &usize| active.present >> bit & 1 == 1;
    for bit in (0..LISTS_IN_TABLE).filter(present) {
        assert!(active.rows[bit] < x.scales.len(), "rows that exist");
        let last = table.bits[bit].last().map_or(0, |&last| last as usize);
        assert!(last < packed.outputs() && last < rows.outputs(), "words that exist");
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = rise;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the level proves the instructions; rows and words have just been checked, and no other list has a bit that
    // is present.
    unsafe {
        vnni::multiply(isa.uses(Technique::Prefetch), x, (packed, rows), table, active, rise);
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

    /// Words whose pairs are made before they are multiplied: few enough to stay in the first cache.
    const BLOCK: usize = 128;

    thread_local! {
        /// Memory of a worker, kept between steps.
        static PAIRS: RefCell<[Pairs; 2]> = RefCell::new([Pairs::new(), Pairs::new()]);
    }

    /// Pairs of some words that come one after the other, and those words.
    struct Pairs {
        /// A word and, in the lowest bits, a seat.
        pairs: Vec<u32>,
        count: usize,
        words: Vec<u32>,
        words_count: usize,
    }

    const SEAT_BITS: u32 = LISTS_IN_TABLE.trailing_zeros();

    impl Pairs {
        fn new() -> Pairs {
            // What is written behind the last one is whole vectors.
            let pairs = vec![0; LANES + BLOCK * LISTS_IN_TABLE + LANES];
            Pairs { pairs, count: 0, words: vec![0; BLOCK + LANES], words_count: 0 }
        }

        /// Begins with pairs that are left over from others.
        fn begin(&mut self, left: &[u32]) {
            self.pairs[..left.len()].copy_from_slice(left);
            (self.count, self.words_count) = (left.len(), 0);
        }

        /// Adds the pairs of the words of some masks, the first of which is `first`'s.
        ///
        /// # Safety
        /// AVX-512F; at most [`BLOCK`] masks, a multiple of [`MASKS`], and fewer than sixteen pairs before.
        #[target_feature(enable = "avx512f,avx512vl,popcnt")]
        unsafe fn add(&mut self, masks: &[u64], present: u64, first: usize) {
            let mut some = [0u64; BLOCK + MASKS];
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
                    let to = some.as_mut_ptr().add(n).cast();
                    _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(any, masks));
                    self.words_count += any.count_ones() as usize;
                }
                let sixteen =
                    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let sixteens = (u64::BITS - present.leading_zeros()).div_ceil(LANES as u32);
                for (&mask, &word) in some.iter().zip(&self.words[..self.words_count]) {
                    let of_word = _mm512_set1_epi32((word << SEAT_BITS) as i32);
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

    /// What scores are made of.
    struct Layer<'a> {
        packed: &'a PackedInt8,
        /// The first word's weights, and the bytes of each word's.
        weights: *const u8,
        stride: usize,
        /// Whether words are prefetched.
        prefetch: bool,
        /// Each guest's inputs and what an integer of them stands for.
        inputs: [*const u8; LISTS_IN_TABLE],
        scales: [f32; LISTS_IN_TABLE],
    }

    /// # Safety
    /// AVX-512F and VNNI; the rows and the words of the lists that are present exist.
    #[target_feature(enable = "avx512f,avx512vl,avx512vnni,popcnt")]
    pub(super) unsafe fn multiply(
        prefetch: bool,
        x: &QuantisedInt8,
        (packed, rows): (&PackedInt8, &OutputRows),
        table: &Table,
        active: &mut ActiveRows,
        rise: &mut impl FnMut(usize, u32, f32) -> f32,
    ) {
        let mut layer = Layer {
            packed,
            weights: rows.weights(0),
            stride: x.stride,
            prefetch,
            inputs: [x.bytes.as_ptr(); LISTS_IN_TABLE],
            scales: [0.0; LISTS_IN_TABLE],
        };
        for bit in (0..LISTS_IN_TABLE).filter(|bit| active.present >> bit & 1 == 1) {
            let row = active.rows[bit];
            layer.scales[bit] = x.scales[row];
            layer.inputs[bit] = x.bytes[row * x.stride..].as_ptr();
        }
        PAIRS.with_borrow_mut(|pairs| {
            let pairs = pairs.each_mut();
            // SAFETY: the caller's.
            unsafe {
                // With a number of lines that is known, sums stay in registers.
                match x.stride / INPUT_MULTIPLE {
                    4 => layer.walk::<4>(pairs, table, active, rise),
                    8 => layer.walk::<8>(pairs, table, active, rise),
                    _ => layer.walk::<0>(pairs, table, active, rise),
                }
            }
        });
    }

    impl Layer<'_> {
        /// Goes through all words. While the pairs of some are multiplied, the words of the next are asked for.
        ///
        /// # Safety
        /// As above; a word has `LINES` lines, or any number of them if that is 0.
        #[target_feature(enable = "avx512f,avx512vl,avx512vnni,popcnt")]
        unsafe fn walk<const LINES: usize>(
            &self,
            [mut now, mut next]: [&mut Pairs; 2],
            table: &Table,
            active: &mut ActiveRows,
            rise: &mut impl FnMut(usize, u32, f32) -> f32,
        ) {
            now.begin(&[]);
            let blocks = table.masks.chunks(BLOCK).map(Some).chain([None]);
            for (i, masks) in blocks.enumerate() {
                // What does not fill a vector is taken along.
                let whole = now.count / LANES * LANES;
                next.begin(&now.pairs[whole..now.count]);
                if let Some(masks) = masks {
                    // SAFETY: the caller's; blocks are not too long.
                    unsafe { next.add(masks, active.present, i * BLOCK) };
                }
                let asked = if self.prefetch { next.words_count } else { 0 };
                let mut soon = &next.words[..asked];
                let share = soon.len().div_ceil((whole / LANES).max(1));
                for pairs in now.pairs[..whole].as_chunks().0 {
                    let asked;
                    (asked, soon) = soon.split_at(share.min(soon.len()));
                    asked.iter().for_each(|&word| self.ask(word));
                    // SAFETY: the caller's; these are pairs of lists that are present.
                    unsafe { self.look_at::<LINES>(pairs, !0, active, rise) };
                }
                std::mem::swap(&mut now, &mut next);
            }
            if let Some(&any) = now.pairs[..now.count].first() {
                let mut pairs = [any; LANES];
                pairs[..now.count].copy_from_slice(&now.pairs[..now.count]);
                // SAFETY: as above.
                unsafe { self.look_at::<LINES>(&pairs, (1 << now.count) - 1, active, rise) };
            }
        }

        fn weights(&self, word: u32) -> *const u8 {
            self.weights.wrapping_add(word as usize * self.stride)
        }

        fn ask(&self, word: u32) {
            for line in 0..(self.stride / INPUT_MULTIPLE).min(8) {
                let at = self.weights(word).wrapping_add(line * INPUT_MULTIPLE);
                // SAFETY: it may be given any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }

        /// Scores of sixteen pairs, or of those `lanes` names.
        ///
        /// # Safety
        /// As above; the pairs' rows and words exist.
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        unsafe fn look_at<const LINES: usize>(
            &self,
            pairs: &[u32; LANES],
            lanes: u16,
            active: &mut ActiveRows,
            rise: &mut impl FnMut(usize, u32, f32) -> f32,
        ) {
            // SAFETY: the caller's; what is gathered is there for every word, in the order of words.
            let (y, threshold) = unsafe {
                let sums = array(|i| {
                    let inputs = self.inputs[pairs[i] as usize % LISTS_IN_TABLE];
                    self.dot::<LINES>(inputs, self.weights(pairs[i] >> SEAT_BITS))
                });
                let both = _mm512_loadu_si512(pairs.as_ptr().cast());
                let words = _mm512_srli_epi32::<SEAT_BITS>(both);
                let bits = _mm512_and_si512(both, _mm512_set1_epi32(LISTS_IN_TABLE as i32 - 1));
                let packed = self.packed;
                let start = _mm512_i32gather_epi32::<4>(words, packed.starts.as_ptr().cast());
                let scale = _mm512_i32gather_ps::<4>(words, packed.scales.as_ptr().cast());
                let bias = _mm512_i32gather_ps::<4>(words, packed.bias.as_ptr().cast());
                let row_scale = _mm512_i32gather_ps::<4>(bits, self.scales.as_ptr().cast());
                let threshold = _mm512_i32gather_ps::<4>(bits, active.thresholds.as_ptr().cast());
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
                let (word, bit) = (pairs[lane] >> SEAT_BITS, pairs[lane] as usize % LISTS_IN_TABLE);
                active.thresholds[bit] = rise(active.rows[bit], word, scores[lane]);
            }
        }

        /// # Safety
        /// As above; a word's bytes can be read at both places.
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
