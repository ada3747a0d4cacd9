//! The product with AVX-512, with and without VNNI's fused multiply and add (`vpdpwssd`). Tiles of
//! up to 12 rows by 2 panels, 24 accumulators in registers; few rows take 4 or 8 panels at a time, as
//! one sum can only be added to every few cycles. The next tile's weights are asked for while this
//! one's are multiplied: reading them is most of the cost.

/// A kernel for some features; `$dot(sum, x, w)` multiplies pairs and adds them to `sum`.
macro_rules! kernel {
    ($name:ident, $features:literal, $dot:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::memory::prefetch;
            use crate::gemm::int16::{Pairs, Task};
            use crate::isa::lanes::LANES;
            use crate::gemm::tiles::{Tile, of_shape, tiles};

            /// See [`crate::gemm::int16::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `task` and `out` agree as
            /// [`crate::gemm::int16::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::gemm::int16) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
                let width = task.width();
                let rows = task.scales.len();
                let most = match rows {
                    1 | 2 => 8,
                    3..=6 => 4,
                    _ => 2,
                };
                for place in tiles(rows, task.panels, width, most) {
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
            /// The features; `place` is inside `task` and has `R` rows and `PANELS` panels; `R` rows at
            /// `out`, `width` apart, have room for the tile's columns.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const PANELS: usize>(
                task: Task<'_>,
                place: Tile,
                out: *mut f32,
                width: usize,
            ) {
                let (stride, packed, row) = (task.stride, task.packed, place.row);
                let (groups, panel) = (stride / 2, task.first_panel + place.panel);
                let asks = task.prefetch;
                let last = ((1u32 << place.in_last) - 1) as __mmask16;
                // SAFETY: every address is inside what the caller vouches for.
                unsafe {
                    let x = task.values.as_ptr().add(row * stride);
                    let lines: *const Pairs = packed.lines.as_ptr().add(panel * groups);
                    let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
                    for g in 0..groups {
                        let mut w = [_mm512_setzero_si512(); PANELS];
                        for (p, w) in w.iter_mut().enumerate() {
                            let line = lines.add(p * groups + g);
                            *w = _mm512_load_si512(line.cast());
                            if asks {
                                prefetch::line(line.wrapping_add(PANELS * groups).cast());
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
                        let scale = _mm512_set1_ps(task.scales[row + r]);
                        for (p, sum) in sums.iter().enumerate() {
                            let bias = _mm512_load_ps(packed.bias.as_ptr().add(panel + p).cast());
                            // Not fused: every kernel must round alike.
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
