//! Memory for packed weights, and for what else is large.
//!
//! A step reads all of a model's weights and all keys and values once, so pages of 2 MB instead of 4 kB spare it
//! thousands of address translations. Weights are packed one after the other, in the order they are prepared, into
//! large anonymous maps that ask for such pages; all workers read the same copy.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::isa::Isa;
use crate::technique::Technique;

/// Bytes mapped at a time. Only what is written takes memory.
const CHUNK: usize = 64 << 20;
/// Bytes of a large page.
const PAGE: usize = 2 << 20;
/// From here on a large page is worth having: half of it is used.
const LARGE: usize = PAGE / 2;
/// Every shelf begins at a cache line.
const ALIGNMENT: usize = 64;

const TOO_LARGE: &str = "no more values than memory could hold";

/// Bytes of so many values, in whole cache lines. What does not fit the address space is refused here: a size that has
/// wrapped around would have too little memory mapped.
fn bytes_of<T>(count: usize) -> usize {
    let most = isize::MAX as usize / PAGE * PAGE;
    let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= most);
    bytes.expect(TOO_LARGE).next_multiple_of(ALIGNMENT)
}

/// What a cache line holds: a `Store` of these begins at one, wherever it is.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub(crate) [u8; ALIGNMENT]);

/// Values that begin at a cache line, so that a row of whole lines does not straddle others when a tile or a vector of it
/// is loaded.
#[derive(Default)]
pub(crate) struct Aligned<T> {
    lines: Vec<CacheLine>,
    count: usize,
    values: PhantomData<T>,
}

impl<T: Pod> Aligned<T> {
    /// Makes it `count` values and has memory for `more` behind them. What is in it is unspecified.
    pub(crate) fn reshape(&mut self, count: usize, more: usize) {
        let values = count.checked_add(more).expect(TOO_LARGE);
        let lines = bytes_of::<T>(values).div_ceil(ALIGNMENT);
        if self.lines.len() < lines {
            self.lines.resize(lines, CacheLine([0; ALIGNMENT]));
        }
        self.count = count;
    }

    /// Its values and all memory there is behind them.
    pub(crate) fn memory(&self) -> &[T] {
        bytemuck::cast_slice(&self.lines)
    }
}

impl<T: Pod> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.count]
    }
}

impl<T: Pod> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.count]
    }
}

/// The pages that large memory is to lie on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Of 2 MB.
    #[default]
    Large,
    /// Of 4 kB, for comparison.
    Small,
}

impl Pages {
    /// What a processor is to use.
    pub(crate) fn of(isa: Isa) -> Pages {
        if isa.uses(Technique::LargePages) { Pages::Large } else { Pages::Small }
    }
}

/// Hands out memory that is never given back before the whole arena is.
#[derive(Debug, Default, Clone)]
pub(crate) struct Arena {
    pages: Pages,
    open: Arc<Mutex<Option<Chunk>>>,
}

#[derive(Debug)]
struct Chunk {
    map: Arc<MmapRaw>,
    used: usize,
}

impl Arena {
    /// An empty one.
    pub(crate) fn new(pages: Pages) -> Arena {
        Arena { pages, open: Arc::default() }
    }

    /// Room for `count` zeroed values; on the heap where the system maps no memory.
    pub(crate) fn zeroed<T: Zeroable + Copy>(&self, count: usize) -> Store<T> {
        const { assert!(align_of::<T>() <= ALIGNMENT) };
        let bytes = bytes_of::<T>(count);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(|chunk| chunk.map.len() - chunk.used < bytes) {
            *open = Chunk::new(bytes.max(CHUNK), self.pages);
        }
        let Some(chunk) = open.as_mut() else { return Store::zeroed(count, self.pages) };
        let start = chunk.used;
        chunk.used += bytes;
        let map = Arc::clone(&chunk.map);
        let place = Place::Shelf(Shelf { map, start, count, values: PhantomData });
        Store { place, pages: self.pages }
    }
}

impl Chunk {
    fn new(bytes: usize, pages: Pages) -> Option<Chunk> {
        // Of whole pages: a system that can then begins it at one.
        let map = MmapOptions::new().len(bytes.next_multiple_of(PAGE)).map_anon().ok()?;
        // A wish: without it the weights are still there, on small pages.
        let _ = map.advise(match pages {
            Pages::Large => Advice::HugePage,
            Pages::Small => Advice::NoHugePage,
        });
        Some(Chunk { map: Arc::new(map.into()), used: 0 })
    }
}

/// A part of an arena that nobody else has.
struct Shelf<T> {
    map: Arc<MmapRaw>,
    start: usize,
    count: usize,
    values: PhantomData<T>,
}

/// Values in an arena, or on the heap.
pub(crate) struct Store<T> {
    place: Place<T>,
    /// Where it goes when it grows.
    pages: Pages,
}

enum Place<T> {
    Heap(Vec<T>),
    Shelf(Shelf<T>),
}

impl<T: Zeroable + Copy> Store<T> {
    /// Zeros on the heap, which move to such pages when they become many.
    pub(crate) fn zeroed(count: usize, pages: Pages) -> Store<T> {
        Store { place: Place::Heap(vec![T::zeroed(); count]), pages }
    }

    /// The pages it lies on, or is to lie on when it has grown.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// Makes it `count` values, keeping those there are; the others are zero. Where it becomes large
    /// it moves to a map of its own.
    pub(crate) fn grow(&mut self, count: usize) {
        let bytes = bytes_of::<T>(count);
        if bytes < LARGE
            && let Place::Heap(values) = &mut self.place
        {
            values.resize(count, T::zeroed());
            return;
        }
        let mut grown = match Chunk::new(bytes, self.pages) {
            Some(Chunk { map, .. }) => {
                let place = Place::Shelf(Shelf { map, start: 0, count, values: PhantomData });
                Store { place, pages: self.pages }
            }
            None => Store::zeroed(count, self.pages),
        };
        let kept = self.len().min(count);
        grown[..kept].copy_from_slice(&self[..kept]);
        *self = grown;
    }
}

impl<T> Deref for Store<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.place {
            Place::Heap(values) => values,
            // SAFETY: the map outlives the shelf, which is aligned, inside it, zeroed at first and
            // overlaps no other; all zeros are a value of `T` (see `Arena::zeroed`).
            Place::Shelf(shelf) => unsafe {
                let start = shelf.map.as_ptr().add(shelf.start).cast();
                std::slice::from_raw_parts(start, shelf.count)
            },
        }
    }
}

impl<T> DerefMut for Store<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.place {
            Place::Heap(values) => values,
            // SAFETY: as above, and `&mut self` is the only way to this shelf.
            Place::Shelf(shelf) => unsafe {
                let start = shelf.map.as_mut_ptr().add(shelf.start).cast();
                std::slice::from_raw_parts_mut(start, shelf.count)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_values_begin_at_a_line() {
        let mut values = Aligned::<u16>::default();
        for (count, more) in [(0, 0), (7, 0), (100, 33), (5, 1), (1000, 16)] {
            values.reshape(count, more);
            assert_eq!((values.len(), values.as_ptr() as usize % ALIGNMENT), (count, 0));
            values.fill(count as u16);
            assert!(values.lines.len() * ALIGNMENT >= 2 * (count + more));
        }
    }

    #[test]
    #[should_panic = "no more values than memory could hold"]
    fn an_arena_hands_out_no_more_than_there_are_addresses() {
        // Modulo 2⁶⁴, four bytes.
        let _ = Arena::default().zeroed::<u32>(usize::MAX / 4 + 2);
    }

    #[test]
    #[should_panic = "no more values than memory could hold"]
    fn growing_stops_where_addresses_do() {
        Store::<u32>::zeroed(1, Pages::Large).grow(usize::MAX / 4 + 2);
    }

    #[test]
    fn growing_keeps_what_is_there() {
        let mut store: Store<u32> = Store::zeroed(3, Pages::Large);
        let mut filled = 0;
        for count in [10, 1000, 2 << 20, 3 << 20] {
            store.grow(count);
            assert!(store[..filled].iter().enumerate().all(|(i, &v)| v == i as u32 + 1));
            assert!(store[filled..].iter().all(|&v| v == 0));
            store.iter_mut().enumerate().for_each(|(i, v)| *v = i as u32 + 1);
            filled = count;
        }
        assert!(matches!(store.place, Place::Shelf(_)));
    }

    #[test]
    fn shelves_are_apart_aligned_and_outlive_the_arena() {
        let arena = Arena::default();
        let mut shelves: Vec<Store<u32>> = (1..50).map(|n| arena.zeroed(n * 7)).collect();
        let large: Store<u32> = arena.zeroed(CHUNK / 2);
        drop(arena);
        for (i, shelf) in shelves.iter_mut().enumerate() {
            assert_eq!(shelf.len(), (i + 1) * 7);
            assert_eq!(shelf.as_ptr() as usize % ALIGNMENT, 0);
            assert!(shelf.iter().all(|&v| v == 0));
            shelf.fill(i as u32 + 1);
        }
        for (i, shelf) in shelves.iter().enumerate() {
            assert!(shelf.iter().all(|&v| v == i as u32 + 1));
        }
        assert!(large.iter().all(|&v| v == 0));
    }
}
