//! How keys and values stand in lines of bytes.

use crate::attention::filled_up;
use crate::isa::lanes::{LANES, largest_magnitude};
use crate::isa::vectors::Vectors;
use crate::memory::arena::CacheLine;

/// What is added to the bytes of keys.
pub(crate) const KEYS_HAVE: u8 = 128;

/// Heads that share a line.
pub(super) const HEADS: usize = 4;

/// How keys and values are cut into heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Shape {
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
}

impl Shape {
    /// Groups of heads that share lines.
    pub(super) fn groups(self) -> usize {
        self.heads.div_ceil(HEADS)
    }

    /// Vectors of a head.
    pub(super) fn vectors(self) -> usize {
        self.head_width.div_ceil(LANES)
    }

    /// Lines of a key, and of a value.
    pub(crate) fn lines(self) -> usize {
        self.groups() * self.vectors()
    }

    /// Weights of a position.
    pub(super) fn columns(self) -> usize {
        self.heads.next_power_of_two().max(HEADS)
    }

    pub(super) fn width(self) -> usize {
        self.heads * self.head_width
    }

    /// Sixteen columns of a head, or those there are and zeros.
    #[inline(always)]
    pub(super) fn vector(self, row: &[f32], head: usize, vector: usize) -> [f32; LANES] {
        let start = head * self.head_width + vector * LANES;
        let left = self.head_width - vector * LANES;
        match row[start.min(row.len())..].first_chunk() {
            Some(whole) if head < self.heads && left >= LANES => *whole,
            _ if head >= self.heads => [0.0; LANES],
            _ => filled_up(&row[start..start + left.min(LANES)]),
        }
    }
}

/// Keys and values of all positions.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) rows: &'a [CacheLine],
    /// Lines of a row.
    pub(crate) stride: usize,
    /// Of each position's key and of its value.
    pub(crate) steps: &'a [[f32; 2]],
    pub(crate) shape: Shape,
}

/// Rounds a key or a value, whose step it tells. `added` to each byte: see [`KEYS_HAVE`].
#[inline(always)]
pub(crate) fn round<I: Vectors>(
    isa: I,
    shape: Shape,
    numbers: &[f32],
    added: u8,
    to: &mut [CacheLine],
) -> f32 {
    let most = largest(isa, numbers);
    let (scale, step) = if most > 0.0 { (127.0 / most, most / 127.0) } else { (0.0, 0.0) };
    let scale = isa.all(scale);
    let whole = shape.heads.is_multiple_of(HEADS) && shape.head_width.is_multiple_of(LANES);
    let all = numbers.as_chunks::<LANES>().0;
    for (group, lines) in to[..shape.lines()].chunks_exact_mut(shape.vectors()).enumerate() {
        let first = group * HEADS * shape.vectors();
        for (vector, line) in lines.iter_mut().enumerate() {
            let mut four = [isa.all(0.0); HEADS];
            for (head, four) in four.iter_mut().enumerate() {
                *four = if whole {
                    isa.load(&all[first + head * shape.vectors() + vector])
                } else {
                    isa.load(&shape.vector(numbers, group * HEADS + head, vector))
                };
                *four = isa.multiply(*four, scale);
            }
            isa.store_bytes(four, added, &mut line.0);
        }
    }
    step
}

/// The largest magnitude.
#[inline(always)]
pub(super) fn largest<I: Vectors>(isa: I, numbers: &[f32]) -> f32 {
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
