//! Attention over cached keys and values, whose layout is in `cache`.
//!
//! A head is `D / H` neighbouring columns. Rows that read the same positions (the words of a source
//! sentence, the hypotheses of a beam) are worked on up to four at a time, so that keys and values are
//! loaded once for all four. The order of additions is the same for one row and for four. Eight sums are
//! under way at a time, where there are so many: an addition takes four cycles, and two can begin in each.
//!
//! Cost: two multiply-adds for each column and position read, one exponential for each head and
//! position.

use crate::cache::{Cache, Kept, Number, View};
use crate::lanes::{LANES, add_scaled, multiply_add, softmax_lanes};
use crate::vectors::{Vectors, vector_kernel};

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
    /// Whether each sixteen of the positions are a block of the cache, or begin one.
    in_blocks: bool,
    next: &'a [u32],
}

impl<T: Number> Kind<'_, T> {
    /// Asks for a head's share of what is read next: its keys, and some positions' values.
    #[inline(always)]
    fn prefetch<I: Vectors>(&self, head: usize, columns: std::ops::Range<usize>) {
        for positions in self.next.chunks(LANES) {
            let keys = self.kept.keys(positions[0] as usize / LANES, columns.clone());
            I::prefetch(keys.as_flattened());
        }
        let share = |head: usize| self.next.len() * head / self.heads;
        for &position in &self.next[share(head)..share(head + 1)] {
            I::prefetch(self.kept.value(position, 0..self.kept.width));
        }
    }

    /// Weights of a row: one for each position, filled up to whole vectors.
    fn stride(&self) -> usize {
        self.positions.len().max(1).next_multiple_of(LANES)
    }
}

/// Calls a function that is generic in the kind of number with what `reading` keeps.
macro_rules! with_kind {
    ($reading:expr, |$kind:ident| $call:expr) => {{
        let Reading { cache, positions, heads, next } = $reading;
        let in_blocks = positions.chunks(LANES).all(is_block);
        match &cache.0 {
            Kept::Float32(kept) => {
                let $kind = Kind { kept: kept.view(), positions, heads, in_blocks, next };
                $call
            }
            Kept::Bfloat16(kept) => {
                let $kind = Kind { kept: kept.view(), positions, heads, in_blocks, next };
                $call
            }
            Kept::Int8(kept) => {
                let $kind = Kind { kept: kept.view(), positions, heads, in_blocks, next };
                $call
            }
        }
    }};
}

/// Whether positions are neighbours that begin a block of the cache.
#[inline(always)]
fn is_block(positions: &[u32]) -> bool {
    let first = positions[0];
    let neighbours = positions.iter().zip(first..).fold(true, |all, (&p, next)| all & (p == next));
    neighbours && (first as usize).is_multiple_of(LANES)
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

vector_kernel! {
    /// Attends for all rows of `out`, D numbers each, which read the same positions. `weights` is
    /// working memory.
    pub(crate) fn attend(
        queries: Queries<'_>,
        reading: Reading<'_>,
        weights: &mut Vec<f32>,
        out: &mut [f32],
    ) = attend_body
}

#[inline(always)]
fn attend_body<I: Vectors>(
    isa: I,
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    with_kind!(reading, |kind| {
        weights.resize(kind.heads * I::ROWS * kind.stride(), 0.0);
        let width = kind.kept.width;
        let mut row = 0;
        while row * width < out.len() {
            // Once is enough.
            let kind = Kind { next: if row == 0 { kind.next } else { &[] }, ..kind };
            let queries = Queries { values: queries.row(row), ..queries };
            let out = &mut out[row * width..];
            row += match (out.len() / width).min(I::ROWS) {
                4 => attend_rows::<I, 4, _>(isa, queries, kind, weights, out),
                2 | 3 => attend_rows::<I, 2, _>(isa, queries, kind, weights, out),
                _ => attend_rows::<I, 1, _>(isa, queries, kind, weights, out),
            };
        }
    });
}

/// `R` rows; tells how many rows that were. Weights are those of head 0, row after row, then head 1, ...
#[inline(always)]
fn attend_rows<I: Vectors, const R: usize, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    weights: &mut [f32],
    out: &mut [f32],
) -> usize {
    let head_width = kind.kept.width / kind.heads;
    let of_head = R * kind.stride();
    for (head, weights) in weights.chunks_exact_mut(of_head).take(kind.heads).enumerate() {
        let columns = head * head_width..(head + 1) * head_width;
        kind.prefetch::<I>(head, columns.clone());
        head_weights::<I, R, T>(isa, queries, kind, columns, weights);
        if T::STEPS {
            for weights in weights.chunks_exact_mut(kind.stride()) {
                for (weight, &position) in weights.iter_mut().zip(kind.positions) {
                    *weight *= kind.kept.value_step(position);
                }
            }
        }
    }
    // Of one row the values are read once: whole lines one after the other are read fastest.
    let mut head = 0;
    while head < kind.heads {
        let weights = &weights[head * of_head..];
        let start = head * head_width;
        head += match (head_width / LANES, kind.heads - head) {
            (2, 8..) if R == 1 && I::ROWS == 4 => {
                weigh_heads::<I, 8, 2, T>(isa, kind, weights, start, out)
            }
            (4, 4..) if R == 1 && I::ROWS == 4 => {
                weigh_heads::<I, 4, 4, T>(isa, kind, weights, start, out)
            }
            _ => weigh_head::<I, R, T>(isa, kind, weights, start..start + head_width, out),
        };
    }
    R
}

/// Weighted means of the values of one head.
#[inline(always)]
fn weigh_head<I: Vectors, const R: usize, T: Number>(
    isa: I,
    kind: Kind<'_, T>,
    weights: &[f32],
    columns: std::ops::Range<usize>,
    out: &mut [f32],
) -> usize {
    let mut start = columns.start;
    while start < columns.end {
        start += match (columns.end - start) / LANES {
            4.. if R * 2 <= I::ROWS => weigh::<I, R, 4, T>(isa, kind, weights, start, out),
            2.. => weigh::<I, R, 2, T>(isa, kind, weights, start, out),
            1 => weigh::<I, R, 1, T>(isa, kind, weights, start, out),
            0 => weigh_rest::<I, R, T>(kind, weights, start..columns.end, out),
        };
    }
    1
}

/// The same for one row and `H` heads of `V` vectors; tells how many heads that were.
#[inline(always)]
fn weigh_heads<I: Vectors, const H: usize, const V: usize, T: Number>(
    isa: I,
    kind: Kind<'_, T>,
    weights: &[f32],
    start: usize,
    out: &mut [f32],
) -> usize {
    let (count, stride) = (kind.positions.len(), kind.stride());
    let heads: [&[f32]; H] = std::array::from_fn(|head| &weights[head * stride..][..count]);
    let mut sums = [[isa.all(0.0); V]; H];
    for (j, &position) in kind.positions.iter().enumerate() {
        let values = kind.kept.value(position, start..start + H * V * LANES);
        let values = &values.as_chunks::<LANES>().0[..H * V];
        for h in 0..H {
            let weight = isa.all(heads[h][j]);
            for v in 0..V {
                sums[h][v] = isa.multiply_add(weight, load(isa, &values[h * V + v]), sums[h][v]);
            }
        }
    }
    let out = out[start..].as_chunks_mut::<LANES>().0;
    for (sum, out) in sums.as_flattened().iter().zip(out) {
        isa.store(*sum, out);
    }
    H
}

/// Softmax over the positions read, for each row: `weights` holds row after row.
#[inline(always)]
fn head_weights<I: Vectors, const R: usize, T: Number>(
    isa: I,
    queries: Queries<'_>,
    kind: Kind<'_, T>,
    columns: std::ops::Range<usize>,
    weights: &mut [f32],
) {
    let query: [&[f32]; R] = std::array::from_fn(|r| &queries.row(r)[columns.clone()]);
    if kind.in_blocks {
        scores_of_blocks::<I, R, T>(isa, query, kind, columns, weights);
    } else {
        scores_anywhere::<I, R, T>(isa, query, kind, columns, weights);
    }
    for weights in weights.chunks_exact_mut(kind.stride()).take(R) {
        weights[kind.positions.len()..].fill(f32::NEG_INFINITY);
        let weights = weights.as_chunks_mut().0;
        if I::FMA { softmax_lanes::<true>(weights) } else { softmax_lanes::<false>(weights) }
    }
}

/// Scores where each sixteen positions are a block.
#[inline(always)]
fn scores_of_blocks<I: Vectors, const R: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    kind: Kind<'_, T>,
    columns: std::ops::Range<usize>,
    weights: &mut [f32],
) {
    let blocks = kind.positions.len().div_ceil(LANES);
    let mut first = 0;
    while first < blocks {
        first += match blocks - first {
            4.. if R * 4 <= I::ROWS => {
                some_blocks::<I, R, 4, T>(isa, query, kind, (first, columns.clone()), weights)
            }
            2.. if R * 2 <= I::ROWS => {
                some_blocks::<I, R, 2, T>(isa, query, kind, (first, columns.clone()), weights)
            }
            _ => some_blocks::<I, R, 1, T>(isa, query, kind, (first, columns.clone()), weights),
        };
    }
}

/// Scores of `B` blocks from one on; tells how many blocks that were.
#[inline(always)]
fn some_blocks<I: Vectors, const R: usize, const B: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    kind: Kind<'_, T>,
    (first, columns): (usize, std::ops::Range<usize>),
    weights: &mut [f32],
) -> usize {
    let positions = &kind.positions[first * LANES..];
    let scale = 1.0 / (columns.len() as f32).sqrt();
    let keys = std::array::from_fn(|b| {
        kind.kept.keys(positions[b * LANES] as usize / LANES, columns.clone())
    });
    let scores = block_scores::<I, R, B, T>(isa, query, keys);
    for (row, scores) in weights.chunks_exact_mut(kind.stride()).zip(scores) {
        let row = row[first * LANES..].as_chunks_mut::<LANES>().0;
        for ((to, score), positions) in row.iter_mut().zip(scores).zip(positions.chunks(LANES)) {
            isa.store(isa.multiply(score, isa.all(scale)), to);
            if T::STEPS {
                isa.store(score, to);
                for (to, &position) in to.iter_mut().zip(positions) {
                    *to *= scale * kind.kept.key_step(position);
                }
            }
        }
    }
    B
}

/// Scores of positions all over the cache: a beam's history may come from several blocks. Positions of one
/// share its scores.
#[inline(always)]
fn scores_anywhere<I: Vectors, const R: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    kind: Kind<'_, T>,
    columns: std::ops::Range<usize>,
    weights: &mut [f32],
) {
    let scale = 1.0 / (columns.len() as f32).sqrt();
    for (chunk, positions) in kind.positions.chunks(LANES).enumerate() {
        let mut open = (1u32 << positions.len()) - 1;
        while open != 0 {
            let block = positions[open.trailing_zeros() as usize] as usize / LANES;
            let keys = kind.kept.keys(block, columns.clone());
            let mut scores = [[0.0; LANES]; R];
            for (to, [of_block]) in scores.iter_mut().zip(block_scores(isa, query, [keys])) {
                isa.store(of_block, to);
            }
            for (i, &position) in positions.iter().enumerate() {
                if position as usize / LANES == block {
                    open &= !(1 << i);
                    let scale = scale * kind.kept.key_step(position);
                    for r in 0..R {
                        let score = scores[r][position as usize % LANES];
                        weights[r * kind.stride() + chunk * LANES + i] = score * scale;
                    }
                }
            }
        }
    }
}

/// Products of `R` queries with the sixteen keys of each of `B` blocks. Each has two partial sums, over even
/// and odd columns.
#[inline(always)]
fn block_scores<I: Vectors, const R: usize, const B: usize, T: Number>(
    isa: I,
    query: [&[f32]; R],
    keys: [&[[T; LANES]]; B],
) -> [[I::V; B]; R] {
    let width = query[0].len();
    let mut sums = [[[isa.all(0.0); 2]; B]; R];
    {
        let query = query.map(|query| &query.as_chunks::<2>().0[..width / 2]);
        let keys = keys.map(|keys| &keys.as_chunks::<2>().0[..width / 2]);
        for pair in 0..width / 2 {
            for part in 0..2 {
                for b in 0..B {
                    let key = load(isa, &keys[b][pair][part]);
                    for r in 0..R {
                        let q = isa.all(query[r][pair][part]);
                        sums[r][b][part] = isa.multiply_add(q, key, sums[r][b][part]);
                    }
                }
            }
        }
    }
    let mut scores = [[isa.all(0.0); B]; R];
    for r in 0..R {
        for b in 0..B {
            let [mut even, odd] = sums[r][b];
            if width % 2 == 1 {
                let q = isa.all(query[r][width - 1]);
                even = isa.multiply_add(q, load(isa, &keys[b][width - 1]), even);
            }
            scores[r][b] = isa.add(odd, even);
        }
    }
    scores
}

#[inline(always)]
fn load<I: Vectors, T: Number>(isa: I, numbers: &[T; LANES]) -> I::V {
    let mut wide = [0.0; LANES];
    for i in 0..LANES {
        wide[i] = numbers[i].widen();
    }
    isa.load(&wide)
}

/// Weighted mean of `C` times sixteen columns of the values; tells how many columns that were.
#[inline(always)]
fn weigh<I: Vectors, const R: usize, const C: usize, T: Number>(
    isa: I,
    kind: Kind<'_, T>,
    weights: &[f32],
    start: usize,
    out: &mut [f32],
) -> usize {
    let (count, stride) = (kind.positions.len(), kind.stride());
    let rows: [&[f32]; R] = std::array::from_fn(|r| &weights[r * stride..][..count]);
    let mut sums = [[isa.all(0.0); C]; R];
    for (j, &position) in kind.positions.iter().enumerate() {
        let value = kind.kept.value(position, start..start + C * LANES);
        let value = &value.as_chunks::<LANES>().0[..C];
        for c in 0..C {
            let value = load(isa, &value[c]);
            for r in 0..R {
                sums[r][c] = isa.multiply_add(isa.all(rows[r][j]), value, sums[r][c]);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        let out = out[r * kind.kept.width + start..].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.into_iter().zip(out) {
            isa.store(sum, out);
        }
    }
    C * LANES
}

/// The same for the last columns of a head whose width is no multiple of sixteen.
#[inline(always)]
fn weigh_rest<I: Vectors, const R: usize, T: Number>(
    kind: Kind<'_, T>,
    weights: &[f32],
    columns: std::ops::Range<usize>,
    out: &mut [f32],
) -> usize {
    for r in 0..R {
        let out = &mut out[r * kind.kept.width..][columns.clone()];
        out.fill(0.0);
        for (&weight, &position) in weights[r * kind.stride()..].iter().zip(kind.positions) {
            for (out, v) in out.iter_mut().zip(kind.kept.value(position, columns.clone())) {
                *out = if I::FMA {
                    multiply_add::<true>(weight, v.widen(), *out)
                } else {
                    multiply_add::<false>(weight, v.widen(), *out)
                };
            }
        }
    }
    columns.len()
}

vector_kernel! {
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
fn mean_weights_body<I: Vectors>(
    isa: I,
    query: &[f32],
    reading: Reading<'_>,
    heads: usize,
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    let head_width = reading.cache.width() / reading.heads;
    let queries = Queries { values: query, stride: query.len() };
    with_kind!(reading, |kind| {
        weights.resize(kind.stride(), 0.0);
        for head in 0..heads.min(kind.heads) {
            let columns = head * head_width..(head + 1) * head_width;
            head_weights::<I, 1, _>(isa, queries, kind, columns, weights);
            let share = 1.0 / heads as f32;
            if I::FMA {
                add_scaled::<true>(share, weights, out);
            } else {
                add_scaled::<false>(share, weights, out);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Keeping;
    use crate::isa::{Isa, Level};
    use crate::matrix::Matrix;

    fn wave(i: usize) -> f32 {
        ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5
    }

    /// Keys and values of `positions` positions, and a cache that holds them.
    fn filled(keeping: Keeping, positions: usize, width: usize) -> (Vec<f32>, Vec<f32>, Cache) {
        let keys: Vec<f32> = (0..positions * width).map(wave).collect();
        let values: Vec<f32> = (0..positions * width).map(|i| wave(i + 11)).collect();
        let mut cache = Cache::new(keeping);
        // In runs of all kinds: single ones, to the end of a block, and not from its beginning.
        let mut at: Vec<u32> = (0..positions as u32).collect();
        at[17..20].reverse();
        let row = |&p: &u32| {
            let columns = p as usize * width..(p as usize + 1) * width;
            [&[f32::NAN], &keys[columns.clone()], &values[columns]].concat()
        };
        let rows = Matrix::from_rows(2 * width + 1, at.iter().flat_map(row).collect());
        cache.grow(positions, width);
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
    fn allowed(keeping: Keeping) -> f64 {
        match keeping {
            Keeping::Float32 => 2e-6,
            Keeping::Bfloat16 => 2e-2,
            Keeping::Int8 => 4e-2,
        }
    }

    #[test]
    fn attention_follows_its_equation() {
        let shapes = [(10, 2), (64, 4), (96, 2), (48, 3), (128, 2), (164, 2), (288, 9), (320, 5)];
        for (keeping, (width, heads)) in
            Keeping::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
        {
            let (keys, values, cache) = filled(keeping, 70, width);
            let orders: [Vec<u32>; 4] = [
                (0..70).collect(),
                (16..53).collect(),
                (0..70).rev().step_by(3).collect(),
                vec![6, 40, 7, 41, 7, 69],
            ];
            let queries: Vec<f32> = (0..6 * 2 * width).map(|i| wave(i + 5)).collect();
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                for positions in &orders {
                    let reading = Reading { cache: &cache, positions, heads, next: &[3, 40] };
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
        let reading = Reading { cache: &cache, positions: &[6, 0, 3, 3, 5], heads: 2, next: &[] };
        let (mut weights, mut mean) = (Vec::new(), vec![0.0; 5]);
        mean_weights(Isa::best(), &query, reading, 2, &mut weights, &mut mean);
        assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(mean[2], mean[3]);
    }
}
