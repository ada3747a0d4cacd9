//! Two more integer products with 256-bit registers: tiles of up to 4 rows by one panel, 8 accumulators.
//!
//! AVX-VNNI adds up four products in 32 bits by itself. The other kernel adds pairs of products up in 16
//! bits, as Marian's `intgemm` does: fewer instructions than the exact one, and wrong where a sum does
//! not fit. A pair fits: signs are moved into the weights (|x| times ±w).

/// A kernel for some features. `$start` says where a panel's sums start; `$dot(sums, x, w)` adds to
/// `sums` the products of four inputs, unsigned as they are kept, with 64 weights; `$end(sum)` makes
/// 32-bit sums of what `$dot` has added up.
macro_rules! kernel {
    ($name:ident, $features:literal, $start:expr, $dot:expr, $end:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::gemm::int8::{Bytes, Sums, Task};
            use crate::isa::lanes::LANES;
            use crate::gemm::tiles::of_height;

            const ROWS: usize = 4;

            /// See [`crate::gemm::int8::multiply`].
            ///
            /// # Safety
            /// The processor has the features, and the sizes of `task` and `out` agree as
            /// [`crate::gemm::int8::multiply`] checks.
            #[target_feature(enable = $features)]
            pub(in crate::gemm::int8) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
                let (groups, width) = (task.packed.groups(), task.width());
                for (panel, columns) in (0..task.panels).zip((0..width).step_by(LANES)) {
                    let panel = task.first_panel + panel;
                    let lines = &task.packed.lines[panel * groups..][..groups];
                    let (scales, bias) = (&task.packed.scales[panel].0, &task.packed.bias[panel].0);
                    let in_panel = (width - columns).min(LANES);
                    let inputs = task.bytes.chunks(ROWS * task.stride).zip(task.scales.chunks(ROWS));
                    for ((bytes, row_steps), out) in inputs.zip(out.chunks_mut(ROWS * width)) {
                        let start: [i32; LANES] = $start(&task.packed.starts[panel]);
                        let mut sums = [start; ROWS];
                        // SAFETY: `bytes` has whole rows, at most ROWS of them, of four bytes a line.
                        unsafe {
                            let rows = row_steps.len();
                            of_height!(rows, [1 2 3, 4], R => tile::<R>(bytes, task.stride, lines, &mut sums));
                        }
                        for ((out, sums), row_scale) in out.chunks_mut(width).zip(&sums).zip(row_steps) {
                            for (i, out) in out[columns..][..in_panel].iter_mut().enumerate() {
                                let y = sums[i] as f32 * (scales[i] * row_scale) + bias[i];
                                *out = if task.relu && y < 0.0 { 0.0 } else { y };
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
                // SAFETY: every address is inside the slices, by the caller's word.
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
