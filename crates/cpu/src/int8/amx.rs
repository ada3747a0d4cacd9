//! The integer product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use std::arch::x86_64::*;
use std::ptr;

use super::Task;
use super::avx512vnni::{Scales, lanes_of};
use crate::amx::Product;
use crate::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (width, packed, first) = (task.width(), task.packed, task.first_panel);
    let product = Product {
        inputs: task.bytes.as_ptr(),
        stride: task.stride,
        rows: task.steps.len(),
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: task.panels,
        steps: task.stride / 64,
    };
    let out = out.as_mut_ptr();
    let finish = |row: usize, panel: usize, sums: &[[i32; LANES]]| {
        // SAFETY: the rows and panels of `task`, for which the caller has checked that there is room in `out`.
        unsafe {
            let scales = Scales::of(task, panel);
            let lanes = lanes_of(width - panel * LANES);
            for (r, sum) in sums.iter().enumerate() {
                let sum = _mm512_load_si512(ptr::from_ref(sum).cast());
                let y = scales.apply(sum, task.steps[row + r]);
                _mm512_mask_storeu_ps(out.add((row + r) * width + panel * LANES), lanes, y);
            }
        }
    };
    // SAFETY: the caller vouches for AMX; there is memory for rows up to a multiple of 16 (see `Quantised`), and rows and panels
    // are as long as each other.
    unsafe { product.multiply(|panel| &packed.starts[first + panel].0, finish) };
}
