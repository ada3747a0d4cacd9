//! The integer product with AVX-512 VNNI: one instruction multiplies and adds 64 bytes. Tiles of up
//! to 12 rows by 2 panels, 24 accumulators in registers.

use std::arch::x86_64::*;

use super::{Bytes, Packed8, Task};
use crate::lanes::LANES;

const ROWS: usize = 12;

/// Where a tile reads and writes.
#[derive(Clone, Copy)]
struct Place<'a> {
    x: *const u8,
    stride: usize,
    row_steps: *const f32,
    packed: &'a Packed8,
    panel: usize,
    out: *mut f32,
    width: usize,
    /// Columns of the tile's last panel that exist.
    last: __mmask16,
    relu: bool,
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F and VNNI, and the sizes of `task` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (rows, width) = (task.steps.len(), task.width());
    let mut panel = 0;
    while panel < task.panels {
        let count = (task.panels - panel).min(2);
        let in_last = width - (panel + count - 1) * LANES;
        let mut row = 0;
        while row < rows {
            let height = (rows - row).min(ROWS);
            // SAFETY: `row` and `panel` stay below the sizes checked by the caller.
            unsafe {
                let place = Place {
                    x: task.bytes.as_ptr().add(row * task.stride),
                    stride: task.stride,
                    row_steps: task.steps.as_ptr().add(row),
                    packed: task.packed,
                    panel: task.first_panel + panel,
                    out: out.as_mut_ptr().add(row * width + panel * LANES),
                    width,
                    last: if in_last >= LANES { !0 } else { (1 << in_last) - 1 },
                    relu: task.relu,
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
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn tile_of<const PANELS: usize>(height: usize, place: Place<'_>) {
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

/// `R` rows times `PANELS` panels.
///
/// # Safety
/// AVX-512F and VNNI; `R` rows of `stride` bytes at `x` and as many steps at `row_steps`; panels
/// `panel .. panel + PANELS` exist and have `stride / 4` lines each; `R` rows at `out`, `width` apart,
/// with room for the tile's columns.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn tile<const R: usize, const PANELS: usize>(place: Place<'_>) {
    let Place { x, stride, row_steps, packed, panel, out, width, last, relu } = place;
    let groups = stride / 4;
    // SAFETY: every address is inside what the caller vouches for.
    unsafe {
        let lines: *const Bytes = packed.lines.as_ptr().add(panel * groups);
        let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_si512(packed.starts.as_ptr().add(panel + p).cast());
            }
        }
        for g in 0..groups {
            let mut w = [_mm512_setzero_si512(); PANELS];
            for (p, w) in w.iter_mut().enumerate() {
                *w = _mm512_load_si512(lines.add(p * groups + g).cast());
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let four = x.add(r * stride + g * 4).cast::<i32>().read_unaligned();
                let x = _mm512_set1_epi32(four);
                for (sum, w) in row.iter_mut().zip(w) {
                    *sum = _mm512_dpbusd_epi32(*sum, x, w);
                }
            }
        }
        let floor = if relu { _mm512_setzero_ps() } else { _mm512_set1_ps(f32::NEG_INFINITY) };
        for (r, row) in sums.iter().enumerate() {
            let row_step = _mm512_set1_ps(*row_steps.add(r));
            for (p, sum) in row.iter().enumerate() {
                let step = _mm512_load_ps(packed.steps.as_ptr().add(panel + p).cast());
                let bias = _mm512_load_ps(packed.bias.as_ptr().add(panel + p).cast());
                // Not fused: every kernel must round alike.
                let y = _mm512_mul_ps(_mm512_cvtepi32_ps(*sum), _mm512_mul_ps(step, row_step));
                let y = _mm512_max_ps(_mm512_add_ps(y, bias), floor);
                let mask = if p + 1 == PANELS { last } else { !0 };
                _mm512_mask_storeu_ps(out.add(r * width + p * LANES), mask, y);
            }
        }
    }
}
