//! Attention of many rows over the same positions, such as the words of a sentence over themselves.
//!
//! Sixteen rows at a time. A head of their queries is turned, a column of sixteen rows becoming a vector; scores then
//! are vectors too, and nothing has to be added up across lanes, not even for softmax:
//!
//! ```text
//! turned:   column 0 of rows 0 … 15 │ column 1 of … │ …
//! weights:  position 0, rows 0 … 15 │ position 1 … │ …
//! ```
//!
//! What a row gets does not depend on those beside it.

use super::{Kind, Queries};
use crate::attention::kv_cache::Number;
use crate::isa::lanes::{LANES, array, exp};
use crate::isa::vectors::Vectors;
use crate::memory::arena::Aligned;

/// From so many rows on it is worth to fill vectors with them.
const MANY: usize = 8;

/// Rows whose values are weighed together.
const ROWS: usize = 4;

/// Attends for all rows of `out`, if they are many and heads have a width this is made for. `memory` is working memory.
#[inline(always)]
pub(super) fn attend<I: Vectors, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    memory: &mut Aligned<f32>,
    out: &mut [f32],
) -> bool {
    if out.len() / kind.kept.width < MANY {
        return false;
    }
    match kind.head_width() {
        32 => attend_heads::<I, 2, T>(isa, queries, kind, memory, out),
        64 => attend_heads::<I, 4, T>(isa, queries, kind, memory, out),
        _ => return false,
    }
    true
}

/// `V` is how many vectors a head has.
#[inline(always)]
fn attend_heads<I: Vectors, const V: usize, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    memory: &mut Aligned<f32>,
    out: &mut [f32],
) {
    let (width, columns) = (kind.kept.width, V * LANES);
    let needed = (columns + kind.positions.len()) * LANES;
    memory.reshape(needed, 0);
    let (turned, weights) = memory.as_chunks_mut().0.split_at_mut(columns);
    for column in (0..width).step_by(columns) {
        for (i, out) in out.chunks_mut(LANES * width).enumerate() {
            let rows = out.len() / width;
            let queries = Queries { values: &queries.row(i * LANES)[column..], ..queries };
            turn(isa, queries, rows, turned);
            for (positions, weights) in kind.positions.chunks(8).zip(weights.chunks_mut(8)) {
                if positions.len() == 8 && I::SUMS >= 8 {
                    scores::<I, 8, V, T>(isa, turned, (kind, column), positions, weights);
                    continue;
                }
                for (position, weights) in positions.chunks(1).zip(weights.chunks_mut(1)) {
                    scores::<I, 1, V, T>(isa, turned, (kind, column), position, weights);
                }
            }
            let scales = if I::FMA {
                exponentials::<I, true>(isa, weights)
            } else {
                exponentials::<I, false>(isa, weights)
            };
            let of = (kind, column);
            for row in (0..rows).step_by(ROWS) {
                if rows - row >= ROWS {
                    let out = &mut out[row * width + column..];
                    weigh::<I, ROWS, V, T>(isa, of, weights, (row, &scales), out);
                    continue;
                }
                for row in row..rows {
                    let out = &mut out[row * width + column..];
                    weigh::<I, 1, V, T>(isa, of, weights, (row, &scales), out);
                }
            }
        }
    }
}

/// The first columns of `queries`. Where there are fewer rows than lanes, the last stands in for the others.
#[inline(always)]
fn turn<I: Vectors>(isa: I, queries: Queries<'_>, rows: usize, turned: &mut [[f32; LANES]]) {
    for (i, turned) in turned.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let row = |lane: usize| queries.row(lane.min(rows - 1))[i * LANES..].first_chunk();
        isa.transpose(array(|lane| row(lane).expect("a head has its width")), turned);
    }
}

/// Scores of `P` positions.
#[inline(always)]
fn scores<I: Vectors, const P: usize, const V: usize, T: Number>(
    isa: I,
    turned: &[[f32; LANES]],
    (kind, column): (Kind<'_, T>, usize),
    positions: &[u32],
    weights: &mut [[f32; LANES]],
) {
    // Of a length that is known: a look at it for each number would cost as much as the sums.
    let keys: [&[[T; LANES]; V]; P] = array(|p| {
        let key = kind.kept.key(positions[p])[column..].as_chunks::<LANES>().0;
        key.first_chunk().expect("a head has its width")
    });
    let mut sums = [isa.all(0.0); P];
    for (v, turned) in turned.as_chunks::<LANES>().0[..V].iter().enumerate() {
        for (c, turned) in turned.iter().enumerate() {
            let queries = isa.load(turned);
            for p in 0..P {
                sums[p] = isa.multiply_add(isa.all(keys[p][v][c].widen()), queries, sums[p]);
            }
        }
    }
    let scale = isa.all(1.0 / (turned.len() as f32).sqrt());
    for (sum, weights) in sums.into_iter().zip(weights) {
        isa.store(isa.multiply(sum, scale), weights);
    }
}

/// Puts `e^(score - largest)` in place of scores; tells what makes the sum of a row's one.
#[inline(always)]
fn exponentials<I: Vectors, const FMA: bool>(isa: I, scores: &mut [[f32; LANES]]) -> [f32; LANES] {
    let mut largest = isa.all(f32::NEG_INFINITY);
    for scores in &*scores {
        largest = isa.larger(isa.load(scores), largest);
    }
    let (mut most, mut sums) = ([0.0; LANES], isa.all(0.0));
    isa.store(largest, &mut most);
    for scores in scores {
        for i in 0..LANES {
            scores[i] = exp::<FMA>(scores[i] - most[i]);
        }
        sums = isa.add(sums, isa.load(scores));
    }
    let mut scales = [0.0; LANES];
    isa.store(sums, &mut scales);
    array(|i| 1.0 / scales[i])
}

/// Weighted means of the values of one head, for `R` rows from one on.
#[inline(always)]
fn weigh<I: Vectors, const R: usize, const V: usize, T: Number>(
    isa: I,
    (kind, column): (Kind<'_, T>, usize),
    weights: &[[f32; LANES]],
    (row, scales): (usize, &[f32; LANES]),
    out: &mut [f32],
) {
    let mut sums = [[isa.all(0.0); V]; R];
    for (weights, &position) in weights.iter().zip(kind.positions) {
        let values = &kind.kept.value(position)[column..].as_chunks::<LANES>().0[..V];
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
        let out = out[r * kind.kept.width..].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.iter().zip(out) {
            isa.store(isa.multiply(*sum, scale), out);
        }
    }
}
