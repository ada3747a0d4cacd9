//! Keys and values of many positions, laid out for the step that reads them.
//!
//! Keys are kept in blocks of sixteen positions, column by column, so that one vector instruction
//! works on sixteen positions; values are kept a row a position:
//!
//! ```text
//! keys, block b:   column 0 of positions 16b … 16b+15 │ column 1 of the same │ … │ column D-1
//! values, row p:   column 0 … column D-1
//! ```
//!
//! A step of a large batch reads more bytes of keys and values than of weights, so they may be kept in
//! fewer bits ([`Keeping`]): the upper half of each float (rounded to even), or bytes with one step
//! for each key and each value (`max|row| / 127`). What a position keeps depends on that position
//! alone. Arithmetic is float32 in all cases.

use bytemuck::Zeroable;

use crate::arena::Store;
use crate::isa::{Isa, kernel};
use crate::lanes::LANES;
use crate::matrix::Matrix;

/// In how many bits attention keeps its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keeping {
    /// 32: as they were computed.
    #[default]
    Float32,
    /// 16: the upper half of each float.
    Bfloat16,
    /// 8: integers with a step for each key and each value.
    Int8,
}

impl Keeping {
    /// All of them.
    pub const ALL: [Keeping; 3] = [Keeping::Float32, Keeping::Bfloat16, Keeping::Int8];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Keeping::Float32 => "float32",
            Keeping::Bfloat16 => "bfloat16",
            Keeping::Int8 => "int8",
        }
    }
}

/// Keys and values of many positions.
pub struct Cache(pub(crate) Kept);

pub(crate) enum Kept {
    Float32(Positions<f32>),
    Bfloat16(Positions<Upper>),
    Int8(Positions<i8>),
}

impl Cache {
    /// With no positions yet.
    pub(crate) fn new(keeping: Keeping) -> Cache {
        Cache(match keeping {
            Keeping::Float32 => Kept::Float32(Positions::new()),
            Keeping::Bfloat16 => Kept::Bfloat16(Positions::new()),
            Keeping::Int8 => Kept::Int8(Positions::new()),
        })
    }

    /// Makes room for at least `positions` of that width, keeping what is there.
    pub(crate) fn grow(&mut self, positions: usize, width: usize) {
        match &mut self.0 {
            Kept::Float32(kept) => kept.grow(positions, width),
            Kept::Bfloat16(kept) => kept.grow(positions, width),
            Kept::Int8(kept) => kept.grow(positions, width),
        }
    }

    /// Puts each row's key and value, from a column of it on, into a position.
    pub(crate) fn store(&mut self, isa: Isa, rows: &Matrix, key_column: usize, at: &[u32]) {
        let mut first = 0;
        for run in at.chunk_by(|a, b| a + 1 == *b && a / LANES as u32 == b / LANES as u32) {
            let rows = Rows { values: rows.values(), stride: rows.width(), key_column, first };
            store(isa, &mut self.0, run, rows);
            first += run.len();
        }
    }

    pub(crate) fn width(&self) -> usize {
        match &self.0 {
            Kept::Float32(kept) => kept.width,
            Kept::Bfloat16(kept) => kept.width,
            Kept::Int8(kept) => kept.width,
        }
    }
}

/// Rows to be stored, from the `first` on: a key begins at `key_column`, a value follows it.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    stride: usize,
    key_column: usize,
    first: usize,
}

impl<'a> Rows<'a> {
    /// The key and the value of a row.
    #[inline(always)]
    fn row(&self, row: usize) -> (&'a [f32], &'a [f32]) {
        let row = &self.values[(self.first + row) * self.stride..][..self.stride];
        let both = &row[self.key_column..];
        both.split_at(both.len() / 2)
    }
}

kernel! {
    fn store(kept: &mut Kept, run: &[u32], rows: Rows<'_>) = store_body
}

#[inline(always)]
fn store_body<const FMA: bool>(kept: &mut Kept, run: &[u32], rows: Rows<'_>) {
    match kept {
        Kept::Float32(kept) => kept.store(run, rows),
        Kept::Bfloat16(kept) => kept.store(run, rows),
        Kept::Int8(kept) => kept.store(run, rows),
    }
}

/// A number as it is kept.
pub(crate) trait Number: Copy + Zeroable {
    /// Whether numbers are multiples of a step.
    const STEPS: bool;

    /// What a row is multiplied with before rounding, and the step of its integers.
    fn scale(row: &[f32]) -> (f32, f32);
    /// Rounds a scaled number.
    fn narrow(v: f32) -> Self;
    /// Its value, or the integer that stands for it.
    fn widen(self) -> f32;
}

impl Number for f32 {
    const STEPS: bool = false;

    fn scale(_: &[f32]) -> (f32, f32) {
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

/// The upper half of a float.
#[derive(Clone, Copy, Zeroable)]
#[repr(transparent)]
pub(crate) struct Upper(u16);

impl Number for Upper {
    const STEPS: bool = false;

    fn scale(_: &[f32]) -> (f32, f32) {
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
    fn scale(row: &[f32]) -> (f32, f32) {
        let most = crate::lanes::largest_magnitude(row);
        if most > 0.0 { (127.0 / most, most / 127.0) } else { (0.0, 0.0) }
    }

    /// Adding 1.5 · 2²³ to a small number leaves it, rounded to even, in the low bits.
    #[inline(always)]
    fn narrow(v: f32) -> i8 {
        (v + 12_582_912.0).to_bits() as i8
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from(self)
    }
}

/// Keys and values as numbers of one kind.
pub(crate) struct Positions<T> {
    keys: Store<T>,
    values: Store<T>,
    /// Of each position's key, where numbers have steps,
    key_steps: Vec<f32>,
    /// and of its value.
    value_steps: Vec<f32>,
    width: usize,
}

impl<T: Number> Positions<T> {
    fn new() -> Positions<T> {
        let (keys, values) = (Store::zeroed(0), Store::zeroed(0));
        Positions { keys, values, key_steps: Vec::new(), value_steps: Vec::new(), width: 0 }
    }

    fn grow(&mut self, positions: usize, width: usize) {
        self.width = width;
        let size = positions.next_multiple_of(LANES) * width;
        if self.keys.len() < size {
            // Doubling: a cache grows a little at nearly every step.
            let size = size.max(self.keys.len() * 2);
            self.keys.grow(size);
            self.values.grow(size);
            if T::STEPS {
                self.key_steps.resize(size.div_ceil(width.max(1)).next_multiple_of(LANES), 0.0);
                self.value_steps.resize(self.key_steps.len(), 0.0);
            }
        }
    }

    /// Stores rows in neighbouring positions of one block.
    #[inline(always)]
    fn store(&mut self, run: &[u32], rows: Rows<'_>) {
        let (block, lane) = (run[0] as usize / LANES, run[0] as usize % LANES);
        let keys = &mut self.keys[block * self.width * LANES..][..self.width * LANES];
        let mut scales = [1.0; LANES];
        for (row, scale) in scales.iter_mut().enumerate().take(run.len()) {
            *scale = T::scale(rows.row(row).0).0;
        }
        if let [_] = run {
            let (key, _) = rows.row(0);
            for (column, &key) in keys.as_chunks_mut::<LANES>().0.iter_mut().zip(key) {
                column[lane] = T::narrow(key * scales[0]);
            }
        } else {
            // Sixteen columns of all keys are turned at a time: each line is written once.
            let mut turned = [[T::zeroed(); LANES]; LANES];
            for (tile, keys) in keys.as_chunks_mut::<LANES>().0.chunks_mut(LANES).enumerate() {
                for (row, scale) in scales.iter().enumerate().take(run.len()) {
                    for (to, v) in turned.iter_mut().zip(&rows.row(row).0[tile * LANES..]) {
                        to[row] = T::narrow(v * scale);
                    }
                }
                for (key, turned) in keys.iter_mut().zip(&turned) {
                    for (to, v) in key[lane..].iter_mut().zip(&turned[..run.len()]) {
                        *to = *v;
                    }
                }
            }
        }
        for (row, &position) in run.iter().enumerate() {
            let (key, value) = rows.row(row);
            let (scale, step) = T::scale(value);
            let values = &mut self.values[position as usize * self.width..][..self.width];
            for (kept, &value) in values.iter_mut().zip(value) {
                *kept = T::narrow(value * scale);
            }
            if T::STEPS {
                self.key_steps[position as usize] = T::scale(key).1;
                self.value_steps[position as usize] = step;
            }
        }
    }

    /// What there is to read.
    pub(crate) fn view(&self) -> View<'_, T> {
        View {
            keys: self.keys.as_chunks().0,
            values: &self.values,
            key_steps: &self.key_steps,
            value_steps: &self.value_steps,
            width: self.width,
        }
    }
}

/// Keys and values as they are read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    /// Block after block, sixteen positions of a column together.
    keys: &'a [[T; LANES]],
    values: &'a [T],
    key_steps: &'a [f32],
    value_steps: &'a [f32],
    pub(crate) width: usize,
}

impl<'a, T: Number> View<'a, T> {
    /// Columns of a head of a block of sixteen positions.
    #[inline(always)]
    pub(crate) fn keys(&self, block: usize, columns: std::ops::Range<usize>) -> &'a [[T; LANES]] {
        let start = block * self.width;
        &self.keys[start + columns.start..start + columns.end]
    }

    #[inline(always)]
    pub(crate) fn value(&self, position: u32, columns: std::ops::Range<usize>) -> &'a [T] {
        let start = position as usize * self.width;
        &self.values[start + columns.start..start + columns.end]
    }

    /// What an integer of a position's key stands for.
    #[inline(always)]
    pub(crate) fn key_step(&self, position: u32) -> f32 {
        if T::STEPS { self.key_steps[position as usize] } else { 1.0 }
    }

    /// What an integer of a position's value stands for.
    #[inline(always)]
    pub(crate) fn value_step(&self, position: u32) -> f32 {
        if T::STEPS { self.value_steps[position as usize] } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
        let (scale, step) = i8::scale(&row);
        for v in row {
            assert!((i8::narrow(v * scale).widen() * step - v).abs() <= step * 0.5001);
        }
        assert_eq!(i8::scale(&[0.0, -0.0]), (0.0, 0.0));
    }
}
