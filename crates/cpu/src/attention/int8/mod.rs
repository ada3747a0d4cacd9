//! Attention over an int8 KV cache, computed in integers.
//!
//! A key and a value are quantised with one scale each, `max|row| / 127`. A cache line holds sixteen columns of four heads, four by
//! four, the order in which pack instructions leave them.
//!
//! ```text
//! line (g, m), quarter l:   columns 16 m + 4 l … + 3 of head 4 g │ of head 4 g + 1 │ of head 4 g + 2 │ of head 4 g + 3
//! row of a position:        key: line (0, 0), (0, 1) … (1, 0) … │ value: the same │ padding to an odd number of lines
//! ```
//!
//! A lane sums products of a query with a key for one head only. Lanes of weighted values are neighbouring columns. Keys are stored
//! with 128 added, because `vpdpbusd` multiplies unsigned by signed int8.
//!
//! A query is quantised to int16, and softmax weights, each times the scale of its value, to 15 bits. Both lose little beside the 8
//! bits of the cache. Sums are exact int32, so each instruction set has the same bits, and other rows do not change them.
//!
//! The weights of a row have the order of [`super::float`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512vnni;
mod layout;
mod plain;
mod prefetch;

use std::ops::Range;

use peregrine_nn::Reads;

use super::softmax::softmax;
use super::{CacheRead, Queries, ROWS};
use crate::isa::Isa;
use crate::isa::lanes::LANES;
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::{Aligned, CacheLine};
use crate::technique::Technique;
use layout::LINE_HEADS;
pub(crate) use layout::{HeadShape, Int8View, KEY_OFFSET, quantise};
use prefetch::{PrefetchQueue, prefetch_line};

/// Positions whose weighted values are summed together.
const BLOCK: usize = 4;

/// The largest int16 of a query, 127 · 256. The high byte is rounded up where the signed low byte is negative, and must fit int8.
const QUERY_MAX: f32 = 32_512.0;

/// Widest head whose sums of products fit int32 with [`QUERY_MAX`]. Queries of wider heads have smaller integers.
const MAX_HEAD_WIDTH: usize = 512;

/// The largest integer weight.
const WEIGHT_MAX: f32 = 32_767.0;

/// The positions that some rows read, looked up in the cache.
#[derive(Clone, Copy)]
struct PreparedRead<'a> {
    rows: &'a [CacheLine],
    shape: HeadShape,
    /// First cache line of each position, padded to whole blocks with that of the last. The lines of every entry exist.
    starts: &'a [usize],
    /// Quantisation scale of each key, padded with `BLOCK` more numbers.
    key_scales: &'a [f32],
    /// Factor that makes a position's weights integers, padded with zeros.
    weight_scales: &'a [f32],
    /// Factor that turns integer sums of weighted values into outputs.
    output_scale: f32,
}

impl PreparedRead<'_> {
    #[cfg(target_arch = "x86_64")]
    fn key(&self, index: usize) -> *const CacheLine {
        self.rows.as_ptr().wrapping_add(self.starts[index])
    }

    /// Number of `u32` that hold a row's integer weights, two in each.
    fn row_weights(&self) -> usize {
        self.starts.len() / 2 * self.shape.padded_heads()
    }
}

/// Quantisation of a query to int16.
#[derive(Clone, Copy)]
struct QueryScale {
    /// Factor from float32 to integers.
    scale: f32,
    /// Factor from an integer sum to a score, without the scale of the key.
    unit: f32,
}

impl QueryScale {
    /// For a query whose largest magnitude is `max`.
    fn new(shape: HeadShape, max: f32) -> QueryScale {
        let limit = QUERY_MAX.min(QUERY_MAX * MAX_HEAD_WIDTH as f32 / shape.head_width as f32);
        let unit = 1.0 / (limit * (shape.head_width as f32).sqrt());
        match max > 0.0 {
            true => QueryScale { scale: limit / max, unit: max * unit },
            false => QueryScale { scale: 0.0, unit: 0.0 },
        }
    }
}

/// Scratch memory.
#[derive(Default)]
pub(crate) struct Scratch {
    lists: [ReadList; ROWS],
    prefetch: PrefetchQueue,
    /// The quantised query in the layout of the kernel.
    query: Vec<CacheLine>,
    /// Scores of each row, then its weights.
    weights: [Aligned<[f32; LANES]>; ROWS],
}

/// Memory of a [`PreparedRead`] and the integer weights of its rows.
#[derive(Default)]
struct ReadList {
    starts: Vec<usize>,
    key_scales: Vec<f32>,
    weight_scales: Vec<f32>,
    output_scale: f32,
    integers: Vec<u32>,
}

impl ReadList {
    /// Looks up the positions that `rows` rows read.
    fn look_up(&mut self, cache: Int8View<'_>, rows: usize, positions: &[u32]) {
        let (count, padded) = (positions.len(), positions.len().next_multiple_of(BLOCK));
        let last = positions.iter().max().map_or(0, |&max| (max as usize + 1) * cache.stride);
        assert!(last <= cache.rows.len(), "positions are in the cache");
        self.starts.resize(padded, 0);
        self.key_scales.resize(padded + BLOCK, 0.0);
        self.weight_scales.resize(padded, 0.0);
        let entries = self.starts.iter_mut().zip(&mut self.key_scales).zip(&mut self.weight_scales);
        let mut max = 0.0;
        for (((start, key_scale), value_scale), &position) in entries.zip(positions) {
            *start = position as usize * cache.stride;
            [*key_scale, *value_scale] = cache.scales[position as usize];
            max = if *value_scale > max { *value_scale } else { max };
        }
        self.output_scale = max / WEIGHT_MAX;
        let scale = if max > 0.0 { WEIGHT_MAX / max } else { 0.0 };
        self.weight_scales.iter_mut().for_each(|value_scale| *value_scale *= scale);
        for index in count..padded {
            // Padding has no weight.
            (self.starts[index], self.weight_scales[index]) = (self.starts[count - 1], 0.0);
        }
        self.integers.resize(rows * padded / 2 * cache.shape.padded_heads(), 0);
    }

    /// Calls of [`PrefetchQueue::advance`] for so many rows: one a vector of scores, and one a block of two heads.
    fn prefetch_calls(&self, shape: HeadShape, rows: usize) -> usize {
        let padded = self.starts.len();
        rows * padded * shape.padded_heads() / LANES + padded / BLOCK * shape.heads.div_ceil(2)
    }

    /// The prepared read, and the memory of integer weights.
    fn parts<'a>(&'a mut self, cache: Int8View<'a>) -> (PreparedRead<'a>, &'a mut [u32]) {
        let ReadList { starts, key_scales, weight_scales, output_scale, integers } = self;
        let read = PreparedRead {
            rows: cache.rows,
            shape: cache.shape,
            starts,
            key_scales,
            weight_scales,
            output_scale: *output_scale,
        };
        (read, integers)
    }
}

/// Writes the attention output of every row, D numbers each, to `out`.
///
/// Scores, softmax and weighted sums are each computed for four rows before the next: within one row, each has to wait for the
/// results of the one before.
pub(crate) fn attend(
    isa: Isa,
    queries: Queries<'_>,
    cache: Int8View<'_>,
    reads: &Reads,
    out: &mut [f32],
) {
    let (mut scratch, width) = (Scratch::default(), cache.shape.width());
    let prefetch = isa.uses(Technique::Prefetch);
    let group_rows = if isa.uses(Technique::SharedReads) { ROWS } else { 1 };
    let mut rest = &row_groups(reads, group_rows)[..];
    while !rest.is_empty() {
        let (groups, behind) = rest.split_at(next_groups(rest));
        rest = behind;
        let mut prefetch_calls = 0;
        for (list, (rows, positions)) in scratch.lists.iter_mut().zip(groups) {
            list.look_up(cache, rows.len(), positions);
            prefetch_calls += list.prefetch_calls(cache.shape, rows.len());
        }
        let next = if prefetch { behind } else { &[] };
        scratch.prefetch.fill(cache, groups, next, prefetch_calls);
        let first = groups[0].0.start;
        for (list, (rows, positions)) in scratch.lists.iter_mut().zip(groups) {
            let (read, _) = list.parts(cache);
            for row in rows.clone() {
                let query = &queries.row(row)[..width];
                let weights = &mut scratch.weights[row - first];
                let count = positions.len();
                if row + 1 < reads.len() && prefetch {
                    let next = queries.row(row + 1)[..width].chunks(LANES);
                    next.for_each(|line| prefetch_line(line.as_ptr().cast()));
                }
                scores(isa, read, count, query, &mut scratch.prefetch, &mut scratch.query, weights);
            }
        }
        for (list, (rows, _)) in scratch.lists.iter_mut().zip(groups) {
            let (read, integers) = list.parts(cache);
            let integers = integers.chunks_exact_mut(read.row_weights().max(1));
            for (integers, row) in integers.zip(rows.clone()) {
                quantise_weights(isa, read, &mut scratch.weights[row - first], integers);
            }
        }
        for (list, (rows, _)) in scratch.lists.iter_mut().zip(groups) {
            let (read, integers) = list.parts(cache);
            let out = &mut out[rows.start * width..rows.end * width];
            weighted_sums(isa, read, integers, &mut scratch.prefetch, out);
        }
    }
}

/// Up to [`ROWS`] rows that read the same positions, and the positions.
type RowGroup<'a> = (Range<usize>, &'a [u32]);

/// The groups of all rows, at most `max_rows` rows each.
fn row_groups(reads: &Reads, max_rows: usize) -> Vec<RowGroup<'_>> {
    let cut = |(rows, positions): (Range<usize>, _)| {
        rows.clone()
            .step_by(max_rows)
            .map(move |row| (row..rows.end.min(row + max_rows), positions))
    };
    reads.groups().flat_map(cut).collect()
}

/// Number of the next groups that have up to [`ROWS`] rows together.
fn next_groups(groups: &[RowGroup<'_>]) -> usize {
    let first = groups[0].0.start;
    groups.iter().take_while(|(rows, _)| rows.end - first <= ROWS).count()
}

/// See [`super::mean_weights`].
pub(crate) fn mean_weights(
    isa: Isa,
    query: &[f32],
    cache_read: CacheRead<'_>,
    heads: usize,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let cache = cache_read.cache.int8_view();
    let (padded_heads, width) = (cache.shape.padded_heads(), cache.shape.width());
    let ([list, ..], [weights, ..]) = (&mut scratch.lists, &mut scratch.weights);
    list.look_up(cache, 1, cache_read.positions);
    let (read, _) = list.parts(cache);
    let (prefetch, count) = (&mut PrefetchQueue::default(), cache_read.positions.len());
    scores(isa, read, count, &query[..width], prefetch, &mut scratch.query, weights);
    weights_from_scores(isa, weights, padded_heads);
    let used = heads.min(cache.shape.heads);
    for (out, weights) in out.iter_mut().zip(weights.as_flattened().chunks_exact(padded_heads)) {
        *out += weights[..used].iter().sum::<f32>() / heads as f32;
    }
}

vector_kernel! {
    fn weights_from_scores(scores: &mut [[f32; LANES]], columns: usize) = softmax
}

/// Calls a function of the kernel for an instruction set.
macro_rules! call_kernel {
    ($isa:expr, $name:ident($($arg:expr),*)) => {
        match $isa.level() {
            // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512 VNNI.
            #[cfg(target_arch = "x86_64")]
            crate::isa::Level::Avx512Vnni | crate::isa::Level::Amx => unsafe { avx512vnni::$name($($arg),*) },
            // SAFETY: an `Isa` of these levels exists only where the processor has AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            crate::isa::Level::Avx2 | crate::isa::Level::AvxVnni | crate::isa::Level::Avx512 => unsafe {
                avx2::$name($($arg),*)
            },
            _ => plain::$name($($arg),*),
        }
    };
}

/// Scores of a row that reads `count` positions. Padding becomes negative infinity.
fn scores(
    isa: Isa,
    read: PreparedRead<'_>,
    count: usize,
    query: &[f32],
    prefetch: &mut PrefetchQueue,
    scratch: &mut Vec<CacheLine>,
    weights: &mut Aligned<[f32; LANES]>,
) {
    let padded_heads = read.shape.padded_heads();
    weights.reshape(read.starts.len() * padded_heads / LANES, 0);
    call_kernel!(isa, scores(read, query, prefetch, scratch, weights));
    weights.as_flattened_mut()[count * padded_heads..].fill(f32::NEG_INFINITY);
}

/// Softmax of scores, quantised to integers in the order that the kernel's [`weighted_sums`] reads.
fn quantise_weights(
    isa: Isa,
    read: PreparedRead<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    call_kernel!(isa, quantise_weights(read, scores, integers));
}

/// Weighted sums of values.
fn weighted_sums(
    isa: Isa,
    read: PreparedRead<'_>,
    integers: &[u32],
    prefetch: &mut PrefetchQueue,
    out: &mut [f32],
) {
    if read.starts.is_empty() {
        return out.fill(0.0);
    }
    call_kernel!(isa, weighted_sums(read, integers, prefetch, out));
}

/// Softmax of scores, quantised to integers. A `u32` has the weights of two positions, the first in its low 16 bits; each two
/// positions have a run of all heads.
#[inline(always)]
fn quantise_to_pairs<I: Vectors>(
    isa: I,
    read: PreparedRead<'_>,
    scores: &mut [[f32; LANES]],
    pairs: &mut [u32],
) {
    let padded_heads = read.shape.padded_heads();
    softmax(isa, scores, padded_heads);
    let weights = scores.as_flattened().chunks_exact(2 * padded_heads);
    let scales = read.weight_scales.as_chunks::<2>().0;
    for ((pairs, weights), scales) in pairs.chunks_exact_mut(padded_heads).zip(weights).zip(scales)
    {
        let both = weights[..padded_heads].iter().zip(&weights[padded_heads..]);
        for (pair, (first, second)) in pairs.iter_mut().zip(both) {
            *pair = round_to_u16(first * scales[0]) | round_to_u16(second * scales[1]) << 16;
        }
    }
}

/// Rounds a number from 0 to 65,535 to the nearest integer, ties to even. Adding 2²³ leaves it in the low bits.
#[inline(always)]
fn round_to_u16(v: f32) -> u32 {
    (v + 8_388_608.0).to_bits() & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::kv_cache::{Cache, CachePrecision};
    use crate::isa::Level;
    use crate::memory::arena::Pages;
    use crate::memory::matrix::Matrix;
    use proptest::prelude::*;

    proptest! {
        /// Any shape, with numbers of very different magnitudes.
        #[test]
        fn every_instruction_set_computes_the_same(
            (heads, head_width) in (1..20usize, 1..70usize),
            (positions, rows) in (1..30usize, 1..7usize),
            seed: u32,
        ) {
            let mut state = seed;
            let mut numbers = |count: usize| -> Vec<f32> {
                let number = |_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let v = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                    if state & 0xf00 == 0 { v * 40.0 } else { v }
                };
                (0..count).map(number).collect()
            };
            let width = heads * head_width;
            let keys_and_values = Matrix::from_rows(2 * width, numbers(40 * 2 * width));
            let queries = numbers(rows * width);
            let at: Vec<u32> = (0..40).collect();
            let reads: Vec<u32> = (0..positions as u32).map(|i| i * 7 % 40).collect();
            let mut expected = None;
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut cache = Cache::new(CachePrecision::Int8, Pages::Large);
                cache.grow(40, width, heads);
                cache.store(isa, &keys_and_values, 0, &at);
                let mut bits: Vec<u32> =
                    cache.int8_view().rows.iter().flat_map(|line| line.0.map(u32::from)).collect();
                let (mut list, mut query_scratch, mut weights) =
                    (ReadList::default(), Vec::new(), Aligned::default());
                list.look_up(cache.int8_view(), rows, &reads);
                let (read, integers) = list.parts(cache.int8_view());
                let prefetch = &mut PrefetchQueue::default();
                let of_rows = integers.chunks_exact_mut(read.row_weights());
                for (query, integers) in queries.chunks_exact(width).zip(of_rows) {
                    scores(isa, read, positions, query, prefetch, &mut query_scratch, &mut weights);
                    bits.extend(weights.as_flattened().iter().map(|v| v.to_bits()));
                    quantise_weights(isa, read, &mut weights, integers);
                }
                let mut out = vec![f32::NAN; rows * width];
                weighted_sums(isa, read, integers, prefetch, &mut out);
                bits.extend(out.iter().map(|v| v.to_bits()));
                prop_assert_eq!(&bits, expected.get_or_insert_with(|| bits.clone()), "{:?}", isa);
            }
        }
    }
}
