//! The int16 product with AVX2 (`vpmaddwd`): register tiles of up to 4 rows by one panel, 8 accumulators.

use std::arch::x86_64::*;

use super::{Pairs, Product};
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 4;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2, and the sizes of `product` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * groups..][..groups];
        let bias = &product.packed.bias[panel].0;
        let in_panel = (width - columns).min(LANES);
        let rows =
            product.x.values.chunks(ROWS * product.x.stride).zip(product.x.scales.chunks(ROWS));
        for ((x, scales), out) in rows.zip(out.chunks_mut(ROWS * width)) {
            let mut sums = [[0i32; LANES]; ROWS];
            // SAFETY: `x` has whole rows of `stride` numbers, at most ROWS of them, and `lines` half
            // as many lines.
            unsafe {
                let rows = scales.len();
                of_height!(rows, [1 2 3, 4], R => tile::<R>(x, product.x.stride, lines, &mut sums));
            }
            for ((out, sums), scale) in out.chunks_mut(width).zip(&sums).zip(scales) {
                let out = &mut out[columns..][..in_panel];
                for ((out, sum), bias) in out.iter_mut().zip(sums).zip(bias) {
                    *out = *sum as f32 * scale + bias;
                }
            }
        }
    }
}

/// `R` rows times one panel.
///
/// # Safety
/// AVX2; `x` holds `R` rows of `stride` numbers; `lines.len() * 2 == stride`.
#[target_feature(enable = "avx2")]
unsafe fn tile<const R: usize>(
    x: &[i16],
    stride: usize,
    lines: &[Pairs],
    sums: &mut [[i32; LANES]; ROWS],
) {
    let x = x.as_ptr();
    // SAFETY: every address is inside the slices, which the caller guarantees.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); 2]; R];
        for (g, line) in lines.iter().enumerate() {
            let at: *const __m256i = line.0.as_ptr().cast();
            let w = [_mm256_load_si256(at), _mm256_load_si256(at.add(1))];
            for (r, acc) in acc.iter_mut().enumerate() {
                let pair = x.add(r * stride + 2 * g).cast::<i32>().read_unaligned();
                let x = _mm256_set1_epi32(pair);
                acc[0] = _mm256_add_epi32(acc[0], _mm256_madd_epi16(x, w[0]));
                acc[1] = _mm256_add_epi32(acc[1], _mm256_madd_epi16(x, w[1]));
            }
        }
        for (acc, sums) in acc.iter().zip(sums) {
            let to: *mut __m256i = sums.as_mut_ptr().cast();
            _mm256_storeu_si256(to, acc[0]);
            _mm256_storeu_si256(to.add(1), acc[1]);
        }
    }
}
