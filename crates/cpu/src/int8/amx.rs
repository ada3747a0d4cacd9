//! The integer product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use std::arch::x86_64::*;

use super::avx512vnni::{Scales, lanes_of};
use super::{Piece, Take, Task};
use crate::amx::{Block, Product, ROWS};
use crate::lanes::{LANES, array};

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let width = task.width();
    let out = out.as_mut_ptr();
    let finish = |block: Block<'_, i32>| {
        // SAFETY: the rows and panels of `task`, for which the caller has checked that there is room in `out`.
        unsafe {
            let ends: [End; 2] =
                array(|side| End::of(task, (block.panel + side).min(task.panels - 1)));
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
    unsafe { product(task).multiply(finish) };
}

/// See [`super::multiply_in_pieces`]; the rows of `task` are those from `first_row` on.
///
/// # Safety
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub(super) unsafe fn multiply_in_pieces(task: Task<'_>, first_row: usize, take: &mut impl Take) {
    let finish = |block: Block<'_, i32>| {
        let ends: [End; 2] = array(|side| End::of(task, (block.panel + side).min(task.panels - 1)));
        let column = (task.first_panel + block.panel) * LANES;
        for (half, [left, right]) in block.halves.into_iter().enumerate() {
            for (r, sums) in left.iter().enumerate() {
                let row = block.row + half * ROWS + r;
                let step = task.steps[row];
                let left = ends[0].outputs(sums, step);
                let right = match right.get(r) {
                    Some(sums) => ends[1].outputs(sums, step),
                    None => _mm512_set1_ps(f32::NEG_INFINITY),
                };
                // SAFETY: a register is sixteen floats.
                let piece: Piece = unsafe { std::mem::transmute([left, right]) };
                take.piece::<true>(first_row + row, column, piece);
            }
        }
    };
    // SAFETY: as above.
    unsafe { product(task).multiply(finish) };
}

fn product(task: Task<'_>) -> Product {
    let (packed, first) = (task.packed, task.first_panel);
    Product {
        inputs: task.bytes.as_ptr(),
        stride: task.stride,
        rows: task.steps.len(),
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: task.panels,
        steps: task.stride / 64,
    }
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

    /// A row's outputs; columns that do not exist are at negative infinity.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn outputs(self, sums: &[i32; LANES], step: f32) -> __m512 {
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        _mm512_mask_mov_ps(none, self.lanes, self.all_outputs(sums, step))
    }

    /// # Safety
    /// There is room for the panel's columns at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(self, sums: &[i32; LANES], step: f32, to: *mut f32) {
        // SAFETY: what the caller vouches for.
        unsafe { _mm512_mask_storeu_ps(to, self.lanes, self.all_outputs(sums, step)) };
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn all_outputs(self, sums: &[i32; LANES], step: f32) -> __m512 {
        // SAFETY: sixteen integers.
        let sums = unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
        self.scales.apply(_mm512_add_epi32(sums, self.start), step)
    }
}
