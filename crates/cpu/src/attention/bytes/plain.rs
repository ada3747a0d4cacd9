//! The definition, in plain Rust.

use super::{Ahead, BLOCK, HEADS, Rounding, Shape, Task, to_pairs};
use crate::arena::Line;
use crate::lanes::{LANES, largest_magnitude};
use crate::vectors::Plain;

/// See [`super::scores`].
pub(super) fn scores(
    task: Task<'_>,
    query: &[f32],
    _: &mut Ahead,
    _: &mut Vec<Line>,
    weights: &mut [[f32; LANES]],
) {
    let shape = task.shape;
    let Rounding { scale, unit } = Rounding::new(shape, largest_magnitude(query));
    let integers: Vec<i32> = query.iter().map(|v| (v * scale).round_ties_even() as i32).collect();
    let weights = weights.as_flattened_mut().chunks_exact_mut(shape.columns());
    for (weights, (&start, step)) in weights.zip(task.starts.iter().zip(task.steps)) {
        weights.fill(0.0);
        let (key, unit) = (&task.rows[start..], unit * step);
        for (head, weight) in weights.iter_mut().enumerate().take(shape.heads) {
            let query = &integers[head * shape.head_width..][..shape.head_width];
            let product = |(column, q): (usize, &i32)| {
                (i32::from(byte_at(shape, key, head, column)) - 128) * q
            };
            *weight = query.iter().enumerate().map(product).sum::<i32>() as f32 * unit;
        }
    }
}

/// See [`super::to_integers`].
pub(super) fn to_integers(task: Task<'_>, scores: &mut [[f32; LANES]], integers: &mut [u32]) {
    // As all others round: those are for processors that have it, or it is one instruction where this runs for its speed.
    to_pairs(Plain::<true>, task, scores, integers);
}

/// See [`super::weigh`].
pub(super) fn weigh(task: Task<'_>, pairs: &[u32], _: &mut Ahead, out: &mut [f32]) {
    let (shape, columns) = (task.shape, task.shape.columns());
    let pairs = pairs.chunks_exact(task.integers());
    for (out, pairs) in out.chunks_exact_mut(shape.width()).zip(pairs) {
        for (i, out) in out.iter_mut().enumerate() {
            let (head, column) = (i / shape.head_width, i % shape.head_width);
            let mut sum = 0;
            for (place, start) in task.starts.iter().enumerate() {
                let weight = pairs[place / 2 * columns + head] >> (place % 2 * 16) & 0xffff;
                let value = &task.rows[start + shape.lines()..];
                sum += weight as i32 * i32::from(byte_at(shape, value, head, column) as i8);
            }
            *out = sum as f32 * task.unit;
        }
    }
}

fn byte_at(shape: Shape, lines: &[Line], head: usize, column: usize) -> u8 {
    let line = &lines[head / HEADS * shape.vectors() + column / LANES];
    let (quarter, rest) = (column % LANES / BLOCK, column % BLOCK);
    line.0[(quarter * HEADS + head % HEADS) * BLOCK + rest]
}
