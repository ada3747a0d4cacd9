//! The int8 product in plain Rust: the reference for the other kernels, and the fallback.

use super::Product;
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    let rows = product.x.bytes.chunks_exact(product.x.stride).zip(product.x.scales);
    for ((bytes, &row_scale), out) in rows.zip(out.chunks_exact_mut(width)) {
        for (panel, out) in out.chunks_mut(LANES).enumerate() {
            let panel = product.first_panel + panel;
            let mut sums = product.packed.starts[panel].0;
            let lines = &product.packed.lines[panel * groups..][..groups];
            for (x, line) in bytes.as_chunks::<4>().0.iter().zip(lines) {
                for (sum, w) in sums.iter_mut().zip(&line.0) {
                    *sum += (0..4).map(|i| i32::from(x[i]) * i32::from(w[i])).sum::<i32>();
                }
            }
            let (scales, bias) = (&product.packed.scales[panel].0, &product.packed.bias[panel].0);
            for (i, out) in out.iter_mut().enumerate() {
                let y = sums[i] as f32 * (scales[i] * row_scale) + bias[i];
                *out = if product.relu && y < 0.0 { 0.0 } else { y };
            }
        }
    }
}

/// As [`multiply`] with int16 sums that saturate: each pair of products is added to a sum of its own, as `vpmaddubsw` and `vpaddsw`
/// do it.
pub(super) fn multiply_saturating(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    let rows = product.x.bytes.chunks_exact(product.x.stride).zip(product.x.scales);
    for ((bytes, &row_scale), out) in rows.zip(out.chunks_exact_mut(width)) {
        for (i, out) in out.iter_mut().enumerate() {
            let (panel, lane) = (product.first_panel + i / LANES, i % LANES);
            let lines = &product.packed.lines[panel * groups..][..groups];
            let mut sums = [0i16; 2];
            for (x, line) in bytes.as_chunks::<4>().0.iter().zip(lines) {
                let product = |k: usize| (i16::from(x[k]) - 128) * i16::from(line.0[lane][k]);
                sums[0] = sums[0].saturating_add(product(0) + product(1));
                sums[1] = sums[1].saturating_add(product(2) + product(3));
            }
            let sum = i32::from(sums[0]) + i32::from(sums[1]);
            let y = sum as f32 * (product.packed.scales[panel].0[lane] * row_scale)
                + product.packed.bias[panel].0[lane];
            *out = if product.relu && y < 0.0 { 0.0 } else { y };
        }
    }
}
