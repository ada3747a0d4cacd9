//! The float32 product with NEON: register tiles of up to 6 rows by one panel, 24 accumulators.

use std::arch::aarch64::*;

use super::Product;
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 6;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
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
                of_height!(rows, [1 2 3 4 5, 6], R => tile::<R>(x, inputs, lines, &mut sums));
            }
            for (out, sums) in out.chunks_mut(width).zip(&sums) {
                out[columns..][..in_panel].copy_from_slice(&sums.0[..in_panel]);
            }
        }
    }
}

/// `R` rows times one panel, added to `sums`.
///
/// # Safety
/// `x` holds `R` rows of `inputs` numbers; `lines.len() == inputs`.
unsafe fn tile<const R: usize>(
    x: &[f32],
    inputs: usize,
    lines: &[Lanes<f32>],
    sums: &mut [Lanes<f32>; ROWS],
) {
    // SAFETY: every address is inside the slices, which the caller guarantees; NEON is part of the architecture.
    unsafe {
        let quarters = |line: &Lanes<f32>| [0, 4, 8, 12].map(|i| vld1q_f32(line.0.as_ptr().add(i)));
        let mut acc = [[vdupq_n_f32(0.0); 4]; R];
        for (acc, sums) in acc.iter_mut().zip(&*sums) {
            *acc = quarters(sums);
        }
        for (k, line) in lines.iter().enumerate() {
            let w = quarters(line);
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = *x.as_ptr().add(r * inputs + k);
                for (acc, w) in acc.iter_mut().zip(w) {
                    *acc = vfmaq_n_f32(*acc, w, x);
                }
            }
        }
        for (acc, sums) in acc.iter().zip(sums) {
            for (i, &acc) in acc.iter().enumerate() {
                vst1q_f32(sums.0.as_mut_ptr().add(4 * i), acc);
            }
        }
    }
}
