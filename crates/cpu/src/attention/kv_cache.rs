//! The KV cache: keys and values of many positions.
//!
//! A position has a row of whole cache lines, its key and then its value (`attention::int8` orders int8 columns otherwise):
//!
//! ```text
//! row p:   key, column 0 … D-1 │ value, column 0 … D-1 │ padding to an odd number of lines
//! ```
//!
//! A decoder step writes one row a sentence, in whole lines, and reads rows one after the other. The number of lines is odd because
//! rows whose distance is a power of two would compete for a few sets of L1.
//!
//! A step of a large batch reads more bytes of keys and values than of weights, so the cache may have fewer bits
//! ([`CachePrecision`]): float16 or bfloat16, both rounded to the nearest even, or int8 with one quantisation scale a key and one a
//! value (`max|row| / 127`). The cache row of a position depends on that position alone. Arithmetic is float32, with int8 caches
//! in integers.

use bytemuck::{Pod, Zeroable};
use peregrine_model::Precision;

use crate::attention::int8::{self, HeadShape, Int8View};
use crate::isa::Isa;
use crate::isa::bfloat16::round_to_bfloat16;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::{CacheLine, Pages, Store};
use crate::memory::matrix::Matrix;

/// The number format of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePrecision {
    /// Keys and values as they were computed.
    Float32,
    /// IEEE 754 binary16: 10 bits of mantissa.
    Float16,
    /// 7 bits of mantissa, the exponent of float32.
    Bfloat16,
    /// Integers with a quantisation scale for each key and each value.
    Int8,
}

impl CachePrecision {
    /// All formats, the most precise first.
    pub const ALL: [CachePrecision; 4] = [
        CachePrecision::Float32,
        CachePrecision::Float16,
        CachePrecision::Bfloat16,
        CachePrecision::Int8,
    ];

    /// The default for products of some precision. Int8 products round their inputs as an int8 cache does. The 11 significant bits
    /// of float16 lose little where products have the 8 of bfloat16.
    pub(crate) fn default_for(precision: Precision) -> CachePrecision {
        match precision {
            Precision::Int8 => CachePrecision::Int8,
            Precision::Bfloat16 => CachePrecision::Float16,
            _ => CachePrecision::Float32,
        }
    }

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CachePrecision::Float32 => "float32",
            CachePrecision::Float16 => "float16",
            CachePrecision::Bfloat16 => "bfloat16",
            CachePrecision::Int8 => "int8",
        }
    }

    /// Cache lines of a position.
    fn lines(self, shape: HeadShape) -> usize {
        let numbers = 2 * shape.heads * shape.head_width;
        let lines = |size: usize| (numbers * size).div_ceil(size_of::<CacheLine>());
        let lines = match self {
            CachePrecision::Float32 => lines(size_of::<f32>()),
            CachePrecision::Float16 => lines(size_of::<Float16>()),
            CachePrecision::Bfloat16 => lines(size_of::<Bfloat16>()),
            CachePrecision::Int8 => 2 * shape.lines(),
        };
        lines | 1
    }
}

/// A KV cache: keys and values of many positions.
pub struct Cache {
    cache_precision: CachePrecision,
    rows: Store<CacheLine>,
    /// Quantisation scales of each position's key and value. Empty unless the cache is int8.
    scales: Vec<[f32; 2]>,
    shape: HeadShape,
}

impl Cache {
    /// A cache without positions. Once it is large, it lies on pages of this size.
    pub(crate) fn new(cache_precision: CachePrecision, pages: Pages) -> Cache {
        Cache {
            cache_precision,
            rows: Store::zeroed(0, pages),
            scales: Vec::new(),
            shape: HeadShape::default(),
        }
    }

    pub(crate) fn cache_precision(&self) -> CachePrecision {
        self.cache_precision
    }

    fn lines_of_row(&self) -> usize {
        self.cache_precision.lines(self.shape)
    }

    pub(crate) fn width(&self) -> usize {
        self.shape.heads * self.shape.head_width
    }

    /// Bytes of a position's key and value.
    pub(crate) fn position_bytes(&self) -> usize {
        self.lines_of_row() * size_of::<CacheLine>()
    }

    /// Grows to at least `positions` positions. Stored rows keep their contents.
    pub(crate) fn grow(&mut self, positions: usize, width: usize, heads: usize) {
        self.shape = HeadShape { heads, head_width: width / heads };
        let lines = positions * self.lines_of_row();
        if self.rows.len() < lines {
            // Doubling: a cache grows a little at nearly every step.
            let lines = lines.max(self.rows.len() * 2);
            self.rows.grow(lines);
            if self.cache_precision == CachePrecision::Int8 {
                self.scales.resize(lines.div_ceil(self.lines_of_row()), [0.0; 2]);
            }
        }
    }

    /// Stores each row's key and value, which are its columns from `key_column` on, at a position.
    pub(crate) fn store(&mut self, isa: Isa, rows: &Matrix, key_column: usize, at: &[u32]) {
        store(isa, self, rows, key_column, at);
    }

    /// A view of a cache whose number type is `T`.
    pub(crate) fn view<T: CacheNumber>(&self) -> CacheView<'_, T> {
        CacheView {
            rows: bytemuck::cast_slice(&self.rows),
            stride: self.lines_of_row() * size_of::<CacheLine>() / size_of::<T>(),
            width: self.width(),
        }
    }

    /// A view of an int8 cache.
    pub(crate) fn int8_view(&self) -> Int8View<'_> {
        let stride = self.lines_of_row();
        Int8View { rows: &self.rows, stride, scales: &self.scales, shape: self.shape }
    }
}

vector_kernel! {
    fn store(cache: &mut Cache, rows: &Matrix, key_column: usize, at: &[u32]) = store_body
}

#[inline(always)]
fn store_body<I: Vectors>(isa: I, cache: &mut Cache, rows: &Matrix, key_column: usize, at: &[u32]) {
    match cache.cache_precision {
        CachePrecision::Float32 => store_rows::<I, f32>(isa, cache, rows, key_column, at),
        CachePrecision::Float16 => store_rows::<I, Float16>(isa, cache, rows, key_column, at),
        CachePrecision::Bfloat16 => store_rows::<I, Bfloat16>(isa, cache, rows, key_column, at),
        CachePrecision::Int8 => store_int8(isa, cache, rows, key_column, at),
    }
}

#[inline(always)]
fn store_rows<I: Vectors, T: CacheNumber>(
    isa: I,
    cache: &mut Cache,
    rows: &Matrix,
    key_column: usize,
    at: &[u32],
) {
    let (lines, width) = (cache.lines_of_row(), cache.width().max(1));
    for (row, &position) in rows.iter().zip(at) {
        let stored = &mut cache.rows[position as usize * lines..][..lines];
        let stored = bytemuck::cast_slice_mut::<_, T>(stored);
        let (whole, rest) = row[key_column..][..2 * width].as_chunks::<LANES>();
        let (stored, stored_rest) = stored[..2 * width].as_chunks_mut::<LANES>();
        for (stored, numbers) in stored.iter_mut().zip(whole) {
            T::store(isa, numbers, stored);
        }
        for (stored, &v) in stored_rest.iter_mut().zip(rest) {
            *stored = T::narrow(v);
        }
    }
}

#[inline(always)]
fn store_int8<I: Vectors>(isa: I, cache: &mut Cache, rows: &Matrix, key_column: usize, at: &[u32]) {
    let (lines, width, shape) = (cache.lines_of_row(), cache.width(), cache.shape);
    for (row, &position) in rows.iter().zip(at) {
        let stored = &mut cache.rows[position as usize * lines..][..lines];
        let (key, value) = row[key_column..][..2 * width].split_at(width);
        let (stored_key, stored_value) = stored.split_at_mut(shape.lines());
        cache.scales[position as usize] = [
            int8::quantise(isa, shape, key, int8::KEY_OFFSET, stored_key),
            int8::quantise(isa, shape, value, 0, stored_value),
        ];
    }
}

/// A number of a KV cache.
pub(crate) trait CacheNumber: Pod {
    /// Rounds a float32.
    fn narrow(v: f32) -> Self;
    /// The value as float32.
    fn widen(self) -> f32;

    /// Rounds sixteen float32.
    #[inline(always)]
    fn store<I: Vectors>(_: I, from: &[f32; LANES], to: &mut [Self; LANES]) {
        for i in 0..LANES {
            to[i] = Self::narrow(from[i]);
        }
    }

    /// Widens sixteen numbers to float32.
    #[inline(always)]
    fn load<I: Vectors>(isa: I, from: &[Self; LANES]) -> I::V {
        let mut wide = [0.0; LANES];
        for i in 0..LANES {
            wide[i] = from[i].widen();
        }
        isa.load(&wide)
    }
}

impl CacheNumber for f32 {
    #[inline(always)]
    fn narrow(v: f32) -> f32 {
        v
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl CacheNumber for Float16 {
    #[inline(always)]
    fn narrow(v: f32) -> Float16 {
        Float16::narrow(v)
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        Float16::widen(self)
    }

    #[inline(always)]
    fn store<I: Vectors>(isa: I, from: &[f32; LANES], to: &mut [Float16; LANES]) {
        isa.store_float16(isa.load(from), to);
    }

    #[inline(always)]
    fn load<I: Vectors>(isa: I, from: &[Float16; LANES]) -> I::V {
        isa.load_float16(from)
    }
}

/// A bfloat16: the upper 16 bits of a float32.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(transparent)]
pub(crate) struct Bfloat16(u16);

impl CacheNumber for Bfloat16 {
    #[inline(always)]
    fn narrow(v: f32) -> Bfloat16 {
        Bfloat16(round_to_bfloat16(v))
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Keys and values of a cache whose number type is `T`.
#[derive(Clone, Copy)]
pub(crate) struct CacheView<'a, T> {
    rows: &'a [T],
    /// Numbers from one position's row to the next.
    stride: usize,
    pub(crate) width: usize,
}

impl<'a, T: CacheNumber> CacheView<'a, T> {
    /// Rows whose first numbers are `stride` apart, each a key of `width` numbers and its value.
    pub(crate) fn of_rows(rows: &'a [T], stride: usize, width: usize) -> CacheView<'a, T> {
        CacheView { rows, stride, width }
    }

    #[inline(always)]
    pub(crate) fn key(&self, position: u32) -> &'a [T] {
        &self.rows[position as usize * self.stride..][..self.width]
    }

    #[inline(always)]
    pub(crate) fn value(&self, position: u32) -> &'a [T] {
        &self.rows[position as usize * self.stride + self.width..][..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use proptest::prelude::*;

    proptest! {
        /// Every instruction set has the same scale and the same int8, ties rounded to even. With one head, columns are in order
        /// except for the gaps that three further heads would fill.
        #[test]
        fn int8_is_the_same_everywhere(row in prop::collection::vec(-9f32..9.0, 1..200), ties: bool) {
            // With a scale of 1, multiples of a half are ties.
            let row: Vec<f32> = row.into_iter().map(|v| if ties { v.round() / 2.0 } else { v }).collect();
            let row = [&row[..], &[if ties { 127.0 } else { 1.0 }]].concat();
            let max = row.iter().fold(0f32, |max, v| max.max(v.abs()));
            let expected: Vec<i8> = row.iter().map(|v| (v * (127.0 / max)).round_ties_even() as i8).collect();
            let rows = Matrix::from_rows(2 * row.len(), [&row[..], &row[..]].concat());
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut cache = Cache::new(CachePrecision::Int8, Pages::Large);
                cache.grow(1, row.len(), 1);
                cache.store(isa, &rows, 0, &[0]);
                let Int8View { rows, scales, shape, .. } = cache.int8_view();
                let first_head: Vec<u8> =
                    rows.iter().flat_map(|line| line.0).enumerate().filter(|(i, _)| i % 16 < 4).map(|(_, b)| b).collect();
                let (key, value) = first_head.split_at(shape.lines() * LANES);
                let key = key.iter().map(|b| (b ^ 0x80) as i8);
                prop_assert_eq!(key.take(row.len()).collect::<Vec<_>>(), &expected[..]);
                let value = value.iter().map(|&b| b as i8);
                prop_assert_eq!(value.take(row.len()).collect::<Vec<_>>(), &expected[..]);
                prop_assert_eq!(scales[0], [max / 127.0; 2]);
            }
        }

        #[test]
        fn bfloat16_is_rounded_to_the_nearest(bits: u32) {
            let v = f32::from_bits(bits);
            let rounded = Bfloat16::narrow(v).widen();
            prop_assert_eq!(rounded.is_nan(), v.is_nan());
            if v.is_finite() {
                // Distance of neighbouring bfloat16, of which at most half may be lost.
                let spacing = f64::from(f32::from_bits((bits & 0x7fff_0000) + 0x1_0000))
                    - f64::from(f32::from_bits(bits & 0x7fff_0000));
                let error = (f64::from(rounded) - f64::from(v)).abs();
                prop_assert!(!spacing.is_finite() || error <= spacing / 2.0, "{v} became {rounded}");
            }
        }
    }
}
