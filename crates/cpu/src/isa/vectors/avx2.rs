//! Sixteen numbers in two AVX2 registers.

use std::arch::x86_64::*;

use super::{NEAREST, Vectors, prefetch};
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;

/// Proof that the processor has AVX2, FMA and F16C.
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
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_set1_ps(v); 2] }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, v: [__m256; 2], to: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
        }
    }

    #[inline(always)]
    fn load_float16(self, from: &[Float16; LANES]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe {
            let from: *const __m128i = from.as_ptr().cast();
            [_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))]
        }
    }

    #[inline(always)]
    fn store_float16(self, v: [__m256; 2], to: &mut [Float16; LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements. Of a number and NaN, min and max return the second operand.
        unsafe {
            let to: *mut __m128i = to.as_mut_ptr().cast();
            for (half, v) in v.into_iter().enumerate() {
                let v = _mm256_min_ps(_mm256_set1_ps(Float16::MAX), v);
                let v = _mm256_max_ps(_mm256_set1_ps(-Float16::MAX), v);
                _mm_storeu_si128(to.add(half), _mm256_cvtps_ph::<NEAREST>(v));
            }
        }
    }

    #[inline(always)]
    fn store_bytes(self, [a, b, c, d]: [[__m256; 2]; 4], added: u8, to: &mut [u8; 4 * LANES]) {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
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
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn larger(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn sums(self, of: &[[f32; LANES]; LANES]) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions; arrays have sixteen elements.
        unsafe { [eight(self, of, 0), eight(self, of, 8)] }
    }
}

/// The horizontal sums of eight vectors. Two vectors become a register, a half each; four such registers become one.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn eight(isa: Avx2, of: &[[f32; LANES]; LANES], first: usize) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (a, b) = (two(isa, of, first), two(isa, of, first + 1));
        let (c, d) = (two(isa, of, first + 2), two(isa, of, first + 3));
        let (ab, cd) = (add_pairs(a, b), add_pairs(c, d));
        let even = _mm256_shuffle_ps::<0x88>(ab, cd);
        _mm256_add_ps(even, _mm256_shuffle_ps::<0xdd>(ab, cd))
    }
}

/// Reduces two vectors that are four apart to one register, a half each.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn two(isa: Avx2, of: &[[f32; LANES]; LANES], first: usize) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let ([a, b], [c, d]) = (isa.load(&of[first]), isa.load(&of[first + 4]));
        let (ab, cd) = (_mm256_add_ps(a, b), _mm256_add_ps(c, d));
        let low = _mm256_permute2f128_ps::<0x20>(ab, cd);
        _mm256_add_ps(low, _mm256_permute2f128_ps::<0x31>(ab, cd))
    }
}

/// Adds both halves of each quarter: two sums of `a`, then two of `b`.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn add_pairs(a: __m256, b: __m256) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let low = _mm256_shuffle_ps::<0x44>(a, b);
        _mm256_add_ps(low, _mm256_shuffle_ps::<0xee>(a, b))
    }
}
