//! The integer product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use std::arch::x86_64::*;

use super::Task;
use super::avx512vnni::{Scales, lanes_of};
use crate::amx::{Block, Product, ROWS};
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
    let finish = |block: Block<'_, i32>| {
        // SAFETY: the rows and panels of `task`, for which the caller has checked that there is room in `out`.
        unsafe {
            let ends = [0, 1].map(|side| End::of(task, (block.panel + side).min(task.panels - 1)));
            let to = out.add(block.row * width + block.panel * LANES);
            for (half, [left, right]) in block.halves.into_iter().enumerate() {
                for (r, sums) in left.iter().enumerate() {
                    let row = half * ROWS + r;
                    let (to, step) = (to.add(row * width), task.steps[block.row + row]);
                    ends[0].store(sums, step, to);
                    if let Some(sums) = right.get(r) {
                        ends[1].store(sums, step, to.add(LANES));
                    }
                }
            }
        }
    };
    // SAFETY: the caller vouches for AMX; there is memory for rows up to a multiple of 16 (see `Quantised`), and rows and panels
    // are as long as each other.
    unsafe { product.multiply(finish) };
}

/// What turns a panel's sums, which start at zero, into outputs.
#[derive(Clone, Copy)]
struct End {
    start: __m512i,
    scales: Scales,
    lanes: __mmask16,
}

impl End {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn of(task: Task<'_>, panel: usize) -> End {
        let start = &task.packed.starts[task.first_panel + panel].0;
        // SAFETY: sixteen integers.
        let start = unsafe { _mm512_loadu_si512(start.as_ptr().cast()) };
        let lanes = lanes_of(task.width() - panel * LANES);
        End { start, scales: Scales::of(task, panel), lanes }
    }

    /// # Safety
    /// There is room for the panel's columns at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(self, sums: &[i32; LANES], step: f32, to: *mut f32) {
        // SAFETY: sixteen integers, and what the caller vouches for.
        unsafe {
            let sums = _mm512_add_epi32(_mm512_loadu_si512(sums.as_ptr().cast()), self.start);
            _mm512_mask_storeu_ps(to, self.lanes, self.scales.apply(sums, step));
        }
    }
}
