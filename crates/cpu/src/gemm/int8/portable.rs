//! The integer product in plain Rust: the reference for the other kernels, and the fallback.

use super::Task;
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (groups, width) = (task.packed.groups(), task.width());
    let rows = task.bytes.chunks_exact(task.stride).zip(task.scales);
    for ((bytes, &row_scale), out) in rows.zip(out.chunks_exact_mut(width)) {
        for (panel, out) in out.chunks_mut(LANES).enumerate() {
            let panel = task.first_panel + panel;
            let mut sums = task.packed.starts[panel].0;
            let lines = &task.packed.lines[panel * groups..][..groups];
            for (x, line) in bytes.as_chunks::<4>().0.iter().zip(lines) {
                for (sum, w) in sums.iter_mut().zip(&line.0) {
                    *sum += (0..4).map(|i| i32::from(x[i]) * i32::from(w[i])).sum::<i32>();
                }
            }
            let (scales, bias) = (&task.packed.scales[panel].0, &task.packed.bias[panel].0);
            for (i, out) in out.iter_mut().enumerate() {
                let y = sums[i] as f32 * (scales[i] * row_scale) + bias[i];
                *out = if task.relu && y < 0.0 { 0.0 } else { y };
            }
        }
    }
}

/// The same, each pair of products added in 16 bits to its own running sum, with saturation: what
/// `vpmaddubsw` and `vpaddsw` do.
pub(super) fn multiply_saturating(task: Task<'_>, out: &mut [f32]) {
    let (groups, width) = (task.packed.groups(), task.width());
    let rows = task.bytes.chunks_exact(task.stride).zip(task.scales);
    for ((bytes, &row_scale), out) in rows.zip(out.chunks_exact_mut(width)) {
        for (i, out) in out.iter_mut().enumerate() {
            let (panel, lane) = (task.first_panel + i / LANES, i % LANES);
            let lines = &task.packed.lines[panel * groups..][..groups];
            let mut sums = [0i16; 2];
            for (x, line) in bytes.as_chunks::<4>().0.iter().zip(lines) {
                let product = |k: usize| (i16::from(x[k]) - 128) * i16::from(line.0[lane][k]);
                sums[0] = sums[0].saturating_add(product(0) + product(1));
                sums[1] = sums[1].saturating_add(product(2) + product(3));
            }
            let sum = i32::from(sums[0]) + i32::from(sums[1]);
            let y = sum as f32 * (task.packed.scales[panel].0[lane] * row_scale)
                + task.packed.bias[panel].0[lane];
            *out = if task.relu && y < 0.0 { 0.0 } else { y };
        }
    }
}
