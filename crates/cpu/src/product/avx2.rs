//! The product with AVX2 and FMA: tiles of up to 6 rows by one panel, 12 accumulators in registers.

use std::arch::x86_64::*;

use super::{Line, Task};
use crate::lanes::LANES;

const ROWS: usize = 6;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2 and FMA, and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let inputs = task.packed.inputs;
    let width = task.outputs().len();
    for (panel, columns) in (0..task.panels).zip((0..width).step_by(LANES)) {
        let panel = task.first_panel + panel;
        let lines = &task.packed.lines[panel * inputs..][..inputs];
        let bias = &task.packed.bias[panel];
        let in_panel = (width - columns).min(LANES);
        let groups = task.x.chunks(ROWS * inputs).zip(out.chunks_mut(ROWS * width));
        for (x, out) in groups {
            let mut sums = [Line([0.0; LANES]); ROWS];
            // SAFETY: `x` has whole rows of `inputs` numbers, at most ROWS of them, and `lines` as
            // many lines as inputs.
            unsafe { tile_of(x, inputs, lines, bias, &mut sums) };
            for (out, sums) in out.chunks_mut(width).zip(&sums) {
                out[columns..][..in_panel].copy_from_slice(&sums.0[..in_panel]);
            }
        }
    }
}

/// Picks the kernel of a height.
///
/// # Safety
/// As [`tile`], with as many rows as `x` has.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of(x: &[f32], inputs: usize, lines: &[Line], bias: &Line, sums: &mut [Line; ROWS]) {
    // SAFETY: passed on from the caller.
    unsafe {
        match x.len() / inputs {
            1 => tile::<1>(x, inputs, lines, bias, sums),
            2 => tile::<2>(x, inputs, lines, bias, sums),
            3 => tile::<3>(x, inputs, lines, bias, sums),
            4 => tile::<4>(x, inputs, lines, bias, sums),
            5 => tile::<5>(x, inputs, lines, bias, sums),
            _ => tile::<ROWS>(x, inputs, lines, bias, sums),
        }
    }
}

/// `R` rows times one panel.
///
/// # Safety
/// AVX2 and FMA; `x` holds `R` rows of `inputs` numbers; `lines.len() == inputs`.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const R: usize>(
    x: &[f32],
    inputs: usize,
    lines: &[Line],
    bias: &Line,
    sums: &mut [Line; ROWS],
) {
    let x = x.as_ptr();
    // SAFETY: every address is inside the slices, by the caller's word.
    unsafe {
        let start = [_mm256_load_ps(bias.0.as_ptr()), _mm256_load_ps(bias.0.as_ptr().add(8))];
        let mut acc = [start; R];
        for (k, line) in lines.iter().enumerate() {
            let w = [_mm256_load_ps(line.0.as_ptr()), _mm256_load_ps(line.0.as_ptr().add(8))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = _mm256_broadcast_ss(&*x.add(r * inputs + k));
                acc[0] = _mm256_fmadd_ps(x, w[0], acc[0]);
                acc[1] = _mm256_fmadd_ps(x, w[1], acc[1]);
            }
        }
        for (acc, sums) in acc.iter().zip(sums) {
            _mm256_store_ps(sums.0.as_mut_ptr(), acc[0]);
            _mm256_store_ps(sums.0.as_mut_ptr().add(8), acc[1]);
        }
    }
}
