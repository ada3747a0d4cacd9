//! What is read next, asked for while something else is worked on.

use std::ops::Range;

use super::{Kept, Run};
use crate::memory::arena::CacheLine;

/// Pieces that are asked for in turn.
const SIDE_BY_SIDE: usize = 8;

/// Lines of a page.
const PAGE: usize = 64;

/// Lines to ask for, a few at a time: those of [`SIDE_BY_SIDE`] pages in turn, because memory hands these out faster than
/// those of one (see `crate::memory::prefetch`).
#[derive(Default)]
pub(super) struct Prefetch {
    /// Lines that stand side by side, up to a page of them.
    pieces: Vec<Range<usize>>,
    /// The pieces that are asked for in turn, and the most lines that one of them has.
    turn: Range<usize>,
    longest: usize,
    /// The next place in that turn, and its line.
    place: usize,
    line: usize,
    /// Lines of a step.
    share: usize,
}

impl Prefetch {
    /// Plans for so many steps. What is read now as well, as by hypotheses with a common past, is there already.
    pub(super) fn plan(&mut self, kept: Kept<'_>, now: &[Run<'_>], next: &[Run<'_>], steps: usize) {
        self.pieces.clear();
        let mut lines = 0;
        for ((_, now), (_, next)) in now.iter().zip(next) {
            let now = now.iter().map(Some).chain(std::iter::repeat(None));
            for (&position, _) in next.iter().zip(now).filter(|&(next, now)| Some(next) != now) {
                let start = position as usize * kept.stride;
                self.push(start..start + kept.stride);
                lines += kept.stride;
            }
        }
        self.share = lines.div_ceil(steps.max(1));
        self.take_turn(0);
    }

    fn push(&mut self, mut lines: Range<usize>) {
        if let Some(last) = self.pieces.last_mut().filter(|last| last.end == lines.start) {
            let more = lines.len().min(PAGE - last.len());
            last.end += more;
            lines.start += more;
        }
        if !lines.is_empty() {
            self.pieces.push(lines);
        }
    }

    /// Goes on with the pieces from one on.
    fn take_turn(&mut self, first: usize) {
        self.turn = first..self.pieces.len().min(first + SIDE_BY_SIDE);
        self.longest = self.pieces[self.turn.clone()].iter().map(Range::len).max().unwrap_or(0);
        (self.place, self.line) = (first, 0);
    }

    /// The next line. Where a piece is shorter than others of its turn, lines behind it come in vain.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.place == self.turn.end {
            (self.place, self.line) = (self.turn.start, self.line + 1);
            if self.line >= self.longest {
                self.take_turn(self.turn.end);
            }
        }
        let line = self.pieces.get(self.place)?.start + self.line;
        self.place += 1;
        Some(line)
    }

    /// Asks for a step's share.
    #[inline(always)]
    pub(super) fn step(&mut self, rows: &[CacheLine]) {
        for _ in 0..self.share {
            let Some(line) = self.next() else {
                self.share = 0;
                return;
            };
            prefetch_line(rows.as_ptr().wrapping_add(line));
        }
    }
}

/// Asks for a line, into the second cache: the first is too small for what is read until then.
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
    use crate::attention::int8::Shape;

    #[test]
    fn all_that_is_new_is_asked_for() {
        let shape = Shape { heads: 8, head_width: 32 };
        let kept = Kept { rows: &[], stride: 9, steps: &[], shape };
        let now: [Run<'_>; 2] = [(0..1, &[1, 2, 3]), (1..2, &[4])];
        let many: Vec<u32> = (100..150).collect();
        let next: [Run<'_>; 3] = [(2..3, &[1, 7, 3, 8]), (3..4, &many), (4..5, &[99])];
        let mut ahead = Prefetch::default();
        ahead.plan(kept, &now, &next, 10);
        let mut asked: Vec<usize> = std::iter::from_fn(|| ahead.next()).collect();
        // Two positions and many, in ten steps.
        assert_eq!(ahead.share, (52 * 9usize).div_ceil(10));
        assert!(asked.len() < 52 * 9 + SIDE_BY_SIDE * PAGE);
        asked.sort_unstable();
        for position in [7, 8].into_iter().chain(100..150) {
            for line in position * 9..position * 9 + 9 {
                assert!(asked.binary_search(&line).is_ok(), "line {line}");
            }
        }
    }
}
