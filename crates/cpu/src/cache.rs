//! Keys and values of many positions, laid out for the step that reads them.
//!
//! A position has a row of whole cache lines, its key and then its value:
//!
//! ```text
//! row p:   key, column 0 … D-1 │ value, column 0 … D-1 │ unused, to an odd number of lines
//! ```
//!
//! A step writes one row of each sentence, so that it writes whole lines, and reads rows one after the other. The number
//! of lines is odd because rows whose distance is a power of two would share a few places of the first cache.
//!
//! A step of a large batch reads more bytes of keys and values than of weights, so they may be kept in
//! fewer bits ([`Keeping`]): in half precision, as the upper half of each float (both rounded to even), or as bytes
//! with one step for each key and each value (`max|row| / 127`). What a position keeps depends on that position
//! alone. Arithmetic is float32 in all cases.

use bytemuck::{Pod, Zeroable};
use peregrine_model::Precision;

use crate::arena::{Line, Store};
use crate::half::Half;
use crate::isa::Isa;
use crate::lanes::{LANES, largest_magnitude, round_to_byte};
use crate::matrix::Matrix;
use crate::vectors::{Vectors, vector_kernel};

/// In how many bits attention keeps its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// 32: as they were computed.
    Float32,
    /// 16, of which 10 behind the point.
    Float16,
    /// 16: the upper half of each float.
    Bfloat16,
    /// 8: integers with a step for each key and each value.
    Int8,
}

impl Keeping {
    /// All of them.
    pub const ALL: [Keeping; 4] =
        [Keeping::Float32, Keeping::Float16, Keeping::Bfloat16, Keeping::Int8];

    /// What is usual beside products of some precision: those of int8 round their inputs in the same way, and beside the 8
    /// bits of bfloat16 the 11 of half precision are next to exact.
    pub(crate) fn beside(precision: Precision) -> Keeping {
        match precision {
            Precision::Int8 => Keeping::Int8,
            Precision::Bfloat16 => Keeping::Float16,
            _ => Keeping::Float32,
        }
    }

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Keeping::Float32 => "float32",
            Keeping::Float16 => "float16",
            Keeping::Bfloat16 => "bfloat16",
            Keeping::Int8 => "int8",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Keeping::Float32 => size_of::<f32>(),
            Keeping::Float16 => size_of::<Half>(),
            Keeping::Bfloat16 => size_of::<Upper>(),
            Keeping::Int8 => size_of::<i8>(),
        }
    }
}

/// Keys and values of many positions.
pub struct Cache {
    keeping: Keeping,
    rows: Store<Line>,
    /// Of each position's key and of its value, where numbers have steps.
    steps: Vec<[f32; 2]>,
    width: usize,
}

impl Cache {
    /// With no positions yet.
    pub(crate) fn new(keeping: Keeping) -> Cache {
        Cache { keeping, rows: Store::zeroed(0), steps: Vec::new(), width: 0 }
    }

    pub(crate) fn keeping(&self) -> Keeping {
        self.keeping
    }

    fn lines_of_row(&self) -> usize {
        let bytes = 2 * self.width * self.keeping.bytes();
        bytes.div_ceil(size_of::<Line>()) | 1
    }

    /// Makes room for at least `positions` of that width, keeping what is there.
    pub(crate) fn grow(&mut self, positions: usize, width: usize) {
        self.width = width;
        let lines = positions * self.lines_of_row();
        if self.rows.len() < lines {
            // Doubling: a cache grows a little at nearly every step.
            let lines = lines.max(self.rows.len() * 2);
            self.rows.grow(lines);
            if self.keeping == Keeping::Int8 {
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
            steps: &self.steps,
            stride: self.lines_of_row() * size_of::<Line>() / size_of::<T>(),
            width: self.width,
        }
    }
}

vector_kernel! {
    fn store(cache: &mut Cache, rows: &Matrix, key_column: usize, at: &[u32]) = store_body
}

#[inline(always)]
fn store_body<I: Vectors>(isa: I, cache: &mut Cache, rows: &Matrix, key_column: usize, at: &[u32]) {
    match cache.keeping {
        Keeping::Float32 => store_rows::<I, f32>(isa, cache, rows, key_column, at),
        Keeping::Float16 => store_rows::<I, Half>(isa, cache, rows, key_column, at),
        Keeping::Bfloat16 => store_rows::<I, Upper>(isa, cache, rows, key_column, at),
        Keeping::Int8 => store_rows::<I, i8>(isa, cache, rows, key_column, at),
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
    let (lines, width) = (cache.lines_of_row(), cache.width.max(1));
    for (row, &position) in rows.iter().zip(at) {
        let kept = &mut cache.rows[position as usize * lines..][..lines];
        let kept = bytemuck::cast_slice_mut::<_, T>(kept).chunks_exact_mut(width);
        let both = row[key_column..].chunks_exact(width).zip(kept);
        for (which, (numbers, kept)) in both.enumerate() {
            let (scale, step) = T::scale(isa, numbers);
            let (whole, rest) = numbers.as_chunks::<LANES>();
            let (kept, kept_rest) = kept.as_chunks_mut::<LANES>();
            for (kept, numbers) in kept.iter_mut().zip(whole) {
                T::store(isa, numbers, scale, kept);
            }
            for (kept, &v) in kept_rest.iter_mut().zip(rest) {
                *kept = T::narrow(v * scale);
            }
            if T::STEPS {
                cache.steps[position as usize][which] = step;
            }
        }
    }
}

/// A number as it is kept.
pub(crate) trait Number: Pod {
    /// Whether numbers are multiples of a step.
    const STEPS: bool;

    /// What a row is multiplied with before rounding, and the step of its integers.
    fn scale<I: Vectors>(isa: I, row: &[f32]) -> (f32, f32);
    /// Rounds a scaled number.
    fn narrow(v: f32) -> Self;
    /// Its value, or the integer that stands for it.
    fn widen(self) -> f32;

    /// Scales and rounds sixteen numbers.
    #[inline(always)]
    fn store<I: Vectors>(_: I, from: &[f32; LANES], scale: f32, to: &mut [Self; LANES]) {
        for i in 0..LANES {
            to[i] = Self::narrow(from[i] * scale);
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
    const STEPS: bool = false;

    fn scale<I: Vectors>(_: I, _: &[f32]) -> (f32, f32) {
        (1.0, 1.0)
    }

    #[inline(always)]
    fn narrow(v: f32) -> f32 {
        v
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Number for Half {
    const STEPS: bool = false;

    fn scale<I: Vectors>(_: I, _: &[f32]) -> (f32, f32) {
        (1.0, 1.0)
    }

    #[inline(always)]
    fn narrow(v: f32) -> Half {
        Half::narrow(v)
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        Half::widen(self)
    }

    #[inline(always)]
    fn store<I: Vectors>(isa: I, from: &[f32; LANES], _: f32, to: &mut [Half; LANES]) {
        isa.store_half(isa.load(from), to);
    }

    #[inline(always)]
    fn load<I: Vectors>(isa: I, from: &[Half; LANES]) -> I::V {
        isa.load_half(from)
    }
}

/// The upper half of a float.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(transparent)]
pub(crate) struct Upper(u16);

impl Number for Upper {
    const STEPS: bool = false;

    fn scale<I: Vectors>(_: I, _: &[f32]) -> (f32, f32) {
        (1.0, 1.0)
    }

    #[inline(always)]
    fn narrow(v: f32) -> Upper {
        Upper(round_to_upper(v))
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// The nearest number with only the upper half of a float's bits, of two the even one; NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_upper(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let bits = if v.is_nan() { bits | 0x0040_0000 } else { rounded };
    (bits >> 16) as u16
}

impl Number for i8 {
    const STEPS: bool = true;

    #[inline(always)]
    fn scale<I: Vectors>(isa: I, row: &[f32]) -> (f32, f32) {
        let (whole, rest) = row.as_chunks::<LANES>();
        let mut most = [isa.all(0.0); 2];
        for (i, numbers) in whole.iter().enumerate() {
            let numbers = isa.load(numbers);
            let size = isa.larger(numbers, isa.multiply(numbers, isa.all(-1.0)));
            most[i % 2] = isa.larger(size, most[i % 2]);
        }
        let mut lanes = [0.0; LANES];
        isa.store(isa.larger(most[0], most[1]), &mut lanes);
        let most = largest_magnitude(&lanes).max(largest_magnitude(rest));
        if most > 0.0 { (127.0 / most, most / 127.0) } else { (0.0, 0.0) }
    }

    #[inline(always)]
    fn store<I: Vectors>(isa: I, from: &[f32; LANES], scale: f32, to: &mut [i8; LANES]) {
        isa.store_bytes(isa.multiply(isa.load(from), isa.all(scale)), to);
    }

    #[inline(always)]
    fn load<I: Vectors>(isa: I, from: &[i8; LANES]) -> I::V {
        isa.load_bytes(from)
    }

    #[inline(always)]
    fn narrow(v: f32) -> i8 {
        round_to_byte(v)
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from(self)
    }
}

/// Keys and values as they are read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    rows: &'a [T],
    steps: &'a [[f32; 2]],
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

    /// What an integer of a position's key stands for, and one of its value.
    #[inline(always)]
    pub(crate) fn steps(&self, position: u32) -> [f32; 2] {
        if T::STEPS { self.steps[position as usize] } else { [1.0; 2] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::vectors::Plain;
    use proptest::prelude::*;

    proptest! {
        /// A step and bytes that are rounded to even, on every instruction set.
        #[test]
        fn bytes_are_the_same_everywhere(row in prop::collection::vec(-9f32..9.0, 1..200), halves: bool) {
            // Multiples of half a step: the nearest one is not the only one.
            let row: Vec<f32> = row.into_iter().map(|v| if halves { v.round() / 2.0 } else { v }).collect();
            let row = [&row[..], &[if halves { 127.0 } else { 1.0 }]].concat();
            let most = row.iter().fold(0f32, |most, v| most.max(v.abs()));
            let expected: Vec<i8> = row.iter().map(|v| (v * (127.0 / most)).round_ties_even() as i8).collect();
            let rows = Matrix::from_rows(2 * row.len(), [&row[..], &row[..]].concat());
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut cache = Cache::new(Keeping::Int8);
                cache.grow(1, row.len());
                cache.store(isa, &rows, 0, &[0]);
                let view = cache.view::<i8>();
                prop_assert_eq!(view.key(0), &expected[..]);
                prop_assert_eq!(view.value(0), &expected[..]);
                prop_assert_eq!(view.steps(0), [most / 127.0; 2]);
            }
        }

        #[test]
        fn the_upper_half_is_the_nearest_one(bits: u32) {
            let v = f32::from_bits(bits);
            let half = Upper::narrow(v).widen();
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

    #[test]
    fn bytes_keep_a_row_to_half_a_step() {
        let row: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
        let (scale, step) = i8::scale(Plain::<true>, &row);
        for v in row {
            assert!((i8::narrow(v * scale).widen() * step - v).abs() <= step * 0.5001);
        }
        assert_eq!(i8::scale(Plain::<true>, &[0.0, -0.0]), (0.0, 0.0));
    }
}
