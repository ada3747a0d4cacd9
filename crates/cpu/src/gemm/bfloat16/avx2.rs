//! The product with AVX2: tiles of up to 2 rows by one panel, three registers for each half of it.

use std::arch::x86_64::*;

use super::{Pairs, RUN_LINES, Task};
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 2;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2 and FMA, and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (groups, width) = (task.packed.groups(), task.width());
    for (panel, columns) in (0..task.panels).zip((0..width).step_by(LANES)) {
        let panel = task.first_panel + panel;
        let lines = &task.packed.lines[panel * groups..][..groups];
        let bias = &task.packed.bias[panel];
        let in_panel = (width - columns).min(LANES);
        let rows = task.floats.chunks(ROWS * task.stride).zip(out.chunks_mut(ROWS * width));
        for (x, out) in rows {
            let mut sums = [*bias; ROWS];
            // SAFETY: `x` has whole rows of `stride` numbers, at most ROWS of them, and `lines` half as
            // many lines, a multiple of RUN_LINES.
            unsafe {
                let rows = x.len() / task.stride;
                of_height!(rows, [1, 2], R => tile::<R>(x, task.stride, lines, bias, &mut sums));
            }
            for (out, sums) in out.chunks_mut(width).zip(&sums) {
                out[columns..][..in_panel].copy_from_slice(&sums.0[..in_panel]);
            }
        }
    }
}

/// `R` rows times one panel.
///
/// # Safety
/// AVX2 and FMA; `x` holds `R` rows of `stride` numbers; `lines.len() * 2 == stride`, a multiple of
/// [`super::RUN`].
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const R: usize>(
    x: &[f32],
    stride: usize,
    lines: &[Pairs],
    bias: &Lanes<f32>,
    sums: &mut [Lanes<f32>; ROWS],
) {
    let x = x.as_ptr();
    let upper = _mm256_set1_epi32(0xffff_0000u32 as i32);
    // SAFETY: every address is inside the slices, by the caller's word.
    unsafe {
        let zero = [[_mm256_setzero_ps(); 2]; R];
        let mut totals = zero;
        for (run, lines) in lines.chunks_exact(RUN_LINES).enumerate() {
            let (mut even, mut odd) = (zero, zero);
            for (g, line) in lines.iter().enumerate() {
                let at: *const __m256i = line.0.as_ptr().cast();
                for half in 0..2 {
                    let w = _mm256_load_si256(at.add(half));
                    let first = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(w));
                    let second = _mm256_castsi256_ps(_mm256_and_si256(w, upper));
                    for r in 0..R {
                        let at = x.add(r * stride + 2 * (run * RUN_LINES + g));
                        let (a, b) = (_mm256_broadcast_ss(&*at), _mm256_broadcast_ss(&*at.add(1)));
                        even[r][half] = _mm256_fmadd_ps(a, first, even[r][half]);
                        odd[r][half] = _mm256_fmadd_ps(b, second, odd[r][half]);
                    }
                }
            }
            for r in 0..R {
                for half in 0..2 {
                    let run = _mm256_add_ps(even[r][half], odd[r][half]);
                    totals[r][half] = _mm256_add_ps(totals[r][half], run);
                }
            }
        }
        for (totals, sums) in totals.iter().zip(sums) {
            for (half, total) in totals.iter().enumerate() {
                let bias = _mm256_load_ps(bias.0.as_ptr().add(8 * half));
                _mm256_store_ps(sums.0.as_mut_ptr().add(8 * half), _mm256_add_ps(*total, bias));
            }
        }
    }
}
