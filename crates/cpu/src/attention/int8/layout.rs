//! Order of int8 keys and values within cache lines, and their quantisation.

use crate::isa::lanes::{LANES, largest_magnitude, zero_padded};
use crate::isa::vectors::Vectors;
use crate::memory::arena::CacheLine;

/// Offset of int8 keys: `vpdpbusd` wants one of its operands unsigned.
pub(crate) const KEY_OFFSET: u8 = 128;

/// Heads that share a cache line.
pub(super) const LINE_HEADS: usize = 4;

/// Heads of a key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeadShape {
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
}

impl HeadShape {
    /// Groups of [`LINE_HEADS`] heads.
    pub(super) fn groups(self) -> usize {
        self.heads.div_ceil(LINE_HEADS)
    }

    /// Vectors of a head, the last one padded.
    pub(super) fn vectors(self) -> usize {
        self.head_width.div_ceil(LANES)
    }

    /// Cache lines of a key, and as many of a value.
    pub(crate) fn lines(self) -> usize {
        self.groups() * self.vectors()
    }

    /// Weights of a position: one a head and padding.
    pub(super) fn padded_heads(self) -> usize {
        self.heads.next_power_of_two().max(LINE_HEADS)
    }

    pub(super) fn width(self) -> usize {
        self.heads * self.head_width
    }

    /// Sixteen columns of a head, padded with zeros.
    #[inline(always)]
    pub(super) fn vector(self, row: &[f32], head: usize, vector: usize) -> [f32; LANES] {
        let start = head * self.head_width + vector * LANES;
        let left = self.head_width - vector * LANES;
        match row[start.min(row.len())..].first_chunk() {
            Some(whole) if head < self.heads && left >= LANES => *whole,
            _ if head >= self.heads => [0.0; LANES],
            _ => zero_padded(&row[start..start + left.min(LANES)]),
        }
    }
}

/// Keys and values of an int8 cache.
#[derive(Clone, Copy)]
pub(crate) struct Int8View<'a> {
    pub(crate) rows: &'a [CacheLine],
    /// Cache lines of a position.
    pub(crate) stride: usize,
    /// Quantisation scales of each position's key and value.
    pub(crate) scales: &'a [[f32; 2]],
    pub(crate) shape: HeadShape,
}

/// Quantises a key or a value to int8, adds `offset` to each and returns the scale.
#[inline(always)]
pub(crate) fn quantise<I: Vectors>(
    isa: I,
    shape: HeadShape,
    numbers: &[f32],
    offset: u8,
    to: &mut [CacheLine],
) -> f32 {
    let max = max_magnitude(isa, numbers);
    let (inverse, scale) = if max > 0.0 { (127.0 / max, max / 127.0) } else { (0.0, 0.0) };
    let inverse = isa.all(inverse);
    let whole = shape.heads.is_multiple_of(LINE_HEADS) && shape.head_width.is_multiple_of(LANES);
    let all = numbers.as_chunks::<LANES>().0;
    for (group, lines) in to[..shape.lines()].chunks_exact_mut(shape.vectors()).enumerate() {
        let first = group * LINE_HEADS * shape.vectors();
        for (vector, line) in lines.iter_mut().enumerate() {
            let mut four = [isa.all(0.0); LINE_HEADS];
            for (head, four) in four.iter_mut().enumerate() {
                *four = if whole {
                    isa.load(&all[first + head * shape.vectors() + vector])
                } else {
                    isa.load(&shape.vector(numbers, group * LINE_HEADS + head, vector))
                };
                *four = isa.multiply(*four, inverse);
            }
            isa.store_bytes(four, offset, &mut line.0);
        }
    }
    scale
}

/// The largest magnitude.
#[inline(always)]
pub(super) fn max_magnitude<I: Vectors>(isa: I, numbers: &[f32]) -> f32 {
    let (pairs, rest) = numbers.as_chunks::<{ 2 * LANES }>();
    let (mut first, mut second) = (isa.all(0.0), isa.all(0.0));
    for pair in pairs.iter().map(|pair| pair.as_chunks::<LANES>().0) {
        first = isa.larger(magnitudes(isa, &pair[0]), first);
        second = isa.larger(magnitudes(isa, &pair[1]), second);
    }
    let mut lanes = [0.0; LANES];
    isa.store(isa.larger(first, second), &mut lanes);
    largest_magnitude(&lanes).max(largest_magnitude(rest))
}

#[inline(always)]
fn magnitudes<I: Vectors>(isa: I, numbers: &[f32; LANES]) -> I::V {
    let numbers = isa.load(numbers);
    isa.larger(numbers, isa.multiply(numbers, isa.all(-1.0)))
}
