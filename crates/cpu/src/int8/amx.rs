//! The integer product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use std::arch::x86_64::*;
use std::ops::Range;

use super::avx512vnni::{Scales, lanes_of};
use super::{PIECE, Piece, Take, Task};
use crate::amx::{Finish, Product, Rows};
use crate::half::Half;
use crate::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let width = task.width();
    let out = out.as_mut_ptr();
    let finish = |rows: Rows<'_, i32>| {
        let panels = rows.panels();
        let to = out.wrapping_add(panels.start * LANES);
        // SAFETY: panels of `task`.
        let ends = unsafe { End::of_both(task, panels) };
        rows.hand_to(&mut Stored { ends, steps: task.steps, to, width });
    };
    // SAFETY: the caller vouches for AMX; there is memory for rows up to a multiple of 16 (see `Quantised`), and rows and panels
    // are as long as each other.
    unsafe { product(task).multiply(finish) };
}

/// See [`super::multiply_to_halves`].
///
/// # Safety
/// As above; all panels come in twos.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply_to_halves(task: Task<'_>, out: &mut [[Half; PIECE]]) {
    let rows = task.steps.len();
    let finish = |piece: Rows<'_, i32>| {
        let panels = piece.panels();
        let to = &mut out[panels.start / 2 * rows..][..rows];
        // SAFETY: panels of `task`.
        let ends = unsafe { End::of_both(task, panels) };
        piece.hand_to(&mut Halved { ends, steps: task.steps, to });
    };
    // SAFETY: as above.
    unsafe { product(task).multiply(finish) };
}

/// See [`super::multiply_in_pieces`].
///
/// # Safety
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub(super) unsafe fn multiply_in_pieces(task: Task<'_>, take: &mut impl Take) {
    let finish = |rows: Rows<'_, i32>| {
        let (first, panels, all) = (rows.first(), rows.panels(), rows.sums());
        // SAFETY: as above.
        let ends = unsafe { End::of_both(task, panels.clone()) };
        let column = (task.first_panel + panels.start) * LANES;
        let mut taken =
            Taken { ends, steps: task.steps, column, first, take: &mut *take, refused: 0 };
        rows.hand_to(&mut taken);
        let refused = taken.refused;
        // A call in the loop above would have it keep nothing in registers.
        if refused != 0 {
            again((task, panels), (first, all), refused, take);
        }
    };
    // SAFETY: as above.
    unsafe { product(task).multiply(finish) };
}

/// Outputs as they are stored.
struct Stored<'a> {
    ends: [End; 2],
    steps: &'a [f32],
    /// The first row's, from the first panel on,
    to: *mut f32,
    /// and from one row to the next.
    width: usize,
}

impl Finish<i32> for Stored<'_> {
    #[inline(always)]
    fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        let to = self.to.wrapping_add(row * self.width);
        // SAFETY: `multiply`, which makes these, has the instructions; a row and panels of its task, for which its caller has
        // checked that there is room.
        unsafe {
            self.ends[0].store(left, self.steps[row], to);
            self.ends[1].store(right, self.steps[row], to.wrapping_add(LANES));
        }
    }
}

/// Outputs as they are stored in half precision.
struct Halved<'a> {
    ends: [End; 2],
    steps: &'a [f32],
    /// Each row's.
    to: &'a mut [[Half; PIECE]],
}

impl Finish<i32> for Halved<'_> {
    #[inline(always)]
    fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        // SAFETY: `multiply_to_halves`, which makes these, has the instructions; both stores are of 16 halves.
        unsafe {
            let (to_left, to_right) = self.to[row].split_at_mut(LANES);
            let halves = |end: End, sums| {
                let outputs = end.scales.apply_with_floor(end.started(sums), self.steps[row]);
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(outputs)
            };
            _mm256_storeu_si256(to_left.as_mut_ptr().cast(), halves(self.ends[0], left));
            _mm256_storeu_si256(to_right.as_mut_ptr().cast(), halves(self.ends[1], right));
        }
    }
}

/// Outputs as somebody takes them.
struct Taken<'a, T> {
    ends: [End; 2],
    steps: &'a [f32],
    column: usize,
    first: usize,
    take: &'a mut T,
    /// Rows, from the first on, that have been refused.
    refused: u32,
}

impl<T: Take> Finish<i32> for Taken<'_, T> {
    #[inline(always)]
    fn row(&mut self, row: usize, sums: &[[i32; LANES]; 2]) {
        // SAFETY: `multiply_in_pieces`, which makes these, has the instructions.
        let piece = unsafe { End::piece(self.ends, sums, self.steps[row]) };
        let taken = self.take.piece::<true>(row, self.column, piece);
        self.refused |= u32::from(!taken) << (row - self.first);
    }
}

/// Hands out what has been refused once more.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
#[cold]
#[inline(never)]
fn again(
    (task, panels): (Task<'_>, Range<usize>),
    (first, sums): (usize, &[[[i32; LANES]; 2]]),
    mut refused: u32,
    take: &mut impl Take,
) {
    let column = (task.first_panel + panels.start) * LANES;
    // SAFETY: as above.
    let ends = unsafe { End::of_both(task, panels) };
    while refused != 0 {
        let i = refused.trailing_zeros() as usize;
        let piece = End::piece(ends, &sums[i], task.steps[first + i]);
        take.again::<true>(first + i, column, piece);
        refused &= refused - 1;
    }
}

fn product(task: Task<'_>) -> Product {
    let (packed, first) = (task.packed, task.first_panel);
    Product {
        inputs: task.bytes.as_ptr(),
        order: task.order,
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
    /// Its columns that exist.
    lanes: __mmask16,
}

impl End {
    /// Where there is no second panel, none of its columns exists.
    ///
    /// # Safety
    /// They are panels of `task`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn of_both(task: Task<'_>, panels: Range<usize>) -> [End; 2] {
        // SAFETY: the caller's.
        let end = |panel: usize, columns: usize| unsafe {
            let scales = Scales::of(task, panel);
            let start = task.packed.starts.as_ptr().add(task.first_panel + panel);
            End { start: _mm512_loadu_si512(start.cast()), scales, lanes: lanes_of(columns) }
        };
        let columns = task.width() - panels.start * LANES;
        [end(panels.start, columns), end(panels.end - 1, columns.saturating_sub(LANES))]
    }

    /// What both make of a row's sums.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn piece([l, r]: [End; 2], [left, right]: &[[i32; LANES]; 2], step: f32) -> Piece {
        // SAFETY: a register is sixteen floats.
        unsafe { std::mem::transmute([l.outputs(left, step), r.outputs(right, step)]) }
    }

    /// A row's outputs, negative ones as well; columns that do not exist are at negative infinity.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn outputs(self, sums: &[i32; LANES], step: f32) -> __m512 {
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        _mm512_mask_mov_ps(none, self.lanes, self.scales.apply(self.started(sums), step))
    }

    /// # Safety
    /// There is room for the panel's columns at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(self, sums: &[i32; LANES], step: f32, to: *mut f32) {
        let outputs = self.scales.apply_with_floor(self.started(sums), step);
        // SAFETY: what the caller vouches for.
        unsafe { _mm512_mask_storeu_ps(to, self.lanes, outputs) };
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn started(self, sums: &[i32; LANES]) -> __m512i {
        // SAFETY: sixteen integers.
        _mm512_add_epi32(unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) }, self.start)
    }
}
