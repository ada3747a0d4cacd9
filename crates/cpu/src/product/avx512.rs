//! The product with AVX-512: tiles of up to 12 rows by 2 panels, 24 accumulators in registers.

use std::arch::x86_64::*;

use super::{Line, Task};
use crate::lanes::LANES;

const ROWS: usize = 12;

/// Where a tile reads and writes.
#[derive(Clone, Copy)]
struct Place {
    x: *const f32,
    lines: *const Line,
    bias: *const Line,
    inputs: usize,
    out: *mut f32,
    width: usize,
    /// Columns of the tile's last panel that exist.
    last: __mmask16,
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F, and the sizes of `task` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let inputs = task.packed.inputs;
    let (rows, width) = (task.rows(), task.outputs().len());
    let mut panel = 0;
    while panel < task.panels {
        let count = (task.panels - panel).min(2);
        let columns = width - panel * LANES;
        let in_last = columns - (count - 1) * LANES;
        let first = task.first_panel + panel;
        let mut row = 0;
        while row < rows {
            let height = (rows - row).min(ROWS);
            // SAFETY: `row`, `panel` and `first` stay below the sizes checked by the caller.
            unsafe {
                let place = Place {
                    x: task.x.as_ptr().add(row * inputs),
                    lines: task.packed.lines.as_ptr().add(first * inputs),
                    bias: task.packed.bias.as_ptr().add(first),
                    inputs,
                    out: out.as_mut_ptr().add(row * width + panel * LANES),
                    width,
                    last: if in_last >= LANES { !0 } else { (1 << in_last) - 1 },
                };
                if count == 2 { tile_of::<2>(height, place) } else { tile_of::<1>(height, place) }
            }
            row += height;
        }
        panel += count;
    }
}

/// Picks the kernel of a height.
///
/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f")]
unsafe fn tile_of<const PANELS: usize>(height: usize, place: Place) {
    // SAFETY: passed on from the caller.
    unsafe {
        match height {
            1 => tile::<1, PANELS>(place),
            2 => tile::<2, PANELS>(place),
            3 => tile::<3, PANELS>(place),
            4 => tile::<4, PANELS>(place),
            5 => tile::<5, PANELS>(place),
            6 => tile::<6, PANELS>(place),
            7 => tile::<7, PANELS>(place),
            8 => tile::<8, PANELS>(place),
            9 => tile::<9, PANELS>(place),
            10 => tile::<10, PANELS>(place),
            11 => tile::<11, PANELS>(place),
            _ => tile::<ROWS, PANELS>(place),
        }
    }
}

/// `R` rows of `x` times `PANELS` panels.
///
/// # Safety
/// AVX-512F; `R` rows of `inputs` numbers at `x`; `PANELS` panels of `inputs` lines at `lines` and as
/// many lines at `bias`; `R` rows at `out`, `width` apart, with room for the tile's columns.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const PANELS: usize>(place: Place) {
    let Place { x, lines, bias, inputs, out, width, last } = place;
    // SAFETY: every address is inside what the caller vouches for.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_ps(bias.add(p).cast());
            }
        }
        for k in 0..inputs {
            let mut w = [_mm512_setzero_ps(); PANELS];
            for (p, w) in w.iter_mut().enumerate() {
                *w = _mm512_load_ps(lines.add(p * inputs + k).cast());
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(r * inputs + k));
                for (sum, w) in row.iter_mut().zip(w) {
                    *sum = _mm512_fmadd_ps(x, w, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (p, sum) in row.iter().enumerate() {
                let mask = if p + 1 == PANELS { last } else { !0 };
                _mm512_mask_storeu_ps(out.add(r * width + p * LANES), mask, *sum);
            }
        }
    }
}
