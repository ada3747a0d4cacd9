//! Products split across cores, for the latency of a single sentence.
//!
//! A worker may have a *team*: helper threads that compute part of a product's columns while it
//! computes the others. A column is computed by one thread, as it would be without a team, so that
//! results are the same to the last bit. One sentence at a time, a product of Transformer-base takes
//! some ten microseconds; waking a thread would take as long. Helpers therefore spin between
//! products, and sleep only when none has come for a while.

use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use crate::isa::lanes::LANES;

/// Turns of an idle helper before it sleeps: some hundred microseconds.
const PATIENCE: u32 = 20_000;

/// Work for all members of a team; each is told its number.
type Work = *const (dyn Fn(usize) + Sync);

struct Shared {
    work: UnsafeCell<Option<Work>>,
    /// Counts pieces of work; a change says that there is one.
    round: AtomicUsize,
    /// Helpers that have not finished it.
    pending: AtomicUsize,
    asleep: Vec<AtomicBool>,
    stop: AtomicBool,
    failed: AtomicBool,
}

// SAFETY: `work` is written by the leader only, while `pending` is zero and no helper reads it, and
// read by helpers after they have seen the `round` that was published after it.
unsafe impl Sync for Shared {}
// SAFETY: the pointer is used while the leader waits for its referent only, see `Team::run`.
unsafe impl Send for Shared {}

/// A worker's helpers.
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<(Thread, Option<JoinHandle<()>>)>,
}

thread_local! {
    /// The team of the worker that runs on this thread.
    static TEAM: Cell<Option<Team>> = const { Cell::new(None) };
    /// Memory for a member's columns.
    static PART: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Runs `work` with products split among `threads` threads, this one included.
pub fn split_products<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    if threads < 2 {
        return work();
    }
    let before = TEAM.replace(Some(Team::new(threads)));
    let result = work();
    TEAM.set(before);
    result
}

/// Threads that share a product on this thread.
pub(crate) fn members() -> usize {
    with_team(|team| team.map_or(1, |team| team.helpers.len() + 1))
}

/// Calls `part` with 0, 1, … once for each member, all at the same time. Without a team with 0 only.
pub(crate) fn each_member(part: &(dyn Fn(usize) + Sync)) {
    with_team(|team| match team {
        Some(team) => team.run(part),
        None => part(0),
    });
}

/// A product of fewer weights than this is not worth the wait for a helper.
const LEAST_WEIGHTS: usize = 1 << 16;

/// Computes the panels of a product, shared among the team where it has enough `inputs`.
/// `multiply(panels, out)` computes some of them for all rows, row by row.
pub(crate) fn panels(
    range: Range<usize>,
    (inputs, outputs): (usize, usize),
    out: &mut [f32],
    multiply: &(dyn Fn(Range<usize>, &mut [f32]) + Sync),
) {
    let members = members();
    if members == 1 || range.len() * LANES * inputs < LEAST_WEIGHTS {
        return multiply(range, out);
    }
    let first = range.start * LANES;
    let width = (range.end * LANES).min(outputs) - first;
    let whole = Shareable { start: out.as_mut_ptr(), length: out.len() };
    each_member(&|member| {
        let share = share(range.len(), member, members);
        let panels = range.start + share.start..range.start + share.end;
        let columns = share.start * LANES..(share.end * LANES).min(width);
        if columns.is_empty() {
            return;
        }
        let mut part = PART.take();
        part.resize(whole.length / width * columns.len(), 0.0);
        multiply(panels, &mut part);
        for (row, part) in part.chunks(columns.len()).enumerate() {
            // SAFETY: the columns are this member's alone, and `out` is borrowed until all are done.
            unsafe { whole.write(row * width + columns.start, part) };
        }
        PART.set(part);
    });
}

/// Outputs that members write disjoint columns of.
struct Shareable {
    start: *mut f32,
    length: usize,
}

// SAFETY: whoever writes says that nobody else writes there.
unsafe impl Sync for Shareable {}

impl Shareable {
    /// # Safety
    /// The outputs live, and nobody else reads or writes these at the same time.
    unsafe fn write(&self, at: usize, numbers: &[f32]) {
        assert!(at + numbers.len() <= self.length, "room for every output");
        // SAFETY: within the outputs, as just checked; the rest is vouched for by the caller.
        unsafe {
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), self.start.add(at), numbers.len());
        }
    }
}

/// The part of `0..count` that falls to a member.
pub(crate) fn share(count: usize, member: usize, members: usize) -> Range<usize> {
    count * member / members..count * (member + 1) / members
}

fn with_team<R>(read: impl FnOnce(Option<&Team>) -> R) -> R {
    let team = TEAM.take();
    let result = read(team.as_ref());
    TEAM.set(team);
    result
}

impl Team {
    fn new(threads: usize) -> Team {
        let helpers = threads - 1;
        let shared = Arc::new(Shared {
            work: UnsafeCell::new(None),
            round: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let helper = |number: usize| {
            let shared = Arc::clone(&shared);
            let handle = thread::spawn(move || help(&shared, number));
            (handle.thread().clone(), Some(handle))
        };
        let helpers = (0..helpers).map(helper).collect();
        Team { shared, helpers }
    }

    fn run(&self, part: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: the lifetime is forgotten, not outlived: this function returns only after every
        // helper has said that it is done with `part`, also when `part` panics here (`Wait`).
        let work: Work = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Work>(part) };
        // SAFETY: `pending` is zero, so that no helper reads the cell.
        unsafe { *shared.work.get() = Some(work) };
        shared.pending.store(self.helpers.len(), Ordering::Relaxed);
        shared.round.fetch_add(1, Ordering::SeqCst);
        for ((helper, _), asleep) in self.helpers.iter().zip(&shared.asleep) {
            if asleep.swap(false, Ordering::SeqCst) {
                helper.unpark();
            }
        }
        let wait = Wait(shared);
        part(0);
        drop(wait);
        assert!(!shared.failed.load(Ordering::Relaxed), "a helper failed");
    }
}

/// Waits for the helpers, whatever happens.
struct Wait<'a>(&'a Shared);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut turns = 0_u32;
        while self.0.pending.load(Ordering::Acquire) > 0 {
            turns += 1;
            if turns < PATIENCE {
                std::hint::spin_loop();
            } else {
                // More threads than cores: let the helper have this one.
                thread::yield_now();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for (helper, handle) in &mut self.helpers {
            helper.unpark();
            if let Some(handle) = handle.take() {
                let _ = handle.join();
            }
        }
    }
}

/// What a helper does.
fn help(shared: &Shared, number: usize) {
    let mut seen = 0;
    loop {
        let mut turns = 0_u32;
        while shared.round.load(Ordering::SeqCst) == seen {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            turns += 1;
            if turns < PATIENCE {
                std::hint::spin_loop();
                continue;
            }
            shared.asleep[number].store(true, Ordering::SeqCst);
            // Work that came in between has been seen, or has seen the flag.
            if shared.round.load(Ordering::SeqCst) == seen && !shared.stop.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.asleep[number].store(false, Ordering::SeqCst);
            turns = 0;
        }
        seen += 1;
        let done = Done(shared);
        // SAFETY: the round was published after the cell was written, and the leader neither writes
        // it nor lets go of the work before `done` is dropped.
        if let Some(work) = unsafe { *shared.work.get() } {
            // SAFETY: as above.
            unsafe { (*work)(number + 1) };
        }
        drop(done);
    }
}

/// Says that a helper is done, also if it panicked.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
        self.0.pending.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_member_does_its_part() {
        for threads in [1, 2, 3] {
            split_products(threads, || {
                assert_eq!(members(), threads);
                for round in 0..200 {
                    let seen = Mutex::new(Vec::new());
                    each_member(&|member| seen.lock().unwrap().push((member, round)));
                    let mut seen = seen.into_inner().unwrap();
                    seen.sort_unstable();
                    assert_eq!(seen, (0..threads).map(|m| (m, round)).collect::<Vec<_>>());
                }
            });
            assert_eq!(members(), 1);
        }
    }

    #[test]
    fn helpers_wake_up_again() {
        split_products(2, || {
            for _ in 0..3 {
                thread::sleep(std::time::Duration::from_millis(20));
                let count = AtomicUsize::new(0);
                each_member(&|_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(count.into_inner(), 2);
            }
        });
    }

    #[test]
    fn every_column_is_where_it_belongs() {
        let (inputs, outputs) = (512, 1000usize);
        // Whole products, and a part of one that does not begin at the first panel.
        for range in [0..outputs.div_ceil(LANES), 3..40, 5..5] {
            let first = range.start * LANES;
            let width = (range.end * LANES).min(outputs) - first;
            for threads in [1, 2, 3] {
                let mut out = vec![-1.0; 4 * width];
                split_products(threads, || {
                    panels(range.clone(), (inputs, outputs), &mut out, &|panels, out| {
                        let columns = panels.start * LANES..(panels.end * LANES).min(outputs);
                        for (row, out) in out.chunks_mut(columns.len().max(1)).enumerate() {
                            for (column, out) in columns.clone().zip(out) {
                                *out = (row * outputs + column) as f32;
                            }
                        }
                    });
                });
                for (i, &number) in out.iter().enumerate() {
                    let (row, column) = (i / width, i % width + first);
                    assert_eq!(number, (row * outputs + column) as f32);
                }
            }
        }
    }

    #[test]
    fn shares_make_a_whole() {
        for (count, members) in [(0, 2), (1, 2), (7, 3), (100, 4)] {
            let parts: Vec<usize> = (0..members).flat_map(|m| share(count, m, members)).collect();
            assert_eq!(parts, (0..count).collect::<Vec<_>>());
        }
    }
}
