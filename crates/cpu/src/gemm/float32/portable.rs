//! The float32 product in plain Rust: the reference for the other kernels, and the fallback.

use super::Product;
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let inputs = product.packed.inputs;
    let width = product.width;
    for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
        let panel = product.first_panel + panel;
        let lines = &product.packed.lines[panel * inputs..][..inputs];
        for (x, out) in product.x.chunks_exact(inputs).zip(out.chunks_exact_mut(width)) {
            let mut sums = product.packed.bias[panel].0;
            for (&x, line) in x.iter().zip(lines) {
                for (sum, w) in sums.iter_mut().zip(&line.0) {
                    *sum += x * w;
                }
            }
            let out = &mut out[columns..width.min(columns + LANES)];
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}
