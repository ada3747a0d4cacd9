//! Software prefetch ahead of a loop that reads memory in order.
//!
//! DRAM delivers cache lines of one page after the other half as fast as lines of eight pages interleaved
//! (`--example attention` prints both), however far ahead they are prefetched. So while a window of eight pages is read, the next
//! window is prefetched in another order:
//!
//! ```text
//! read:        page 0: line 0, 1, 2, … 63 │ page 1: line 0, 1, … │ … page 7
//! prefetched:  line 0 of pages 0 … 7 │ line 1 of pages 0 … 7 │ line 2 …
//! ```
//!
//! Every cache line is prefetched: the adjacent-line prefetcher fetches the second line of a pair only when the memory bus is idle.
//! The prefetched address depends on the read address alone, so a product continues where the one before it stopped, if its
//! weights come next in memory.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Pages of a window.
pub(crate) const WINDOW_PAGES: usize = 8;
/// Bytes of a window.
pub(crate) const WINDOW: usize = PAGE * WINDOW_PAGES;
/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

/// The address to prefetch while a cache line is read. Eight consecutive lines map to lines at the same offset of the eight pages
/// of the next window.
#[inline(always)]
pub(crate) fn target(read: *const u8) -> *const u8 {
    let within = read as usize % WINDOW;
    let (page, line) = (within / CACHE_LINE % WINDOW_PAGES, within / CACHE_LINE / WINDOW_PAGES);
    read.wrapping_add(WINDOW - within + page * PAGE + line * CACHE_LINE)
}

/// Prefetches the line of the next window that corresponds to the line that is read.
#[inline(always)]
pub(crate) fn prefetch_next_window(read: *const u8) {
    prefetch_line(target(read));
}

/// Prefetches the lines that correspond to the eight consecutive lines around one that is read.
#[inline(always)]
pub(crate) fn prefetch_next_window_8(read: *const u8) {
    let first = target(read.wrapping_sub(read as usize % (WINDOW_PAGES * CACHE_LINE)));
    for page in 0..WINDOW_PAGES {
        prefetch_line(first.wrapping_add(page * PAGE));
    }
}

/// Prefetches so many lines. Up to `USUAL` of them take no loop: its instructions would be more than those of a product's step.
#[inline(always)]
pub(crate) fn prefetch_lines<const USUAL: usize>(first: *const u8, count: usize) {
    for line in 0..USUAL {
        if line < count {
            prefetch_line(first.wrapping_add(line * CACHE_LINE));
        }
    }
    for line in USUAL..count {
        prefetch_line(first.wrapping_add(line * CACHE_LINE));
    }
}

/// Prefetches a cache line into L2. L1 is too small for a window.
#[inline(always)]
pub(crate) fn prefetch_line(line: *const u8) {
    // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_window_prefetches_all_of_the_next() {
        let lines = |start: usize| (start..start + WINDOW).step_by(CACHE_LINE);
        let targets = |start: usize| -> BTreeSet<usize> {
            lines(start).map(|at| target(at as *const u8) as usize).collect()
        };
        assert_eq!(targets(5 * WINDOW), lines(6 * WINDOW).collect::<BTreeSet<_>>());
        // Reads may start at any line, and go on to the end of the address space.
        assert_eq!(target((5 * WINDOW + 63) as *const u8), target((5 * WINDOW) as *const u8));
        assert_eq!(target(usize::MAX as *const u8) as usize, WINDOW - CACHE_LINE);
    }

    #[test]
    fn consecutive_lines_prefetch_from_different_pages() {
        let pages = |at: usize| target(at as *const u8) as usize / PAGE;
        for at in (0..CACHE_LINE * WINDOW_PAGES).step_by(CACHE_LINE) {
            assert_eq!(pages(at), WINDOW_PAGES + at / CACHE_LINE);
        }
    }
}
