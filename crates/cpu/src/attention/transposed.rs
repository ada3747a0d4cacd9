//! Attention of many rows over the same positions, such as the words of a sentence over themselves.
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

/// Rows whose weighted sums share each load of a value.
const ROWS: usize = 4;

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
    let needed = (columns + read.positions.len()) * LANES;
    scratch.reshape(needed, 0);
    let (transposed, weights) = scratch.as_chunks_mut().0.split_at_mut(columns);
    for column in (0..width).step_by(columns) {
        for (i, out) in out.chunks_mut(LANES * width).enumerate() {
            let rows = out.len() / width;
            let queries = Queries { values: &queries.row(i * LANES)[column..], ..queries };
            transpose(isa, queries, rows, transposed);
            for (positions, weights) in read.positions.chunks(8).zip(weights.chunks_mut(8)) {
                if positions.len() == 8 && I::SUMS >= 8 {
                    scores::<I, 8, V, T>(isa, transposed, (read, column), positions, weights);
                    continue;
                }
                for (position, weights) in positions.chunks(1).zip(weights.chunks_mut(1)) {
                    scores::<I, 1, V, T>(isa, transposed, (read, column), position, weights);
                }
            }
            let scales = if I::FMA {
                exponentials::<I, true>(isa, weights)
            } else {
                exponentials::<I, false>(isa, weights)
            };
            let head = (read, column);
            for row in (0..rows).step_by(ROWS) {
                if rows - row >= ROWS {
                    let out = &mut out[row * width + column..];
                    weighted_sum::<I, ROWS, V, T>(isa, head, weights, (row, &scales), out);
                    continue;
                }
                for row in row..rows {
                    let out = &mut out[row * width + column..];
                    weighted_sum::<I, 1, V, T>(isa, head, weights, (row, &scales), out);
                }
            }
        }
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

/// Scores of `P` positions, scaled by `1 / √head_width`.
#[inline(always)]
fn scores<I: Vectors, const P: usize, const V: usize, T: CacheNumber>(
    isa: I,
    transposed: &[[f32; LANES]],
    (read, column): (TypedRead<'_, T>, usize),
    positions: &[u32],
    weights: &mut [[f32; LANES]],
) {
    // Arrays of constant length: a bounds check a number would cost as much as the sums.
    let keys: [&[[T; LANES]; V]; P] = array(|p| {
        let key = read.view.key(positions[p])[column..].as_chunks::<LANES>().0;
        key.first_chunk().expect("a head has its width")
    });
    let mut sums = [isa.all(0.0); P];
    for (v, transposed) in transposed.as_chunks::<LANES>().0[..V].iter().enumerate() {
        for (c, transposed) in transposed.iter().enumerate() {
            let queries = isa.load(transposed);
            for p in 0..P {
                sums[p] = isa.multiply_add(isa.all(keys[p][v][c].widen()), queries, sums[p]);
            }
        }
    }
    let scale = isa.all(1.0 / (transposed.len() as f32).sqrt());
    for (sum, weights) in sums.into_iter().zip(weights) {
        isa.store(isa.multiply(sum, scale), weights);
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

/// Weighted sums of the values of one head for `R` rows, from `row` on.
#[inline(always)]
fn weighted_sum<I: Vectors, const R: usize, const V: usize, T: CacheNumber>(
    isa: I,
    (read, column): (TypedRead<'_, T>, usize),
    weights: &[[f32; LANES]],
    (row, scales): (usize, &[f32; LANES]),
    out: &mut [f32],
) {
    let mut sums = [[isa.all(0.0); V]; R];
    for (weights, &position) in weights.iter().zip(read.positions) {
        let values = &read.view.value(position)[column..].as_chunks::<LANES>().0[..V];
        let weights = &weights[row..row + R];
        for v in 0..V {
            let value = T::load(isa, &values[v]);
            for r in 0..R {
                sums[r][v] = isa.multiply_add(isa.all(weights[r]), value, sums[r][v]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let scale = isa.all(scales[row + r]);
        let out = out[r * read.view.width..].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.iter().zip(out) {
            isa.store(isa.multiply(*sum, scale), out);
        }
    }
}
