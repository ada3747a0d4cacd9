//! The product with AMX: two blocks of sixteen rows times two panels at a time. The order of additions
//! of its instruction is the one this module defines.

use super::{RUN_LINES, Task};
use crate::amx::{Finish, Product, Rows};
use crate::lanes::{LANES, array};
use crate::product::Line;
use crate::tiles::Order;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), `task` has halves, and the sizes of `task` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (width, packed, first) = (task.width(), task.packed, task.first_panel);
    let product = Product {
        inputs: task.halves.as_ptr().cast(),
        order: Order::Rows,
        rows: task.rows,
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: task.panels,
        steps: packed.groups() / RUN_LINES,
    };
    let finish = |rows: Rows<'_, f32>| {
        let panels = rows.panels();
        let bias = &packed.bias[first + panels.start..first + panels.end];
        rows.hand_to(&mut Stored { bias, column: panels.start * LANES, width, out });
    };
    // SAFETY: the caller vouches for AMX; there is memory for rows up to a multiple of 16 (see `Rounded`), and rows and panels
    // are as long as each other.
    unsafe { product.multiply(finish) };
}

/// Outputs as they are stored.
struct Stored<'a> {
    bias: &'a [Line],
    column: usize,
    width: usize,
    out: &'a mut [f32],
}

impl Finish<f32> for Stored<'_> {
    #[inline(always)]
    fn row(&mut self, row: usize, sums: &[[f32; LANES]; 2]) {
        let out = &mut self.out[row * self.width..][self.column..self.width];
        let panels = out.chunks_mut(LANES).zip(self.bias).zip(sums);
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
