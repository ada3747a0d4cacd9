//! The product with AVX-512: tiles of up to 12 rows by 2 panels, or 6 by 4: 24 accumulators in registers
//! at most. The next panels' weights are asked for while these are multiplied.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::Task;
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::{Tile, of_shape, opaque, panels_for, tiles};
use crate::isa::lanes::{LANES, array};
use crate::memory::prefetch;

/// Rows so many bytes apart share the same few places of the first cache, and push each other out.
const SAME_SETS: usize = 4096;

/// Rows that fit those places.
const FEW_ROWS: usize = 8;

/// Inputs up to which four panels leave room for rows in the second cache.
const SHORT: usize = 1024;

thread_local! {
    /// Rows copied a bit further apart.
    static APART: RefCell<Vec<f32>> = RefCell::default();
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F, and the sizes of `task` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let inputs = task.packed.inputs;
    if task.rows() < FEW_ROWS || !(inputs * size_of::<f32>()).is_multiple_of(SAME_SETS) {
        // SAFETY: what the caller vouches for.
        return unsafe { multiply_rows(task, task.x, inputs, out) };
    }
    APART.with_borrow_mut(|apart| {
        let stride = inputs + LANES;
        apart.resize(task.rows() * stride, 0.0);
        for (to, from) in apart.chunks_exact_mut(stride).zip(task.x.chunks_exact(inputs)) {
            to[..inputs].copy_from_slice(from);
        }
        // SAFETY: what the caller vouches for, and rows further apart.
        unsafe { multiply_rows(task, apart, stride, out) };
    });
}

/// The product with the rows `x`, which are `stride` numbers apart.
///
/// # Safety
/// As [`multiply`]; `x` has as many rows as `task`.
#[target_feature(enable = "avx512f")]
unsafe fn multiply_rows(task: Task<'_>, x: &[f32], stride: usize, out: &mut [f32]) {
    let width = task.width();
    let rows = task.rows();
    let panels = if task.packed.inputs <= SHORT { panels_for(rows) } else { 2 };
    for place in tiles(rows, task.panels, width, panels) {
        // SAFETY: tiles stay inside the rows and panels whose sizes the caller has checked.
        unsafe {
            let x = (x.as_ptr().add(place.row * stride), stride);
            let out = (out.as_mut_ptr().add(place.row * width + place.panel * LANES), width);
            of_shape!(place.rows, place.panels, R, P => tile::<R, P>(task, place, x, out))
        }
    }
}

/// `R` rows of `x` times `PANELS` panels.
///
/// # Safety
/// AVX-512F; `place` is inside `task` and has `R` rows and `PANELS` panels; there are `R` rows of inputs at `x`,
/// `stride` apart, and `R` at `out`, `width` apart, have room for the tile's columns.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    task: Task<'_>,
    place: Tile,
    (x, stride): (*const f32, usize),
    (out, width): (*mut f32, usize),
) {
    let (inputs, panel) = (task.packed.inputs, task.first_panel + place.panel);
    let last = ((1u32 << place.in_last) - 1) as __mmask16;
    // SAFETY: every address is inside what the caller vouches for; what is only prefetched need not be.
    unsafe {
        let lines = task.packed.lines.as_ptr().add(panel * inputs);
        let bias = task.packed.bias.as_ptr().add(panel);
        // This tile's share of the next panels, spread over its own steps.
        let (share, shares) = place.share;
        let next = lines.wrapping_add(PANELS * inputs).cast::<u8>();
        let mut soon =
            next.wrapping_add(PANELS * inputs * size_of::<Lanes<f32>>() / shares * share);
        let pace = PANELS * size_of::<Lanes<f32>>() / shares;
        let asked = if task.prefetch { PANELS.div_ceil(shares) } else { 0 };
        let mut sums = [[_mm512_setzero_ps(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_ps(bias.add(p).cast());
            }
        }
        // Of every fourth row; the three behind it are a multiple of the stride away.
        let mut x: [*const f32; 3] = array(|i| x.wrapping_add(i * 4 * stride));
        for k in 0..inputs {
            for line in 0..asked {
                prefetch::line(soon.wrapping_add(line * size_of::<Lanes<f32>>()));
            }
            soon = soon.wrapping_add(pace);
            let mut w = [_mm512_setzero_ps(); PANELS];
            for (p, w) in w.iter_mut().enumerate() {
                *w = _mm512_load_ps(lines.add(p * inputs + k).cast());
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x[r / 4].add(r % 4 * stride));
                for (sum, w) in row.iter_mut().zip(w) {
                    *sum = _mm512_fmadd_ps(x, w, *sum);
                }
            }
            for x in x.iter_mut().take(R.div_ceil(4)) {
                *x = opaque(x.wrapping_add(1));
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
