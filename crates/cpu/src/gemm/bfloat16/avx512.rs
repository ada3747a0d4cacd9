//! The bfloat16 product with AVX-512: register tiles of up to 4 rows by 2 panels, with sums of even inputs, of odd inputs and a total.

use std::arch::x86_64::*;

use super::{PARTIAL_LINES, Pairs, Product};
use crate::gemm::tiles::of_height;
use crate::isa::lanes::LANES;
use crate::memory::prefetch;

const ROWS: usize = 4;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX-512F, and the sizes of `product` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let width = product.width;
    for panel in (0..product.panels).step_by(2) {
        for row in (0..product.x.rows).step_by(ROWS) {
            let rows = (product.x.rows - row).min(ROWS);
            // SAFETY: rows and panels stay below the sizes checked by the caller.
            unsafe {
                let out = out.as_mut_ptr().add(row * width + panel * LANES);
                if product.panels - panel >= 2 {
                    of_height!(rows, [1 2 3, 4], R => tile::<R, 2>(product, row, panel, out));
                } else {
                    of_height!(rows, [1 2 3, 4], R => tile::<R, 1>(product, row, panel, out));
                }
            }
        }
    }
}

/// `R` rows times `PANELS` panels.
///
/// # Safety
/// AVX-512F; rows `row .. row + R` and panels `panel .. panel + PANELS` are in `product`; `out` is where
/// their first output goes.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const PANELS: usize>(
    product: Product<'_>,
    row: usize,
    panel: usize,
    out: *mut f32,
) {
    let (groups, width, stride) = (product.packed.groups(), product.width, product.x.stride);
    let of_panel = product.first_panel + panel;
    let (upper, prefetches) = (_mm512_set1_epi32(0xffff_0000u32 as i32), product.prefetch);
    // SAFETY: every address is inside what the caller guarantees; prefetched addresses may lie outside.
    unsafe {
        let x = product.x.floats.as_ptr().add(row * stride);
        let lines: *const Pairs = product.packed.lines.as_ptr().add(of_panel * groups);
        let zero = [[_mm512_setzero_ps(); PANELS]; R];
        let mut totals = zero;
        for first_line in (0..groups).step_by(PARTIAL_LINES) {
            let (mut even, mut odd) = (zero, zero);
            for g in first_line..first_line + PARTIAL_LINES {
                let (mut first, mut second) =
                    ([_mm512_setzero_ps(); PANELS], [_mm512_setzero_ps(); PANELS]);
                for p in 0..PANELS {
                    if prefetches {
                        prefetch::prefetch_next_window(lines.wrapping_add(PANELS * g + p).cast());
                    }
                    let w = _mm512_load_si512(lines.add(p * groups + g).cast());
                    first[p] = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(w));
                    second[p] = _mm512_castsi512_ps(_mm512_and_si512(w, upper));
                }
                for r in 0..R {
                    let at = x.add(r * stride + 2 * g);
                    let (a, b) = (_mm512_set1_ps(*at), _mm512_set1_ps(*at.add(1)));
                    for p in 0..PANELS {
                        even[r][p] = _mm512_fmadd_ps(a, first[p], even[r][p]);
                        odd[r][p] = _mm512_fmadd_ps(b, second[p], odd[r][p]);
                    }
                }
            }
            for r in 0..R {
                for p in 0..PANELS {
                    totals[r][p] =
                        _mm512_add_ps(totals[r][p], _mm512_add_ps(even[r][p], odd[r][p]));
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            for (p, total) in totals.iter().enumerate() {
                let bias = _mm512_load_ps(product.packed.bias.as_ptr().add(of_panel + p).cast());
                let columns = (width - (panel + p) * LANES).min(LANES);
                let mask = ((1u32 << columns) - 1) as __mmask16;
                _mm512_mask_storeu_ps(
                    out.add(r * width + p * LANES),
                    mask,
                    _mm512_add_ps(*total, bias),
                );
            }
        }
    }
}
