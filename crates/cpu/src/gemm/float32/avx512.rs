//! The float32 product with AVX-512: register tiles of up to 12 rows by 2 panels, or 6 by 4, with 24 accumulators at most. The
//! next panels' weights are prefetched meanwhile.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::Product;
use crate::gemm::panels::Lanes;
use crate::gemm::tiles::{
    RegisterTile, of_shape, optimisation_barrier, panels_for, register_tiles,
};
use crate::isa::lanes::{LANES, array};
use crate::memory::prefetch;

/// Rows whose distance is a multiple of this map to the same L1 sets and evict each other.
const L1_SET_STRIDE: usize = 4096;

/// Rows that the ways of such a set hold.
const L1_WAYS: usize = 8;

/// The number of inputs up to which four panels leave room for rows in L2.
const FOUR_PANELS_INPUTS: usize = 1024;

/// Inputs of a step of the inner loop: several spare instructions between the multiply-adds.
const UNROLLED: usize = 2;

thread_local! {
    /// Rows copied to a stride that spreads them over the L1 sets.
    static PADDED: RefCell<Vec<f32>> = RefCell::default();
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F, and the sizes of `product` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (inputs, rows) = (product.packed.inputs, product.rows());
    if rows < L1_WAYS || !(inputs * size_of::<f32>()).is_multiple_of(L1_SET_STRIDE) {
        // SAFETY: guaranteed by the caller.
        return unsafe { multiply_rows(product, product.x, inputs, out) };
    }
    PADDED.with_borrow_mut(|padded| {
        let stride = inputs + LANES;
        padded.resize(rows * stride, 0.0);
        for (to, from) in padded.chunks_exact_mut(stride).zip(product.x.chunks_exact(inputs)) {
            to[..inputs].copy_from_slice(from);
        }
        // SAFETY: guaranteed by the caller; `padded` has the same rows, `stride` apart.
        unsafe { multiply_rows(product, padded, stride, out) };
    });
}

/// The product with the rows `x`, which are `stride` numbers apart.
///
/// # Safety
/// As [`multiply`]; `x` has as many rows as `product`.
#[target_feature(enable = "avx512f")]
unsafe fn multiply_rows(product: Product<'_>, x: &[f32], stride: usize, out: &mut [f32]) {
    let width = product.width;
    let rows = product.rows();
    let panels = if product.packed.inputs <= FOUR_PANELS_INPUTS { panels_for(rows) } else { 2 };
    for place in register_tiles(rows, product.panels, width, panels) {
        // SAFETY: tiles stay inside the rows and panels whose sizes the caller has checked.
        unsafe {
            let x = (x.as_ptr().add(place.row * stride), stride);
            let out = (out.as_mut_ptr().add(place.row * width + place.panel * LANES), width);
            of_shape!(place.rows, place.panels, R, P => tile::<R, P>(product, place, x, out))
        }
    }
}

/// `R` rows of `x` times `PANELS` panels.
///
/// # Safety
/// AVX-512F; `place` is inside `product` and has `R` rows and `PANELS` panels; there are `R` rows of inputs at `x`,
/// `stride` apart, and `R` at `out`, `width` apart, have room for the tile's columns.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    product: Product<'_>,
    place: RegisterTile,
    (x, stride): (*const f32, usize),
    (out, width): (*mut f32, usize),
) {
    let (inputs, panel) = (product.packed.inputs, product.first_panel + place.panel);
    let last = ((1u32 << place.in_last) - 1) as __mmask16;
    // SAFETY: every address is inside what the caller guarantees; prefetched addresses may lie outside.
    unsafe {
        let lines = product.packed.lines.as_ptr().add(panel * inputs);
        let bias = product.packed.bias.as_ptr().add(panel);
        // This tile's share of the next panels, spread over its inputs.
        let (share, shares) = place.share;
        let next = lines.wrapping_add(PANELS * inputs).cast::<u8>();
        let mut ahead =
            next.wrapping_add(PANELS * inputs * size_of::<Lanes<f32>>() / shares * share);
        let pace = PANELS * UNROLLED * size_of::<Lanes<f32>>() / shares;
        let prefetched = if product.prefetch { (PANELS * UNROLLED).div_ceil(shares) } else { 0 };
        let mut sums = [[_mm512_setzero_ps(); PANELS]; R];
        for row in &mut sums {
            for (p, sum) in row.iter_mut().enumerate() {
                *sum = _mm512_load_ps(bias.add(p).cast());
            }
        }
        // Pointers to every fourth row; the three behind it are at multiples of the stride.
        let mut x: [*const f32; 3] = array(|i| x.wrapping_add(i * 4 * stride));
        let mut k = 0;
        macro_rules! add_inputs {
            ($count:expr) => {
                for i in 0..$count {
                    let mut w = [_mm512_setzero_ps(); PANELS];
                    for (p, w) in w.iter_mut().enumerate() {
                        *w = _mm512_load_ps(lines.add(p * inputs + k + i).cast());
                    }
                    for (r, row) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_ps(*x[r / 4].add(r % 4 * stride + i));
                        for (sum, w) in row.iter_mut().zip(w) {
                            *sum = _mm512_fmadd_ps(x, w, *sum);
                        }
                    }
                }
                for x in x.iter_mut().take(R.div_ceil(4)) {
                    *x = optimisation_barrier(x.wrapping_add($count));
                }
                k += $count;
            };
        }
        while k + UNROLLED <= inputs {
            prefetch::prefetch_lines::<UNROLLED>(ahead, prefetched);
            ahead = ahead.wrapping_add(pace);
            add_inputs!(UNROLLED);
        }
        while k < inputs {
            add_inputs!(1);
        }
        for (r, row) in sums.iter().enumerate() {
            for (p, sum) in row.iter().enumerate() {
                let mask = if p + 1 == PANELS { last } else { !0 };
                _mm512_mask_storeu_ps(out.add(r * width + p * LANES), mask, *sum);
            }
        }
    }
}
