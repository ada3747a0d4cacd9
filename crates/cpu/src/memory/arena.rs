//! Memory for packed weights and other large buffers, on huge pages.
//!
//! A decoder step reads all weights of a model and the whole KV cache once, so pages of 2 MB instead of 4 kB save thousands of TLB
//! misses. Weights are packed one after the other, in the order they are prepared, into large anonymous maps with `MADV_HUGEPAGE`;
//! all workers read the same copy.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use memmap2::{MmapMut, MmapOptions, MmapRaw};

use crate::isa::Isa;
use crate::technique::Technique;

/// Bytes mapped at a time. Pages that are never written take no memory.
const CHUNK: usize = 64 << 20;
/// Bytes of a huge page.
const PAGE: usize = 2 << 20;
/// Buffers from this size on get maps of their own: at least half of a huge page is used.
const LARGE: usize = PAGE / 2;
/// Every allocation begins at a cache line.
const ALIGNMENT: usize = 64;

const TOO_LARGE: &str = "no more values than memory could hold";

/// Bytes of so many values, in whole cache lines. Panics if they exceed the address space: a size that has wrapped around would
/// have too little memory mapped.
fn bytes_of<T>(count: usize) -> usize {
    let max = isize::MAX as usize / PAGE * PAGE;
    let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= max);
    bytes.expect(TOO_LARGE).next_multiple_of(ALIGNMENT)
}

/// The bytes of a cache line. A `Store` of these is aligned to cache lines, in an arena and on the heap.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub(crate) [u8; ALIGNMENT]);

/// A buffer aligned to cache lines, so that loads of tiles and vectors from rows of whole lines do not cross a line.
#[derive(Default)]
pub(crate) struct Aligned<T> {
    lines: Vec<CacheLine>,
    count: usize,
    values: PhantomData<T>,
}

impl<T: Pod> Aligned<T> {
    /// Sets the length to `count` values and allocates memory for `more` behind them. Contents are unspecified.
    pub(crate) fn reshape(&mut self, count: usize, more: usize) {
        let values = count.checked_add(more).expect(TOO_LARGE);
        let lines = bytes_of::<T>(values).div_ceil(ALIGNMENT);
        if self.lines.len() < lines {
            self.lines.resize(lines, CacheLine([0; ALIGNMENT]));
        }
        self.count = count;
    }

    /// The values and all memory behind them.
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

/// The pages for large buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Huge pages of 2 MB.
    #[default]
    Large,
    /// Pages of 4 kB, for comparison.
    Small,
}

impl Pages {
    /// The pages according to [`Technique::LargePages`].
    pub(crate) fn of(isa: Isa) -> Pages {
        if isa.uses(Technique::LargePages) { Pages::Large } else { Pages::Small }
    }
}

/// A bump allocator. Memory is freed with the last allocation of a map.
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
    /// An empty arena.
    pub(crate) fn new(pages: Pages) -> Arena {
        Arena { pages, open: Arc::default() }
    }

    /// Allocates `count` zeroed values, on the heap where the system maps no memory.
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
        let place = Place::Arena(Allocation { map, start, count, values: PhantomData });
        Store { place, pages: self.pages }
    }
}

impl Chunk {
    fn new(bytes: usize, pages: Pages) -> Option<Chunk> {
        // A multiple of huge pages: the system then aligns it to one if it can.
        let map = MmapOptions::new().len(bytes.next_multiple_of(PAGE)).map_anon().ok()?;
        advise(&map, pages);
        Some(Chunk { map: Arc::new(map.into()), used: 0 })
    }
}

/// Tells the system which pages a map is to have. Where that fails, and on systems other than Linux, memory is on small pages.
fn advise(map: &MmapMut, pages: Pages) {
    #[cfg(target_os = "linux")]
    let _ = map.advise(match pages {
        Pages::Large => memmap2::Advice::HugePage,
        Pages::Small => memmap2::Advice::NoHugePage,
    });
    #[cfg(not(target_os = "linux"))]
    let _ = (map, pages);
}

/// A part of an arena with a single owner.
struct Allocation<T> {
    map: Arc<MmapRaw>,
    start: usize,
    count: usize,
    values: PhantomData<T>,
}

/// Values in an arena, or on the heap.
pub(crate) struct Store<T> {
    place: Place<T>,
    /// Pages to allocate when it grows.
    pages: Pages,
}

enum Place<T> {
    Heap(Vec<T>),
    Arena(Allocation<T>),
}

impl<T: Zeroable + Copy> Store<T> {
    /// Zeroed values on the heap, which move to such pages when they become large.
    pub(crate) fn zeroed(count: usize, pages: Pages) -> Store<T> {
        Store { place: Place::Heap(vec![T::zeroed(); count]), pages }
    }

    /// The pages it is on, or will be on once it is large.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// Sets the length to `count` values, keeping existing ones; new ones are zero. A buffer that becomes large moves to a map of its
    /// own.
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
                let place = Place::Arena(Allocation { map, start: 0, count, values: PhantomData });
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
            // SAFETY: the map outlives the allocation, which is aligned, inside it, zeroed at first and overlaps no other; all zeros are
            // a value of `T` (see `Arena::zeroed`).
            Place::Arena(allocation) => unsafe {
                let start = allocation.map.as_ptr().add(allocation.start).cast();
                std::slice::from_raw_parts(start, allocation.count)
            },
        }
    }
}

impl<T> DerefMut for Store<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.place {
            Place::Heap(values) => values,
            // SAFETY: as above, and `&mut self` is exclusive access to this allocation.
            Place::Arena(allocation) => unsafe {
                let start = allocation.map.as_mut_ptr().add(allocation.start).cast();
                std::slice::from_raw_parts_mut(start, allocation.count)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_values_begin_at_a_cache_line() {
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
    fn an_arena_allocates_no_more_than_the_address_space() {
        // Four bytes modulo 2⁶⁴.
        let _ = Arena::default().zeroed::<u32>(usize::MAX / 4 + 2);
    }

    #[test]
    #[should_panic = "no more values than memory could hold"]
    fn growing_stops_at_the_address_space() {
        Store::<u32>::zeroed(1, Pages::Large).grow(usize::MAX / 4 + 2);
    }

    #[test]
    fn growing_keeps_existing_values() {
        let mut store: Store<u32> = Store::zeroed(3, Pages::Large);
        let mut filled = 0;
        for count in [10, 1000, 2 << 20, 3 << 20] {
            store.grow(count);
            assert!(store[..filled].iter().enumerate().all(|(i, &v)| v == i as u32 + 1));
            assert!(store[filled..].iter().all(|&v| v == 0));
            store.iter_mut().enumerate().for_each(|(i, v)| *v = i as u32 + 1);
            filled = count;
        }
        assert!(matches!(store.place, Place::Arena(_)));
    }

    #[test]
    fn allocations_are_disjoint_aligned_and_outlive_the_arena() {
        let arena = Arena::default();
        let mut allocations: Vec<Store<u32>> = (1..50).map(|n| arena.zeroed(n * 7)).collect();
        let large: Store<u32> = arena.zeroed(CHUNK / 2);
        drop(arena);
        for (i, allocation) in allocations.iter_mut().enumerate() {
            assert_eq!(allocation.len(), (i + 1) * 7);
            assert_eq!(allocation.as_ptr() as usize % ALIGNMENT, 0);
            assert!(allocation.iter().all(|&v| v == 0));
            allocation.fill(i as u32 + 1);
        }
        for (i, allocation) in allocations.iter().enumerate() {
            assert!(allocation.iter().all(|&v| v == i as u32 + 1));
        }
        assert!(large.iter().all(|&v| v == 0));
    }
}
