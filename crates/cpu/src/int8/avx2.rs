//! The integer product with AVX2 alone. Its instruction for bytes adds pairs of products in 16 bits,
//! and saturates; but with signed inputs moved into the weights (|x| times ±w), no pair exceeds
//! 2 · 127 · 127, which fits: the result is exact. Tiles of up to 4 rows by one panel.

use std::arch::x86_64::*;

use super::{Bytes, Task};
use crate::lanes::LANES;

const ROWS: usize = 4;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2, and the sizes of `task` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (groups, width) = (task.packed.groups(), task.width());
    for (panel, columns) in (0..task.panels).zip((0..width).step_by(LANES)) {
        let panel = task.first_panel + panel;
        let lines = &task.packed.lines[panel * groups..][..groups];
        let (steps, bias) = (&task.packed.steps[panel].0, &task.packed.bias[panel].0);
        let in_panel = (width - columns).min(LANES);
        let inputs = task.bytes.chunks(ROWS * task.stride).zip(task.steps.chunks(ROWS));
        for ((bytes, row_steps), out) in inputs.zip(out.chunks_mut(ROWS * width)) {
            let mut sums = [[0; LANES]; ROWS];
            // SAFETY: `bytes` has whole rows, at most ROWS of them, of four bytes a line.
            unsafe { tile_of(bytes, task.stride, lines, &mut sums) };
            for ((out, sums), row_step) in out.chunks_mut(width).zip(&sums).zip(row_steps) {
                for (i, out) in out[columns..][..in_panel].iter_mut().enumerate() {
                    let y = sums[i] as f32 * (steps[i] * row_step) + bias[i];
                    *out = if task.relu && y < 0.0 { 0.0 } else { y };
                }
            }
        }
    }
}

/// Picks the kernel of a height.
///
/// # Safety
/// As [`tile`], with as many rows as `bytes` has.
#[target_feature(enable = "avx2")]
unsafe fn tile_of(bytes: &[u8], stride: usize, lines: &[Bytes], sums: &mut [[i32; LANES]; ROWS]) {
    // SAFETY: passed on from the caller.
    unsafe {
        match bytes.len() / stride {
            1 => tile::<1>(bytes, stride, lines, sums),
            2 => tile::<2>(bytes, stride, lines, sums),
            3 => tile::<3>(bytes, stride, lines, sums),
            _ => tile::<ROWS>(bytes, stride, lines, sums),
        }
    }
}

/// `R` rows times one panel.
///
/// # Safety
/// AVX2; `bytes` holds `R` rows of `stride` bytes; `lines.len() * 4 <= stride`.
#[target_feature(enable = "avx2")]
unsafe fn tile<const R: usize>(
    bytes: &[u8],
    stride: usize,
    lines: &[Bytes],
    sums: &mut [[i32; LANES]; ROWS],
) {
    let shift = _mm256_set1_epi8(-128);
    let ones = _mm256_set1_epi16(1);
    // SAFETY: every address is inside the slices, by the caller's word.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); 2]; R];
        for (g, line) in lines.iter().enumerate() {
            let at = line.0.as_ptr().cast::<__m256i>();
            let w = [_mm256_load_si256(at), _mm256_load_si256(at.add(1))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let four = bytes.as_ptr().add(r * stride + g * 4).cast::<i32>().read_unaligned();
                let x = _mm256_xor_si256(_mm256_set1_epi32(four), shift);
                let magnitude = _mm256_abs_epi8(x);
                for (acc, w) in acc.iter_mut().zip(w) {
                    let pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(w, x));
                    *acc = _mm256_add_epi32(*acc, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        for (acc, sums) in acc.iter().zip(sums) {
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), acc[0]);
            _mm256_storeu_si256(sums.as_mut_ptr().add(8).cast(), acc[1]);
        }
    }
}
