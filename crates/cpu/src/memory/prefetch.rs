//! Memory asked for ahead of a loop that reads it in order.
//!
//! Memory hands out lines of one page after the other half as fast as lines of eight pages side by side
//! (`--example attention` prints both), and no matter how far ahead they are asked for. So while a run of eight
//! pages is read, the run behind it is asked for in another order:
//!
//! ```text
//! read:        page 0: line 0, 1, 2, … 63 │ page 1: line 0, 1, … │ … page 7
//! asked for:   line 0 of pages 0 … 7 │ line 1 of pages 0 … 7 │ line 2 …
//! ```
//!
//! Every line is asked for: its neighbour comes along only while nobody else wants much of memory. What is asked for follows
//! from the address that is read alone, so a product goes on where the last one stopped, if its weights are next in memory.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Pages of a run.
pub(crate) const PAGES: usize = 8;
/// Bytes of a run.
pub(crate) const RUN: usize = PAGE * PAGES;
/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Where to ask while a line is read. The lines of `LINE · PAGES` bytes have the same place in a page each, one page after the
/// other.
#[inline(always)]
pub(crate) fn target(read: *const u8) -> *const u8 {
    let within = read as usize % RUN;
    let (page, line) = (within / LINE % PAGES, within / LINE / PAGES);
    read.wrapping_add(RUN - within + page * PAGE + line * LINE)
}

/// Asks for what belongs to a line that is read, into the second cache: the first is too small for a run.
#[inline(always)]
pub(crate) fn next_run(read: *const u8) {
    line(target(read));
}

/// Asks for a line.
#[inline(always)]
pub(crate) fn line(line: *const u8) {
    // SAFETY: every processor of this architecture has it, and it may be given any address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_run_asks_for_all_of_the_next() {
        let run = RUN;
        let places = |start: usize| -> BTreeSet<usize> {
            (start..start + run).step_by(LINE).map(|at| target(at as *const u8) as usize).collect()
        };
        let expected = |start: usize| (start..start + run).step_by(LINE).collect::<BTreeSet<_>>();
        assert_eq!(places(5 * run), expected(6 * run));
        // Runs may be read from any line on, and to the end of memory.
        assert_eq!(target((5 * run + 63) as *const u8), target((5 * run) as *const u8));
        assert_eq!(target(usize::MAX as *const u8) as usize, run - LINE);
    }

    #[test]
    fn neighbours_are_in_other_pages() {
        let pages = |at: usize| target(at as *const u8) as usize / PAGE;
        for at in (0..LINE * PAGES).step_by(LINE) {
            assert_eq!(pages(at), PAGES + at / LINE);
        }
    }
}
