//! The bfloat16 product with AMX: two blocks of sixteen rows times two panels at a time. The order of additions of its
//! instruction is the one `bfloat16` defines.

use std::ops::Range;

use super::{PARTIAL_LINES, Product};
use crate::gemm::amx::{TileEpilogue, TileProduct};
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::InputLayout;
use crate::isa::amx::TILE_ROWS;
use crate::isa::lanes::{LANES, array};

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), `product` has bfloat16 inputs, and the sizes of `product` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (width, packed, first) = (product.width, product.packed, product.first_panel);
    let whole = product.x.rows.next_multiple_of(TILE_ROWS) * product.x.stride;
    assert!(product.x.bfloats.len() >= whole, "whole tiles");
    let tile_product = TileProduct {
        inputs: product.x.bfloats.as_ptr().cast(),
        layout: InputLayout::RowMajor,
        rows: product.x.rows,
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: product.panels,
        steps: packed.groups() / PARTIAL_LINES,
        prefetch: product.prefetch,
    };
    let bias = &packed.bias[first..];
    // SAFETY: the caller guarantees AMX; rows and panels have the same number of inputs.
    unsafe { tile_product.multiply(&mut StoreFloat32 { bias, panels: 0..0, width, out }) };
}

/// Adds the bias and stores outputs.
struct StoreFloat32<'a> {
    /// The biases of all panels of the product.
    bias: &'a [Lanes<f32>],
    /// The panels of the current block.
    panels: Range<usize>,
    width: usize,
    out: &'a mut [f32],
}

// SAFETY: it starts no product.
unsafe impl TileEpilogue<f32> for StoreFloat32<'_> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        self.panels = panels;
        true
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, sums: &[[f32; LANES]; 2]) {
        let out = &mut self.out[row * self.width..][self.panels.start * LANES..self.width];
        let panels = out.chunks_mut(LANES).zip(&self.bias[self.panels.clone()]).zip(sums);
        panels.for_each(|((out, bias), sums)| add(sums, &bias.0, out));
    }
}

#[inline(always)]
fn add(sums: &[f32; LANES], bias: &[f32; LANES], out: &mut [f32]) {
    if let Ok(out) = <&mut [f32; LANES]>::try_from(&mut *out) {
        *out = array(|i| sums[i] + bias[i]);
    } else {
        out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias);
    }
}
