//! The integer product with AVX-512 VNNI: one instruction multiplies and adds 64 bytes. Tiles of up
//! to 12 rows by 2 panels, or 6 by 4, or 2 by 8: 24 accumulators in registers at most. The next panels'
//! weights are asked for while these are multiplied: for few rows reading them is all of the cost.

use std::arch::x86_64::*;
use std::ptr;

use bytemuck::Zeroable;

use super::{Bytes, Sums, Task};
use crate::gemm::tiles::{Tile, of_shape, opaque, tiles};
use crate::isa::lanes::{LANES, array};
use crate::memory::prefetch::{self, LINE};

/// See [`super::multiply`]; in tiles of at most so many panels.
///
/// # Safety
/// The processor has AVX-512F and VNNI, and the sizes of `task` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn multiply(task: Task<'_>, panels: usize, out: &mut [f32]) {
    let width = task.width();
    for place in tiles(task.scales.len(), task.panels, width, panels) {
        // SAFETY: tiles stay inside the rows and panels whose sizes the caller has checked.
        unsafe {
            let out = out.as_mut_ptr().add(place.row * width + place.panel * LANES);
            of_shape!(place.rows, place.panels, R, P => tile::<R, P>(task, place, out, width))
        }
    }
}

/// `R` rows times `PANELS` panels.
///
/// # Safety
/// AVX-512F and VNNI; `place` is inside `task` and has `R` rows and `PANELS` panels; `R` rows at `out`,
/// `width` apart, have room for the tile's columns.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    task: Task<'_>,
    place: Tile,
    out: *mut f32,
    width: usize,
) {
    let (stride, packed) = (task.stride, task.packed);
    let (groups, panel) = (stride / 4, task.first_panel + place.panel);
    // SAFETY: every address is inside what the caller vouches for; what is only prefetched need not be.
    unsafe {
        let x = task.bytes.as_ptr().add(place.row * stride);
        let lines: *const Bytes = packed.lines.as_ptr().add(panel * groups);
        let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_si512(packed.starts.as_ptr().add(panel + p).cast());
            }
        }
        // This tile's share of the next panels, spread over its own steps.
        let (share, shares) = place.share;
        let bytes = PANELS * groups * size_of::<Bytes>();
        let mut read = lines.cast::<u8>().wrapping_add(bytes / shares * share);
        let pace = PANELS * size_of::<Bytes>() / shares;
        // Of every fourth row; the three behind it are a multiple of the stride away.
        let mut x: [*const u8; 3] = array(|i| x.wrapping_add(i * 4 * stride));
        let (spread, plain) = (task.prefetch && shares == 1, task.prefetch && shares > 1);
        for g in 0..groups {
            if spread {
                for line in 0..PANELS {
                    prefetch::next_run(read.wrapping_add(line * LINE));
                }
            }
            if plain {
                // There is time enough for the plain order, which takes fewer instructions.
                for line in 0..PANELS.div_ceil(shares) {
                    prefetch::line(read.wrapping_add(bytes + line * LINE));
                }
            }
            read = read.wrapping_add(pace);
            let mut w = [_mm512_setzero_si512(); PANELS];
            for (p, w) in w.iter_mut().enumerate() {
                *w = _mm512_load_si512(lines.add(p * groups + g).cast());
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let four = x[r / 4].add(r % 4 * stride).cast::<i32>().read_unaligned();
                let x = _mm512_set1_epi32(four);
                for (sum, w) in row.iter_mut().zip(w) {
                    *sum = _mm512_dpbusd_epi32(*sum, x, w);
                }
            }
            for x in x.iter_mut().take(R.div_ceil(4)) {
                *x = opaque(x.wrapping_add(4));
            }
        }
        // The loop above keeps its sums in registers only if nothing else reaches them by number.
        let mut done = [[Sums::zeroed(); PANELS]; R];
        for (done, sum) in done.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            _mm512_store_si512(ptr::from_mut(done).cast(), *sum);
        }
        let scales: [Scales; PANELS] = array(|p| Scales::of(task, place.panel + p));
        for (r, row) in done.iter().enumerate() {
            for (p, sum) in row.iter().enumerate() {
                let sum = _mm512_load_si512(ptr::from_ref(sum).cast());
                let y = scales[p].apply_with_floor(sum, task.scales[place.row + r]);
                let lanes = lanes_of(if p + 1 == PANELS { place.in_last } else { LANES });
                _mm512_mask_storeu_ps(out.add(r * width + p * LANES), lanes, y);
            }
        }
    }
}

/// What turns a panel's sums into outputs.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    scale: __m512,
    pub(super) bias: __m512,
    floor: __m512,
}

impl Scales {
    /// Those of a panel of `task`.
    ///
    /// # Safety
    /// It is one.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) unsafe fn of(task: Task<'_>, panel: usize) -> Scales {
        let panel = task.first_panel + panel;
        let floor = if task.relu { 0.0 } else { f32::NEG_INFINITY };
        // SAFETY: every panel has sixteen floats of both.
        unsafe {
            Scales {
                scale: _mm512_load_ps(task.packed.scales.as_ptr().add(panel).cast()),
                bias: _mm512_load_ps(task.packed.bias.as_ptr().add(panel).cast()),
                floor: _mm512_set1_ps(floor),
            }
        }
    }

    /// A row's outputs, where negative ones may have to become zero.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn apply_with_floor(self, sum: __m512i, row_scale: f32) -> __m512 {
        _mm512_max_ps(self.apply(sum, row_scale), self.floor)
    }

    /// A row's outputs. Not fused: every kernel must round alike.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn apply(self, sum: __m512i, row_scale: f32) -> __m512 {
        let scale = _mm512_mul_ps(self.scale, _mm512_set1_ps(row_scale));
        let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
        _mm512_add_ps(y, self.bias)
    }
}

/// The lanes of a panel of which so many columns are left.
pub(super) fn lanes_of(columns: usize) -> __mmask16 {
    if columns < LANES { (1 << columns) - 1 } else { !0 }
}
