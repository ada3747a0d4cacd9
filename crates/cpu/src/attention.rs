//! Attention over cached keys and values, whose layout is in `cache`.
//!
//! A head is `D / H` neighbouring columns. Rows that read the same positions (the words of a source
//! sentence, the hypotheses of a beam) are worked on four at a time, so that keys and values are
//! loaded once for all four. The order of additions is the same for one row and for four.
//!
//! Cost: two multiply-adds for each column and position read, one exponential for each head and
//! position.

use crate::cache::{Cache, Kept, Number, Positions};
use crate::isa::{Isa, kernel};
use crate::lanes::{LANES, add_scaled, multiply_add, softmax};

/// Rows worked on together.
const GROUP: usize = 4;

/// Columns of one row worked on together.
const WIDE: usize = 4 * LANES;

/// What a group of rows reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) positions: &'a [u32],
    pub(crate) heads: usize,
}

/// The same, with the kind of number known.
#[derive(Clone, Copy)]
struct Kind<'a, T> {
    kept: &'a Positions<T>,
    positions: &'a [u32],
    heads: usize,
}

/// Calls a function that is generic in the kind of number with what `reading` keeps.
macro_rules! with_kind {
    ($reading:expr, |$kind:ident| $call:expr) => {{
        let Reading { cache, positions, heads } = $reading;
        match &cache.0 {
            Kept::Float32(kept) => {
                let $kind = Kind { kept, positions, heads };
                $call
            }
            Kept::Bfloat16(kept) => {
                let $kind = Kind { kept, positions, heads };
                $call
            }
            Kept::Int8(kept) => {
                let $kind = Kind { kept, positions, heads };
                $call
            }
        }
    }};
}

/// Rows laid out `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
}

impl Queries<'_> {
    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.stride..]
    }
}

/// Attends for all rows of `out`, D numbers each, which read the same positions. `weights` is
/// working memory.
pub(crate) fn attend(
    isa: Isa,
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    weights.resize(GROUP * reading.positions.len(), 0.0);
    let width = reading.cache.width();
    let mut row = 0;
    for out in out.chunks_mut(GROUP * width) {
        let queries = Queries { values: queries.row(row), ..queries };
        if out.len() == GROUP * width {
            attend_four(isa, queries, reading, weights, out);
        } else {
            for (i, out) in out.chunks_mut(width).enumerate() {
                let query = Queries { values: queries.row(i), ..queries };
                attend_one(isa, query, reading, weights, out);
            }
        }
        row += GROUP;
    }
}

kernel! {
    fn attend_four(
        queries: Queries<'_>,
        reading: Reading<'_>,
        weights: &mut [f32],
        out: &mut [f32],
    ) = attend_four_body
}

kernel! {
    fn attend_one(
        queries: Queries<'_>,
        reading: Reading<'_>,
        weights: &mut [f32],
        out: &mut [f32],
    ) = attend_one_body
}

#[inline(always)]
fn attend_four_body<const FMA: bool>(
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    with_kind!(reading, |kind| attend_rows::<FMA, GROUP, _>(queries, kind, weights, out));
}

#[inline(always)]
fn attend_one_body<const FMA: bool>(
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    with_kind!(reading, |kind| attend_rows::<FMA, 1, _>(queries, kind, weights, out));
}

/// `R` rows, head by head.
#[inline(always)]
fn attend_rows<const FMA: bool, const R: usize, T: Number>(
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    let head_width = kind.kept.width / kind.heads;
    for head in 0..kind.heads {
        let columns = head * head_width..(head + 1) * head_width;
        head_weights::<FMA, R, T>(queries, kind, columns.clone(), weights);
        if T::STEPS {
            for weights in weights.chunks_mut(kind.positions.len()).take(R) {
                for (weight, &position) in weights.iter_mut().zip(kind.positions) {
                    *weight *= kind.kept.value_step(position);
                }
            }
        }
        let mut start = columns.start;
        while start < columns.end {
            start += if R == 1 && start + WIDE <= columns.end {
                weigh_wide::<FMA, T>(kind, weights, start, out)
            } else if start + LANES <= columns.end {
                weigh_lanes::<FMA, R, T>(kind, weights, start, out)
            } else {
                weigh_rest::<FMA, R, T>(kind, weights, start..columns.end, out)
            };
        }
    }
}

/// Softmax over the positions read, for each row: `weights` holds row after row.
#[inline(always)]
fn head_weights<const FMA: bool, const R: usize, T: Number>(
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    columns: std::ops::Range<usize>,
    weights: &mut [f32],
) {
    let count = kind.positions.len();
    let scale = 1.0 / (columns.len() as f32).sqrt();
    let query: [&[f32]; R] = std::array::from_fn(|r| &queries.row(r)[columns.clone()]);
    for (chunk, positions) in kind.positions.chunks(LANES).enumerate() {
        let (first, place) = (positions[0], positions[0] as usize % LANES);
        let neighbours =
            positions.iter().zip(first..).fold(true, |all, (&p, next)| all & (p == next));
        if neighbours && place + positions.len() <= LANES {
            let keys = kind.kept.keys(first as usize / LANES, columns.clone());
            let scores = block_scores::<FMA, R, T>(query, keys);
            for r in 0..R {
                let weights = &mut weights[r * count + chunk * LANES..][..positions.len()];
                for ((weight, score), &p) in
                    weights.iter_mut().zip(&scores[r][place..]).zip(positions)
                {
                    *weight = score * (scale * kind.kept.key_step(p));
                }
            }
            continue;
        }
        let mut open = (1u32 << positions.len()) - 1;
        // Positions of one block share its scores; a beam's history may come from several.
        while open != 0 {
            let block = positions[open.trailing_zeros() as usize] as usize / LANES;
            let keys = kind.kept.keys(block, columns.clone());
            let scores = block_scores::<FMA, R, T>(query, keys);
            for (i, &position) in positions.iter().enumerate() {
                if position as usize / LANES == block {
                    open &= !(1 << i);
                    let scale = scale * kind.kept.key_step(position);
                    for r in 0..R {
                        let score = scores[r][position as usize % LANES];
                        weights[r * count + chunk * LANES + i] = score * scale;
                    }
                }
            }
        }
    }
    for r in 0..R {
        softmax::<FMA>(&mut weights[r * count..(r + 1) * count]);
    }
}

/// Products of `R` queries with the sixteen keys of a block. Each has two partial sums, over even and
/// odd columns: one alone would wait for the previous addition at every step.
#[inline(always)]
fn block_scores<const FMA: bool, const R: usize, T: Number>(
    query: [&[f32]; R],
    keys: &[[T; LANES]],
) -> [[f32; LANES]; R] {
    let (pairs, rest) = keys.as_chunks::<2>();
    let zero = [[0.0; LANES]; 2];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    // Four rows by name: a loop over rows would keep the sums in memory.
    let add =
        |row: usize, column: usize, keys: &[[f32; LANES]; 2], sums: &mut [[f32; LANES]; 2]| {
            let q = query[row].as_chunks::<2>().0[column];
            add_lanes::<FMA>(q[0], &keys[0], &mut sums[0]);
            add_lanes::<FMA>(q[1], &keys[1], &mut sums[1]);
        };
    for (column, keys) in pairs.iter().enumerate() {
        let keys = &[widen(&keys[0]), widen(&keys[1])];
        add(0, column, keys, &mut a);
        if R == GROUP {
            add(1, column, keys, &mut b);
            add(2, column, keys, &mut c);
            add(3, column, keys, &mut d);
        }
    }
    let sums = [a, b, c, d];
    let mut scores = [[0.0; LANES]; R];
    for r in 0..R {
        scores[r] = sums[r][0];
        if let [key] = rest {
            add_lanes::<FMA>(query[r][pairs.len() * 2], &widen(key), &mut scores[r]);
        }
        add_lanes::<FMA>(1.0, &sums[r][1], &mut scores[r]);
    }
    scores
}

#[inline(always)]
fn widen<T: Number>(numbers: &[T; LANES]) -> [f32; LANES] {
    let mut wide = [0.0; LANES];
    for i in 0..LANES {
        wide[i] = numbers[i].widen();
    }
    wide
}

#[inline(always)]
fn add_lanes<const FMA: bool>(a: f32, x: &[f32; LANES], sum: &mut [f32; LANES]) {
    for i in 0..LANES {
        sum[i] = multiply_add::<FMA>(a, x[i], sum[i]);
    }
}

/// Weighted mean of sixteen columns of the values; tells how many columns that were.
#[inline(always)]
fn weigh_lanes<const FMA: bool, const R: usize, T: Number>(
    kind: Kind<'_, T>,
    weights: &[f32],
    start: usize,
    out: &mut [f32],
) -> usize {
    let count = kind.positions.len();
    let rows: [&[f32]; R] = std::array::from_fn(|r| &weights[r * count..][..count]);
    let zero = [0.0; LANES];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    for (j, &position) in kind.positions.iter().enumerate() {
        let value = kind.kept.value(position, start..start + LANES);
        let Some(value) = value.first_chunk::<LANES>() else { continue };
        let value = &widen(value);
        add_lanes::<FMA>(rows[0][j], value, &mut a);
        if R == GROUP {
            add_lanes::<FMA>(rows[1][j], value, &mut b);
            add_lanes::<FMA>(rows[2][j], value, &mut c);
            add_lanes::<FMA>(rows[3][j], value, &mut d);
        }
    }
    for (r, sums) in [a, b, c, d].iter().take(R).enumerate() {
        out[r * kind.kept.width + start..][..LANES].copy_from_slice(sums);
    }
    LANES
}

/// The same for one row and 64 columns, so that no sum waits for the addition before.
#[inline(always)]
fn weigh_wide<const FMA: bool, T: Number>(
    kind: Kind<'_, T>,
    weights: &[f32],
    start: usize,
    out: &mut [f32],
) -> usize {
    let zero = [0.0; LANES];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    for (&weight, &position) in weights.iter().zip(kind.positions) {
        let value = kind.kept.value(position, start..start + WIDE);
        let ([first, second, third, fourth], _) = value.as_chunks::<LANES>() else { continue };
        add_lanes::<FMA>(weight, &widen(first), &mut a);
        add_lanes::<FMA>(weight, &widen(second), &mut b);
        add_lanes::<FMA>(weight, &widen(third), &mut c);
        add_lanes::<FMA>(weight, &widen(fourth), &mut d);
    }
    for (sums, out) in [a, b, c, d].iter().zip(out[start..].chunks_mut(LANES)) {
        out.copy_from_slice(sums);
    }
    WIDE
}

/// The same for the last columns of a head whose width is no multiple of sixteen.
#[inline(always)]
fn weigh_rest<const FMA: bool, const R: usize, T: Number>(
    kind: Kind<'_, T>,
    weights: &[f32],
    columns: std::ops::Range<usize>,
    out: &mut [f32],
) -> usize {
    let count = kind.positions.len();
    for r in 0..R {
        let out = &mut out[r * kind.kept.width..][columns.clone()];
        out.fill(0.0);
        for (j, &position) in kind.positions.iter().enumerate() {
            let weight = weights[r * count + j];
            for (out, v) in out.iter_mut().zip(kind.kept.value(position, columns.clone())) {
                *out = multiply_add::<FMA>(weight, v.widen(), *out);
            }
        }
    }
    columns.len()
}

kernel! {
    /// The weights themselves for one row: the mean over the first `heads` heads, added to `out`.
    pub(crate) fn mean_weights(
        query: &[f32],
        reading: Reading<'_>,
        heads: usize,
        weights: &mut Vec<f32>,
        out: &mut [f32],
    ) = mean_weights_body
}

#[inline(always)]
fn mean_weights_body<const FMA: bool>(
    query: &[f32],
    reading: Reading<'_>,
    heads: usize,
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    weights.resize(reading.positions.len(), 0.0);
    let head_width = reading.cache.width() / reading.heads;
    let queries = Queries { values: query, stride: query.len() };
    for head in 0..heads.min(reading.heads) {
        let columns = head * head_width..(head + 1) * head_width;
        with_kind!(reading, |kind| {
            head_weights::<FMA, 1, _>(queries, kind, columns, weights);
        });
        add_scaled::<FMA>(1.0 / heads as f32, weights, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Keeping;
    use crate::isa::Level;

    fn wave(i: usize) -> f32 {
        ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5
    }

    /// Keys and values of `positions` positions, and a cache that holds them.
    fn filled(keeping: Keeping, positions: usize, width: usize) -> (Vec<f32>, Vec<f32>, Cache) {
        let keys: Vec<f32> = (0..positions * width).map(wave).collect();
        let values: Vec<f32> = (0..positions * width).map(|i| wave(i + 11)).collect();
        let mut cache = Cache::new(keeping);
        for p in 0..positions {
            cache.grow(p + 1, width);
            cache.store(Isa::best(), p, &keys[p * width..][..width], &values[p * width..][..width]);
        }
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
    fn allowed(keeping: Keeping) -> f64 {
        match keeping {
            Keeping::Float32 => 2e-6,
            Keeping::Bfloat16 => 2e-2,
            Keeping::Int8 => 4e-2,
        }
    }

    #[test]
    fn attention_follows_its_equation() {
        let shapes = [(10, 2), (64, 4), (96, 2), (48, 3), (128, 2), (164, 2)];
        for (keeping, (width, heads)) in
            Keeping::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
        {
            let (keys, values, cache) = filled(keeping, 70, width);
            let orders: [Vec<u32>; 3] =
                [(16..53).collect(), (0..70).rev().step_by(3).collect(), vec![6, 40, 7, 41, 7, 69]];
            let queries: Vec<f32> = (0..6 * 2 * width).map(|i| wave(i + 5)).collect();
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                for positions in &orders {
                    let reading = Reading { cache: &cache, positions, heads };
                    let rows = Queries { values: &queries, stride: 2 * width };
                    let (mut weights, mut out) = (Vec::new(), vec![f32::NAN; 6 * width]);
                    attend(isa, rows, reading, &mut weights, &mut out);
                    for (row, out) in out.chunks(width).enumerate() {
                        let query = &queries[row * 2 * width..][..width];
                        let expected = naive(query, (&keys, &values), positions, heads);
                        for (got, want) in out.iter().zip(expected) {
                            let error = (f64::from(*got) - want).abs();
                            assert!(error < allowed(keeping), "{keeping:?}: {got} for {want}");
                        }
                        let mut alone = vec![0.0; width];
                        let one = Queries { values: query, stride: width };
                        attend(isa, one, reading, &mut weights, &mut alone);
                        assert_eq!(alone, out, "the company of other rows must not show");
                    }
                }
            }
        }
    }

    #[test]
    fn weights_sum_to_one_and_follow_keys() {
        let (_, _, cache) = filled(Keeping::Float32, 20, 10);
        let query: Vec<f32> = (0..10).map(wave).collect();
        let reading = Reading { cache: &cache, positions: &[6, 0, 3, 3, 5], heads: 2 };
        let (mut weights, mut mean) = (Vec::new(), vec![0.0; 5]);
        mean_weights(Isa::best(), &query, reading, 2, &mut weights, &mut mean);
        assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(mean[2], mean[3]);
    }
}
