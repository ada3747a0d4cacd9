//! The bfloat16 product with AVX2: register tiles of up to 2 rows by one panel, with sums of even inputs, of odd inputs and a total.

use std::arch::x86_64::*;

use super::{PARTIAL_LINES, Pairs, Product};
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 2;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2 and FMA, and the sizes of `product` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * groups..][..groups];
        let bias = &product.packed.bias[panel];
        let in_panel = (width - columns).min(LANES);
        let rows =
            product.x.floats.chunks(ROWS * product.x.stride).zip(out.chunks_mut(ROWS * width));
        for (x, out) in rows {
            let mut sums = [*bias; ROWS];
            // SAFETY: `x` has whole rows of `stride` numbers, at most ROWS of them, and `lines` half as
            // many lines, a multiple of PARTIAL_LINES.
            unsafe {
                let rows = x.len() / product.x.stride;
                of_height!(rows, [1, 2], R => tile::<R>(x, product.x.stride, lines, bias, &mut sums));
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
/// [`super::PARTIAL`].
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
    // SAFETY: every address is inside the slices, which the caller guarantees.
    unsafe {
        let zero = [[_mm256_setzero_ps(); 2]; R];
        let mut totals = zero;
        for (i, lines) in lines.chunks_exact(PARTIAL_LINES).enumerate() {
            let (mut even, mut odd) = (zero, zero);
            for (g, line) in lines.iter().enumerate() {
                let at: *const __m256i = line.0.as_ptr().cast();
                for half in 0..2 {
                    let w = _mm256_load_si256(at.add(half));
                    let first = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(w));
                    let second = _mm256_castsi256_ps(_mm256_and_si256(w, upper));
                    for r in 0..R {
                        let at = x.add(r * stride + 2 * (i * PARTIAL_LINES + g));
                        let (a, b) = (_mm256_broadcast_ss(&*at), _mm256_broadcast_ss(&*at.add(1)));
                        even[r][half] = _mm256_fmadd_ps(a, first, even[r][half]);
                        odd[r][half] = _mm256_fmadd_ps(b, second, odd[r][half]);
                    }
                }
            }
            for r in 0..R {
                for half in 0..2 {
                    let partial = _mm256_add_ps(even[r][half], odd[r][half]);
                    totals[r][half] = _mm256_add_ps(totals[r][half], partial);
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
