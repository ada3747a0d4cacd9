//! Sixteen numbers in one AVX-512 register.

use std::arch::x86_64::*;

use super::{NEAREST, Vectors, prefetch};
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;

/// Proof that the processor has AVX-512 F and BW.
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
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_set1_ps(v) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn load_float16(self, from: &[Float16; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_float16(self, v: __m512, to: &mut [Float16; LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements. Of a number and NaN, min and max return the second operand.
        unsafe {
            let v = _mm512_min_ps(_mm512_set1_ps(Float16::MAX), v);
            let v = _mm512_max_ps(_mm512_set1_ps(-Float16::MAX), v);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(v));
        }
    }

    #[inline(always)]
    fn store_bytes(self, [a, b, c, d]: [__m512; 4], added: u8, to: &mut [u8; 4 * LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe {
            let ab = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
            let cd = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
            let bytes = _mm512_add_epi8(_mm512_packs_epi16(ab, cd), _mm512_set1_epi8(added as i8));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes);
        }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    /// Reduces four vectors to one register, a quarter each, and four such registers to one whose quarters hold the sums of
    /// four vectors each.
    #[inline(always)]
    fn sums(self, of: &[[f32; LANES]; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
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
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe {
            match run {
                8 => _mm512_shuffle_f32x4::<0x4e>(v, v),
                4 => _mm512_shuffle_f32x4::<0xb1>(v, v),
                2 => _mm512_permute_ps::<0x4e>(v),
                _ => _mm512_permute_ps::<0xb1>(v),
            }
        }
    }

    /// Transposes the quarters of four rows first, then shuffles quarters.
    #[inline(always)]
    fn transpose(self, rows: [&[f32; LANES]; LANES], to: &mut [[f32; LANES]; LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe {
            let mut fours = [[_mm512_setzero_ps(); 4]; 4];
            for (four, rows) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
                *four = transpose_quarters(self, rows);
            }
            for k in 0..4 {
                let [a, b, c, d] = [fours[0][k], fours[1][k], fours[2][k], fours[3][k]];
                let even = [_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d)];
                let odd = [_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d)];
                self.store(_mm512_shuffle_f32x4::<0x88>(even[0], even[1]), &mut to[k]);
                self.store(_mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]), &mut to[4 + k]);
                self.store(_mm512_shuffle_f32x4::<0xdd>(even[0], even[1]), &mut to[8 + k]);
                self.store(_mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]), &mut to[12 + k]);
            }
        }
    }
}

// Functions and not closures: the compiler does not enable the target features in a closure.

/// Transposes four rows: quarter `q` of result `k` is their column `4 q + k`.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn transpose_quarters(isa: Avx512, rows: &[&[f32; LANES]; 4]) -> [__m512; 4] {
    // SAFETY: guaranteed by the caller.
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

/// Reduces four vectors that are four apart to one register, a quarter each.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn quarters(isa: Avx512, of: &[[f32; LANES]; LANES], first: usize) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let ab = add_halves(isa.load(&of[first]), isa.load(&of[first + 4]));
        let cd = add_halves(isa.load(&of[first + 8]), isa.load(&of[first + 12]));
        let even = _mm512_shuffle_f32x4::<0x88>(ab, cd);
        _mm512_add_ps(even, _mm512_shuffle_f32x4::<0xdd>(ab, cd))
    }
}

/// Adds both halves of each quarter: two sums of `a`, then two of `b`.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn add_pairs(a: __m512, b: __m512) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let low = _mm512_shuffle_ps::<0x44>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_ps::<0xee>(a, b))
    }
}

/// Adds both halves of two registers: two quarters of `a`, then two of `b`.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn add_halves(a: __m512, b: __m512) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let low = _mm512_shuffle_f32x4::<0x44>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(a, b))
    }
}
