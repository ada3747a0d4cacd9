//! Attention over cached keys and values, whose layout is in `cache`. What is kept in bytes is read by `bytes`; all others
//! are read here.
//!
//! A head is `D / H` neighbouring columns. Positions are read one after the other, all heads of each, once for the
//! keys and once for the values, so that memory is read in its order. The weights of a row, which are scores at
//! first, stand in the same order:
//!
//! ```text
//! position 0: head 0, head 1, … (filled up to C, a power of two) │ position 1: … │ filled up to whole vectors
//! ```
//!
//! A score is a sum over vectors and then over their lanes; the latter is done for sixteen scores at once, which
//! makes them neighbours. Softmax needs no sum over lanes but the few that are of one head.
//!
//! Rows that read the same positions (the words of a source sentence, the hypotheses of a beam) are worked on four
//! at a time, so that keys and values are loaded once for all four. The order of additions is the same for one row
//! and for four. Where they are many, `turned` does it another way.
//!
//! Cost: two multiply-adds for each column and position read, one exponential for each head and
//! position.

pub(crate) mod int8;
pub(crate) mod kv_cache;
mod softmax;
mod transposed;

use std::ops::Range;

use peregrine_nn::Reads;

use crate::attention::kv_cache::{Bfloat16, Cache, CachePrecision, Number, View};
use crate::isa::Isa;
use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, array, multiply_add};
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::Aligned;
use crate::technique::{Technique, Techniques};
use softmax::softmax;

/// Rows worked on together.
const ROWS: usize = 4;

/// What a group of rows reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) positions: &'a [u32],
    pub(crate) heads: usize,
    /// What is read after it: asked for while this is worked on.
    pub(crate) next: &'a [u32],
}

/// The same, with the kind of number known.
#[derive(Clone, Copy)]
struct Kind<'a, T> {
    kept: View<'a, T>,
    positions: &'a [u32],
    heads: usize,
    next: &'a [u32],
}

impl<'a, T: Number> Kind<'a, T> {
    fn new(reading: Reading<'a>) -> Kind<'a, T> {
        let Reading { cache, positions, heads, next } = reading;
        Kind { kept: cache.view(), positions, heads, next }
    }

    fn head_width(&self) -> usize {
        self.kept.width / self.heads
    }

    fn columns_of(&self, head: usize) -> Range<usize> {
        head * self.head_width()..(head + 1) * self.head_width()
    }

    /// Weights of a position.
    fn columns(&self) -> usize {
        self.heads.next_power_of_two()
    }

    /// Weights of a row.
    fn stride(&self) -> usize {
        (self.positions.len() * self.columns()).next_multiple_of(LANES)
    }
}

/// What is read next, a piece at a time: the first of so many pieces of all positions, then the second of all, and so on.
/// Memory hands out lines of many pages faster than those of one (see `ahead`).
struct Prefetch<'a> {
    next: &'a [u32],
    place: usize,
    piece: usize,
    pieces: usize,
}

impl<'a> Prefetch<'a> {
    fn new(next: &'a [u32], pieces: usize) -> Prefetch<'a> {
        Prefetch { next, place: 0, piece: 0, pieces: if next.is_empty() { 0 } else { pieces } }
    }

    /// Has the next few pieces asked for.
    #[inline(always)]
    fn ask(&mut self, count: usize, ask: impl Fn(u32, usize)) {
        for _ in 0..count {
            if self.piece == self.pieces {
                return;
            }
            ask(self.next[self.place], self.piece);
            self.place += 1;
            if self.place == self.next.len() {
                (self.place, self.piece) = (0, self.piece + 1);
            }
        }
    }
}

/// Calls a function that is generic in the kind of number with what `reading` keeps.
macro_rules! with_kind {
    ($reading:expr, |$kind:ident| $call:expr) => {
        match $reading.cache.cache_precision() {
            CachePrecision::Float32 => {
                let $kind = Kind::<f32>::new($reading);
                $call
            }
            CachePrecision::Float16 => {
                let $kind = Kind::<Float16>::new($reading);
                $call
            }
            CachePrecision::Bfloat16 => {
                let $kind = Kind::<Bfloat16>::new($reading);
                $call
            }
            CachePrecision::Int8 => unreachable!("`bytes` does these"),
        }
    };
}

/// Rows laid out `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
}

impl<'a> Queries<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.stride..]
    }
}

/// Working memory of [`mean_weights`].
#[derive(Default)]
pub(crate) struct Memory {
    weights: Aligned<f32>,
    bytes: int8::Memory,
}

/// Attends for all rows of `out`, D numbers each.
pub(crate) fn attend(
    isa: Isa,
    queries: Queries<'_>,
    (cache, heads): (&Cache, usize),
    reads: &Reads,
    out: &mut [f32],
) {
    if cache.cache_precision() == CachePrecision::Int8 {
        return int8::attend(isa, queries, cache.bytes(), reads, out);
    }
    let (mut weights, width) = (Aligned::default(), cache.width());
    let prefetch = isa.uses(Technique::Prefetch);
    let mut groups = reads.groups().peekable();
    while let Some((rows, positions)) = groups.next() {
        let next = groups.peek().filter(|_| prefetch).map_or(&[][..], |&(_, next)| next);
        let reading = Reading { cache, positions, heads, next };
        let queries = Queries { values: queries.row(rows.start), ..queries };
        let out = &mut out[rows.start * width..rows.end * width];
        attend_in_floats(isa, isa.techniques(), queries, reading, &mut weights, out);
    }
}

vector_kernel! {
    fn attend_in_floats(
        techniques: Techniques,
        queries: Queries<'_>,
        reading: Reading<'_>,
        weights: &mut Aligned<f32>,
        out: &mut [f32],
    ) = attend_body
}

#[inline(always)]
fn attend_body<I: Vectors>(
    isa: I,
    techniques: Techniques,
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut Aligned<f32>,
    out: &mut [f32],
) {
    with_kind!(reading, |kind| {
        let many = techniques.has(Technique::SixteenRows);
        if many && transposed::attend(isa, queries, kind, weights, out) {
            return;
        }
        weights.reshape(ROWS * kind.stride(), 0);
        let (width, together) = (kind.kept.width, techniques.has(Technique::SharedReads));
        let mut row = 0;
        while row * width < out.len() {
            // Once is enough.
            let kind = Kind { next: if row == 0 { kind.next } else { &[] }, ..kind };
            let queries = Queries { values: queries.row(row), ..queries };
            let out = &mut out[row * width..];
            if out.len() / width < ROWS || !together {
                attend_rows::<I, 1, _>(isa, queries, kind, weights, out);
                row += 1;
            } else {
                attend_rows::<I, ROWS, _>(isa, queries, kind, weights, out);
                row += ROWS;
            }
        }
    });
}

#[inline(always)]
fn attend_rows<I: Vectors, const R: usize, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    rows_weights::<I, R, T>(isa, queries, kind, weights);
    let (mut head, mut column) = (0, 0);
    let head_width = kind.head_width();
    while head < kind.heads {
        let at = (head, column);
        let left = (head + 1) * head_width - column;
        let heads = kind.heads - head;
        // As many columns at a time as there are registers for sums: of several heads, or of one.
        let (h, c) = match (head_width, heads) {
            (64, 4..) if R * 16 <= I::SUMS => weigh::<I, R, 4, 4, T>(isa, kind, weights, at, out),
            (32, 8..) if R * 16 <= I::SUMS => weigh::<I, R, 8, 2, T>(isa, kind, weights, at, out),
            (32, 2..) if R * 4 <= I::SUMS => weigh::<I, R, 2, 2, T>(isa, kind, weights, at, out),
            _ if R * 4 <= I::SUMS && left >= 4 * LANES => {
                weigh::<I, R, 1, 4, T>(isa, kind, weights, at, out)
            }
            _ if left >= LANES => weigh::<I, R, 1, 1, T>(isa, kind, weights, at, out),
            _ => weigh_rest::<I, R, T>(kind, weights, at, out),
        };
        column += c;
        head += if column == (head + h) * head_width { h } else { 0 };
    }
}

/// Softmax over the positions read, for each row and head: `weights` holds row after row.
#[inline(always)]
fn rows_weights<I: Vectors, const R: usize, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    weights: &mut [f32],
) {
    let query: [&[f32]; R] = array(|r| &queries.row(r)[..kind.kept.width]);
    match kind.head_width() {
        64 => scores::<I, R, 4, T>(isa, query, kind, weights),
        32 => scores::<I, R, 2, T>(isa, query, kind, weights),
        _ => scores::<I, R, 0, T>(isa, query, kind, weights),
    }
    let stride = kind.stride();
    for row in 0..R {
        softmax(isa, weights[row * stride..][..stride].as_chunks_mut().0, kind.columns());
    }
}

/// The scores of all heads. `V` is how many vectors a head has, or 0: any number, whole or not.
#[inline(always)]
fn scores<I: Vectors, const R: usize, const V: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    kind: Kind<'_, T>,
    weights: &mut [f32],
) {
    let columns = kind.columns();
    let mut products = [[[0.0; LANES]; LANES]; R];
    let mut ahead = Prefetch::new(kind.next, kind.heads);
    for (j, &position) in kind.positions.iter().enumerate() {
        let key = kind.kept.key(position);
        let mut place = j * columns;
        for head in 0..kind.heads {
            let of_head = kind.columns_of(head);
            ahead.ask(1, |next, piece| {
                I::prefetch(&kind.kept.key(next)[kind.columns_of(piece)]);
            });
            let query = array(|r| &query[r][of_head.clone()]);
            let of_head = multiply::<I, R, V, T>(isa, query, &key[of_head]);
            for r in 0..R {
                isa.store(of_head[r], &mut products[r][place % LANES]);
            }
            place += 1;
            if place.is_multiple_of(LANES) {
                sum_up(isa, kind, &products, place / LANES - 1, weights);
            }
        }
        // Columns of no head: what stands there is not looked at.
        let end = (j + 1) * columns;
        if end.is_multiple_of(LANES) && place < end {
            sum_up(isa, kind, &products, end / LANES - 1, weights);
        }
    }
    let end = kind.positions.len() * columns;
    if !end.is_multiple_of(LANES) {
        sum_up(isa, kind, &products, end / LANES, weights);
        for row in weights.chunks_exact_mut(kind.stride()).take(R) {
            row[end..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Products of `R` queries with a key, lanes not yet added.
#[inline(always)]
fn multiply<I: Vectors, const R: usize, const V: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    key: &[T],
) -> [I::V; R] {
    let (keys, last) = key.as_chunks::<LANES>();
    let vectors = if V == 0 { keys.len() } else { V };
    let keys = &keys[..vectors];
    let whole: [_; R] = array(|r| &query[r].as_chunks::<LANES>().0[..vectors]);
    let mut sums = [isa.all(0.0); R];
    for (v, key) in keys.iter().enumerate() {
        let key = T::load(isa, key);
        for r in 0..R {
            sums[r] = isa.multiply_add(isa.load(&whole[r][v]), key, sums[r]);
        }
    }
    if V == 0 && !last.is_empty() {
        let key = T::load(isa, &filled_up(last));
        for r in 0..R {
            let last = query[r].as_chunks::<LANES>().1;
            sums[r] = isa.multiply_add(isa.load(&filled_up(last)), key, sums[r]);
        }
    }
    sums
}

/// Sixteen scores of each row from their products.
#[inline(always)]
fn sum_up<I: Vectors, const R: usize, T: Number>(
    isa: I,
    kind: Kind<'_, T>,
    products: &[[[f32; LANES]; LANES]; R],
    vector: usize,
    weights: &mut [f32],
) {
    let scale = isa.all(1.0 / (kind.head_width() as f32).sqrt());
    for (row, products) in weights.chunks_exact_mut(kind.stride()).zip(products) {
        let to = &mut row.as_chunks_mut::<LANES>().0[vector];
        isa.store(isa.multiply(isa.sums(products), scale), to);
    }
}

/// Fewer than sixteen numbers, and zeros.
#[inline(always)]
fn filled_up<T: Number>(numbers: &[T]) -> [T; LANES] {
    let mut lanes = [T::zeroed(); LANES];
    lanes[..numbers.len()].copy_from_slice(numbers);
    lanes
}

/// Weighted means of the values of `H` heads, `V` vectors each, from a head and a column on; tells how many heads
/// and columns that were.
#[inline(always)]
fn weigh<I: Vectors, const R: usize, const H: usize, const V: usize, T: Number>(
    isa: I,
    kind: Kind<'_, T>,
    weights: &[f32],
    (head, column): (usize, usize),
    out: &mut [f32],
) -> (usize, usize) {
    let (columns, stride) = (kind.columns(), kind.stride());
    let numbers = column..column + H * V * LANES;
    let rows: [&[f32]; R] = array(|r| &weights[r * stride + head..][..stride - head]);
    let mut sums = [[[isa.all(0.0); V]; H]; R];
    let mut ahead = Prefetch::new(kind.next, H);
    for (j, &position) in kind.positions.iter().enumerate() {
        ahead.ask(H, |next, piece| {
            I::prefetch(&kind.kept.value(next)[column + piece * V * LANES..][..V * LANES]);
        });
        let values = kind.kept.value(position)[numbers.clone()].as_chunks::<LANES>().0;
        let values = &values[..H * V];
        let weights: [&[f32]; R] = array(|r| &rows[r][j * columns..][..H]);
        for h in 0..H {
            for v in 0..V {
                let value = T::load(isa, &values[h * V + v]);
                for r in 0..R {
                    sums[r][h][v] = isa.multiply_add(isa.all(weights[r][h]), value, sums[r][h][v]);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let out = out[r * kind.kept.width..][numbers.clone()].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.as_flattened().iter().zip(out) {
            isa.store(*sum, out);
        }
    }
    (H, numbers.len())
}

/// The same for the last columns of a head whose width is no multiple of sixteen.
#[inline(always)]
fn weigh_rest<I: Vectors, const R: usize, T: Number>(
    kind: Kind<'_, T>,
    weights: &[f32],
    (head, column): (usize, usize),
    out: &mut [f32],
) -> (usize, usize) {
    let numbers = column..(head + 1) * kind.head_width();
    for r in 0..R {
        let out = &mut out[r * kind.kept.width..][numbers.clone()];
        out.fill(0.0);
        let weights = weights[r * kind.stride()..].chunks_exact(kind.columns());
        for (weights, &position) in weights.zip(kind.positions) {
            for (out, v) in out.iter_mut().zip(&kind.kept.value(position)[numbers.clone()]) {
                *out = if I::FMA {
                    multiply_add::<true>(weights[head], v.widen(), *out)
                } else {
                    multiply_add::<false>(weights[head], v.widen(), *out)
                };
            }
        }
    }
    (1, numbers.len())
}

/// The weights themselves for one row: the mean over the first `heads` heads, added to `out`.
pub(crate) fn mean_weights(
    isa: Isa,
    query: &[f32],
    reading: Reading<'_>,
    heads: usize,
    memory: &mut Memory,
    out: &mut [f32],
) {
    match reading.cache.cache_precision() {
        CachePrecision::Int8 => {
            int8::mean_weights(isa, query, reading, heads, &mut memory.bytes, out)
        }
        _ => mean_of_floats(isa, query, reading, heads, &mut memory.weights, out),
    }
}

vector_kernel! {
    fn mean_of_floats(
        query: &[f32],
        reading: Reading<'_>,
        heads: usize,
        weights: &mut Aligned<f32>,
        out: &mut [f32],
    ) = mean_weights_body
}

#[inline(always)]
fn mean_weights_body<I: Vectors>(
    isa: I,
    query: &[f32],
    reading: Reading<'_>,
    heads: usize,
    weights: &mut Aligned<f32>,
    out: &mut [f32],
) {
    let queries = Queries { values: query, stride: query.len() };
    with_kind!(reading, |kind| {
        weights.reshape(kind.stride(), 0);
        rows_weights::<I, 1, _>(isa, queries, kind, weights);
        let used = heads.min(kind.heads);
        for (out, weights) in out.iter_mut().zip(weights.chunks_exact(kind.columns())) {
            *out += weights[..used].iter().sum::<f32>() / heads as f32;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::kv_cache::CachePrecision;
    use crate::isa::lanes::bits;
    use crate::isa::{Level, same_everywhere};
    use crate::memory::arena::Pages;
    use crate::memory::matrix::Matrix;

    /// All of `rows` rows read the same positions.
    fn all_read(positions: &[u32], rows: usize) -> Reads {
        let mut reads = Reads::default();
        reads.push(positions.iter().copied());
        (1..rows).for_each(|_| reads.push_same());
        reads
    }

    fn wave(i: usize) -> f32 {
        ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5
    }

    /// Keys and values of `positions` positions, and a cache that holds them.
    fn filled(
        cache_precision: CachePrecision,
        positions: usize,
        (width, heads): (usize, usize),
    ) -> (Vec<f32>, Vec<f32>, Cache) {
        let keys: Vec<f32> = (0..positions * width).map(wave).collect();
        let values: Vec<f32> = (0..positions * width).map(|i| wave(i + 11)).collect();
        let mut cache = Cache::new(cache_precision, Pages::Large);
        // In runs of all kinds: single ones, to the end of a block, and not from its beginning.
        let mut at: Vec<u32> = (0..positions as u32).collect();
        at[17..20].reverse();
        let row = |&p: &u32| {
            let columns = p as usize * width..(p as usize + 1) * width;
            [&[f32::NAN], &keys[columns.clone()], &values[columns]].concat()
        };
        let rows = Matrix::from_rows(2 * width + 1, at.iter().flat_map(row).collect());
        cache.grow(positions, width, heads);
        cache.store(Isa::best(), &rows, 1, &at);
        (keys, values, cache)
    }

    /// The plain equations in double precision.
    fn naive(
        query: &[f32],
        (keys, values): (&[f32], &[f32]),
        positions: &[u32],
        heads: usize,
    ) -> Vec<f64> {
        let width = query.len();
        let head_width = width / heads;
        (0..width)
            .map(|column| {
                let head = column / head_width * head_width..(column / head_width + 1) * head_width;
                let score = |p: u32| -> f64 {
                    let key = &keys[p as usize * width..][..width];
                    let dot: f64 =
                        head.clone().map(|c| f64::from(query[c]) * f64::from(key[c])).sum();
                    (dot / (head_width as f64).sqrt()).exp()
                };
                let total: f64 = positions.iter().map(|&p| score(p)).sum();
                let value = |p: u32| f64::from(values[p as usize * width + column]);
                positions.iter().map(|&p| score(p) / total * value(p)).sum()
            })
            .collect()
    }

    /// What reduced precision may add to an error: values and keys are within 1.5, and a key off by a
    /// part of its magnitude moves scores by that part.
    fn allowed(cache_precision: CachePrecision) -> f64 {
        match cache_precision {
            CachePrecision::Float32 => 2e-6,
            CachePrecision::Float16 => 3e-3,
            CachePrecision::Bfloat16 => 2e-2,
            CachePrecision::Int8 => 4e-2,
        }
    }

    #[test]
    fn attention_follows_its_equation() {
        let shapes = [(10, 2), (64, 4), (96, 2), (48, 3), (128, 2), (164, 2), (288, 9), (320, 5)];
        for (cache_precision, (width, heads)) in
            CachePrecision::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
        {
            let (keys, values, cache) = filled(cache_precision, 70, (width, heads));
            let orders: [Vec<u32>; 4] = [
                (0..70).collect(),
                (16..53).collect(),
                (0..70).rev().step_by(3).collect(),
                vec![6, 40, 7, 41, 7, 69],
            ];
            let queries: Vec<f32> = (0..7 * 2 * width).map(|i| wave(i + 5)).collect();
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                for positions in &orders {
                    let rows = Queries { values: &queries, stride: 2 * width };
                    let mut reads = all_read(positions, 6);
                    // What others read must not show.
                    reads.push([3, 40]);
                    let mut out = vec![f32::NAN; 7 * width];
                    attend(isa, rows, (&cache, heads), &reads, &mut out);
                    let out = &out[..6 * width];
                    for (row, out) in out.chunks(width).enumerate() {
                        let query = &queries[row * 2 * width..][..width];
                        let expected = naive(query, (&keys, &values), positions, heads);
                        for (got, want) in out.iter().zip(expected) {
                            let error = (f64::from(*got) - want).abs();
                            assert!(
                                error < allowed(cache_precision),
                                "{cache_precision:?}: {got} for {want}"
                            );
                        }
                        let mut alone = vec![0.0; width];
                        let one = Queries { values: query, stride: width };
                        attend(isa, one, (&cache, heads), &all_read(positions, 1), &mut alone);
                        assert_eq!(alone, out, "the company of other rows must not show");
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let shapes = [(10, 2), (64, 2), (48, 3), (256, 4), (164, 2), (288, 9)];
        for (cache_precision, (width, heads)) in
            CachePrecision::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
        {
            let (keys, values, _) = filled(cache_precision, 70, (width, heads));
            let row =
                |p: usize| [&keys[p * width..][..width], &values[p * width..][..width]].concat();
            let kept = Matrix::from_rows(2 * width, (0..70).flat_map(row).collect());
            let queries: Vec<f32> = (0..19 * width).map(|i| wave(i + 5)).collect();
            let positions: Vec<u32> = (0..70).rev().step_by(3).collect();
            let what = format!("{cache_precision:?}, {width} columns of {heads} heads");
            same_everywhere(&what, |isa| {
                let mut cache = Cache::new(cache_precision, Pages::Large);
                cache.grow(70, width, heads);
                cache.store(isa, &kept, 0, &(0..70).collect::<Vec<u32>>());
                let rows = Queries { values: &queries, stride: width };
                let few_and_many = [3, 19].map(|count| {
                    let mut out = vec![f32::NAN; count * width];
                    attend(isa, rows, (&cache, heads), &all_read(&positions, count), &mut out);
                    bits(&out)
                });
                let reading = Reading { cache: &cache, positions: &positions, heads, next: &[] };
                let (mut memory, mut mean) = (Memory::default(), vec![0.0; positions.len()]);
                mean_weights(isa, &queries[..width], reading, heads, &mut memory, &mut mean);
                (few_and_many, bits(&mean))
            });
        }
    }

    #[test]
    fn many_rows_follow_the_same_equation() {
        for (cache_precision, (width, heads)) in CachePrecision::ALL
            .into_iter()
            .flat_map(|k| [(64, 2), (256, 4)].map(|shape| (k, shape)))
        {
            let (keys, values, cache) = filled(cache_precision, 70, (width, heads));
            let queries: Vec<f32> = (0..19 * width).map(|i| wave(i + 5)).collect();
            let queries = Queries { values: &queries, stride: width };
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                for count in [1, 15, 16, 17, 33, 70] {
                    let positions: Vec<u32> = (0..count).rev().collect();
                    let mut out = vec![f32::NAN; 19 * width];
                    attend(isa, queries, (&cache, heads), &all_read(&positions, 19), &mut out);
                    for (row, out) in out.chunks(width).enumerate() {
                        let query = &queries.row(row)[..width];
                        let expected = naive(query, (&keys, &values), &positions, heads);
                        for (got, want) in out.iter().zip(expected) {
                            let error = (f64::from(*got) - want).abs();
                            // Twice: a score is one chain of additions here, not sixteen short ones.
                            assert!(
                                error < 2.0 * allowed(cache_precision),
                                "{cache_precision:?}: {got} for {want}"
                            );
                        }
                    }
                    let mut fewer = vec![f32::NAN; 9 * width];
                    attend(isa, queries, (&cache, heads), &all_read(&positions, 9), &mut fewer);
                    assert_eq!(fewer, out[..9 * width], "others must not show");
                }
            }
        }
    }

    /// Rows as bytes keep them.
    fn rounded(rows: &[f32], width: usize) -> Vec<f32> {
        let row = |row: &[f32]| {
            let step = row.iter().fold(0f32, |most, v| most.max(v.abs())) / 127.0;
            row.iter().map(|v| (v / step).round() * step).collect::<Vec<_>>()
        };
        rows.chunks(width).flat_map(row).collect()
    }

    /// Queries in 16 bits and weights in 15 lose next to nothing beside what bytes have lost.
    #[test]
    fn integers_are_next_to_exact() {
        for (width, heads) in [(64, 4), (48, 3), (512, 8), (600, 1), (288, 9)] {
            let (keys, values, cache) = filled(CachePrecision::Int8, 70, (width, heads));
            let (keys, values) = (rounded(&keys, width), rounded(&values, width));
            let queries: Vec<f32> = (0..5 * width).map(|i| wave(i + 5)).collect();
            let rows = Queries { values: &queries, stride: width };
            for (isa, count) in
                Level::ALL.into_iter().filter_map(Isa::new).flat_map(|isa| [(isa, 3), (isa, 70)])
            {
                let positions: Vec<u32> = (0..count).rev().collect();
                let mut out = vec![f32::NAN; 5 * width];
                attend(isa, rows, (&cache, heads), &all_read(&positions, 5), &mut out);
                for (query, out) in queries.chunks(width).zip(out.chunks(width)) {
                    let expected = naive(query, (&keys, &values), &positions, heads);
                    for (got, want) in out.iter().zip(expected) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(error < 3e-4, "{got} for {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_to_read_is_zero() {
        for cache_precision in CachePrecision::ALL {
            let (_, _, cache) = filled(cache_precision, 20, (64, 2));
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let queries = Queries { values: &[1.0; 2 * 64], stride: 64 };
                let mut out = vec![f32::NAN; 2 * 64];
                attend(isa, queries, (&cache, 2), &all_read(&[], 2), &mut out);
                assert_eq!(out, vec![0.0; 2 * 64]);
            }
        }
    }

    #[test]
    fn weights_sum_to_one_and_follow_keys() {
        let (_, _, cache) = filled(CachePrecision::Float32, 20, (10, 2));
        let query: Vec<f32> = (0..10).map(wave).collect();
        let reading = Reading { cache: &cache, positions: &[6, 0, 3, 3, 5], heads: 2, next: &[] };
        let (mut memory, mut mean) = (Memory::default(), vec![0.0; 5]);
        mean_weights(Isa::best(), &query, reading, 2, &mut memory, &mut mean);
        assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(mean[2], mean[3]);
    }
}
