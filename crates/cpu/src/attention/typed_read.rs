//! What attention over a float cache reads, with the number type of the cache.

use std::ops::Range;

use super::CacheRead;
use super::kv_cache::{CacheNumber, CacheView};
use crate::isa::lanes::LANES;

/// A [`CacheRead`] of numbers of type `T`.
#[derive(Clone, Copy)]
pub(super) struct TypedRead<'a, T> {
    pub(super) view: CacheView<'a, T>,
    pub(super) positions: &'a [u32],
    pub(super) heads: usize,
    pub(super) next: &'a [u32],
}

impl<'a, T: CacheNumber> TypedRead<'a, T> {
    pub(super) fn new(read: CacheRead<'a>) -> TypedRead<'a, T> {
        let CacheRead { cache, positions, heads, next } = read;
        TypedRead { view: cache.view(), positions, heads, next }
    }

    pub(super) fn head_width(&self) -> usize {
        self.view.width / self.heads
    }

    pub(super) fn columns_of(&self, head: usize) -> Range<usize> {
        head * self.head_width()..(head + 1) * self.head_width()
    }

    /// Weights of a position: one a head and padding.
    pub(super) fn padded_heads(&self) -> usize {
        self.heads.next_power_of_two()
    }

    /// Weights of a row, padding included.
    pub(super) fn stride(&self) -> usize {
        (self.positions.len() * self.padded_heads()).next_multiple_of(LANES)
    }
}
