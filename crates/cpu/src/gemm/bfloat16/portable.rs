//! The product in plain Rust: the reference for the other kernels, and the fallback.

use super::{RUN, RUN_LINES, Task};
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (groups, width) = (task.packed.groups(), task.width());
    for (x, out) in task.floats.chunks_exact(task.stride).zip(out.chunks_exact_mut(width)) {
        for (panel, out) in out.chunks_mut(LANES).enumerate() {
            let panel = task.first_panel + panel;
            let lines = &task.packed.lines[panel * groups..][..groups];
            let mut total = [0.0; LANES];
            for (x, lines) in x.chunks_exact(RUN).zip(lines.chunks_exact(RUN_LINES)) {
                let mut sums = [[0.0; 2]; LANES];
                for (x, line) in x.as_chunks::<2>().0.iter().zip(lines) {
                    for (sums, w) in sums.iter_mut().zip(&line.0) {
                        for i in 0..2 {
                            sums[i] += x[i] * f32::from_bits(u32::from(w[i]) << 16);
                        }
                    }
                }
                for (total, sums) in total.iter_mut().zip(sums) {
                    *total += sums[0] + sums[1];
                }
            }
            for ((out, total), bias) in out.iter_mut().zip(total).zip(&task.packed.bias[panel].0) {
                *out = total + bias;
            }
        }
    }
}
