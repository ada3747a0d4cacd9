//! The int16 product with NEON (`smlal`): register tiles of up to 2 rows by one panel, 16 accumulators. The two products of a pair
//! are summed separately until the end.

use std::arch::aarch64::*;

use super::{Pairs, Product};
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;

const ROWS: usize = 2;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * groups..][..groups];
        let bias = &product.packed.bias[panel].0;
        let in_panel = (width - columns).min(LANES);
        let rows =
            product.x.values.chunks(ROWS * product.x.stride).zip(product.x.scales.chunks(ROWS));
        for ((x, scales), out) in rows.zip(out.chunks_mut(ROWS * width)) {
            let mut sums = [[0; LANES]; ROWS];
            // SAFETY: `x` has whole rows of `stride` numbers, at most ROWS of them, and `lines` half
            // as many lines.
            unsafe {
                let rows = scales.len();
                of_height!(rows, [1, 2], R => tile::<R>(x, product.x.stride, lines, &mut sums));
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
/// `x` holds `R` rows of `stride` numbers; `lines.len() * 2 == stride`.
unsafe fn tile<const R: usize>(
    x: &[i16],
    stride: usize,
    lines: &[Pairs],
    sums: &mut [[i32; LANES]; ROWS],
) {
    // SAFETY: every address is inside the slices, which the caller guarantees; NEON is part of the architecture.
    unsafe {
        let mut acc = [[vdupq_n_s32(0); 8]; R];
        for (g, line) in lines.iter().enumerate() {
            let at: *const i16 = line.0.as_ptr().cast();
            let w = [0, 8, 16, 24].map(|i| vld1q_s16(at.add(i)));
            for (r, acc) in acc.iter_mut().enumerate() {
                let pair = x.as_ptr().add(r * stride + 2 * g).cast::<i32>().read_unaligned();
                let x = vreinterpretq_s16_s32(vdupq_n_s32(pair));
                for (acc, w) in acc.as_chunks_mut::<2>().0.iter_mut().zip(w) {
                    acc[0] = vmlal_s16(acc[0], vget_low_s16(w), vget_low_s16(x));
                    acc[1] = vmlal_high_s16(acc[1], w, x);
                }
            }
        }
        for (acc, sums) in acc.iter().zip(sums) {
            for (i, acc) in acc.as_chunks::<2>().0.iter().enumerate() {
                vst1q_s32(sums.as_mut_ptr().add(4 * i), vpaddq_s32(acc[0], acc[1]));
            }
        }
    }
}
