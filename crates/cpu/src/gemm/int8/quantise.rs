//! Quantisation of inputs to int8: each row has a scale of its own, `max|x| / 127`, so that no row depends on another.

use super::{INPUT_MULTIPLE, PIECE, PackedInt8, round_to_float16};
use crate::gemm::tiles::InputLayout;
#[cfg(target_arch = "x86_64")]
use crate::isa::Level;
use crate::isa::amx::TILE_ROWS;
use crate::isa::float16::Float16;
use crate::isa::lanes::largest_magnitude;
use crate::isa::{Isa, kernel};
use crate::memory::arena::Aligned;

/// Rows of inputs, quantised.
#[derive(Default)]
pub(crate) struct QuantisedInt8 {
    /// Rows of unsigned bytes, each padded to a multiple of 64, in the given layout.
    pub(crate) bytes: Aligned<u8>,
    /// Quantisation scale of each row.
    pub(crate) scales: Vec<f32>,
    pub(crate) stride: usize,
    pub(crate) layout: InputLayout,
}

impl QuantisedInt8 {
    /// Quantises rows for a layer's products.
    pub(crate) fn fill(&mut self, isa: Isa, x: &[f32], packed: &PackedInt8) {
        self.reserve(isa, x.len() / packed.inputs.max(1), packed);
        self.fill_from(isa, 0, x, packed);
    }

    /// Quantises rows in row-major layout.
    pub(crate) fn fill_rows(&mut self, isa: Isa, x: &[f32], packed: &PackedInt8) {
        self.shape(x.len() / packed.inputs.max(1), packed, InputLayout::RowMajor);
        self.fill_from(isa, 0, x, packed);
    }

    /// Allocates so many rows for a layer's products.
    pub(crate) fn reserve(&mut self, isa: Isa, rows: usize, packed: &PackedInt8) {
        self.shape(rows, packed, super::layout_for(isa, rows, packed));
    }

    fn shape(&mut self, rows: usize, packed: &PackedInt8, layout: InputLayout) {
        self.stride = packed.inputs.next_multiple_of(INPUT_MULTIPLE);
        self.layout = layout;
        let whole = match layout {
            InputLayout::RowMajor => rows,
            InputLayout::AmxTiles => rows.next_multiple_of(TILE_ROWS),
        };
        // AMX loads whole tiles: there must be memory behind the last row.
        self.bytes.reshape(whole * self.stride, TILE_ROWS * self.stride);
        self.scales.resize(rows, 0.0);
    }

    /// Quantises some of the rows from `first` on, which is the first row of an AMX tile.
    pub(crate) fn fill_from(&mut self, isa: Isa, first: usize, x: &[f32], packed: &PackedInt8) {
        let (rows, layout) = self.rows_from(first, x, packed);
        match (packed.options.alpha, isa.level()) {
            (Some(alpha), _) => quantise_fixed(isa, rows, alpha),
            #[cfg(target_arch = "x86_64")]
            (None, Level::Avx512 | Level::Avx512Vnni | Level::Amx) => {
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                unsafe { avx512::quantise::<false>(rows, layout) };
            }
            #[cfg(target_arch = "x86_64")]
            (None, Level::Avx2 | Level::AvxVnni) => {
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX2 and F16C.
                unsafe { avx2::quantise::<false>(rows) };
            }
            _ => quantise(isa, rows),
        }
    }

    /// As [`QuantisedInt8::fill_from`] for activations after a ReLU, which are rounded to float16 first: see
    /// [`round_to_float16`]. They may be changed.
    pub(crate) fn fill_hidden_from(
        &mut self,
        isa: Isa,
        first: usize,
        hidden: &mut [f32],
        packed: &PackedInt8,
    ) {
        match isa.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vnni | Level::Amx if packed.options.alpha.is_none() => {
                let (rows, layout) = self.rows_from(first, hidden, packed);
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                unsafe { avx512::quantise::<true>(rows, layout) };
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni if packed.options.alpha.is_none() => {
                let (rows, _) = self.rows_from(first, hidden, packed);
                // SAFETY: an `Isa` of these levels exists only where the processor has AVX2 and F16C.
                unsafe { avx2::quantise::<true>(rows) };
            }
            _ => {
                round_to_float16(isa, packed.inputs, hidden);
                self.fill_from(isa, first, hidden, packed);
            }
        }
    }

    /// Where the bytes and scales of rows `x` from `first` on go, and their layout.
    fn rows_from<'a>(
        &'a mut self,
        first: usize,
        x: &'a [f32],
        packed: &PackedInt8,
    ) -> (Rows<'a>, InputLayout) {
        let rows = Rows {
            x,
            width: packed.inputs,
            bytes: &mut self.bytes[first * self.stride..],
            stride: self.stride,
            scales: &mut self.scales[first..],
        };
        (rows, self.layout)
    }

    /// Quantises the outputs of [`multiply_to_float16`](super::multiply_to_float16), which become the next layer's inputs. Rows that
    /// float16 does not [suit](Float16::suits) are appended to `unsuited`, for [`QuantisedInt8::fill_one`].
    pub(crate) fn fill_from_float16(
        &mut self,
        pieces: &[[Float16; PIECE]],
        unsuited: &mut Vec<usize>,
    ) {
        assert_eq!(self.layout, InputLayout::AmxTiles, "the layout of the first layer's inputs");
        assert_eq!(pieces.len() * PIECE, self.scales.len() * self.stride, "all rows");
        // SAFETY: inputs have the layout of AMX tiles only where the processor has AMX, and then it has AVX-512.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            let lines = self.bytes.as_chunks_mut().0;
            avx512::quantise_float16(pieces, lines, &mut self.scales, unsuited)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = unsuited;
    }

    /// Quantises one row in the layout of AMX tiles.
    pub(crate) fn fill_one(&mut self, row: usize, x: &[f32]) {
        assert_eq!(self.layout, InputLayout::AmxTiles, "the layout of the other rows");
        #[cfg(target_arch = "x86_64")]
        {
            let tile = &mut self.bytes[row / TILE_ROWS * TILE_ROWS * self.stride..];
            let lines = tile.as_chunks_mut().0.iter_mut().skip(row % TILE_ROWS).step_by(TILE_ROWS);
            // SAFETY: as above.
            self.scales[row] = unsafe { avx512::quantise_row::<false>(x, lines) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (row, x);
    }
}

/// Inputs and where their bytes and scales go.
struct Rows<'a> {
    x: &'a [f32],
    width: usize,
    bytes: &'a mut [u8],
    stride: usize,
    scales: &'a mut [f32],
}

impl Rows<'_> {
    /// Calls `f` with each row's numbers, bytes and scale.
    #[inline(always)]
    fn each(self, f: impl Fn(&[f32], &mut [u8], &mut f32)) {
        let bytes = self.bytes.chunks_exact_mut(self.stride.max(1));
        let rows = self.x.chunks_exact(self.width.max(1)).zip(bytes);
        for ((row, bytes), scale) in rows.zip(self.scales) {
            f(row, bytes, scale);
        }
    }
}

/// Adding 1.5 · 2²³ to a small number leaves it, rounded to the nearest integer, in the low bits.
const ROUND: f32 = 12_582_912.0;

/// The multiplier of a row with this maximum magnitude, and its quantisation scale.
#[inline(always)]
fn inverse_and_scale(max: f32) -> (f32, f32) {
    if max > 0.0 { (127.0 / max, max / 127.0) } else { (0.0, 0.0) }
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

/// Quantises all rows with the same scale; numbers that do not fit saturate.
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

/// As `avx512`, 32 numbers at a time.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Rows, inverse_and_scale};
    use crate::isa::float16::Float16;

    /// Numbers worked on at a time.
    const WIDE: usize = 32;

    /// With `FLOAT16`, non-negative rows are rounded to float16 first where that [suits](Float16::suits) them.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn quantise<const FLOAT16: bool>(rows: Rows<'_>) {
        let bytes = rows.bytes.chunks_exact_mut(rows.stride.max(1));
        let numbers = rows.x.chunks_exact(rows.width.max(1));
        for ((row, bytes), scale) in numbers.zip(bytes).zip(rows.scales) {
            *scale = quantise_row::<FLOAT16>(row, bytes);
        }
    }

    /// Writes a row's bytes and returns their scale. `bytes` is a multiple of [`WIDE`].
    #[target_feature(enable = "avx2,f16c")]
    fn quantise_row<const FLOAT16: bool>(row: &[f32], bytes: &mut [u8]) -> f32 {
        let (row, rest) = row.as_chunks::<WIDE>();
        let mut last = [0.0; WIDE];
        last[..rest.len()].copy_from_slice(rest);
        let mut max = [_mm256_setzero_ps(); 4];
        for row in row.iter().chain([&last]) {
            for (x, max) in quarters(row).into_iter().zip(&mut max) {
                // NaN is ignored: of NaN and a number, the instruction returns its second operand.
                *max = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x), *max);
            }
        }
        let [a, b, c, d] = max;
        let max = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
        let max: [f32; 8] = bytemuck::cast(max);
        let max = max.into_iter().fold(0.0, f32::max);
        let rounded = Float16::narrow(max).widen();
        let rounds = FLOAT16 && max < Float16::OVERFLOW && Float16::suits(rounded);
        let (inverse, scale) = inverse_and_scale(if rounds { rounded } else { max });
        let (bytes, _) = bytes.as_chunks_mut::<WIDE>();
        for (row, bytes) in row.iter().zip(&mut *bytes) {
            narrow(row, rounds, inverse, bytes);
        }
        for bytes in bytes.iter_mut().skip(row.len()) {
            narrow(&last, rounds, inverse, bytes);
            last = [0.0; WIDE];
        }
        scale
    }

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    fn narrow(row: &[f32; WIDE], rounds: bool, inverse: f32, bytes: &mut [u8; WIDE]) {
        let [a, b, c, d] = quarters(row);
        let x = if rounds { [round(a), round(b), round(c), round(d)] } else { [a, b, c, d] };
        let inverse = _mm256_set1_ps(inverse);
        let mut integers = [_mm256_setzero_si256(); 4];
        for (integers, x) in integers.iter_mut().zip(x) {
            *integers = _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
        }
        let [a, b, c, d] = integers;
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // The packs leave four numbers of each register side by side, then the other four of each.
        let signed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        let unsigned = _mm256_xor_si256(signed, _mm256_set1_epi8(-128));
        // SAFETY: 32 bytes.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), unsigned) };
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn quarters(x: &[f32; WIDE]) -> [__m256; 4] {
        let x = x.as_ptr();
        // SAFETY: 32 numbers.
        unsafe {
            [
                _mm256_loadu_ps(x),
                _mm256_loadu_ps(x.add(8)),
                _mm256_loadu_ps(x.add(16)),
                _mm256_loadu_ps(x.add(24)),
            ]
        }
    }

    /// Rounds to the nearest float16, ties to even.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    fn round(x: __m256) -> __m256 {
        _mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
    }
}

/// Quantises 64 numbers at a time: four registers become one with three pack instructions, where compilers narrow each on its own.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{INPUT_MULTIPLE, Rows, inverse_and_scale};
    use crate::gemm::int8::PIECE;
    use crate::gemm::tiles::InputLayout;
    use crate::isa::amx::TILE_ROWS;
    use crate::isa::float16::Float16;
    use crate::isa::lanes::LANES;

    /// Numbers worked on at a time.
    const WIDE: usize = INPUT_MULTIPLE;

    /// With `FLOAT16`, non-negative rows are rounded to float16 first where that [suits](Float16::suits) them.
    ///
    /// # Safety
    /// The processor has AVX-512F and BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn quantise<const FLOAT16: bool>(rows: Rows<'_>, layout: InputLayout) {
        let lines = rows.bytes.as_chunks_mut::<WIDE>().0;
        let width = rows.stride / WIDE;
        let numbers = rows.x.chunks_exact(rows.width.max(1));
        for (i, (row, scale)) in numbers.zip(rows.scales).enumerate() {
            *scale = match layout {
                InputLayout::RowMajor => {
                    quantise_row::<FLOAT16>(row, lines[i * width..].iter_mut())
                }
                InputLayout::AmxTiles => {
                    let first = i / TILE_ROWS * TILE_ROWS * width + i % TILE_ROWS;
                    quantise_row::<FLOAT16>(row, lines[first..].iter_mut().step_by(TILE_ROWS))
                }
            };
        }
    }

    /// Writes a row's bytes, padded to a multiple of 64, and returns their scale. `FLOAT16`: see [`quantise`].
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(super) fn quantise_row<'a, const FLOAT16: bool>(
        row: &[f32],
        mut bytes: impl Iterator<Item = &'a mut [u8; WIDE]>,
    ) -> f32 {
        let (row, rest) = row.as_chunks::<WIDE>();
        // Most rows have none: filling it up takes as long as quantising 64 numbers.
        let rest = (!rest.is_empty()).then(|| filled_up(rest));
        let mut max = [_mm512_setzero_ps(); 4];
        for row in row.iter().chain(&rest) {
            max = larger(row, max);
        }
        let [a, b, c, d] = max;
        let max = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
        let max = _mm512_reduce_max_ps(max);
        let rounded = Float16::narrow(max).widen();
        if FLOAT16 && max < Float16::OVERFLOW && Float16::suits(rounded) {
            let (inverse, scale) = inverse_and_scale(rounded);
            for (row, bytes) in row.iter().zip(&mut bytes) {
                narrow(rounded_to_float16(quarters(row)), inverse, bytes);
            }
            if let Some((last, bytes)) = rest.zip(bytes.next()) {
                narrow(rounded_to_float16(quarters(&last)), inverse, bytes);
            }
            return scale;
        }
        let (inverse, scale) = inverse_and_scale(max);
        for (row, bytes) in row.iter().zip(&mut bytes) {
            narrow(quarters(row), inverse, bytes);
        }
        if let Some((last, bytes)) = rest.zip(bytes.next()) {
            narrow(quarters(&last), inverse, bytes);
        }
        scale
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn rounded_to_float16([a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        [round(a), round(b), round(c), round(d)]
    }

    /// Rounds to the nearest float16, ties to even.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn round(x: __m512) -> __m512 {
        _mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
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

    /// The lane-wise maximum of magnitudes and `max`. NaN is ignored: of NaN and a number, the instruction returns its second operand.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn larger(x: &[f32; WIDE], mut max: [__m512; 4]) -> [__m512; 4] {
        for (i, max) in max.iter_mut().enumerate() {
            *max = _mm512_max_ps(_mm512_abs_ps(load(x, i)), *max);
        }
        max
    }

    /// Rows of float16 that are quantised together.
    const AT_ONCE: usize = 8;

    /// Quantises non-negative float16 rows into the layout of AMX tiles. All rows of a piece of [`PIECE`] columns come before the
    /// next piece. Several rows are quantised together, so that memory is read contiguously.
    ///
    /// # Safety
    /// As above.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn quantise_float16(
        pieces: &[[Float16; PIECE]],
        lines: &mut [[u8; WIDE]],
        scales: &mut [f32],
        unsuited: &mut Vec<usize>,
    ) {
        let rows = scales.len();
        let tile = TILE_ROWS * (pieces.len() / rows.max(1) / 2);
        let mut first = 0;
        while first < rows {
            let (lines, scales) = (&mut lines[first / TILE_ROWS * tile..], &mut scales[first..]);
            let count = if scales.len() < AT_ONCE { 1 } else { AT_ONCE };
            match count {
                1 => quantise_some::<1>(pieces, (first, rows), lines, scales, unsuited),
                _ => quantise_some::<AT_ONCE>(pieces, (first, rows), lines, scales, unsuited),
            }
            first += count;
        }
    }

    /// Quantises `R` of the rows from `first` on.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn quantise_some<const R: usize>(
        pieces: &[[Float16; PIECE]],
        (first, rows): (usize, usize),
        lines: &mut [[u8; WIDE]],
        scales: &mut [f32],
        unsuited: &mut Vec<usize>,
    ) {
        let mut max = [_mm512_setzero_si512(); R];
        for rows in pieces.chunks_exact(rows) {
            for (max, piece) in max.iter_mut().zip(&rows[first..]) {
                // Bits of non-negative numbers are ordered as the numbers are.
                *max = _mm512_max_epu16(*max, load_piece(piece));
            }
        }
        let mut inverses = [0.0; R];
        for (i, (max, (inverse, scale))) in
            max.into_iter().zip(inverses.iter_mut().zip(scales)).enumerate()
        {
            let [low, high] = widened(max);
            let max = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
            (*inverse, *scale) = inverse_and_scale(max);
            if !Float16::suits(max) {
                unsuited.push(first + i);
            }
        }
        let pairs = pieces.chunks_exact(2 * rows);
        for (pair, lines) in pairs.zip(lines.chunks_exact_mut(TILE_ROWS)) {
            let (one, other) = pair.split_at(rows);
            let columns = one[first..].iter().zip(&other[first..]);
            let to = lines[first % TILE_ROWS..].iter_mut().zip(inverses);
            for ((one, other), (bytes, inverse)) in columns.zip(to) {
                let ([a, b], [c, d]) = (widened(load_piece(one)), widened(load_piece(other)));
                narrow([a, b, c, d], inverse, bytes);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load_piece(piece: &[Float16; PIECE]) -> __m512i {
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(piece.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn widened(float16: __m512i) -> [__m512; 2] {
        let low = _mm512_castsi512_si256(float16);
        [_mm512_cvtph_ps(low), _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(float16))]
    }

    /// Quantises 64 numbers.
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
        // The packs leave four numbers of each register side by side, then the next four of each.
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let signed = _mm512_permutexvar_epi32(order, packed);
        let unsigned = _mm512_xor_si512(signed, _mm512_set1_epi8(-128));
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), unsigned) };
    }

    /// Loads sixteen of the numbers.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load<const N: usize>(x: &[f32; N], sixteen: usize) -> __m512 {
        // SAFETY: the slice has sixteen numbers.
        unsafe { _mm512_loadu_ps(x[sixteen * LANES..][..LANES].as_ptr()) }
    }
}
