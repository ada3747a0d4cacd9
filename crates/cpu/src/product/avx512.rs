//! The product with AVX-512: tiles of up to 12 rows by 2 panels, or 6 by 4: 24 accumulators in registers
//! at most. The next panels' weights are asked for while these are multiplied.

use std::arch::x86_64::*;

use super::{Line, Task};
use crate::lanes::LANES;
use crate::tiles::{Tile, of_shape, panels_for, tiles};

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F, and the sizes of `task` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let width = task.outputs().len();
    let rows = task.rows();
    for place in tiles(rows, task.panels, width, panels_for(rows)) {
        // SAFETY: tiles stay inside the rows and panels whose sizes the caller has checked.
        unsafe {
            let out = out.as_mut_ptr().add(place.row * width + place.panel * LANES);
            of_shape!(place.rows, place.panels, R, P => tile::<R, P>(task, place, out, width))
        }
    }
}

/// `R` rows of `x` times `PANELS` panels.
///
/// # Safety
/// AVX-512F; `place` is inside `task` and has `R` rows and `PANELS` panels; `R` rows at `out`, `width`
/// apart, have room for the tile's columns.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    task: Task<'_>,
    place: Tile,
    out: *mut f32,
    width: usize,
) {
    let (inputs, panel) = (task.packed.inputs, task.first_panel + place.panel);
    let last = ((1u32 << place.in_last) - 1) as __mmask16;
    // SAFETY: every address is inside what the caller vouches for; what is only prefetched need not be.
    unsafe {
        let x = task.x.as_ptr().add(place.row * inputs);
        let lines = task.packed.lines.as_ptr().add(panel * inputs);
        let bias = task.packed.bias.as_ptr().add(panel);
        // This tile's share of the next panels, spread over its own steps.
        let (share, shares) = place.share;
        let next = lines.wrapping_add(PANELS * inputs).cast::<i8>();
        let ahead = next.wrapping_add(PANELS * inputs * size_of::<Line>() / shares * share);
        let pace = PANELS * size_of::<Line>() / shares;
        let mut sums = [[_mm512_setzero_ps(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_ps(bias.add(p).cast());
            }
        }
        for k in 0..inputs {
            if shares == 1 {
                for line in 0..PANELS {
                    let line = (k * PANELS + line) * size_of::<Line>();
                    _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(line));
                }
            } else {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(k * pace));
            }
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
