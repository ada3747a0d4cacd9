//! Attention over cached keys and values.
//!
//! Keys are kept in blocks of sixteen positions, column by column, so that one vector instruction
//! works on sixteen positions; values are kept a row a position:
//!
//! ```text
//! keys, block b:   column 0 of positions 16b … 16b+15 │ column 1 of the same │ … │ column D-1
//! values, row p:   column 0 … column D-1
//! ```
//!
//! A head is `D / H` neighbouring columns. Rows that read the same positions (the words of a source
//! sentence, the hypotheses of a beam) are worked on four at a time, so that keys and values are
//! loaded once for all four. The order of additions is the same for one row and for four.
//!
//! Cost: two multiply-adds for each column and position read, one exponential for each head and
//! position.

use crate::isa::{Isa, kernel};
use crate::lanes::{LANES, add_scaled, multiply_add, softmax};

/// Rows worked on together.
const GROUP: usize = 4;

/// Keys and values of many positions.
#[derive(Debug, Default)]
pub struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
    width: usize,
}

impl Cache {
    /// Makes room for at least `positions` of that width, keeping what is there.
    pub(crate) fn grow(&mut self, positions: usize, width: usize) {
        self.width = width;
        let size = positions.next_multiple_of(LANES) * width;
        if self.keys.len() < size {
            // Doubling: a cache grows a little at nearly every step.
            let size = size.max(self.keys.len() * 2);
            self.keys.resize(size, 0.0);
            self.values.resize(size, 0.0);
        }
    }

    /// Puts a key and a value into a position.
    pub(crate) fn store(&mut self, position: usize, key: &[f32], value: &[f32]) {
        let (block, lane) = (position / LANES, position % LANES);
        let keys = &mut self.keys[block * self.width * LANES..][..self.width * LANES];
        for (column, &key) in keys.as_chunks_mut::<LANES>().0.iter_mut().zip(key) {
            column[lane] = key;
        }
        self.values[position * self.width..][..self.width].copy_from_slice(value);
    }

    /// Columns of a head of a block of sixteen positions.
    #[inline(always)]
    fn keys(&self, block: usize, columns: std::ops::Range<usize>) -> &[[f32; LANES]] {
        let start = block * self.width;
        &self.keys.as_chunks().0[start + columns.start..start + columns.end]
    }

    #[inline(always)]
    fn value(&self, position: u32, columns: std::ops::Range<usize>) -> &[f32] {
        let start = position as usize * self.width;
        &self.values[start + columns.start..start + columns.end]
    }
}

/// What a group of rows reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) positions: &'a [u32],
    pub(crate) heads: usize,
}

impl Reading<'_> {
    fn head_width(&self) -> usize {
        self.cache.width / self.heads
    }
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
    let width = reading.cache.width;
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
    attend_rows::<FMA, GROUP>(queries, reading, weights, out);
}

#[inline(always)]
fn attend_one_body<const FMA: bool>(
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    attend_rows::<FMA, 1>(queries, reading, weights, out);
}

/// `R` rows, head by head.
#[inline(always)]
fn attend_rows<const FMA: bool, const R: usize>(
    queries: Queries<'_>,
    reading: Reading<'_>,
    weights: &mut [f32],
    out: &mut [f32],
) {
    let (width, head_width) = (reading.cache.width, reading.head_width());
    for head in 0..reading.heads {
        let columns = head * head_width..(head + 1) * head_width;
        head_weights::<FMA, R>(queries, reading, columns.clone(), weights);
        for start in columns.clone().step_by(LANES) {
            let columns = start..columns.end.min(start + LANES);
            if columns.len() == LANES {
                weigh_lanes::<FMA, R>(reading, weights, columns, width, out);
            } else {
                weigh_rest::<FMA, R>(reading, weights, columns, width, out);
            }
        }
    }
}

/// Softmax over the positions read, for each row: `weights` holds row after row.
#[inline(always)]
fn head_weights<const FMA: bool, const R: usize>(
    queries: Queries<'_>,
    reading: Reading<'_>,
    columns: std::ops::Range<usize>,
    weights: &mut [f32],
) {
    let count = reading.positions.len();
    let scale = 1.0 / (columns.len() as f32).sqrt();
    let query: [&[f32]; R] = std::array::from_fn(|r| &queries.row(r)[columns.clone()]);
    for (chunk, positions) in reading.positions.chunks(LANES).enumerate() {
        let mut open = (1u32 << positions.len()) - 1;
        // Positions of one block share its scores; a beam's history may come from several.
        while open != 0 {
            let block = positions[open.trailing_zeros() as usize] as usize / LANES;
            let scores = block_scores::<FMA, R>(query, reading.cache.keys(block, columns.clone()));
            for (i, &position) in positions.iter().enumerate() {
                if position as usize / LANES == block {
                    open &= !(1 << i);
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

/// Products of `R` queries with the sixteen keys of a block.
#[inline(always)]
fn block_scores<const FMA: bool, const R: usize>(
    query: [&[f32]; R],
    keys: &[[f32; LANES]],
) -> [[f32; LANES]; R] {
    let mut scores = [[0.0; LANES]; R];
    for (c, key) in keys.iter().enumerate() {
        for r in 0..R {
            let q = query[r][c];
            for i in 0..LANES {
                scores[r][i] = multiply_add::<FMA>(q, key[i], scores[r][i]);
            }
        }
    }
    scores
}

/// Weighted mean of sixteen columns of the values.
#[inline(always)]
fn weigh_lanes<const FMA: bool, const R: usize>(
    reading: Reading<'_>,
    weights: &[f32],
    columns: std::ops::Range<usize>,
    width: usize,
    out: &mut [f32],
) {
    let count = reading.positions.len();
    let rows: [&[f32]; R] = std::array::from_fn(|r| &weights[r * count..(r + 1) * count]);
    let mut sums = [[0.0; LANES]; R];
    for (j, &position) in reading.positions.iter().enumerate() {
        let value = reading.cache.value(position, columns.clone());
        let Some(value) = value.first_chunk::<LANES>() else { return };
        for r in 0..R {
            let weight = rows[r][j];
            for i in 0..LANES {
                sums[r][i] = multiply_add::<FMA>(weight, value[i], sums[r][i]);
            }
        }
    }
    for r in 0..R {
        out[r * width + columns.start..][..LANES].copy_from_slice(&sums[r]);
    }
}

/// The same for the last columns of a head whose width is no multiple of sixteen.
#[inline(always)]
fn weigh_rest<const FMA: bool, const R: usize>(
    reading: Reading<'_>,
    weights: &[f32],
    columns: std::ops::Range<usize>,
    width: usize,
    out: &mut [f32],
) {
    let count = reading.positions.len();
    for r in 0..R {
        let out = &mut out[r * width..][columns.clone()];
        out.fill(0.0);
        for (j, &position) in reading.positions.iter().enumerate() {
            let value = reading.cache.value(position, columns.clone());
            add_scaled::<FMA>(weights[r * count + j], value, out);
        }
    }
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
    let head_width = reading.head_width();
    let queries = Queries { values: query, stride: query.len() };
    for head in 0..heads.min(reading.heads) {
        let columns = head * head_width..(head + 1) * head_width;
        head_weights::<FMA, 1>(queries, reading, columns, weights);
        add_scaled::<FMA>(1.0 / heads as f32, weights, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;

    fn wave(i: usize) -> f32 {
        ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5
    }

    /// Keys and values of `positions` positions, and a cache that holds them.
    fn filled(positions: usize, width: usize) -> (Vec<f32>, Vec<f32>, Cache) {
        let keys: Vec<f32> = (0..positions * width).map(wave).collect();
        let values: Vec<f32> = (0..positions * width).map(|i| wave(i + 11)).collect();
        let mut cache = Cache::default();
        for p in 0..positions {
            cache.grow(p + 1, width);
            cache.store(p, &keys[p * width..][..width], &values[p * width..][..width]);
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

    #[test]
    fn attention_follows_its_equation() {
        for (width, heads) in [(10, 2), (64, 4), (96, 2), (48, 3)] {
            let (keys, values, cache) = filled(70, width);
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
                            assert!((f64::from(*got) - want).abs() < 2e-6, "{got} for {want}");
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
        let (_, _, cache) = filled(20, 10);
        let query: Vec<f32> = (0..10).map(wave).collect();
        let reading = Reading { cache: &cache, positions: &[6, 0, 3, 3, 5], heads: 2 };
        let (mut weights, mut mean) = (Vec::new(), vec![0.0; 5]);
        mean_weights(Isa::best(), &query, reading, 2, &mut weights, &mut mean);
        assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(mean[2], mean[3]);
    }
}
