//! The int16 product with AVX-512, with and without VNNI's fused multiply and add (`vpdpwssd`). Register tiles are up to 12 rows by
//! 2 panels, with 24 accumulators; few rows take 4 or 8 panels at a time, to hide the latency of an addition. The next tile's
//! weights are prefetched meanwhile: reading them is most of the cost.

/// A kernel for some features; `$dot(sum, x, w)` multiplies pairs and adds them to `sum`.
macro_rules! kernel {
    ($name:ident, $features:literal, $dot:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::memory::prefetch;
            use crate::gemm::int16::{Pairs, Product};
            use crate::isa::lanes::LANES;
            use crate::gemm::tiles::{RegisterTile, of_shape, register_tiles};

            /// See [`crate::gemm::int16::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `product` and `out` agree as
            /// [`crate::gemm::int16::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::gemm::int16) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
                let width = product.width;
                let rows = product.x.scales.len();
                let max_panels = match rows {
                    1 | 2 => 8,
                    3..=6 => 4,
                    _ => 2,
                };
                for place in register_tiles(rows, product.panels, width, max_panels) {
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
            /// The features; `place` is inside `product` and has `R` rows and `PANELS` panels; `R` rows at
            /// `out`, `width` apart, have room for the tile's columns.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const PANELS: usize>(
                product: Product<'_>,
                place: RegisterTile,
                out: *mut f32,
                width: usize,
            ) {
                let (stride, packed, row) = (product.x.stride, product.packed, place.row);
                let (groups, panel) = (stride / 2, product.first_panel + place.panel);
                let prefetches = product.prefetch;
                let last = ((1u32 << place.in_last) - 1) as __mmask16;
                // SAFETY: every address is inside what the caller guarantees; prefetched addresses may lie outside.
                unsafe {
                    let x = product.x.values.as_ptr().add(row * stride);
                    let lines: *const Pairs = packed.lines.as_ptr().add(panel * groups);
                    let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
                    for g in 0..groups {
                        let mut w = [_mm512_setzero_si512(); PANELS];
                        for (p, w) in w.iter_mut().enumerate() {
                            let line = lines.add(p * groups + g);
                            *w = _mm512_load_si512(line.cast());
                            if prefetches {
                                prefetch::prefetch_line(line.wrapping_add(PANELS * groups).cast());
                            }
                        }
                        for (r, sums) in sums.iter_mut().enumerate() {
                            let pair = x.add(r * stride + 2 * g).cast::<i32>().read_unaligned();
                            let x = _mm512_set1_epi32(pair);
                            for (sum, w) in sums.iter_mut().zip(w) {
                                *sum = $dot(*sum, x, w);
                            }
                        }
                    }
                    for (r, sums) in sums.iter().enumerate() {
                        let scale = _mm512_set1_ps(product.x.scales[row + r]);
                        for (p, sum) in sums.iter().enumerate() {
                            let bias = _mm512_load_ps(packed.bias.as_ptr().add(panel + p).cast());
                            // Not fused, so that every kernel rounds alike.
                            let y = _mm512_mul_ps(_mm512_cvtepi32_ps(*sum), scale);
                            let mask = if p + 1 == PANELS { last } else { !0 };
                            let to = out.add(r * width + p * LANES);
                            _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(y, bias));
                        }
                    }
                }
            }
        }
    };
}

kernel!(plain, "avx512f,avx512bw", |sum, x, w| _mm512_add_epi32(sum, _mm512_madd_epi16(x, w)));
kernel!(vnni, "avx512f,avx512bw,avx512vnni", |sum, x, w| _mm512_dpwssd_epi32(sum, x, w));
