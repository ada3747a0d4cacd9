//! Attention of many rows over the same positions, such as the words of a sentence over themselves.
//!
//! One head after the other. Its keys and values are copied first, as float32 and padded to a multiple of eight positions: the loops
//! know one number type and have no remainder.
//!
//! Sixteen rows at a time. A head of their queries is transposed, so that a vector holds one column of sixteen rows. Scores are
//! vectors of sixteen rows too, and neither they nor the softmax need a sum across lanes:
//!
//! ```text
//! transposed:  column 0 of rows 0 … 15 │ column 1 of … │ …
//! weights:     position 0, rows 0 … 15 │ position 1 … │ …
//! ```
//!
//! The bits of a row do not depend on the other rows.

use super::Queries;
use super::typed_read::TypedRead;
use crate::attention::kv_cache::CacheNumber;
use crate::isa::lanes::{LANES, array, exp};
use crate::isa::vectors::Vectors;
use crate::memory::arena::Aligned;

/// Fewest rows for which this kernel is faster than `float`.
const MIN_ROWS: usize = 8;

/// Keys are padded to a multiple of so many positions.
const POSITIONS: usize = 8;

/// Attends for all rows of `out`. Returns false, having done nothing, if they are few or the head width is neither 32 nor 64.
#[inline(always)]
pub(super) fn attend<I: Vectors, T: CacheNumber>(
    isa: I,
    queries: Queries<'_>,
    read: TypedRead<'_, T>,
    scratch: &mut Aligned<f32>,
    out: &mut [f32],
) -> bool {
    if out.len() / read.view.width < MIN_ROWS {
        return false;
    }
    match read.head_width() {
        32 => attend_heads::<I, 2, T>(isa, queries, read, scratch, out),
        64 => attend_heads::<I, 4, T>(isa, queries, read, scratch, out),
        _ => return false,
    }
    true
}

/// Attends for heads of `V` vectors.
#[inline(always)]
fn attend_heads<I: Vectors, const V: usize, T: CacheNumber>(
    isa: I,
    queries: Queries<'_>,
    read: TypedRead<'_, T>,
    scratch: &mut Aligned<f32>,
    out: &mut [f32],
) {
    let (width, columns) = (read.view.width, V * LANES);
    let positions = read.positions.len();
    let padded = positions.next_multiple_of(POSITIONS);
    scratch.reshape((columns + positions) * LANES + 2 * padded * columns, 0);
    let scratch = scratch.as_chunks_mut().0;
    let (transposed, scratch) = scratch.split_at_mut(columns);
    let (weights, scratch) = scratch.split_at_mut(positions);
    let (keys, values) = scratch.as_chunks_mut::<V>().0.split_at_mut(padded);
    keys[positions..].fill([[0.0; LANES]; V]);
    for column in (0..width).step_by(columns) {
        for (&position, (key, value)) in
            read.positions.iter().zip(keys.iter_mut().zip(&mut *values))
        {
            copy(isa, &read.view.key(position)[column..], key);
            copy(isa, &read.view.value(position)[column..], value);
        }
        for (i, out) in out.chunks_mut(LANES * width).enumerate() {
            let rows = out.len() / width;
            let queries = Queries { values: &queries.row(i * LANES)[column..], ..queries };
            transpose(isa, queries, rows, transposed);
            // As many sums as registers hold hide the latency of an addition.
            match I::SUMS {
                ..8 => scores::<I, 4, V>(isa, transposed, keys, weights),
                _ => scores::<I, 8, V>(isa, transposed, keys, weights),
            }
            let scales = if I::FMA {
                exponentials::<I, true>(isa, weights)
            } else {
                exponentials::<I, false>(isa, weights)
            };
            let weights = (&*weights, &scales);
            let out = Rows { out: &mut out[column..], width, count: rows };
            match I::SUMS / V {
                ..2 => weighted_sums::<I, 1, V>(isa, values, weights, out),
                2..4 => weighted_sums::<I, 2, V>(isa, values, weights, out),
                4..8 => weighted_sums::<I, 4, V>(isa, values, weights, out),
                _ => weighted_sums::<I, 8, V>(isa, values, weights, out),
            }
        }
    }
}

/// Copies a head's columns as float32.
#[inline(always)]
fn copy<I: Vectors, const V: usize, T: CacheNumber>(
    isa: I,
    from: &[T],
    to: &mut [[f32; LANES]; V],
) {
    for (from, to) in from.as_chunks::<LANES>().0.iter().zip(to) {
        isa.store(T::load(isa, from), to);
    }
}

/// Transposes the first columns of `queries`. Lanes without a row repeat the last row.
#[inline(always)]
fn transpose<I: Vectors>(
    isa: I,
    queries: Queries<'_>,
    rows: usize,
    transposed: &mut [[f32; LANES]],
) {
    for (i, transposed) in transposed.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let row = |lane: usize| queries.row(lane.min(rows - 1))[i * LANES..].first_chunk();
        isa.transpose(array(|lane| row(lane).expect("a head has its width")), transposed);
    }
}

/// Scores of all positions, `P` at a time, scaled by `1 / √head_width`.
#[inline(always)]
fn scores<I: Vectors, const P: usize, const V: usize>(
    isa: I,
    transposed: &[[f32; LANES]],
    keys: &[[[f32; LANES]; V]],
    weights: &mut [[f32; LANES]],
) {
    let scale = isa.all(1.0 / ((V * LANES) as f32).sqrt());
    for (keys, weights) in keys.as_chunks::<P>().0.iter().zip(weights.chunks_mut(P)) {
        let mut sums = [isa.all(0.0); P];
        for (v, transposed) in transposed.as_chunks::<LANES>().0[..V].iter().enumerate() {
            for (c, transposed) in transposed.iter().enumerate() {
                let queries = isa.load(transposed);
                for p in 0..P {
                    sums[p] = isa.multiply_add(isa.all(keys[p][v][c]), queries, sums[p]);
                }
            }
        }
        for (sum, weights) in sums.into_iter().zip(weights) {
            isa.store(isa.multiply(sum, scale), weights);
        }
    }
}

/// Replaces scores by `e^(score - max)`. Returns the factor that normalises each row: softmax without its last product.
#[inline(always)]
fn exponentials<I: Vectors, const FMA: bool>(isa: I, scores: &mut [[f32; LANES]]) -> [f32; LANES] {
    let mut max = isa.all(f32::NEG_INFINITY);
    for scores in &*scores {
        max = isa.larger(isa.load(scores), max);
    }
    let (mut maxima, mut sums) = ([0.0; LANES], isa.all(0.0));
    isa.store(max, &mut maxima);
    for scores in scores {
        for i in 0..LANES {
            scores[i] = exp::<FMA>(scores[i] - maxima[i]);
        }
        sums = isa.add(sums, isa.load(scores));
    }
    let mut scales = [0.0; LANES];
    isa.store(sums, &mut scales);
    array(|i| 1.0 / scales[i])
}

/// Some columns of at most sixteen rows.
struct Rows<'a> {
    /// The columns of the first row. Those of the next are `width` further on.
    out: &'a mut [f32],
    width: usize,
    count: usize,
}

/// Weighted sums of the values of one head for all rows, `R` at a time.
#[inline(always)]
fn weighted_sums<I: Vectors, const R: usize, const V: usize>(
    isa: I,
    values: &[[[f32; LANES]; V]],
    (weights, scales): (&[[f32; LANES]], &[f32; LANES]),
    rows: Rows<'_>,
) {
    for (block, scales) in scales.as_chunks::<R>().0.iter().enumerate() {
        let first = block * R;
        if first >= rows.count {
            return;
        }
        let mut sums = [[isa.all(0.0); V]; R];
        for (weights, value) in weights.iter().zip(values) {
            let weights = &weights.as_chunks::<R>().0[block];
            for v in 0..V {
                let value = isa.load(&value[v]);
                for r in 0..R {
                    sums[r][v] = isa.multiply_add(isa.all(weights[r]), value, sums[r][v]);
                }
            }
        }
        // Rows behind the last one are those of lanes without a row.
        for (r, sums) in sums.iter().enumerate().take(rows.count - first) {
            let scale = isa.all(scales[r]);
            let out = rows.out[(first + r) * rows.width..].as_chunks_mut::<LANES>().0;
            for (sum, out) in sums.iter().zip(out) {
                isa.store(isa.multiply(*sum, scale), out);
            }
        }
    }
}
