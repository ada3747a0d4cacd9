//! Attention over a KV cache in float32, float16 or bfloat16. Arithmetic is float32.
//!
//! Positions are read one after the other, all heads of each, once for the keys and once for the values: in the order of memory.
//! The weights of a row, which are scores at first, have the same order:
//!
//! ```text
//! position 0: head 0, head 1, … (padded to a power of two) │ position 1: … │ padding to whole vectors
//! ```
//!
//! A score is summed over vectors and then over their lanes. The sums over lanes are taken for sixteen scores at once, which
//! makes the scores neighbours. The softmax then needs a sum over those lanes only that belong to one head.
//!
//! Additions have the same order for one row and for four.

use super::softmax::softmax;
use super::typed_read::TypedRead;
use super::{CacheRead, Queries, ROWS, transposed};
use crate::attention::kv_cache::{Bfloat16, CacheNumber, CachePrecision};
use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, array, multiply_add, zero_padded};
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::Aligned;
use crate::technique::{Technique, Techniques};

/// Prefetches the next positions: the first piece of every position, then the second of every position, and so on.
/// Memory delivers lines of many pages faster than lines of one (see `memory::prefetch`).
struct PrefetchCursor<'a> {
    next: &'a [u32],
    /// Index into `next`.
    index: usize,
    piece: usize,
    /// Pieces of each position.
    pieces: usize,
}

impl<'a> PrefetchCursor<'a> {
    fn new(next: &'a [u32], pieces: usize) -> PrefetchCursor<'a> {
        PrefetchCursor {
            next,
            index: 0,
            piece: 0,
            pieces: if next.is_empty() { 0 } else { pieces },
        }
    }

    /// Calls `prefetch(position, piece)` for the next `count` pieces.
    #[inline(always)]
    fn advance(&mut self, count: usize, prefetch: impl Fn(u32, usize)) {
        for _ in 0..count {
            if self.piece == self.pieces {
                return;
            }
            prefetch(self.next[self.index], self.piece);
            self.index += 1;
            if self.index == self.next.len() {
                (self.index, self.piece) = (0, self.piece + 1);
            }
        }
    }
}

/// Evaluates `$call` with a [`TypedRead`] of the cache's number type.
macro_rules! with_type {
    ($read:expr, |$typed:ident| $call:expr) => {
        match $read.cache.cache_precision() {
            CachePrecision::Float32 => {
                let $typed = TypedRead::<f32>::new($read);
                $call
            }
            CachePrecision::Float16 => {
                let $typed = TypedRead::<Float16>::new($read);
                $call
            }
            CachePrecision::Bfloat16 => {
                let $typed = TypedRead::<Bfloat16>::new($read);
                $call
            }
            CachePrecision::Int8 => unreachable!("`int8` reads these"),
        }
    };
}

vector_kernel! {
    /// Attends for a group of rows that read the same positions. `weights` is scratch memory.
    pub(super) fn attend(
        techniques: Techniques,
        queries: Queries<'_>,
        read: CacheRead<'_>,
        weights: &mut Aligned<f32>,
        out: &mut [f32],
    ) = attend_body
}

#[inline(always)]
fn attend_body<I: Vectors>(
    isa: I,
    techniques: Techniques,
    queries: Queries<'_>,
    read: CacheRead<'_>,
    weights: &mut Aligned<f32>,
    out: &mut [f32],
) {
    with_type!(read, |read| attend_read(isa, techniques, queries, read, weights, out));
}

vector_kernel! {
    /// As [`attend`] for rows that read each other's keys and values.
    pub(super) fn attend_within(
        techniques: Techniques,
        queries: Queries<'_>,
        read: TypedRead<'_, f32>,
        weights: &mut Aligned<f32>,
        out: &mut [f32],
    ) = attend_read
}

#[inline(always)]
fn attend_read<I: Vectors, T: CacheNumber>(
    isa: I,
    techniques: Techniques,
    queries: Queries<'_>,
    read: TypedRead<'_, T>,
    weights: &mut Aligned<f32>,
    out: &mut [f32],
) {
    let sixteen = techniques.has(Technique::SixteenRows);
    if sixteen && transposed::attend(isa, queries, read, weights, out) {
        return;
    }
    weights.reshape(ROWS * read.stride(), 0);
    let (width, shares) = (read.view.width, techniques.has(Technique::SharedReads));
    let mut row = 0;
    while row * width < out.len() {
        // Prefetch once, not for every few rows.
        let read = TypedRead { next: if row == 0 { read.next } else { &[] }, ..read };
        let queries = Queries { values: queries.row(row), ..queries };
        let out = &mut out[row * width..];
        if out.len() / width < ROWS || !shares {
            attend_rows::<I, 1, _>(isa, queries, read, weights, out);
            row += 1;
        } else {
            attend_rows::<I, ROWS, _>(isa, queries, read, weights, out);
            row += ROWS;
        }
    }
}

#[inline(always)]
fn attend_rows<I: Vectors, const R: usize, T: CacheNumber>(
    isa: I,
    queries: Queries<'_>,
    read: TypedRead<'_, T>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    attention_weights::<I, R, T>(isa, queries, read, weights);
    let (mut head, mut column) = (0, 0);
    let head_width = read.head_width();
    while head < read.heads {
        let at = (head, column);
        let left = (head + 1) * head_width - column;
        let heads = read.heads - head;
        // As many columns at a time as registers hold sums for: of several heads, or of one.
        let (h, c) = match (head_width, heads) {
            (64, 4..) if R * 16 <= I::SUMS => {
                weighted_sum::<I, R, 4, 4, T>(isa, read, weights, at, out)
            }
            (32, 8..) if R * 16 <= I::SUMS => {
                weighted_sum::<I, R, 8, 2, T>(isa, read, weights, at, out)
            }
            (32, 2..) if R * 4 <= I::SUMS => {
                weighted_sum::<I, R, 2, 2, T>(isa, read, weights, at, out)
            }
            _ if R * 4 <= I::SUMS && left >= 4 * LANES => {
                weighted_sum::<I, R, 1, 4, T>(isa, read, weights, at, out)
            }
            _ if left >= LANES => weighted_sum::<I, R, 1, 1, T>(isa, read, weights, at, out),
            _ => weighted_sum_rest::<I, R, T>(read, weights, at, out),
        };
        column += c;
        head += if column == (head + h) * head_width { h } else { 0 };
    }
}

/// Attention weights of `R` rows, row after row: scores, then a softmax over the positions for each row and head.
#[inline(always)]
fn attention_weights<I: Vectors, const R: usize, T: CacheNumber>(
    isa: I,
    queries: Queries<'_>,
    read: TypedRead<'_, T>,
    weights: &mut [f32],
) {
    let query: [&[f32]; R] = array(|r| &queries.row(r)[..read.view.width]);
    match read.head_width() {
        64 => scores::<I, R, 4, T>(isa, query, read, weights),
        32 => scores::<I, R, 2, T>(isa, query, read, weights),
        _ => scores::<I, R, 0, T>(isa, query, read, weights),
    }
    let stride = read.stride();
    for row in 0..R {
        softmax(isa, weights[row * stride..][..stride].as_chunks_mut().0, read.padded_heads());
    }
}

/// Scores of all heads. A head has `V` vectors; 0 stands for any number of columns.
#[inline(always)]
fn scores<I: Vectors, const R: usize, const V: usize, T: CacheNumber>(
    isa: I,
    query: [&[f32]; R],
    read: TypedRead<'_, T>,
    weights: &mut [f32],
) {
    let padded_heads = read.padded_heads();
    let mut products = [[[0.0; LANES]; LANES]; R];
    let mut prefetch = PrefetchCursor::new(read.next, read.heads);
    for (j, &position) in read.positions.iter().enumerate() {
        let key = read.view.key(position);
        let mut index = j * padded_heads;
        for head in 0..read.heads {
            let of_head = read.columns_of(head);
            prefetch.advance(1, |next, piece| {
                I::prefetch(&read.view.key(next)[read.columns_of(piece)]);
            });
            let query = array(|r| &query[r][of_head.clone()]);
            let of_head = multiply_key::<I, R, V, T>(isa, query, &key[of_head]);
            for r in 0..R {
                isa.store(of_head[r], &mut products[r][index % LANES]);
            }
            index += 1;
            if index.is_multiple_of(LANES) {
                reduce_scores(isa, read, &products, index / LANES - 1, weights);
            }
        }
        // Padding heads: their scores are never read.
        let end = (j + 1) * padded_heads;
        if end.is_multiple_of(LANES) && index < end {
            reduce_scores(isa, read, &products, end / LANES - 1, weights);
        }
    }
    let end = read.positions.len() * padded_heads;
    if !end.is_multiple_of(LANES) {
        reduce_scores(isa, read, &products, end / LANES, weights);
        for row in weights.chunks_exact_mut(read.stride()).take(R) {
            row[end..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Products of `R` queries with a key. The lanes are not yet summed.
#[inline(always)]
fn multiply_key<I: Vectors, const R: usize, const V: usize, T: CacheNumber>(
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
        let key = T::load(isa, &zero_padded(last));
        for r in 0..R {
            let last = query[r].as_chunks::<LANES>().1;
            sums[r] = isa.multiply_add(isa.load(&zero_padded(last)), key, sums[r]);
        }
    }
    sums
}

/// Sums the lanes of sixteen products: sixteen scores of each row.
#[inline(always)]
fn reduce_scores<I: Vectors, const R: usize, T: CacheNumber>(
    isa: I,
    read: TypedRead<'_, T>,
    products: &[[[f32; LANES]; LANES]; R],
    vector: usize,
    weights: &mut [f32],
) {
    let scale = isa.all(1.0 / (read.head_width() as f32).sqrt());
    for (row, products) in weights.chunks_exact_mut(read.stride()).zip(products) {
        let to = &mut row.as_chunks_mut::<LANES>().0[vector];
        isa.store(isa.multiply(isa.sums(products), scale), to);
    }
}

/// Weighted sums of the values of `H` heads, `V` vectors each, from a head and a column on. Returns the heads and the columns
/// that are done.
#[inline(always)]
fn weighted_sum<I: Vectors, const R: usize, const H: usize, const V: usize, T: CacheNumber>(
    isa: I,
    read: TypedRead<'_, T>,
    weights: &[f32],
    (head, column): (usize, usize),
    out: &mut [f32],
) -> (usize, usize) {
    let (padded_heads, stride) = (read.padded_heads(), read.stride());
    let numbers = column..column + H * V * LANES;
    let rows: [&[f32]; R] = array(|r| &weights[r * stride + head..][..stride - head]);
    let mut sums = [[[isa.all(0.0); V]; H]; R];
    let mut prefetch = PrefetchCursor::new(read.next, H);
    for (j, &position) in read.positions.iter().enumerate() {
        prefetch.advance(H, |next, piece| {
            I::prefetch(&read.view.value(next)[column + piece * V * LANES..][..V * LANES]);
        });
        let values = read.view.value(position)[numbers.clone()].as_chunks::<LANES>().0;
        let values = &values[..H * V];
        let weights: [&[f32]; R] = array(|r| &rows[r][j * padded_heads..][..H]);
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
        let out = out[r * read.view.width..][numbers.clone()].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.as_flattened().iter().zip(out) {
            isa.store(*sum, out);
        }
    }
    (H, numbers.len())
}

/// Weighted sums for the last columns of a head whose width is not a multiple of sixteen.
#[inline(always)]
fn weighted_sum_rest<I: Vectors, const R: usize, T: CacheNumber>(
    read: TypedRead<'_, T>,
    weights: &[f32],
    (head, column): (usize, usize),
    out: &mut [f32],
) -> (usize, usize) {
    let numbers = column..(head + 1) * read.head_width();
    for r in 0..R {
        let out = &mut out[r * read.view.width..][numbers.clone()];
        out.fill(0.0);
        let weights = weights[r * read.stride()..].chunks_exact(read.padded_heads());
        for (weights, &position) in weights.zip(read.positions) {
            for (out, v) in out.iter_mut().zip(&read.view.value(position)[numbers.clone()]) {
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

vector_kernel! {
    /// See [`super::mean_weights`].
    pub(super) fn mean_weights(
        query: &[f32],
        read: CacheRead<'_>,
        heads: usize,
        weights: &mut Aligned<f32>,
        out: &mut [f32],
    ) = mean_weights_body
}

#[inline(always)]
fn mean_weights_body<I: Vectors>(
    isa: I,
    query: &[f32],
    read: CacheRead<'_>,
    heads: usize,
    weights: &mut Aligned<f32>,
    out: &mut [f32],
) {
    let queries = Queries { values: query, stride: query.len() };
    with_type!(read, |read| {
        weights.reshape(read.stride(), 0);
        attention_weights::<I, 1, _>(isa, queries, read, weights);
        let used = heads.min(read.heads);
        for (out, weights) in out.iter_mut().zip(weights.chunks_exact(read.padded_heads())) {
            *out += weights[..used].iter().sum::<f32>() / heads as f32;
        }
    });
}
