//! The integer product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use std::arch::x86_64::*;
use std::ops::Range;

use super::avx512vnni::{Scales, lanes_of};
use super::{PIECE, Piece, RegisterSink, ScoreSink, Task};
use crate::gemm::amx::{Finish, Product};
use crate::gemm::tiles::TILE_ROWS;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let mut finish =
        Stored { task, ends: NO_PANELS, width: task.width(), out: out.as_mut_ptr(), column: 0 };
    // SAFETY: the caller vouches for AMX; rows and panels are as long as each other.
    unsafe { product(task).multiply(&mut finish) };
}

/// See [`super::multiply_to_halves`].
///
/// # Safety
/// The processor has AMX, and there is room for each row's outputs, which are whole pieces.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply_to_halves(task: Task<'_>, out: &mut [[Float16; PIECE]]) {
    let mut finish = Halved { task, ends: NO_PANELS, out, first: 0 };
    // SAFETY: as above.
    unsafe { product(task).multiply(&mut finish) };
}

/// See [`super::multiply_in_pieces`].
///
/// # Safety
/// The processor has AMX, and `take` has the rows of `task`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub(super) unsafe fn multiply_in_pieces(task: Task<'_>, take: &mut impl ScoreSink) {
    let mut finish =
        Taken { task, ends: NO_PANELS, panels: 0..0, register_sink: None, taken: 0, bit: 1, take };
    // SAFETY: as above.
    unsafe { product(task).multiply(&mut finish) };
}

/// Outputs as they are stored.
struct Stored<'a> {
    task: Task<'a>,
    ends: [End; 2],
    /// The first row's,
    out: *mut f32,
    /// from one row to the next,
    width: usize,
    /// and the first column of those that come now.
    column: usize,
}

// SAFETY: it starts no product.
unsafe impl Finish<i32> for Stored<'_> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        self.column = panels.start * LANES;
        // SAFETY: `multiply`, which makes these, has the instructions; the caller's: panels of the task.
        self.ends = unsafe { End::of_both(self.task, panels) };
        true
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        let to = self.out.wrapping_add(row * self.width + self.column);
        // SAFETY: as above; a row and panels of the task, for which the caller of `multiply` has checked that there is room.
        unsafe {
            let scale = *self.task.scales.get_unchecked(row);
            self.ends[0].store(left, scale, to);
            self.ends[1].store(right, scale, to.wrapping_add(LANES));
        }
    }
}

/// Outputs as they are stored in half precision.
struct Halved<'a> {
    task: Task<'a>,
    ends: [End; 2],
    out: &'a mut [[Float16; PIECE]],
    /// The first row's place.
    first: usize,
}

// SAFETY: it starts no product.
unsafe impl Finish<i32> for Halved<'_> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        self.first = panels.start / 2 * self.task.scales.len();
        // SAFETY: `multiply_to_halves`, which makes these, has the instructions; the caller's: panels of the task.
        self.ends = unsafe { End::of_both(self.task, panels) };
        true
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        let to = &mut self.out[self.first + row];
        // SAFETY: as above; a row of the task; both stores are of 16 halves.
        unsafe {
            let scale = *self.task.scales.get_unchecked(row);
            let (to_left, to_right) = to.split_at_mut(LANES);
            let halves = |end: End, sums| {
                let outputs = end.scales.apply_with_floor(load(sums), scale);
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(outputs)
            };
            _mm256_storeu_si256(to_left.as_mut_ptr().cast(), halves(self.ends[0], left));
            _mm256_storeu_si256(to_right.as_mut_ptr().cast(), halves(self.ends[1], right));
        }
    }
}

/// Outputs as somebody takes them.
struct Taken<'a, T: ScoreSink> {
    task: Task<'a>,
    ends: [End; 2],
    panels: Range<usize>,
    /// Who hears them first,
    register_sink: Option<T::RegisterSink>,
    /// which rows, a bit each, have been taken,
    taken: u32,
    /// and the next one's bit.
    bit: u32,
    take: &'a mut T,
}

// SAFETY: it starts no product, and nor does a `ScoreSink`.
unsafe impl<T: ScoreSink> Finish<i32> for Taken<'_, T> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        // SAFETY: `multiply_in_pieces`, which makes these, has the instructions; the caller's: panels of the task.
        self.ends = unsafe { End::of_both(self.task, panels.clone()) };
        self.panels = panels;
        self.register_sink = self.take.register_sink(self.column());
        (self.taken, self.bit) = (0, 1);
        self.register_sink.is_some()
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, sums: &[[i32; LANES]; 2]) {
        let Some(register_sink) = self.register_sink else { return };
        // SAFETY: as above; a row of the task, of which `take` has as many, and which has been left alone since `begin`.
        let taken = unsafe {
            let scale = *self.task.scales.get_unchecked(row);
            register_sink.accept(row, End::piece(self.ends, sums, scale))
        };
        self.taken |= self.bit & 0u32.wrapping_sub(u32::from(taken));
        self.bit <<= 1;
    }

    #[inline(always)]
    unsafe fn end(&mut self, row: usize, sums: &[[[i32; LANES]; 2]]) {
        let refused = !self.taken & u32::MAX >> (u32::BITS - sums.len() as u32);
        // A call in the loop of rows would have it keep nothing in registers.
        if refused != 0 {
            // SAFETY: as above; `begin` was given panels of the task.
            unsafe {
                again(
                    (self.task, self.panels.clone()),
                    (row, sums),
                    (refused, self.register_sink.is_some()),
                    self.take,
                )
            };
        }
        self.take.end(row..row + sums.len(), self.column());
    }
}

impl<T: ScoreSink> Taken<'_, T> {
    fn column(&self) -> usize {
        (self.task.first_panel + self.panels.start) * LANES
    }
}

/// Hands out what has been refused, of rows from the given one on. What it is given stays in registers: not all of `Taken`.
///
/// # Safety
/// They are panels of the task.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
#[cold]
#[inline(never)]
unsafe fn again(
    (task, panels): (Task<'_>, Range<usize>),
    (first, sums): (usize, &[[[i32; LANES]; 2]]),
    (mut refused, heard): (u32, bool),
    take: &mut impl ScoreSink,
) {
    let column = (task.first_panel + panels.start) * LANES;
    // SAFETY: the caller's.
    let ends = unsafe { End::of_both(task, panels) };
    while refused != 0 {
        let i = refused.trailing_zeros() as usize;
        let piece = End::piece(ends, &sums[i], task.scales[first + i]);
        let threshold = _mm512_set1_ps(take.threshold(first + i));
        let above = piece.map(|half| u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(half, threshold)));
        // SAFETY: a register is sixteen floats.
        let piece = unsafe { std::mem::transmute::<[__m512; 2], Piece>(piece) };
        take.again::<true>(first + i, column, (piece, above[0] | above[1] << LANES), heard);
        refused &= refused - 1;
    }
}

fn product(task: Task<'_>) -> Product {
    let (packed, first, rows) = (task.packed, task.first_panel, task.scales.len());
    assert!(task.memory.len() >= rows.next_multiple_of(TILE_ROWS) * task.stride, "whole tiles");
    Product {
        inputs: task.memory.as_ptr(),
        order: task.order,
        rows,
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: task.panels,
        starts: Some(packed.starts[first..].as_ptr().cast()),
        steps: task.stride / 64,
        prefetch: task.prefetch,
    }
}

/// What turns a panel's sums into outputs.
#[derive(Clone, Copy)]
struct End {
    scales: Scales,
    /// Its columns that exist.
    lanes: __mmask16,
}

/// Before there is one.
// SAFETY: numbers and a mask, which may be zero.
const NO_PANELS: [End; 2] = unsafe { std::mem::zeroed() };

impl End {
    /// Where there is no second panel, none of its columns exists.
    ///
    /// # Safety
    /// They are panels of `task`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn of_both(task: Task<'_>, panels: Range<usize>) -> [End; 2] {
        // What does not exist is at negative infinity.
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        // SAFETY: the caller's.
        let end = |panel: usize, columns: usize| unsafe {
            let mut scales = Scales::of(task, panel);
            let lanes = lanes_of(columns);
            scales.bias = _mm512_mask_mov_ps(none, lanes, scales.bias);
            End { scales, lanes }
        };
        let columns = task.width() - panels.start * LANES;
        [end(panels.start, columns), end(panels.end - 1, columns.saturating_sub(LANES))]
    }

    /// What both make of a row's sums.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn piece([l, r]: [End; 2], [left, right]: &[[i32; LANES]; 2], scale: f32) -> [__m512; 2] {
        [l.scales.apply(load(left), scale), r.scales.apply(load(right), scale)]
    }

    /// # Safety
    /// There is room for the panel's columns at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(self, sums: &[i32; LANES], scale: f32, to: *mut f32) {
        let outputs = self.scales.apply_with_floor(load(sums), scale);
        // SAFETY: what the caller vouches for.
        unsafe { _mm512_mask_storeu_ps(to, self.lanes, outputs) };
    }
}

/// A row's sums of a panel.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(sums: &[i32; LANES]) -> __m512i {
    // SAFETY: sixteen integers.
    unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) }
}
