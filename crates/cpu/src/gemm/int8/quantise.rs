//! Rows of inputs as bytes: each with a step of its own, `max|x| / 127`, so that no row depends on another.

use super::{INPUT_MULTIPLE, PIECE, PackedInt8};
use crate::gemm::tiles::{Order, TILE_ROWS};
#[cfg(target_arch = "x86_64")]
use crate::isa::Level;
use crate::isa::float16::Float16;
use crate::isa::lanes::largest_magnitude;
use crate::isa::{Isa, kernel};
use crate::memory::arena::Aligned;

/// Rows of inputs, quantised.
#[derive(Default)]
pub(crate) struct QuantisedInt8 {
    /// Rows of unsigned bytes, each filled up to a multiple of 64, in this order.
    pub(crate) bytes: Aligned<u8>,
    /// What an integer of each row stands for.
    pub(crate) scales: Vec<f32>,
    pub(crate) stride: usize,
    pub(crate) order: Order,
}

impl QuantisedInt8 {
    /// Quantises rows for a layer's products.
    pub(crate) fn fill(&mut self, isa: Isa, x: &[f32], packed: &PackedInt8) {
        self.reserve(isa, x.len() / packed.inputs.max(1), packed);
        self.fill_from(isa, 0, x, packed);
    }

    /// Quantises rows for whoever reads them one by one.
    pub(crate) fn fill_rows(&mut self, isa: Isa, x: &[f32], packed: &PackedInt8) {
        self.shape(x.len() / packed.inputs.max(1), packed, Order::Rows);
        self.fill_from(isa, 0, x, packed);
    }

    /// Makes room for so many rows of a layer's products.
    pub(crate) fn reserve(&mut self, isa: Isa, rows: usize, packed: &PackedInt8) {
        self.shape(rows, packed, super::order_for(isa, rows, packed));
    }

    fn shape(&mut self, rows: usize, packed: &PackedInt8, order: Order) {
        self.stride = packed.inputs.next_multiple_of(INPUT_MULTIPLE);
        self.order = order;
        let whole = match order {
            Order::Rows => rows,
            Order::Tiles => rows.next_multiple_of(TILE_ROWS),
        };
        // Tiles are loaded whole: there must be memory behind the last row.
        self.bytes.reshape(whole * self.stride, TILE_ROWS * self.stride);
        self.scales.resize(rows, 0.0);
    }

    /// Quantises some of the rows, from the given one on, which is the first of a tile.
    pub(crate) fn fill_from(&mut self, isa: Isa, first: usize, x: &[f32], packed: &PackedInt8) {
        let rows = Rows {
            x,
            width: packed.inputs,
            bytes: &mut self.bytes[first * self.stride..],
            stride: self.stride,
            scales: &mut self.scales[first..],
        };
        match (packed.options.alpha, isa.level()) {
            (Some(alpha), _) => quantise_fixed(isa, rows, alpha),
            #[cfg(target_arch = "x86_64")]
            (None, Level::Avx512 | Level::Avx512Vnni | Level::Amx) => {
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                unsafe { avx512::quantise(rows, self.order) };
            }
            _ => quantise(isa, rows),
        }
    }

    /// As `fill_from` for outputs of [`multiply_to_halves`](super::multiply_to_halves), which become the next layer's inputs.
    /// Rows that half precision [does not suit](Half::suits) are left to be filled, and named.
    pub(crate) fn fill_from_halves(&mut self, halves: &[[Float16; PIECE]], left: &mut Vec<usize>) {
        assert_eq!(self.order, Order::Tiles, "as what they were made of");
        assert_eq!(halves.len() * PIECE, self.scales.len() * self.stride, "all rows");
        // SAFETY: inputs lie in tiles only where the processor has them, and then it has AVX-512.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            avx512::quantise_halves(halves, self.bytes.as_chunks_mut().0, &mut self.scales, left)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = left;
    }

    /// Quantises one row that lies in tiles.
    pub(crate) fn fill_one(&mut self, row: usize, x: &[f32]) {
        assert_eq!(self.order, Order::Tiles, "as the other rows");
        #[cfg(target_arch = "x86_64")]
        {
            let tile = &mut self.bytes[row / TILE_ROWS * TILE_ROWS * self.stride..];
            let lines = tile.as_chunks_mut().0.iter_mut().skip(row % TILE_ROWS).step_by(TILE_ROWS);
            // SAFETY: as above.
            self.scales[row] = unsafe { avx512::quantise_row(x, lines) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (row, x);
    }
}

/// What is read and written.
struct Rows<'a> {
    x: &'a [f32],
    width: usize,
    bytes: &'a mut [u8],
    stride: usize,
    scales: &'a mut [f32],
}

impl Rows<'_> {
    /// Calls `f` with each row's numbers, bytes and step.
    #[inline(always)]
    fn each(self, f: impl Fn(&[f32], &mut [u8], &mut f32)) {
        let bytes = self.bytes.chunks_exact_mut(self.stride.max(1));
        let rows = self.x.chunks_exact(self.width.max(1)).zip(bytes);
        for ((row, bytes), scale) in rows.zip(self.scales) {
            f(row, bytes, scale);
        }
    }
}

/// Adding 1.5 · 2²³ to a small number leaves it, rounded to even, in the low bits.
const ROUND: f32 = 12_582_912.0;

/// What a row's numbers are multiplied with, and what an integer then stands for.
#[inline(always)]
fn inverse_and_scale(most: f32) -> (f32, f32) {
    if most > 0.0 { (127.0 / most, most / 127.0) } else { (0.0, 0.0) }
}

kernel! {
    fn quantise(rows: Rows<'_>) = quantise_body
}

#[inline(always)]
fn quantise_body<const FMA: bool>(rows: Rows<'_>) {
    let width = rows.width;
    rows.each(|row, bytes, scale| {
        let (inverse, one) = inverse_and_scale(largest_magnitude(row));
        *scale = one;
        bytes[width..].fill(128);
        for (byte, &x) in bytes.iter_mut().zip(row) {
            *byte = ((x * inverse + ROUND).to_bits() as u8).wrapping_add(128);
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
    rows.each(|row, bytes, scale| {
        *scale = 1.0 / alpha;
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

    use super::{INPUT_MULTIPLE, Rows, inverse_and_scale};
    use crate::gemm::int8::PIECE;
    use crate::gemm::tiles::{Order, TILE_ROWS};
    use crate::isa::float16::Float16;
    use crate::isa::lanes::LANES;

    /// Numbers worked on at a time.
    const WIDE: usize = INPUT_MULTIPLE;

    /// # Safety
    /// The processor has AVX-512F and BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn quantise(rows: Rows<'_>, order: Order) {
        let lines = rows.bytes.as_chunks_mut::<WIDE>().0;
        let width = rows.stride / WIDE;
        let numbers = rows.x.chunks_exact(rows.width.max(1));
        for (i, (row, scale)) in numbers.zip(rows.scales).enumerate() {
            *scale = match order {
                Order::Rows => quantise_row(row, lines[i * width..].iter_mut()),
                Order::Tiles => {
                    let first = i / TILE_ROWS * TILE_ROWS * width + i % TILE_ROWS;
                    quantise_row(row, lines[first..].iter_mut().step_by(TILE_ROWS))
                }
            };
        }
    }

    /// Writes a row's bytes, which are filled up to a multiple of 64, and returns their step.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(super) fn quantise_row<'a>(
        row: &[f32],
        mut bytes: impl Iterator<Item = &'a mut [u8; WIDE]>,
    ) -> f32 {
        let (row, rest) = row.as_chunks::<WIDE>();
        let is_rest = !rest.is_empty();
        let rest = filled_up(rest);
        let mut most = [_mm512_setzero_ps(); 4];
        for row in row {
            most = larger(row, most);
        }
        let [a, b, c, d] = larger(&rest, most);
        let most = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
        let (inverse, scale) = inverse_and_scale(_mm512_reduce_max_ps(most));
        for (row, bytes) in row.iter().zip(&mut bytes) {
            narrow(quarters(row), inverse, bytes);
        }
        if let Some(last) = bytes.next().filter(|_| is_rest) {
            narrow(quarters(&rest), inverse, last);
        }
        scale
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn quarters(x: &[f32; WIDE]) -> [__m512; 4] {
        [load(x, 0), load(x, 1), load(x, 2), load(x, 3)]
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

    /// Rows of halves that are quantised together.
    const AT_ONCE: usize = 8;

    /// Quantises rows of halves, none of them negative, of which [`PIECE`] columns come after the other, into tiles. Some rows at a
    /// time, so that each piece is read where the last one ended.
    ///
    /// # Safety
    /// As above.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn quantise_halves(
        halves: &[[Float16; PIECE]],
        lines: &mut [[u8; WIDE]],
        scales: &mut [f32],
        left: &mut Vec<usize>,
    ) {
        let rows = scales.len();
        let tile = TILE_ROWS * (halves.len() / rows.max(1) / 2);
        let mut first = 0;
        while first < rows {
            let (lines, scales) = (&mut lines[first / TILE_ROWS * tile..], &mut scales[first..]);
            let count = if scales.len() < AT_ONCE { 1 } else { AT_ONCE };
            match count {
                1 => quantise_some::<1>(halves, (first, rows), lines, scales, left),
                _ => quantise_some::<AT_ONCE>(halves, (first, rows), lines, scales, left),
            }
            first += count;
        }
    }

    /// Quantises `R` rows from the given one of so many on.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn quantise_some<const R: usize>(
        halves: &[[Float16; PIECE]],
        (first, rows): (usize, usize),
        lines: &mut [[u8; WIDE]],
        scales: &mut [f32],
        left: &mut Vec<usize>,
    ) {
        let mut most = [_mm512_setzero_si512(); R];
        for piece in halves.chunks_exact(rows) {
            for (most, halves) in most.iter_mut().zip(&piece[first..]) {
                // Of numbers that are not negative the larger one has the larger bits.
                *most = _mm512_max_epu16(*most, both(halves));
            }
        }
        let mut inverses = [0.0; R];
        for (i, (most, (inverse, scale))) in
            most.into_iter().zip(inverses.iter_mut().zip(scales)).enumerate()
        {
            let [low, high] = widened(most);
            let most = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
            (*inverse, *scale) = inverse_and_scale(most);
            if !Float16::suits(most) {
                left.push(first + i);
            }
        }
        let pairs = halves.chunks_exact(2 * rows);
        for (pair, lines) in pairs.zip(lines.chunks_exact_mut(TILE_ROWS)) {
            let (one, other) = pair.split_at(rows);
            let columns = one[first..].iter().zip(&other[first..]);
            let to = lines[first % TILE_ROWS..].iter_mut().zip(inverses);
            for ((one, other), (bytes, inverse)) in columns.zip(to) {
                let ([a, b], [c, d]) = (widened(both(one)), widened(both(other)));
                narrow([a, b, c, d], inverse, bytes);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn both(halves: &[Float16; PIECE]) -> __m512i {
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(halves.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn widened(halves: __m512i) -> [__m512; 2] {
        let low = _mm512_castsi512_si256(halves);
        [_mm512_cvtph_ps(low), _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(halves))]
    }

    /// Sixty-four numbers as bytes.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn narrow(x: [__m512; 4], inverse: f32, bytes: &mut [u8; WIDE]) {
        let inverse = _mm512_set1_ps(inverse);
        let mut integers = [_mm512_setzero_si512(); 4];
        for (integers, x) in integers.iter_mut().zip(x) {
            *integers = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
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

    /// Sixteen of the numbers.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load<const N: usize>(x: &[f32; N], sixteen: usize) -> __m512 {
        // SAFETY: as many as the range has.
        unsafe { _mm512_loadu_ps(x[sixteen * LANES..][..LANES].as_ptr()) }
    }
}
