//! Rows of inputs as bytes: each with a step of its own, `max|x| / 127`, so that no row depends on another.

use super::{INPUT_MULTIPLE, Packed8};
use crate::arena::Aligned;
use crate::isa::{Isa, Level, kernel};
use crate::lanes::largest_magnitude;
use crate::tiles::TILE_ROWS;

/// Rows of inputs, quantised.
#[derive(Default)]
pub(crate) struct Quantised {
    /// Rows of unsigned bytes, each filled up to a multiple of 64.
    pub(super) bytes: Aligned<u8>,
    /// What an integer of each row stands for.
    pub(super) steps: Vec<f32>,
    pub(super) stride: usize,
}

impl Quantised {
    /// Quantises rows for a layer.
    pub(crate) fn fill(&mut self, isa: Isa, x: &[f32], packed: &Packed8) {
        self.reserve(x.len() / packed.inputs.max(1), packed);
        self.fill_from(isa, 0, x, packed);
    }

    /// Makes room for so many rows.
    pub(crate) fn reserve(&mut self, rows: usize, packed: &Packed8) {
        self.stride = packed.inputs.next_multiple_of(INPUT_MULTIPLE);
        // Tiles are loaded whole: there must be memory behind the last row.
        self.bytes.reshape(rows * self.stride, TILE_ROWS * self.stride);
        self.steps.resize(rows, 0.0);
    }

    /// Quantises some of the rows, from the given one on.
    pub(crate) fn fill_from(&mut self, isa: Isa, first: usize, x: &[f32], packed: &Packed8) {
        let rows = Rows {
            x,
            width: packed.inputs,
            bytes: &mut self.bytes[first * self.stride..],
            stride: self.stride,
            steps: &mut self.steps[first..],
        };
        match (packed.ways.alpha, isa.level()) {
            (Some(alpha), _) => quantise_fixed(isa, rows, alpha),
            #[cfg(target_arch = "x86_64")]
            (None, Level::Avx512 | Level::Avx512Vnni | Level::Amx) => {
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                rows.each(|row, bytes, step| *step = unsafe { avx512::quantise(row, bytes) });
            }
            _ => quantise(isa, rows),
        }
    }
}

/// What is read and written.
struct Rows<'a> {
    x: &'a [f32],
    width: usize,
    bytes: &'a mut [u8],
    stride: usize,
    steps: &'a mut [f32],
}

impl Rows<'_> {
    /// Calls `f` with each row's numbers, bytes and step.
    #[inline(always)]
    fn each(self, f: impl Fn(&[f32], &mut [u8], &mut f32)) {
        let bytes = self.bytes.chunks_exact_mut(self.stride.max(1));
        let rows = self.x.chunks_exact(self.width.max(1)).zip(bytes);
        for ((row, bytes), step) in rows.zip(self.steps) {
            f(row, bytes, step);
        }
    }
}

/// Adding 1.5 · 2²³ to a small number leaves it, rounded to even, in the low bits.
const ROUND: f32 = 12_582_912.0;

/// What a row's numbers are multiplied with, and what an integer then stands for.
#[inline(always)]
fn scale_and_step(most: f32) -> (f32, f32) {
    if most > 0.0 { (127.0 / most, most / 127.0) } else { (0.0, 0.0) }
}

kernel! {
    fn quantise(rows: Rows<'_>) = quantise_body
}

#[inline(always)]
fn quantise_body<const FMA: bool>(rows: Rows<'_>) {
    let width = rows.width;
    rows.each(|row, bytes, step| {
        let (scale, one) = scale_and_step(largest_magnitude(row));
        *step = one;
        bytes[width..].fill(128);
        for (byte, &x) in bytes.iter_mut().zip(row) {
            *byte = ((x * scale + ROUND).to_bits() as u8).wrapping_add(128);
        }
    });
}

kernel! {
    fn quantise_fixed(rows: Rows<'_>, alpha: f32) = quantise_fixed_body
}

/// With the same step for all rows: what does not fit is cut off.
#[inline(always)]
fn quantise_fixed_body<const FMA: bool>(rows: Rows<'_>, alpha: f32) {
    let width = rows.width;
    rows.each(|row, bytes, step| {
        *step = 1.0 / alpha;
        bytes[width..].fill(128);
        for (byte, &x) in bytes.iter_mut().zip(row) {
            let x = x * alpha;
            let x = if x > -127.0 { x } else { -127.0 };
            let x = if x < 127.0 { x } else { 127.0 };
            *byte = ((x + ROUND).to_bits() as u8).wrapping_add(128);
        }
    });
}

/// Sixty-four numbers at a time: four registers become one in three packings, where compilers narrow each on its own.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{INPUT_MULTIPLE, scale_and_step};
    use crate::lanes::LANES;

    /// Numbers worked on at a time.
    const WIDE: usize = INPUT_MULTIPLE;

    /// Writes a row's bytes, which are filled up to a multiple of 64, and returns their step.
    ///
    /// # Safety
    /// The processor has AVX-512F and BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn quantise(row: &[f32], bytes: &mut [u8]) -> f32 {
        let (row, rest) = row.as_chunks::<WIDE>();
        let bytes = bytes.as_chunks_mut::<WIDE>().0;
        let (bytes, last) = bytes.split_at_mut(row.len());
        let rest = filled_up(rest);
        let mut most = [_mm512_setzero_ps(); 4];
        for row in row {
            most = larger(row, most);
        }
        let [a, b, c, d] = larger(&rest, most);
        let most = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
        let (scale, step) = scale_and_step(_mm512_reduce_max_ps(most));
        for (row, bytes) in row.iter().zip(bytes) {
            narrow(row, scale, bytes);
        }
        if let Some(last) = last.first_mut() {
            narrow(&rest, scale, last);
        }
        step
    }

    fn filled_up(rest: &[f32]) -> [f32; WIDE] {
        let mut wide = [0.0; WIDE];
        wide[..rest.len()].copy_from_slice(rest);
        wide
    }

    /// The larger of each magnitude and what stands in `most`. A NaN counts as no number: of a NaN and a number, the
    /// second is taken.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn larger(x: &[f32; WIDE], mut most: [__m512; 4]) -> [__m512; 4] {
        for (i, most) in most.iter_mut().enumerate() {
            *most = _mm512_max_ps(_mm512_abs_ps(load(x, i)), *most);
        }
        most
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn narrow(x: &[f32; WIDE], scale: f32, bytes: &mut [u8; WIDE]) {
        let scale = _mm512_set1_ps(scale);
        let mut integers = [_mm512_setzero_si512(); 4];
        for (i, integers) in integers.iter_mut().enumerate() {
            *integers = _mm512_cvtps_epi32(_mm512_mul_ps(load(x, i), scale));
        }
        let [a, b, c, d] = integers;
        let packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
        // Now there are four numbers of each register side by side, then the next four of each.
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let signed = _mm512_permutexvar_epi32(order, packed);
        let unsigned = _mm512_xor_si512(signed, _mm512_set1_epi8(-128));
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), unsigned) };
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(x: &[f32; WIDE], quarter: usize) -> __m512 {
        // SAFETY: a quarter of the numbers.
        unsafe { _mm512_loadu_ps(x[quarter * LANES..][..LANES].as_ptr()) }
    }
}
