//! The product with AMX: two blocks of sixteen rows times two panels at a time. The order of additions
//! of its instruction is the one this module defines.

use std::ops::Range;

use super::{RUN_LINES, Task};
use crate::gemm::amx::{Finish, Product};
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::{Order, TILE_ROWS};
use crate::isa::lanes::{LANES, array};

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), `task` has halves, and the sizes of `task` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (width, packed, first) = (task.width(), task.packed, task.first_panel);
    let whole = task.rows.next_multiple_of(TILE_ROWS) * task.stride;
    assert!(task.halves.len() >= whole, "whole tiles");
    let product = Product {
        inputs: task.halves.as_ptr().cast(),
        order: Order::Rows,
        rows: task.rows,
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: task.panels,
        starts: None,
        steps: packed.groups() / RUN_LINES,
        prefetch: task.prefetch,
    };
    let bias = &packed.bias[first..];
    // SAFETY: the caller vouches for AMX; rows and panels are as long as each other.
    unsafe { product.multiply(&mut Stored { bias, panels: 0..0, width, out }) };
}

/// Outputs as they are stored.
struct Stored<'a> {
    /// Of all panels,
    bias: &'a [Lanes<f32>],
    /// of which these are worked on.
    panels: Range<usize>,
    width: usize,
    out: &'a mut [f32],
}

// SAFETY: it starts no product.
unsafe impl Finish<f32> for Stored<'_> {
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
