//! The int8 product with NEON: register tiles of a few rows by one panel, 16 accumulators.
//!
//! `sdot` is an int8 dot product with int32 sums. Processors without it multiply bytes to int16, which always fits, and add
//! neighbours to int32, with twice as many sums until the end. Both take signed inputs, so that no offset has to be compensated.

/// A kernel for some features, with `$sums` registers of sums for each row. `$dot::<LANE>(sums, x, w)` adds to them the products of
/// four inputs (`x` holds sixteen) with 64 weights; `$end(sums)` reduces them to sixteen sums.
macro_rules! kernel {
    ($name:ident, $features:literal, rows $rows:literal, sums $sums:literal, $dot:ident, $end:expr) => {
        pub(super) mod $name {
            use std::arch::aarch64::*;

            use super::$dot as dot;
            use crate::gemm::int8::{Bytes, Product, epilogue};
            use crate::isa::lanes::LANES;
            use crate::gemm::tiles::of_height;

            const ROWS: usize = $rows;

            /// See [`crate::gemm::int8::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `product` and `out` agree as
            /// [`crate::gemm::int8::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::gemm::int8) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
                let groups = product.packed.groups();
                for panel in 0..product.panels {
                    let lines = &product.packed.lines[(product.first_panel + panel) * groups..][..groups];
                    for (i, bytes) in product.x.bytes.chunks(ROWS * product.x.stride).enumerate() {
                        let mut sums = [[0; LANES]; ROWS];
                        let rows = bytes.len() / product.x.stride;
                        // SAFETY: `bytes` has whole rows, at most ROWS of them, and each row has four bytes for every line.
                        unsafe {
                            of_height!(rows, [1 2 3, 4], R => tile::<R>(bytes, product.x.stride, lines, &mut sums));
                        }
                        epilogue(product, i * ROWS, panel, &sums[..rows], [0; LANES], out);
                    }
                }
            }

            /// `R` rows times one panel.
            ///
            /// # Safety
            /// The features; `bytes` holds `R` rows of `stride` bytes; `lines.len() * 4 <= stride`.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize>(
                bytes: &[u8],
                stride: usize,
                lines: &[Bytes],
                sums: &mut [[i32; LANES]; ROWS],
            ) {
                let mut acc = [[vdupq_n_s32(0); $sums]; R];
                // SAFETY: every address is inside the slices, which the caller guarantees.
                unsafe {
                    for (g, lines) in lines.as_chunks::<4>().0.iter().enumerate() {
                        let mut x = [vdupq_n_s8(0); R];
                        for (r, x) in x.iter_mut().enumerate() {
                            let shifted = vld1q_u8(bytes.as_ptr().add(r * stride + g * 16));
                            *x = vreinterpretq_s8_u8(veorq_u8(shifted, vdupq_n_u8(128)));
                        }
                        let w = |line: &Bytes| {
                            [0, 16, 32, 48].map(|i| vld1q_s8(line.0.as_ptr().cast::<i8>().add(i)))
                        };
                        let w = [w(&lines[0]), w(&lines[1]), w(&lines[2]), w(&lines[3])];
                        for (acc, x) in acc.iter_mut().zip(x) {
                            dot::<0>(acc, x, w[0]);
                            dot::<1>(acc, x, w[1]);
                            dot::<2>(acc, x, w[2]);
                            dot::<3>(acc, x, w[3]);
                        }
                    }
                    for (acc, sums) in acc.into_iter().zip(sums) {
                        let end: [int32x4_t; 4] = $end(acc);
                        for (i, end) in end.into_iter().enumerate() {
                            vst1q_s32(sums.as_mut_ptr().add(4 * i), end);
                        }
                    }
                }
            }
        }
    };
}

use std::arch::aarch64::*;
use std::arch::asm;

/// The int8 dot product, in assembly: its intrinsic is not stable yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_fours<const LANE: i32>(acc: &mut [int32x4_t; 4], x: int8x16_t, w: [int8x16_t; 4]) {
    for (acc, w) in acc.iter_mut().zip(w) {
        // SAFETY: registers only, and the processor has the feature.
        unsafe {
            asm!(
                "sdot {acc:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
                acc = inout(vreg) *acc,
                w = in(vreg) w,
                x = in(vreg) x,
                lane = const LANE,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn dot_pairs<const LANE: i32>(acc: &mut [int32x4_t; 8], x: int8x16_t, w: [int8x16_t; 4]) {
    let x = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(x)));
    for (acc, w) in acc.as_chunks_mut::<2>().0.iter_mut().zip(w) {
        acc[0] = vpadalq_s16(acc[0], vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        acc[1] = vpadalq_s16(acc[1], vmull_high_s8(w, x));
    }
}

kernel!(dot, "neon,dotprod", rows 4, sums 4, dot_fours, |acc| acc);

kernel!(plain, "neon", rows 2, sums 8, dot_pairs, |acc: [int32x4_t; 8]| {
    [0, 2, 4, 6].map(|i| vpaddq_s32(acc[i], acc[i + 1]))
});
