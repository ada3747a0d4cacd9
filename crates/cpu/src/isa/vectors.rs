//! Sixteen numbers as what an instruction set has for them.
//!
//! Compilers turn most plain loops over arrays of sixteen into vector instructions (`lanes`). Where several
//! such arrays are summed up at once, as attention does, they may take them apart and keep them in memory;
//! these types leave them no choice. A value of `Avx2` or `Avx512` can only be had where the instructions are.

use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, array};

/// How to compute with sixteen numbers at a time.
pub(crate) trait Vectors: Copy {
    /// Sixteen numbers.
    type V: Copy;
    /// Whether there is an instruction for a multiply-add.
    const FMA: bool;
    /// How many running sums the registers hold beside what is added to them.
    const SUMS: usize;

    /// The same number sixteen times.
    fn all(self, v: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn load_half(self, from: &[Float16; LANES]) -> Self::V;
    /// Each rounded to the nearest.
    fn store_half(self, v: Self::V, to: &mut [Float16; LANES]);
    /// Each rounded to the nearest, all in the range of a byte, to which another is added: four of each vector, then the next
    /// four of each.
    fn store_bytes(self, v: [Self::V; 4], added: u8, to: &mut [u8; 4 * LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger of each two.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
    fn multiply(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn multiply_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// The sum of each of sixteen vectors. Lanes are added in the order of [`add_up`](crate::isa::lanes::add_up).
    fn sums(self, of: &[[f32; LANES]; LANES]) -> Self::V;

    /// Runs of 1, 2, 4 or 8 lanes exchanged with their neighbours.
    #[inline(always)]
    fn exchange(self, v: Self::V, run: usize) -> Self::V {
        let (mut lanes, mut exchanged) = ([0.0; LANES], [0.0; LANES]);
        self.store(v, &mut lanes);
        for i in 0..LANES {
            exchanged[i] = lanes[i ^ run];
        }
        self.load(&exchanged)
    }

    /// Sixteen rows of sixteen as their columns.
    #[inline(always)]
    fn turn(self, rows: [&[f32; LANES]; LANES], to: &mut [[f32; LANES]; LANES]) {
        for (column, to) in to.iter_mut().enumerate() {
            *to = array(|row| rows[row][column]);
        }
    }

    /// Asks for memory that is read soon.
    #[inline(always)]
    fn prefetch<T>(_: &[T]) {}
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain<const FMA: bool>;

impl<const FMA: bool> Vectors for Plain<FMA> {
    type V = [f32; LANES];
    const FMA: bool = FMA;
    const SUMS: usize = 4;

    #[inline(always)]
    fn all(self, v: f32) -> [f32; LANES] {
        [v; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> [f32; LANES] {
        *from
    }

    #[inline(always)]
    fn store(self, v: [f32; LANES], to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn load_half(self, from: &[Float16; LANES]) -> [f32; LANES] {
        array(|i| from[i].widen())
    }

    #[inline(always)]
    fn store_half(self, v: [f32; LANES], to: &mut [Float16; LANES]) {
        *to = array(|i| Float16::narrow(v[i]));
    }

    #[inline(always)]
    fn store_bytes(self, v: [[f32; LANES]; 4], added: u8, to: &mut [u8; 4 * LANES]) {
        for (quarter, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let byte =
                |i: usize| crate::isa::lanes::round_to_byte(v[i / 4][quarter * 4 + i % 4]) as u8;
            *to = array(|i| byte(i).wrapping_add(added));
        }
    }

    #[inline(always)]
    fn add(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn larger(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn multiply(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn multiply_add(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        array(|i| crate::isa::lanes::multiply_add::<FMA>(a[i], b[i], c[i]))
    }

    #[inline(always)]
    fn sums(self, of: &[[f32; LANES]; LANES]) -> [f32; LANES] {
        array(|i| crate::isa::lanes::add_up(of[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Float16, LANES, Vectors};

    /// To the nearest, of two the even one.
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    /// Into the second cache: the first is too small for what is read until then.
    #[inline(always)]
    fn prefetch<T>(memory: &[T]) {
        for line in (0..size_of_val(memory)).step_by(64) {
            let line = memory.as_ptr().cast::<i8>().wrapping_add(line);
            // SAFETY: every processor of this architecture has it, and it may be given any address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line) };
        }
    }

    /// A register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());

    impl Avx512 {
        /// # Safety
        /// The processor has AVX-512 F and BW.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Avx512 {
            Avx512(())
        }
    }

    // In all of these: `self` proves the instructions; what is loaded or stored has sixteen numbers.
    impl Vectors for Avx512 {
        type V = __m512;
        const FMA: bool = true;
        const SUMS: usize = 16;

        #[inline(always)]
        fn prefetch<T>(memory: &[T]) {
            prefetch(memory);
        }

        #[inline(always)]
        fn all(self, v: f32) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_set1_ps(v) }
        }

        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }

        #[inline(always)]
        fn store(self, v: __m512, to: &mut [f32; LANES]) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        }

        #[inline(always)]
        fn load_half(self, from: &[Float16; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
        }

        #[inline(always)]
        fn store_half(self, v: __m512, to: &mut [Float16; LANES]) {
            // SAFETY: see above. Of a number and NaN, both take the second.
            unsafe {
                let v = _mm512_min_ps(_mm512_set1_ps(Float16::MOST), v);
                let v = _mm512_max_ps(_mm512_set1_ps(-Float16::MOST), v);
                _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(v));
            }
        }

        #[inline(always)]
        fn store_bytes(self, [a, b, c, d]: [__m512; 4], added: u8, to: &mut [u8; 4 * LANES]) {
            // SAFETY: see above.
            unsafe {
                let ab = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
                let cd = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
                let bytes =
                    _mm512_add_epi8(_mm512_packs_epi16(ab, cd), _mm512_set1_epi8(added as i8));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes);
            }
        }

        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        fn larger(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_max_ps(a, b) }
        }

        #[inline(always)]
        fn multiply(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_mul_ps(a, b) }
        }

        #[inline(always)]
        fn multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        /// Of four vectors, each becomes a quarter of a register; four such registers become one whose quarters have the
        /// sums of four vectors each.
        #[inline(always)]
        fn sums(self, of: &[[f32; LANES]; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe {
                let (a, b) = (quarters(self, of, 0), quarters(self, of, 1));
                let (c, d) = (quarters(self, of, 2), quarters(self, of, 3));
                let (ab, cd) = (add_pairs(a, b), add_pairs(c, d));
                let even = _mm512_shuffle_ps::<0x88>(ab, cd);
                _mm512_add_ps(even, _mm512_shuffle_ps::<0xdd>(ab, cd))
            }
        }

        #[inline(always)]
        fn exchange(self, v: __m512, run: usize) -> __m512 {
            // SAFETY: see above.
            unsafe {
                match run {
                    8 => _mm512_shuffle_f32x4::<0x4e>(v, v),
                    4 => _mm512_shuffle_f32x4::<0xb1>(v, v),
                    2 => _mm512_permute_ps::<0x4e>(v),
                    _ => _mm512_permute_ps::<0xb1>(v),
                }
            }
        }

        /// Quarters are turned within four rows first, then put side by side.
        #[inline(always)]
        fn turn(self, rows: [&[f32; LANES]; LANES], to: &mut [[f32; LANES]; LANES]) {
            // SAFETY: see above.
            unsafe {
                let mut fours = [[_mm512_setzero_ps(); 4]; 4];
                for (four, rows) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
                    *four = turn_quarters(self, rows);
                }
                for k in 0..4 {
                    let [a, b, c, d] = [fours[0][k], fours[1][k], fours[2][k], fours[3][k]];
                    let even =
                        [_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d)];
                    let odd =
                        [_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d)];
                    self.store(_mm512_shuffle_f32x4::<0x88>(even[0], even[1]), &mut to[k]);
                    self.store(_mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]), &mut to[4 + k]);
                    self.store(_mm512_shuffle_f32x4::<0xdd>(even[0], even[1]), &mut to[8 + k]);
                    self.store(_mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]), &mut to[12 + k]);
                }
            }
        }
    }

    // Functions and no closures, in all of these: a closure would not be compiled for the instructions.

    /// Of four rows: quarter `q` of vector `k` is their column `4 q + k`.
    ///
    /// # Safety
    /// The processor has AVX-512F.
    #[inline(always)]
    unsafe fn turn_quarters(isa: Avx512, rows: &[&[f32; LANES]; 4]) -> [__m512; 4] {
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d] =
                [isa.load(rows[0]), isa.load(rows[1]), isa.load(rows[2]), isa.load(rows[3])];
            let [a, b, c, d] = [
                _mm512_castps_pd(_mm512_unpacklo_ps(a, b)),
                _mm512_castps_pd(_mm512_unpackhi_ps(a, b)),
                _mm512_castps_pd(_mm512_unpacklo_ps(c, d)),
                _mm512_castps_pd(_mm512_unpackhi_ps(c, d)),
            ];
            [
                _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
                _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)),
            ]
        }
    }

    /// Four vectors, of which one becomes a quarter each.
    ///
    /// # Safety
    /// The processor has AVX-512F.
    #[inline(always)]
    unsafe fn quarters(isa: Avx512, of: &[[f32; LANES]; LANES], first: usize) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            let ab = add_halves(isa.load(&of[first]), isa.load(&of[first + 4]));
            let cd = add_halves(isa.load(&of[first + 8]), isa.load(&of[first + 12]));
            let even = _mm512_shuffle_f32x4::<0x88>(ab, cd);
            _mm512_add_ps(even, _mm512_shuffle_f32x4::<0xdd>(ab, cd))
        }
    }

    /// Both halves of each quarter added: two numbers of `a`, then two of `b`.
    ///
    /// # Safety
    /// The processor has AVX-512F.
    #[inline(always)]
    unsafe fn add_pairs(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            let low = _mm512_shuffle_ps::<0x44>(a, b);
            _mm512_add_ps(low, _mm512_shuffle_ps::<0xee>(a, b))
        }
    }

    /// Both halves of two registers added: two quarters of `a`, then two of `b`.
    ///
    /// # Safety
    /// The processor has AVX-512F.
    #[inline(always)]
    unsafe fn add_halves(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            let low = _mm512_shuffle_f32x4::<0x44>(a, b);
            _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(a, b))
        }
    }

    /// Two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// # Safety
        /// The processor has AVX2, FMA and F16C.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Avx2 {
            Avx2(())
        }
    }

    // As above.
    impl Vectors for Avx2 {
        type V = [__m256; 2];
        const FMA: bool = true;
        const SUMS: usize = 4;

        #[inline(always)]
        fn prefetch<T>(memory: &[T]) {
            prefetch(memory);
        }

        #[inline(always)]
        fn all(self, v: f32) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_set1_ps(v); 2] }
        }

        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
        }

        #[inline(always)]
        fn store(self, v: [__m256; 2], to: &mut [f32; LANES]) {
            // SAFETY: see above.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
            }
        }

        #[inline(always)]
        fn load_half(self, from: &[Float16; LANES]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe {
                let from: *const __m128i = from.as_ptr().cast();
                [
                    _mm256_cvtph_ps(_mm_loadu_si128(from)),
                    _mm256_cvtph_ps(_mm_loadu_si128(from.add(1))),
                ]
            }
        }

        #[inline(always)]
        fn store_half(self, v: [__m256; 2], to: &mut [Float16; LANES]) {
            // SAFETY: see above. Of a number and NaN, both take the second.
            unsafe {
                let to: *mut __m128i = to.as_mut_ptr().cast();
                for (half, v) in v.into_iter().enumerate() {
                    let v = _mm256_min_ps(_mm256_set1_ps(Float16::MOST), v);
                    let v = _mm256_max_ps(_mm256_set1_ps(-Float16::MOST), v);
                    _mm_storeu_si128(to.add(half), _mm256_cvtps_ph::<NEAREST>(v));
                }
            }
        }

        #[inline(always)]
        fn store_bytes(self, [a, b, c, d]: [[__m256; 2]; 4], added: u8, to: &mut [u8; 4 * LANES]) {
            // SAFETY: see above.
            unsafe {
                let to: *mut __m256i = to.as_mut_ptr().cast();
                for half in 0..2 {
                    let (a, b) = (_mm256_cvtps_epi32(a[half]), _mm256_cvtps_epi32(b[half]));
                    let (c, d) = (_mm256_cvtps_epi32(c[half]), _mm256_cvtps_epi32(d[half]));
                    let (ab, cd) = (_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
                    let bytes =
                        _mm256_add_epi8(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8(added as i8));
                    _mm256_storeu_si256(to.add(half), bytes);
                }
            }
        }

        #[inline(always)]
        fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn larger(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn multiply(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn multiply_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        }

        #[inline(always)]
        fn sums(self, of: &[[f32; LANES]; LANES]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [eight(self, of, 0), eight(self, of, 8)] }
        }
    }

    /// The sums of eight vectors: of two, each becomes half of a register; four such registers become one.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn eight(isa: Avx2, of: &[[f32; LANES]; LANES], first: usize) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let (a, b) = (two(isa, of, first), two(isa, of, first + 1));
            let (c, d) = (two(isa, of, first + 2), two(isa, of, first + 3));
            let (ab, cd) = (add_pairs_of_halves(a, b), add_pairs_of_halves(c, d));
            let even = _mm256_shuffle_ps::<0x88>(ab, cd);
            _mm256_add_ps(even, _mm256_shuffle_ps::<0xdd>(ab, cd))
        }
    }

    /// Two vectors that are four apart, of which one becomes a half each.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn two(isa: Avx2, of: &[[f32; LANES]; LANES], first: usize) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let ([a, b], [c, d]) = (isa.load(&of[first]), isa.load(&of[first + 4]));
            let (ab, cd) = (_mm256_add_ps(a, b), _mm256_add_ps(c, d));
            let low = _mm256_permute2f128_ps::<0x20>(ab, cd);
            _mm256_add_ps(low, _mm256_permute2f128_ps::<0x31>(ab, cd))
        }
    }

    /// As [`add_pairs`], with registers of two quarters.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn add_pairs_of_halves(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let low = _mm256_shuffle_ps::<0x44>(a, b);
            _mm256_add_ps(low, _mm256_shuffle_ps::<0xee>(a, b))
        }
    }
}

/// Makes `fn NAME(isa, ARGS)` from a generic `BODY(vectors, ARGS)`, as `kernel!` does from one that is generic in a
/// constant.
macro_rules! vector_kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) {
                // SAFETY: this function is compiled for, and called with, these instructions.
                $body(unsafe { $crate::isa::vectors::Avx2::new() }, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $type),*) {
                // SAFETY: as above.
                $body(unsafe { $crate::isa::vectors::Avx512::new() }, $($arg),*)
            }
            match isa.level() {
                // SAFETY: an `Isa` of this level exists only where the processor has AVX2, FMA and F16C.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 | $crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512
                | $crate::isa::Level::Avx512Vnni
                | $crate::isa::Level::Amx => {
                    // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                    unsafe { avx512($($arg),*) }
                }
                // What is compiled for the architecture has NEON and its fused multiply-add already.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Level::Neon | $crate::isa::Level::NeonDot => {
                    $body($crate::isa::vectors::Plain::<true>, $($arg),*)
                }
                _ => $body($crate::isa::vectors::Plain::<false>, $($arg),*),
            }
        }
    };
}

pub(crate) use vector_kernel;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::lanes::add_up;

    fn check<I: Vectors>(isa: I) {
        let rows: [[f32; LANES]; LANES] = array(|r| array(|c| (r * LANES + c) as f32));
        let mut turned = [[0.0; LANES]; LANES];
        isa.turn(array(|r| &rows[r]), &mut turned);
        for (c, r) in (0..LANES).flat_map(|c| (0..LANES).map(move |r| (c, r))) {
            assert_eq!(turned[c][r], rows[r][c], "column {c} of row {r}");
        }
        for run in [1, 2, 4, 8] {
            let mut exchanged = [0.0; LANES];
            isa.store(isa.exchange(isa.load(&rows[1]), run), &mut exchanged);
            assert_eq!(exchanged, array(|i| rows[1][i ^ run]));
        }
        // Of very different sizes: another order of additions rounds otherwise.
        let odd: [[f32; LANES]; LANES] = array(|r| {
            array(|c| (((r * 7 + c * 5) % 23) as f32 - 11.3) * 10f32.powi((c * 3 % 7) as i32))
        });
        let mut sums = [0.0; LANES];
        isa.store(isa.sums(&odd), &mut sums);
        assert_eq!(sums, array(|r| add_up(odd[r])));
    }

    #[test]
    fn lanes_are_moved_and_added_as_said() {
        check(Plain::<false>);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: asked for.
                check(unsafe { Avx2::new() });
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                // SAFETY: asked for.
                check(unsafe { Avx512::new() });
            }
        }
    }
}
