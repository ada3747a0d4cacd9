//! The float32 product with AVX2 and FMA: register tiles of up to 6 rows by one panel, 12 accumulators.

use std::arch::x86_64::*;

use super::Product;
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 6;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2 and FMA, and the sizes of `product` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let inputs = product.packed.inputs;
    let width = product.width;
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * inputs..][..inputs];
        let bias = &product.packed.bias[panel];
        let in_panel = (width - columns).min(LANES);
        let groups = product.x.chunks(ROWS * inputs).zip(out.chunks_mut(ROWS * width));
        for (x, out) in groups {
            let mut sums = [*bias; ROWS];
            // SAFETY: `x` has whole rows of `inputs` numbers, at most ROWS of them, and `lines` as
            // many lines as inputs.
            unsafe {
                let rows = x.len() / inputs;
                of_height!(rows, [1 2 3 4 5, 6], R => tile::<R>(x, inputs, lines, bias, &mut sums));
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
/// AVX2 and FMA; `x` holds `R` rows of `inputs` numbers; `lines.len() == inputs`.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const R: usize>(
    x: &[f32],
    inputs: usize,
    lines: &[Lanes<f32>],
    bias: &Lanes<f32>,
    sums: &mut [Lanes<f32>; ROWS],
) {
    let x = x.as_ptr();
    // SAFETY: every address is inside the slices, which the caller guarantees.
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
