//! The bfloat16 product in plain Rust: the reference for the other kernels, and the fallback.

use super::{PARTIAL, PARTIAL_LINES, Product};
use crate::isa::lanes::LANES;

/// See [`super::multiply`], which has checked the sizes.
pub(super) fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (groups, width) = (product.packed.groups(), product.width);
    for (x, out) in product.x.floats.chunks_exact(product.x.stride).zip(out.chunks_exact_mut(width))
    {
        for (panel, out) in out.chunks_mut(LANES).enumerate() {
            let panel = product.first_panel + panel;
            let lines = &product.packed.lines[panel * groups..][..groups];
            let mut total = [0.0; LANES];
            for (x, lines) in x.chunks_exact(PARTIAL).zip(lines.chunks_exact(PARTIAL_LINES)) {
                let mut sums = [[0.0; 2]; LANES];
                for (x, line) in x.as_chunks::<2>().0.iter().zip(lines) {
                    for (sums, w) in sums.iter_mut().zip(&line.0) {
                        for i in 0..2 {
                            sums[i] += x[i] * f32::from_bits(u32::from(w[i]) << 16);
                        }
                    }
                }
                for (total, sums) in total.iter_mut().zip(sums) {
                    *total += sums[0] + sums[1];
                }
            }
            for ((out, total), bias) in out.iter_mut().zip(total).zip(&product.packed.bias[panel].0)
            {
                *out = total + bias;
            }
        }
    }
}
