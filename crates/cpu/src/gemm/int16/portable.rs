//! The int16 product in plain Rust: the reference for the other kernels, and the fallback.

use super::Product;
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * groups..][..groups];
        let bias = &product.packed.bias[panel].0;
        let rows = product.x.values.chunks_exact(product.x.stride).zip(product.x.scales);
        for ((x, scale), out) in rows.zip(out.chunks_exact_mut(width)) {
            let mut sums = [0i32; LANES];
            for (x, line) in x.as_chunks::<2>().0.iter().zip(lines) {
                for (sum, w) in sums.iter_mut().zip(&line.0) {
                    *sum += i32::from(x[0]) * i32::from(w[0]) + i32::from(x[1]) * i32::from(w[1]);
                }
            }
            let out = &mut out[columns..width.min(columns + LANES)];
            for ((out, sum), bias) in out.iter_mut().zip(sums).zip(bias) {
                *out = sum as f32 * scale + bias;
            }
        }
    }
}
