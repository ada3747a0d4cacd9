//! The int8 product with AVX-512 VNNI: one instruction multiplies and adds 64 bytes. Register tiles are up to 12 rows by 2 panels,
//! or 6 by 4, or 2 by 8, with 24 accumulators at most. The next panels' weights are prefetched meanwhile: for few rows reading
//! them is the whole cost.

use std::arch::x86_64::*;
use std::ptr;

use bytemuck::Zeroable;

use super::{Bytes, Product, Sums};
use crate::gemm::tiles::{RegisterTile, of_shape, optimisation_barrier, register_tiles};
use crate::isa::lanes::{LANES, array};
use crate::memory::prefetch::{self, CACHE_LINE};

/// Groups of inputs of a step of the inner loop, where a tile is the only one of its panels, and where it is not. Several groups
/// spare instructions between the products.
const GROUPS_OF_ONE_TILE: usize = 4;
const GROUPS_OF_MANY_TILES: usize = 2;

/// See [`super::multiply`]. Register tiles have at most `panels` panels.
///
/// # Safety
/// The processor has AVX-512F and VNNI, and the sizes of `product` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn multiply(product: Product<'_>, panels: usize, out: &mut [f32]) {
    let width = product.width;
    for place in register_tiles(product.x.scales.len(), product.panels, width, panels) {
        // SAFETY: tiles stay inside the rows and panels whose sizes the caller has checked.
        unsafe {
            let out = out.as_mut_ptr().add(place.row * width + place.panel * LANES);
            of_shape!(place.rows, place.panels, R, P => tile::<R, P>(product, place, out, width))
        }
    }
}

/// `R` rows times `PANELS` panels.
///
/// # Safety
/// AVX-512F and VNNI; `place` is inside `product` and has `R` rows and `PANELS` panels; `R` rows at `out`,
/// `width` apart, have room for the tile's columns.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    product: Product<'_>,
    place: RegisterTile,
    out: *mut f32,
    width: usize,
) {
    let (stride, packed) = (product.x.stride, product.packed);
    let (groups, panel) = (stride / 4, product.first_panel + place.panel);
    // SAFETY: every address is inside what the caller guarantees; prefetched addresses may lie outside.
    unsafe {
        let x = product.x.bytes.as_ptr().add(place.row * stride);
        let lines: *const Bytes = packed.lines.as_ptr().add(panel * groups);
        let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_si512(packed.starts.as_ptr().add(panel + p).cast());
            }
        }
        // This tile's share of the next panels, spread over its groups of inputs.
        let (share, shares) = place.share;
        let bytes = PANELS * groups * size_of::<Bytes>();
        let mut read = lines.cast::<u8>().wrapping_add(bytes / shares * share);
        // Pointers to every fourth row; the three behind it are at multiples of the stride.
        let mut x: [*const u8; 3] = array(|i| x.wrapping_add(i * 4 * stride));
        macro_rules! add_groups {
            ($first:expr, $count:expr) => {
                for g in 0..$count {
                    let mut w = [_mm512_setzero_si512(); PANELS];
                    for (p, w) in w.iter_mut().enumerate() {
                        *w = _mm512_load_si512(lines.add(p * groups + $first + g).cast());
                    }
                    for (r, row) in sums.iter_mut().enumerate() {
                        let four = x[r / 4].add(r % 4 * stride + g * 4).cast::<i32>();
                        let x = _mm512_set1_epi32(four.read_unaligned());
                        for (sum, w) in row.iter_mut().zip(w) {
                            *sum = _mm512_dpbusd_epi32(*sum, x, w);
                        }
                    }
                }
                for x in x.iter_mut().take(R.div_ceil(4)) {
                    *x = optimisation_barrier(x.wrapping_add(4 * $count));
                }
            };
        }
        // Padding makes the number of groups a multiple of 16.
        if shares == 1 {
            for first in (0..groups).step_by(GROUPS_OF_ONE_TILE) {
                if product.prefetch {
                    for line in 0..PANELS * GROUPS_OF_ONE_TILE {
                        prefetch::prefetch_next_window(read.wrapping_add(line * CACHE_LINE));
                    }
                }
                read = read.wrapping_add(PANELS * GROUPS_OF_ONE_TILE * CACHE_LINE);
                add_groups!(first, GROUPS_OF_ONE_TILE);
            }
        } else {
            // Several tiles leave time enough to prefetch in order, which takes fewer instructions.
            let pace = PANELS * GROUPS_OF_MANY_TILES * CACHE_LINE / shares;
            let prefetched = (PANELS * GROUPS_OF_MANY_TILES).div_ceil(shares);
            let prefetched = if product.prefetch { prefetched } else { 0 };
            read = read.wrapping_add(bytes);
            for first in (0..groups).step_by(GROUPS_OF_MANY_TILES) {
                prefetch::prefetch_lines::<GROUPS_OF_MANY_TILES>(read, prefetched);
                read = read.wrapping_add(pace);
                add_groups!(first, GROUPS_OF_MANY_TILES);
            }
        }
        // The loop above keeps its sums in registers only if nothing else indexes them.
        let mut done = [[Sums::zeroed(); PANELS]; R];
        for (done, sum) in done.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            _mm512_store_si512(ptr::from_mut(done).cast(), *sum);
        }
        let scales: [Scales; PANELS] = array(|p| Scales::of(product, place.panel + p));
        for (r, row) in done.iter().enumerate() {
            for (p, sum) in row.iter().enumerate() {
                let sum = _mm512_load_si512(ptr::from_ref(sum).cast());
                let y = scales[p].apply_with_floor(sum, product.x.scales[place.row + r]);
                let lanes = lanes_of(if p + 1 == PANELS { place.in_last } else { LANES });
                _mm512_mask_storeu_ps(out.add(r * width + p * LANES), lanes, y);
            }
        }
    }
}

/// The epilogue of a panel: converts sums to outputs.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    scale: __m512,
    pub(super) bias: __m512,
    floor: __m512,
}

impl Scales {
    /// The epilogue of a panel of `product`.
    ///
    /// # Safety
    /// The panel exists.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) unsafe fn of(product: Product<'_>, panel: usize) -> Scales {
        let panel = product.first_panel + panel;
        let floor = if product.relu { 0.0 } else { f32::NEG_INFINITY };
        // SAFETY: every panel has sixteen floats of both.
        unsafe {
            Scales {
                scale: _mm512_load_ps(product.packed.scales.as_ptr().add(panel).cast()),
                bias: _mm512_load_ps(product.packed.bias.as_ptr().add(panel).cast()),
                floor: _mm512_set1_ps(floor),
            }
        }
    }

    /// A row's outputs, with negative ones replaced by zero if the product has `relu`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn apply_with_floor(self, sum: __m512i, row_scale: f32) -> __m512 {
        _mm512_max_ps(self.apply(sum, row_scale), self.floor)
    }

    /// A row's outputs. Not fused, so that every kernel rounds alike.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn apply(self, sum: __m512i, row_scale: f32) -> __m512 {
        let scale = _mm512_mul_ps(self.scale, _mm512_set1_ps(row_scale));
        let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
        _mm512_add_ps(y, self.bias)
    }
}

/// The mask of a panel's lanes if so many columns are left.
pub(super) fn lanes_of(columns: usize) -> __mmask16 {
    if columns < LANES { (1 << columns) - 1 } else { !0 }
}
