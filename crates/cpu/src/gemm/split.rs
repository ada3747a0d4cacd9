//! Intra-op parallelism: the columns of a product are split over a team of threads, for the latency of a single sentence.
//!
//! A worker thread may lead a *team*: helper threads that compute part of a product's columns while it computes the others. A column
//! is computed by one thread, as it would be without a team, so that results have the same bits. For one sentence at a time, a
//! product of Transformer-base takes some ten microseconds; waking a thread takes as long. Helpers therefore spin between products,
//! and park only when none has come for a while.

use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use crate::isa::lanes::LANES;

/// Iterations of a spin loop before a helper parks: some hundred microseconds.
const SPIN_LIMIT: u32 = 20_000;

/// The function that every member of a team runs, with the member's index.
type Part = *const (dyn Fn(usize) + Sync);

/// State that the leader and its helpers share.
struct Shared {
    part: UnsafeCell<Option<Part>>,
    /// Number of parts published so far; helpers wait for it to change.
    round: AtomicUsize,
    /// Helpers that have not finished the round.
    pending: AtomicUsize,
    /// Whether each helper is parked.
    parked: Vec<AtomicBool>,
    stop: AtomicBool,
    /// Whether a helper has panicked.
    failed: AtomicBool,
}

// SAFETY: only the leader writes `part`, while `pending` is zero and no helper reads it; helpers read it after they have seen the
// `round` that was published after it.
unsafe impl Sync for Shared {}
// SAFETY: the pointer is used only while the leader keeps its referent alive, see `Team::run`.
unsafe impl Send for Shared {}

/// The helpers of a worker thread.
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<(Thread, Option<JoinHandle<()>>)>,
}

thread_local! {
    /// The team that this thread leads.
    static TEAM: Cell<Option<Team>> = const { Cell::new(None) };
    /// Scratch memory for a member's columns.
    static COLUMNS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Runs `work` with its products split over `threads` threads, this one included.
pub fn split_products<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    if threads < 2 {
        return work();
    }
    let before = TEAM.replace(Some(Team::new(threads)));
    let result = work();
    TEAM.set(before);
    result
}

/// The number of threads that a product of this thread is split over.
pub(crate) fn members() -> usize {
    with_team(|team| team.map_or(1, |team| team.helpers.len() + 1))
}

/// Calls `part` with 0, 1, … once for each member, in parallel. Without a team it is called with 0 only.
pub(crate) fn each_member(part: &(dyn Fn(usize) + Sync)) {
    with_team(|team| match team {
        Some(team) => team.run(part),
        None => part(0),
    });
}

/// Products of fewer weights are not split: synchronisation would cost more than it saves.
const MIN_WEIGHTS: usize = 1 << 16;

/// Computes a range of panels of a product, split over the team if they have enough weights. `multiply(panels, out)` computes some
/// of them for all rows, row by row.
pub(crate) fn multiply_panels(
    range: Range<usize>,
    (inputs, outputs): (usize, usize),
    out: &mut [f32],
    multiply: &(dyn Fn(Range<usize>, &mut [f32]) + Sync),
) {
    let members = members();
    if members == 1 || range.len() * LANES * inputs < MIN_WEIGHTS {
        return multiply(range, out);
    }
    let first = range.start * LANES;
    let width = (range.end * LANES).min(outputs) - first;
    let shared = SharedOutputs { start: out.as_mut_ptr(), length: out.len() };
    each_member(&|member| {
        let share = share(range.len(), member, members);
        let panels = range.start + share.start..range.start + share.end;
        let columns = share.start * LANES..(share.end * LANES).min(width);
        if columns.is_empty() {
            return;
        }
        let mut part = COLUMNS.take();
        part.resize(shared.length / width * columns.len(), 0.0);
        multiply(panels, &mut part);
        for (row, part) in part.chunks(columns.len()).enumerate() {
            // SAFETY: only this member writes these columns, and `out` is borrowed until all members are done.
            unsafe { shared.write(row * width + columns.start, part) };
        }
        COLUMNS.set(part);
    });
}

/// Outputs of which members write disjoint columns.
struct SharedOutputs {
    start: *mut f32,
    length: usize,
}

// SAFETY: callers of `write` guarantee that no other thread accesses the same outputs.
unsafe impl Sync for SharedOutputs {}

impl SharedOutputs {
    /// # Safety
    /// The outputs are alive, and no other thread reads or writes these at the same time.
    unsafe fn write(&self, at: usize, numbers: &[f32]) {
        assert!(at + numbers.len() <= self.length, "room for every output");
        // SAFETY: within the outputs, as just checked; the caller guarantees the rest.
        unsafe {
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), self.start.add(at), numbers.len());
        }
    }
}

/// A member's share of `0..count`.
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
            part: UnsafeCell::new(None),
            round: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
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
        // SAFETY: the lifetime is erased but not exceeded: this function returns only after every helper is done with `part`, also
        // when `part` panics here (`WaitForHelpers`).
        let erased: Part = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Part>(part) };
        // SAFETY: `pending` is zero, so that no helper reads the cell.
        unsafe { *shared.part.get() = Some(erased) };
        shared.pending.store(self.helpers.len(), Ordering::Relaxed);
        shared.round.fetch_add(1, Ordering::SeqCst);
        for ((helper, _), parked) in self.helpers.iter().zip(&shared.parked) {
            if parked.swap(false, Ordering::SeqCst) {
                helper.unpark();
            }
        }
        let wait = WaitForHelpers(shared);
        part(0);
        drop(wait);
        assert!(!shared.failed.load(Ordering::Relaxed), "a helper failed");
    }
}

/// Waits for the helpers when it is dropped, also during a panic.
struct WaitForHelpers<'a>(&'a Shared);

impl Drop for WaitForHelpers<'_> {
    fn drop(&mut self) {
        let mut spins = 0_u32;
        while self.0.pending.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPIN_LIMIT {
                std::hint::spin_loop();
            } else {
                // More threads than cores: yield this one to a helper.
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

/// The loop of a helper thread.
fn help(shared: &Shared, number: usize) {
    let mut seen = 0;
    loop {
        let mut spins = 0_u32;
        while shared.round.load(Ordering::SeqCst) == seen {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            spins += 1;
            if spins < SPIN_LIMIT {
                std::hint::spin_loop();
                continue;
            }
            shared.parked[number].store(true, Ordering::SeqCst);
            // A round published in between is seen here, or its leader sees the flag.
            if shared.round.load(Ordering::SeqCst) == seen && !shared.stop.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.parked[number].store(false, Ordering::SeqCst);
            spins = 0;
        }
        seen += 1;
        let done = DoneGuard(shared);
        // SAFETY: the round was published after the cell was written, and the leader neither writes it nor drops the part before
        // `done` is dropped.
        if let Some(part) = unsafe { *shared.part.get() } {
            // SAFETY: as above.
            unsafe { (*part)(number + 1) };
        }
        drop(done);
    }
}

/// Marks a helper as done when it is dropped, also during a panic.
struct DoneGuard<'a>(&'a Shared);

impl Drop for DoneGuard<'_> {
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
    fn every_member_runs_its_part() {
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
    fn every_column_is_written_to_its_place() {
        let (inputs, outputs) = (512, 1000usize);
        // Whole products, and a part of one that does not begin at the first panel.
        for range in [0..outputs.div_ceil(LANES), 3..40, 5..5] {
            let first = range.start * LANES;
            let width = (range.end * LANES).min(outputs) - first;
            for threads in [1, 2, 3] {
                let mut out = vec![-1.0; 4 * width];
                split_products(threads, || {
                    multiply_panels(range.clone(), (inputs, outputs), &mut out, &|panels, out| {
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
