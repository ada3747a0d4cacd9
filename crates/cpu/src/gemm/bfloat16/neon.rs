//! The bfloat16 product with NEON: one row by one panel, with sums of even inputs, of odd inputs and a total for each four outputs.

use std::arch::aarch64::*;

use super::{PARTIAL, PARTIAL_LINES, Pairs, Product};
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * groups..][..groups];
        let bias = &product.packed.bias[panel].0;
        let in_panel = (width - columns).min(LANES);
        for (x, out) in
            product.x.floats.chunks_exact(product.x.stride).zip(out.chunks_exact_mut(width))
        {
            let totals = row(x, lines);
            let out = &mut out[columns..][..in_panel];
            for ((out, total), bias) in out.iter_mut().zip(totals).zip(bias) {
                *out = total + bias;
            }
        }
    }
}

/// One row times one panel.
fn row(x: &[f32], lines: &[Pairs]) -> [f32; LANES] {
    // SAFETY: every address is inside a line or `sums`; NEON is part of the architecture.
    unsafe {
        let zero = [vdupq_n_f32(0.0); 4];
        let mut totals = zero;
        for (x, lines) in x.chunks_exact(PARTIAL).zip(lines.chunks_exact(PARTIAL_LINES)) {
            let (mut even, mut odd) = (zero, zero);
            for (x, line) in x.as_chunks::<2>().0.iter().zip(lines) {
                let at: *const u32 = line.0.as_ptr().cast();
                for i in 0..4 {
                    let w = vld1q_u32(at.add(4 * i));
                    let first = vreinterpretq_f32_u32(vshlq_n_u32::<16>(w));
                    let second = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff_0000)));
                    even[i] = vfmaq_n_f32(even[i], first, x[0]);
                    odd[i] = vfmaq_n_f32(odd[i], second, x[1]);
                }
            }
            for i in 0..4 {
                totals[i] = vaddq_f32(totals[i], vaddq_f32(even[i], odd[i]));
            }
        }
        let mut sums = [0.0; LANES];
        for (i, total) in totals.into_iter().enumerate() {
            vst1q_f32(sums.as_mut_ptr().add(4 * i), total);
        }
        sums
    }
}
