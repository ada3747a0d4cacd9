//! Two more int8 products with 256-bit registers: register tiles of up to 4 rows by one panel, 8 accumulators.
//!
//! AVX-VNNI has an int8 dot product with int32 sums. The other kernel sums pairs of products in int16, as Marian's `intgemm` does:
//! fewer instructions than the exact one, but sums saturate. A single pair always fits: signs are moved into the weights
//! (|x| times ±w).

/// A kernel for some features. `$start` returns the initial sums of a panel; `$dot(sums, x, w)` adds to `sums` the products of four
/// inputs, unsigned as they are stored, with 64 weights; `$end(sum)` converts the accumulators of `$dot` to int32 sums.
macro_rules! kernel {
    ($name:ident, $features:literal, $start:expr, $dot:expr, $end:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::gemm::int8::{Bytes, Sums, Product};
            use crate::isa::lanes::LANES;
            use crate::gemm::tiles::of_height;

            const ROWS: usize = 4;

            /// See [`crate::gemm::int8::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `product` and `out` agree as
            /// [`crate::gemm::int8::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::gemm::int8) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
                let (groups, width) = (product.packed.groups(), product.width);
                for (panel, columns) in (0..product.panels).zip((0..width).step_by(LANES)) {
                    let panel = product.first_panel + panel;
                    let lines = &product.packed.lines[panel * groups..][..groups];
                    let (scales, bias) = (&product.packed.scales[panel].0, &product.packed.bias[panel].0);
                    let in_panel = (width - columns).min(LANES);
                    let inputs = product.x.bytes.chunks(ROWS * product.x.stride).zip(product.x.scales.chunks(ROWS));
                    for ((bytes, row_scales), out) in inputs.zip(out.chunks_mut(ROWS * width)) {
                        let start: [i32; LANES] = $start(&product.packed.starts[panel]);
                        let mut sums = [start; ROWS];
                        // SAFETY: `bytes` has whole rows, at most ROWS of them, and each row has four bytes for every line.
                        unsafe {
                            let rows = row_scales.len();
                            of_height!(rows, [1 2 3, 4], R => tile::<R>(bytes, product.x.stride, lines, &mut sums));
                        }
                        for ((out, sums), row_scale) in out.chunks_mut(width).zip(&sums).zip(row_scales) {
                            for (i, out) in out[columns..][..in_panel].iter_mut().enumerate() {
                                let y = sums[i] as f32 * (scales[i] * row_scale) + bias[i];
                                *out = if product.relu && y < 0.0 { 0.0 } else { y };
                            }
                        }
                    }
                }
            }

            /// `R` rows times one panel, added to `sums`.
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
                // SAFETY: every address is inside the slices, which the caller guarantees.
                unsafe {
                    let mut acc = [[_mm256_setzero_si256(); 2]; R];
                    for (acc, sums) in acc.iter_mut().zip(&*sums) {
                        acc[0] = _mm256_loadu_si256(sums.as_ptr().cast());
                        acc[1] = _mm256_loadu_si256(sums.as_ptr().add(8).cast());
                    }
                    for (g, line) in lines.iter().enumerate() {
                        let at = line.0.as_ptr().cast::<__m256i>();
                        let w = [_mm256_load_si256(at), _mm256_load_si256(at.add(1))];
                        for (r, acc) in acc.iter_mut().enumerate() {
                            let four = bytes.as_ptr().add(r * stride + g * 4).cast::<i32>();
                            let x = _mm256_set1_epi32(four.read_unaligned());
                            *acc = $dot(*acc, x, w);
                        }
                    }
                    for (acc, sums) in acc.iter().zip(sums) {
                        _mm256_storeu_si256(sums.as_mut_ptr().cast(), $end(acc[0]));
                        _mm256_storeu_si256(sums.as_mut_ptr().add(8).cast(), $end(acc[1]));
                    }
                }
            }
        }
    };
}

kernel!(
    vnni,
    "avx2,avxvnni",
    |starts: &Sums| starts.0,
    |acc: [__m256i; 2], x, w: [__m256i; 2]| [
        _mm256_dpbusd_avx_epi32(acc[0], x, w[0]),
        _mm256_dpbusd_avx_epi32(acc[1], x, w[1])
    ],
    |sum| sum
);

kernel!(
    saturating,
    "avx2",
    |_: &Sums| [0; LANES],
    |acc: [__m256i; 2], x, w: [__m256i; 2]| {
        let x = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
        let magnitude = _mm256_abs_epi8(x);
        let dot = |acc, w| {
            _mm256_adds_epi16(acc, _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(w, x)))
        };
        [dot(acc[0], w[0]), dot(acc[1], w[1])]
    },
    |sum| _mm256_madd_epi16(sum, _mm256_set1_epi16(1))
);
