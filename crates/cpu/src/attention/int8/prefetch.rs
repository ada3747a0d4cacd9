//! Prefetch of the cache rows that the next rows read.

use std::ops::Range;

use super::{Int8View, RowGroup};
use crate::memory::arena::CacheLine;

/// Runs whose lines are prefetched in alternation.
const INTERLEAVED: usize = 8;

/// Cache lines of a page.
const PAGE_LINES: usize = 64;

/// Cache lines to prefetch, a few at a time. Lines of [`INTERLEAVED`] pages alternate, because memory delivers them faster than
/// lines of one page (see `crate::memory::prefetch`).
#[derive(Default)]
pub(super) struct PrefetchQueue {
    /// Runs of neighbouring lines, up to a page each.
    runs: Vec<Range<usize>>,
    /// The runs whose lines alternate now.
    active: Range<usize>,
    /// Lines of the longest active run.
    longest: usize,
    /// The run of the next line.
    run: usize,
    /// The next line within its run.
    line: usize,
    /// Lines that one call of [`advance`](PrefetchQueue::advance) prefetches.
    share: usize,
}

impl PrefetchQueue {
    /// Queues what `next` reads, in equal shares for `calls` calls of [`advance`](PrefetchQueue::advance). Positions that `now`
    /// reads too, as hypotheses with a common prefix do, are in cache already.
    pub(super) fn fill(
        &mut self,
        cache: Int8View<'_>,
        now: &[RowGroup<'_>],
        next: &[RowGroup<'_>],
        calls: usize,
    ) {
        self.runs.clear();
        let mut lines = 0;
        for ((_, now), (_, next)) in now.iter().zip(next) {
            let now = now.iter().map(Some).chain(std::iter::repeat(None));
            for (&position, _) in next.iter().zip(now).filter(|&(next, now)| Some(next) != now) {
                let start = position as usize * cache.stride;
                self.push(start..start + cache.stride);
                lines += cache.stride;
            }
        }
        self.share = lines.div_ceil(calls.max(1));
        self.activate(0);
    }

    fn push(&mut self, mut lines: Range<usize>) {
        if let Some(last) = self.runs.last_mut().filter(|last| last.end == lines.start) {
            let more = lines.len().min(PAGE_LINES - last.len());
            last.end += more;
            lines.start += more;
        }
        if !lines.is_empty() {
            self.runs.push(lines);
        }
    }

    /// Makes the runs from `first` on the active ones.
    fn activate(&mut self, first: usize) {
        self.active = first..self.runs.len().min(first + INTERLEAVED);
        self.longest = self.runs[self.active.clone()].iter().map(Range::len).max().unwrap_or(0);
        (self.run, self.line) = (first, 0);
    }

    /// The next line. Where a run is shorter than the longest active one, lines behind it are prefetched for nothing.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.run == self.active.end {
            (self.run, self.line) = (self.active.start, self.line + 1);
            if self.line >= self.longest {
                self.activate(self.active.end);
            }
        }
        let line = self.runs.get(self.run)?.start + self.line;
        self.run += 1;
        Some(line)
    }

    /// Prefetches the share of one call.
    #[inline(always)]
    pub(super) fn advance(&mut self, rows: &[CacheLine]) {
        for _ in 0..self.share {
            let Some(line) = self.next() else {
                self.share = 0;
                return;
            };
            prefetch_line(rows.as_ptr().wrapping_add(line));
        }
    }
}

/// Prefetches a cache line into L2. L1 is too small for what is read until then.
#[inline(always)]
pub(super) fn prefetch_line(line: *const CacheLine) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it, and it may be given any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::int8::HeadShape;

    #[test]
    fn all_new_positions_are_prefetched() {
        let shape = HeadShape { heads: 8, head_width: 32 };
        let cache = Int8View { rows: &[], stride: 9, scales: &[], shape };
        let now: [RowGroup<'_>; 2] = [(0..1, &[1, 2, 3]), (1..2, &[4])];
        let many: Vec<u32> = (100..150).collect();
        let next: [RowGroup<'_>; 3] = [(2..3, &[1, 7, 3, 8]), (3..4, &many), (4..5, &[99])];
        let mut queue = PrefetchQueue::default();
        queue.fill(cache, &now, &next, 10);
        let mut prefetched: Vec<usize> = std::iter::from_fn(|| queue.next()).collect();
        // Two positions and fifty, in ten calls.
        assert_eq!(queue.share, (52 * 9usize).div_ceil(10));
        assert!(prefetched.len() < 52 * 9 + INTERLEAVED * PAGE_LINES);
        prefetched.sort_unstable();
        for position in [7, 8].into_iter().chain(100..150) {
            for line in position * 9..position * 9 + 9 {
                assert!(prefetched.binary_search(&line).is_ok(), "line {line}");
            }
        }
    }
}
