//! Keys and values of many positions, laid out for the step that reads them.
//!
//! A position has a row of whole cache lines, its key and then its value (in bytes in another order: see
//! `attention::int8`):
//!
//! ```text
//! row p:   key, column 0 … D-1 │ value, column 0 … D-1 │ unused, to an odd number of lines
//! ```
//!
//! A step writes one row of each sentence, so that it writes whole lines, and reads rows one after the other. The number
//! of lines is odd because rows whose distance is a power of two would share a few places of the first cache.
//!
//! A step of a large batch reads more bytes of keys and values than of weights, so they may be kept in
//! fewer bits ([`CachePrecision`]): in half precision, as the upper half of each float (both rounded to even), or as bytes
//! with one step for each key and each value (`max|row| / 127`). What a position keeps depends on that position
//! alone. Arithmetic is float32, with bytes in integers.

use bytemuck::{Pod, Zeroable};
use peregrine_model::Precision;

use crate::attention::int8::{self, Kept, Shape};
use crate::isa::Isa;
use crate::isa::bfloat16::round_to_bfloat16;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::{CacheLine, Pages, Store};
use crate::memory::matrix::Matrix;

/// In how many bits attention keeps its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePrecision {
    /// 32: as they were computed.
    Float32,
    /// 16, of which 10 behind the point.
    Float16,
    /// 16: the upper half of each float.
    Bfloat16,
    /// 8: integers with a step for each key and each value.
    Int8,
}

impl CachePrecision {
    /// All of them.
    pub const ALL: [CachePrecision; 4] = [
        CachePrecision::Float32,
        CachePrecision::Float16,
        CachePrecision::Bfloat16,
        CachePrecision::Int8,
    ];

    /// What is usual beside products of some precision: those of int8 round their inputs in the same way, and beside the 8
    /// bits of bfloat16 the 11 of half precision are next to exact.
    pub(crate) fn beside(precision: Precision) -> CachePrecision {
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

    /// Lines of a position.
    fn lines(self, shape: Shape) -> usize {
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

/// Keys and values of many positions.
pub struct Cache {
    cache_precision: CachePrecision,
    rows: Store<CacheLine>,
    /// Of each position's key and of its value, where they are bytes.
    steps: Vec<[f32; 2]>,
    shape: Shape,
}

impl Cache {
    /// With no positions yet; it lies on such pages once it is large.
    pub(crate) fn new(cache_precision: CachePrecision, pages: Pages) -> Cache {
        Cache {
            cache_precision,
            rows: Store::zeroed(0, pages),
            steps: Vec::new(),
            shape: Shape::default(),
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

    /// Makes room for at least `positions` of that width and so many heads, keeping what is there.
    pub(crate) fn grow(&mut self, positions: usize, width: usize, heads: usize) {
        self.shape = Shape { heads, head_width: width / heads };
        let lines = positions * self.lines_of_row();
        if self.rows.len() < lines {
            // Doubling: a cache grows a little at nearly every step.
            let lines = lines.max(self.rows.len() * 2);
            self.rows.grow(lines);
            if self.cache_precision == CachePrecision::Int8 {
                self.steps.resize(lines.div_ceil(self.lines_of_row()), [0.0; 2]);
            }
        }
    }

    /// Puts each row's key and value, from a column of it to its end, into a position.
    pub(crate) fn store(&mut self, isa: Isa, rows: &Matrix, key_column: usize, at: &[u32]) {
        store(isa, self, rows, key_column, at);
    }

    /// What there is to read, if it is kept in numbers of that kind.
    pub(crate) fn view<T: Number>(&self) -> View<'_, T> {
        View {
            rows: bytemuck::cast_slice(&self.rows),
            stride: self.lines_of_row() * size_of::<CacheLine>() / size_of::<T>(),
            width: self.width(),
        }
    }

    /// What there is to read, if it is kept in bytes.
    pub(crate) fn bytes(&self) -> Kept<'_> {
        let stride = self.lines_of_row();
        Kept { rows: &self.rows, stride, steps: &self.steps, shape: self.shape }
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
        CachePrecision::Int8 => store_bytes(isa, cache, rows, key_column, at),
    }
}

#[inline(always)]
fn store_rows<I: Vectors, T: Number>(
    isa: I,
    cache: &mut Cache,
    rows: &Matrix,
    key_column: usize,
    at: &[u32],
) {
    let (lines, width) = (cache.lines_of_row(), cache.width().max(1));
    for (row, &position) in rows.iter().zip(at) {
        let kept = &mut cache.rows[position as usize * lines..][..lines];
        let kept = bytemuck::cast_slice_mut::<_, T>(kept);
        let (whole, rest) = row[key_column..][..2 * width].as_chunks::<LANES>();
        let (kept, kept_rest) = kept[..2 * width].as_chunks_mut::<LANES>();
        for (kept, numbers) in kept.iter_mut().zip(whole) {
            T::store(isa, numbers, kept);
        }
        for (kept, &v) in kept_rest.iter_mut().zip(rest) {
            *kept = T::narrow(v);
        }
    }
}

#[inline(always)]
fn store_bytes<I: Vectors>(
    isa: I,
    cache: &mut Cache,
    rows: &Matrix,
    key_column: usize,
    at: &[u32],
) {
    let (lines, width, shape) = (cache.lines_of_row(), cache.width(), cache.shape);
    for (row, &position) in rows.iter().zip(at) {
        let kept = &mut cache.rows[position as usize * lines..][..lines];
        let (key, value) = row[key_column..][..2 * width].split_at(width);
        let (kept_key, kept_value) = kept.split_at_mut(shape.lines());
        cache.steps[position as usize] = [
            int8::round(isa, shape, key, int8::KEYS_HAVE, kept_key),
            int8::round(isa, shape, value, 0, kept_value),
        ];
    }
}

/// A number as it is kept.
pub(crate) trait Number: Pod {
    /// Rounds a number.
    fn narrow(v: f32) -> Self;
    /// Its value.
    fn widen(self) -> f32;

    /// Rounds sixteen numbers.
    #[inline(always)]
    fn store<I: Vectors>(_: I, from: &[f32; LANES], to: &mut [Self; LANES]) {
        for i in 0..LANES {
            to[i] = Self::narrow(from[i]);
        }
    }

    /// The values of sixteen numbers.
    #[inline(always)]
    fn load<I: Vectors>(isa: I, from: &[Self; LANES]) -> I::V {
        let mut wide = [0.0; LANES];
        for i in 0..LANES {
            wide[i] = from[i].widen();
        }
        isa.load(&wide)
    }
}

impl Number for f32 {
    #[inline(always)]
    fn narrow(v: f32) -> f32 {
        v
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Number for Float16 {
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

/// The upper half of a float.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(transparent)]
pub(crate) struct Bfloat16(u16);

impl Number for Bfloat16 {
    #[inline(always)]
    fn narrow(v: f32) -> Bfloat16 {
        Bfloat16(round_to_bfloat16(v))
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Keys and values as they are read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    rows: &'a [T],
    stride: usize,
    pub(crate) width: usize,
}

impl<'a, T: Number> View<'a, T> {
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
        /// A step and bytes that are rounded to even, on every instruction set: one head, so that bytes stand in order but for
        /// the fours of three heads there are not.
        #[test]
        fn bytes_are_the_same_everywhere(row in prop::collection::vec(-9f32..9.0, 1..200), halves: bool) {
            // Multiples of half a step: the nearest one is not the only one.
            let row: Vec<f32> = row.into_iter().map(|v| if halves { v.round() / 2.0 } else { v }).collect();
            let row = [&row[..], &[if halves { 127.0 } else { 1.0 }]].concat();
            let most = row.iter().fold(0f32, |most, v| most.max(v.abs()));
            let expected: Vec<i8> = row.iter().map(|v| (v * (127.0 / most)).round_ties_even() as i8).collect();
            let rows = Matrix::from_rows(2 * row.len(), [&row[..], &row[..]].concat());
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut cache = Cache::new(CachePrecision::Int8, Pages::Large);
                cache.grow(1, row.len(), 1);
                cache.store(isa, &rows, 0, &[0]);
                let Kept { rows, steps, shape, .. } = cache.bytes();
                let fours: Vec<u8> =
                    rows.iter().flat_map(|line| line.0).enumerate().filter(|(i, _)| i % 16 < 4).map(|(_, b)| b).collect();
                let (key, value) = fours.split_at(shape.lines() * LANES);
                let key = key.iter().map(|b| (b ^ 0x80) as i8);
                prop_assert_eq!(key.take(row.len()).collect::<Vec<_>>(), &expected[..]);
                let value = value.iter().map(|&b| b as i8);
                prop_assert_eq!(value.take(row.len()).collect::<Vec<_>>(), &expected[..]);
                prop_assert_eq!(steps[0], [most / 127.0; 2]);
            }
        }

        #[test]
        fn the_upper_half_is_the_nearest_one(bits: u32) {
            let v = f32::from_bits(bits);
            let half = Bfloat16::narrow(v).widen();
            prop_assert_eq!(half.is_nan(), v.is_nan());
            if v.is_finite() {
                // One step of the kept bits, at most half of which may be lost.
                let step = f64::from(f32::from_bits((bits & 0x7fff_0000) + 0x1_0000))
                    - f64::from(f32::from_bits(bits & 0x7fff_0000));
                let error = (f64::from(half) - f64::from(v)).abs();
                prop_assert!(!step.is_finite() || error <= step / 2.0, "{v} became {half}");
            }
        }
    }
}
