//! The product with AVX-512, with and without VNNI's fused multiply and add (`vpdpwssd`). Tiles of
//! up to 12 rows by 2 panels, 24 accumulators in registers; few rows take 4 or 8 panels at a time, as
//! one sum can only be added to every few cycles. The next tile's weights are asked for while this
//! one's are multiplied: reading them is most of the cost.

/// A kernel for some features; `$dot(sum, x, w)` multiplies pairs and adds them to `sum`.
macro_rules! kernel {
    ($name:ident, $features:literal, $dot:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::int16::{Pairs, Task};
            use crate::lanes::LANES;

            const ROWS: usize = 12;

            /// Where a tile reads and writes.
            #[derive(Clone, Copy)]
            struct Place<'a> {
                task: Task<'a>,
                row: usize,
                panel: usize,
                out: *mut f32,
                width: usize,
                /// Columns of the tile's last panel that exist.
                last: __mmask16,
            }

            /// See [`crate::int16::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `task` and `out` agree as
            /// [`crate::int16::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::int16) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
                let (rows, width) = (task.steps.len(), task.width());
                let most = match rows {
                    1 | 2 => 8,
                    3..=6 => 4,
                    _ => 2,
                };
                let mut panel = 0;
                while panel < task.panels {
                    let mut count = most;
                    while count > task.panels - panel {
                        count /= 2;
                    }
                    let in_last = width - (panel + count - 1) * LANES;
                    let mut row = 0;
                    while row < rows {
                        let height = (rows - row).min(ROWS);
                        // SAFETY: `row` and `panel` stay below the sizes checked by the caller.
                        unsafe {
                            let place = Place {
                                task,
                                row,
                                panel: task.first_panel + panel,
                                out: out.as_mut_ptr().add(row * width + panel * LANES),
                                width,
                                last: if in_last >= LANES { !0 } else { (1 << in_last) - 1 },
                            };
                            match count {
                                8 => tile_of::<8>(height, place),
                                4 => tile_of::<4>(height, place),
                                2 => tile_of::<2>(height, place),
                                _ => tile_of::<1>(height, place),
                            }
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
            #[target_feature(enable = $features)]
            unsafe fn tile_of<const PANELS: usize>(height: usize, place: Place<'_>) {
                // SAFETY: passed on from the caller.
                unsafe {
                    match height {
                        1 => tile::<1, PANELS>(place),
                        2 => tile::<2, PANELS>(place),
                        // Wide tiles are only used for few rows.
                        _ if PANELS == 8 => tile::<2, PANELS>(place),
                        3 => tile::<3, PANELS>(place),
                        4 => tile::<4, PANELS>(place),
                        5 => tile::<5, PANELS>(place),
                        6 => tile::<6, PANELS>(place),
                        _ if PANELS == 4 => tile::<6, PANELS>(place),
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
            /// The features; rows `row .. row + R` and panels `panel .. panel + PANELS` exist in
            /// `task`; `R` rows at `out`, `width` apart, with room for the tile's columns.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const PANELS: usize>(place: Place<'_>) {
                let Place { task, row, panel, out, width, last } = place;
                let (stride, packed) = (task.stride, task.packed);
                let groups = stride / 2;
                // SAFETY: every address is inside what the caller vouches for.
                unsafe {
                    let x = task.values.as_ptr().add(row * stride);
                    let lines: *const Pairs = packed.lines.as_ptr().add(panel * groups);
                    let mut sums = [[_mm512_setzero_si512(); PANELS]; R];
                    let more = panel + 2 * PANELS <= packed.panels();
                    for g in 0..groups {
                        let mut w = [_mm512_setzero_si512(); PANELS];
                        for (p, w) in w.iter_mut().enumerate() {
                            let line = lines.add(p * groups + g);
                            *w = _mm512_load_si512(line.cast());
                            if more {
                                _mm_prefetch::<_MM_HINT_T1>(line.add(PANELS * groups).cast());
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
                        let step = _mm512_set1_ps(task.steps[row + r]);
                        for (p, sum) in sums.iter().enumerate() {
                            let bias = _mm512_load_ps(packed.bias.as_ptr().add(panel + p).cast());
                            // Not fused: every kernel must round alike.
                            let y = _mm512_mul_ps(_mm512_cvtepi32_ps(*sum), step);
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
