//! Attention of one row over the rows it reads.
//!
//! Keys and values of a position stand in one row of the memory, keys first. A head is `D / H`
//! neighbouring columns. Cost: two multiply-adds for each column and row read, and an exponential
//! for each head and row read.

use crate::isa::kernel;
use crate::lanes::{add_scaled, dot, softmax};

/// The memory a row attends to.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// Rows of `stride` numbers.
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
    /// First column of the keys; values begin `width` columns later.
    pub(crate) key_column: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
}

impl View<'_> {
    fn head_width(&self) -> usize {
        self.width / self.heads
    }

    #[inline(always)]
    fn key(&self, row: u32, head: usize) -> &[f32] {
        let start = row as usize * self.stride + self.key_column + head * self.head_width();
        &self.values[start..start + self.head_width()]
    }

    #[inline(always)]
    fn value(&self, row: u32, head: usize) -> &[f32] {
        let start = row as usize * self.stride + self.key_column + self.width;
        &self.values[start + head * self.head_width()..][..self.head_width()]
    }
}

/// Weights of one head over `reads`.
#[inline(always)]
fn head_weights<const FMA: bool>(
    query: &[f32],
    memory: View<'_>,
    head: usize,
    reads: &[u32],
    weights: &mut [f32],
) {
    let query = &query[head * memory.head_width()..][..memory.head_width()];
    let scale = 1.0 / (memory.head_width() as f32).sqrt();
    for (weight, &row) in weights.iter_mut().zip(reads) {
        *weight = dot::<FMA>(query, memory.key(row, head)) * scale;
    }
    softmax::<FMA>(weights);
}

kernel! {
    /// `out` = for each head the mean of the values read, weighted by how well key and query match.
    /// `weights` is working memory as long as `reads`.
    pub(crate) fn attend(
        query: &[f32],
        memory: View<'_>,
        reads: &[u32],
        weights: &mut [f32],
        out: &mut [f32],
    ) = attend_body
}

#[inline(always)]
fn attend_body<const FMA: bool>(
    query: &[f32],
    memory: View<'_>,
    reads: &[u32],
    weights: &mut [f32],
    out: &mut [f32],
) {
    for (head, out) in out.chunks_exact_mut(memory.head_width()).enumerate() {
        head_weights::<FMA>(query, memory, head, reads, weights);
        out.fill(0.0);
        for (&weight, &row) in weights.iter().zip(reads) {
            add_scaled::<FMA>(weight, memory.value(row, head), out);
        }
    }
}

kernel! {
    /// The weights themselves: the mean over the first `heads` heads, added to `out`.
    pub(crate) fn mean_weights(
        query: &[f32],
        memory: View<'_>,
        heads: usize,
        reads: &[u32],
        weights: &mut [f32],
        out: &mut [f32],
    ) = mean_weights_body
}

#[inline(always)]
fn mean_weights_body<const FMA: bool>(
    query: &[f32],
    memory: View<'_>,
    heads: usize,
    reads: &[u32],
    weights: &mut [f32],
    out: &mut [f32],
) {
    for head in 0..heads {
        head_weights::<FMA>(query, memory, head, reads, weights);
        add_scaled::<FMA>(1.0 / heads as f32, weights, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Level};

    /// Two heads of five columns; the plain equations in double precision.
    #[test]
    fn attention_follows_its_equation() {
        let (width, heads, rows) = (10usize, 2usize, 7usize);
        let wave = |i: usize| ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5;
        let values: Vec<f32> = (0..rows * 3 * width).map(wave).collect();
        let query: Vec<f32> = (0..width).map(|i| wave(i + 5)).collect();
        let memory = View { values: &values, stride: 3 * width, key_column: width, width, heads };
        let reads = [6, 0, 3, 3, 5];
        let mut expected = Vec::new();
        for head in 0..heads {
            let key = |r: u32, c: usize| f64::from(memory.key(r, head)[c]);
            let score = |r: u32| -> f64 {
                let dot: f64 = (0..5).map(|c| f64::from(query[head * 5 + c]) * key(r, c)).sum();
                (dot / 5f64.sqrt()).exp()
            };
            let total: f64 = reads.iter().map(|&r| score(r)).sum();
            for c in 0..5 {
                let value = |r: u32| f64::from(memory.value(r, head)[c]);
                expected.push(reads.iter().map(|&r| score(r) / total * value(r)).sum::<f64>());
            }
        }
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let (mut out, mut weights) = (vec![0.0; width], vec![0.0; reads.len()]);
            attend(isa, &query, memory, &reads, &mut weights, &mut out);
            for (got, want) in out.iter().zip(&expected) {
                assert!((f64::from(*got) - want).abs() < 1e-6);
            }
            let mut mean = vec![0.0; reads.len()];
            mean_weights(isa, &query, memory, heads, &reads, &mut weights, &mut mean);
            assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert_eq!(mean[2], mean[3]);
        }
    }
}
