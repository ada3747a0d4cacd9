//! The reference, in plain Rust: 64 int8 of a cache line at a time, which compilers vectorise.

use super::{
    BLOCK, HeadShape, LINE_HEADS, PrefetchQueue, PreparedRead, QueryScale, quantise_to_pairs,
};
use crate::isa::lanes::{LANES, array, largest_magnitude};
use crate::isa::vectors::Plain;
use crate::memory::arena::CacheLine;

/// An int32 for each int8 of a cache line.
type LineSums = [i32; LINE_HEADS * LANES];

/// The head, of four, and the column, of sixteen, of a byte of a cache line.
fn head_and_column(byte: usize) -> (usize, usize) {
    (byte / BLOCK % LINE_HEADS, byte / (BLOCK * LINE_HEADS) * BLOCK + byte % BLOCK)
}

/// See [`super::scores`].
pub(super) fn scores(
    read: PreparedRead<'_>,
    query: &[f32],
    prefetch: &mut PrefetchQueue,
    _: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = read.shape;
    let QueryScale { scale, unit } = QueryScale::new(shape, largest_magnitude(query));
    let query = quantise_query(query, scale, shape);
    let weights = weights.as_flattened_mut().chunks_exact_mut(shape.padded_heads());
    for (weights, (&start, key_scale)) in weights.zip(read.starts.iter().zip(read.key_scales)) {
        prefetch.advance(read.rows);
        weights.fill(0.0);
        let lines = query.iter().zip(&read.rows[start..]).enumerate();
        let mut sums = vec![[0; LINE_HEADS * LANES]; shape.groups()];
        for (i, (query, key)) in lines {
            let sums: &mut LineSums = &mut sums[i / shape.vectors()];
            for (sum, (q, &key)) in sums.iter_mut().zip(query.iter().zip(&key.0)) {
                *sum = sum.wrapping_add((i32::from(key) - 128) * q);
            }
        }
        for (weights, sums) in weights.chunks_exact_mut(LINE_HEADS).zip(&sums) {
            let mut totals = [0i32; LINE_HEADS];
            for (byte, sum) in sums.iter().enumerate() {
                let head = head_and_column(byte).0;
                totals[head] = totals[head].wrapping_add(*sum);
            }
            for (weight, total) in weights.iter_mut().zip(totals) {
                *weight = total as f32 * (unit * key_scale);
            }
        }
    }
}

/// Quantises a query to int16, in the order of a key's columns.
fn quantise_query(query: &[f32], scale: f32, shape: HeadShape) -> Vec<LineSums> {
    let line = |i: usize| {
        let (first, vector) = (i / shape.vectors() * LINE_HEADS, i % shape.vectors());
        let four: [_; LINE_HEADS] = array(|head| shape.vector(query, first + head, vector));
        array(|byte| {
            let (head, column) = head_and_column(byte);
            (four[head][column] * scale).round_ties_even() as i32
        })
    };
    (0..shape.lines()).map(line).collect()
}

/// See [`super::quantise_weights`].
pub(super) fn quantise_weights(
    read: PreparedRead<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    quantise_to_pairs(Plain::<false>, read, scores, integers);
}

/// See [`super::weighted_sums`].
pub(super) fn weighted_sums(
    read: PreparedRead<'_>,
    pairs: &[u32],
    prefetch: &mut PrefetchQueue,
    out: &mut [f32],
) {
    let (shape, padded_heads) = (read.shape, read.shape.padded_heads());
    let pairs = pairs.chunks_exact(read.row_weights());
    for (out, pairs) in out.chunks_exact_mut(shape.width()).zip(pairs) {
        for line in 0..shape.lines() {
            let (first, vector) = (line / shape.vectors() * LINE_HEADS, line % shape.vectors());
            let mut sums: LineSums = [0; LINE_HEADS * LANES];
            for (index, start) in read.starts.iter().enumerate() {
                prefetch.advance(read.rows);
                let pairs = &pairs[index / 2 * padded_heads + first..][..LINE_HEADS];
                let weights: LineSums = array(|byte| {
                    (pairs[head_and_column(byte).0] >> (index % 2 * 16) & 0xffff) as i32
                });
                let values = &read.rows[start + shape.lines() + line].0;
                for (sum, (weight, &value)) in sums.iter_mut().zip(weights.iter().zip(values)) {
                    *sum = sum.wrapping_add(weight * i32::from(value as i8));
                }
            }
            for (byte, sum) in sums.iter().enumerate() {
                let (head, column) = head_and_column(byte);
                let (head, column) = (first + head, vector * LANES + column);
                if head < shape.heads && column < shape.head_width {
                    out[head * shape.head_width + column] = *sum as f32 * read.output_scale;
                }
            }
        }
    }
}
