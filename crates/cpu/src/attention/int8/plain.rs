//! The definition, in plain Rust: a line's 64 bytes at a time, which compilers turn into vectors.

use super::{BLOCK, HEADS, Prefetch, Rounding, Shape, Task, to_pairs};
use crate::isa::lanes::{LANES, array, largest_magnitude};
use crate::isa::vectors::Plain;
use crate::memory::arena::CacheLine;

/// A number for each byte of a line.
type Wide = [i32; HEADS * LANES];

/// The head of a line's byte, of four, and its column, of sixteen.
fn place_of(byte: usize) -> (usize, usize) {
    (byte / BLOCK % HEADS, byte / (BLOCK * HEADS) * BLOCK + byte % BLOCK)
}

/// See [`super::scores`].
pub(super) fn scores(
    task: Task<'_>,
    query: &[f32],
    ahead: &mut Prefetch,
    _: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = task.shape;
    let Rounding { scale, unit } = Rounding::new(shape, largest_magnitude(query));
    let query = split(query, scale, shape);
    let weights = weights.as_flattened_mut().chunks_exact_mut(shape.columns());
    for (weights, (&start, step)) in weights.zip(task.starts.iter().zip(task.steps)) {
        ahead.step(task.rows);
        weights.fill(0.0);
        let lines = query.iter().zip(&task.rows[start..]).enumerate();
        let mut sums = vec![[0; HEADS * LANES]; shape.groups()];
        for (i, (query, key)) in lines {
            let sums: &mut Wide = &mut sums[i / shape.vectors()];
            for (sum, (q, &key)) in sums.iter_mut().zip(query.iter().zip(&key.0)) {
                *sum = sum.wrapping_add((i32::from(key) - 128) * q);
            }
        }
        for (weights, sums) in weights.chunks_exact_mut(HEADS).zip(&sums) {
            let mut totals = [0i32; HEADS];
            for (byte, sum) in sums.iter().enumerate() {
                let head = place_of(byte).0;
                totals[head] = totals[head].wrapping_add(*sum);
            }
            for (weight, total) in weights.iter_mut().zip(totals) {
                *weight = total as f32 * (unit * step);
            }
        }
    }
}

/// Rounds a query, in the order of a key's bytes.
fn split(query: &[f32], scale: f32, shape: Shape) -> Vec<Wide> {
    let line = |i: usize| {
        let (first, vector) = (i / shape.vectors() * HEADS, i % shape.vectors());
        let four: [_; HEADS] = array(|head| shape.vector(query, first + head, vector));
        array(|byte| {
            let (head, column) = place_of(byte);
            (four[head][column] * scale).round_ties_even() as i32
        })
    };
    (0..shape.lines()).map(line).collect()
}

/// See [`super::to_integers`].
pub(super) fn to_integers(task: Task<'_>, scores: &mut [[f32; LANES]], integers: &mut [u32]) {
    to_pairs(Plain::<false>, task, scores, integers);
}

/// See [`super::weigh`].
pub(super) fn weigh(task: Task<'_>, pairs: &[u32], ahead: &mut Prefetch, out: &mut [f32]) {
    let (shape, columns) = (task.shape, task.shape.columns());
    let pairs = pairs.chunks_exact(task.integers());
    for (out, pairs) in out.chunks_exact_mut(shape.width()).zip(pairs) {
        for line in 0..shape.lines() {
            let (first, vector) = (line / shape.vectors() * HEADS, line % shape.vectors());
            let mut sums: Wide = [0; HEADS * LANES];
            for (place, start) in task.starts.iter().enumerate() {
                ahead.step(task.rows);
                let pairs = &pairs[place / 2 * columns + first..][..HEADS];
                let weights: Wide =
                    array(|byte| (pairs[place_of(byte).0] >> (place % 2 * 16) & 0xffff) as i32);
                let values = &task.rows[start + shape.lines() + line].0;
                for (sum, (weight, &value)) in sums.iter_mut().zip(weights.iter().zip(values)) {
                    *sum = sum.wrapping_add(weight * i32::from(value as i8));
                }
            }
            for (byte, sum) in sums.iter().enumerate() {
                let (head, column) = place_of(byte);
                let (head, column) = (first + head, vector * LANES + column);
                if head < shape.heads && column < shape.head_width {
                    out[head * shape.head_width + column] = *sum as f32 * task.unit;
                }
            }
        }
    }
}
