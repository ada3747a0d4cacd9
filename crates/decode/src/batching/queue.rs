//! Sentences waiting for a worker: one queue for all of them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{BatchSize, Order, Policy};
use crate::Job;

/// How long an idle worker waits for company before it begins with what there is. A reader that is
/// quiet for so long waits for somebody who types, or for our answer.
const QUIET: Duration = Duration::from_millis(2);

/// Work that is sorted together where answers are wanted in order. The first line of a window may be the
/// last one to be ready, so what is sorted together is late together, and lost together if a job is
/// stopped.
const WINDOW: Duration = Duration::from_millis(600);

/// How much a worker needs sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Its batch is empty.
    Idle,
    /// Its batch has become small.
    Eager,
    /// It has enough to do.
    Busy,
}

/// A sentence, and the number its owner knows it by.
#[derive(Debug)]
pub struct Waiting {
    /// Handed back with its translation.
    pub ticket: u64,
    /// The sentence.
    pub job: Job,
}

/// Sentences waiting for a worker.
///
/// Policies that sort do so within a *window*: the sentences read ahead are put in order and handed
/// out to the last one before any that came later. So no sentence waits for ever, and answers can be
/// given in order with bounded memory.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    order: Order,
    /// Most sentences that make a full window.
    read_ahead: usize,
    workers: usize,
}

#[derive(Debug, Default)]
struct State {
    arrivals: VecDeque<Waiting>,
    /// In the order in which they are taken; before all arrivals.
    window: VecDeque<Waiting>,
    /// Counts arrivals, so that one can tell whether there were any.
    arrived: u64,
    /// No more will come.
    closed: bool,
    /// No more can come before some have left.
    stalled: bool,
    /// Nobody wants the rest.
    stopped: bool,
    /// How large windows are, where their work is bounded.
    pace: Option<Pace>,
}

/// Keeps windows to about the same time, whatever the speed of the machine.
#[derive(Debug)]
struct Pace {
    least: usize,
    /// Sentences of the next window.
    sentences: usize,
    /// When the last window began, and how many sentences it had.
    last: Option<(Instant, usize)>,
}

impl Pace {
    /// Notes that a window of so many sentences begins, and sizes the next one by the time the last one
    /// took: at most twice the last, for a reader may have been slow.
    fn begin(&mut self, sentences: usize, most: usize, now: Instant) {
        if let Some((begun, count)) = self.last {
            let rate = count as f64 / now.duration_since(begun).as_secs_f64().max(1e-6);
            let wanted = (rate * WINDOW.as_secs_f64()).round() as usize;
            self.sentences = wanted.min(2 * count).clamp(self.least, most.max(self.least));
        }
        self.last = Some((now, sentences));
    }
}

impl Queue {
    /// An empty queue for that many workers. `read_ahead` sentences are sorted together where the
    /// policy sorts.
    pub fn new(policy: Policy, read_ahead: usize, workers: usize) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            order: policy.rules().order,
            read_ahead: read_ahead.max(1),
            workers: workers.max(1),
        }
    }

    /// The same with windows of about equal work, of `least` sentences at least: answers that are wanted in
    /// order are late by that much at most.
    pub fn paced(self, least: usize) -> Queue {
        let least = least.clamp(1, self.read_ahead);
        self.lock().pace = Some(Pace { least, sentences: least, last: None });
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Adds a sentence.
    pub fn push(&self, waiting: Waiting) {
        self.change(|state| {
            state.arrivals.push_back(waiting);
            state.arrived += 1;
        });
    }

    /// Puts sentences back that were taken but could not be translated: they are next.
    pub(crate) fn put_back(&self, waiting: Vec<Waiting>) {
        self.change(|state| {
            waiting.into_iter().rev().for_each(|waiting| state.window.push_front(waiting));
        });
    }

    /// No more will come.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Says whether the reader waits for sentences to leave: then a window is full as it is.
    pub fn set_stalled(&self, stalled: bool) {
        self.change(|state| state.stalled = stalled);
    }

    /// Ends the work: workers leave their batch as it is.
    pub fn stop(&self) {
        self.change(|state| {
            state.stopped = true;
            state.arrivals.clear();
            state.window.clear();
        });
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// How many sentences wait.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.arrivals.len() + state.window.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next sentences, as many as fit. An idle worker waits for them (none is the end); a
    /// busy one gets those that are there if they fill `size`, an eager one any.
    pub(crate) fn take(&self, size: BatchSize, haste: Haste) -> Vec<Waiting> {
        let idle = haste == Haste::Idle;
        let mut state = self.lock();
        let mut seen = None;
        loop {
            let complete = state.closed || state.stalled || haste == Haste::Eager;
            let quiet = seen == Some(state.arrived);
            let enough = match self.order {
                Order::Arrival => state.worth_it(size),
                Order::LongestFirst => {
                    !state.window.is_empty()
                        || state.arrivals.len() >= state.window_size(self.read_ahead)
                }
            };
            if complete || quiet || enough {
                state.order_arrivals(self.order, self.read_ahead);
                let taken = state.next(size, self.workers);
                if !taken.is_empty() {
                    return taken;
                }
            }
            if state.closed || state.stopped {
                return Vec::new();
            }
            if !idle {
                return Vec::new();
            }
            seen = Some(state.arrived).filter(|_| !state.arrivals.is_empty());
            state = if seen.is_some() {
                let waited = self.changed.wait_timeout(state, QUIET);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

impl State {
    /// Whether the sentences waiting fill what is to be taken.
    fn worth_it(&self, size: BatchSize) -> bool {
        let mut tokens = 0;
        let waiting = self.window.iter().chain(&self.arrivals);
        waiting.map(|w| w.job.source.len()).enumerate().any(|(i, length)| {
            tokens += length;
            i + 1 >= size.sentences || tokens >= size.tokens
        })
    }

    /// Sentences that make a full window.
    fn window_size(&self, most: usize) -> usize {
        self.pace.as_ref().map_or(most, |pace| pace.sentences)
    }

    /// Puts the arrivals in order: behind the others, or as the next window.
    fn order_arrivals(&mut self, order: Order, most: usize) {
        match order {
            Order::Arrival => self.window.append(&mut self.arrivals),
            Order::LongestFirst if self.window.is_empty() && !self.arrivals.is_empty() => {
                let count = match self.pace {
                    Some(_) => self.window_size(most).min(self.arrivals.len()),
                    None => self.arrivals.len(),
                };
                let rest = self.arrivals.split_off(count);
                self.window = std::mem::replace(&mut self.arrivals, rest);
                if let Some(pace) = &mut self.pace {
                    pace.begin(count, most, Instant::now());
                }
                let longest_first = |w: &Waiting| std::cmp::Reverse(w.job.source.len());
                self.window.make_contiguous().sort_by_key(longest_first);
            }
            Order::LongestFirst => {}
        }
    }

    /// The next sentences, no more than a worker's share: the others shall not be idle.
    fn next(&mut self, size: BatchSize, workers: usize) -> Vec<Waiting> {
        let share = (self.window.len() + self.arrivals.len()).div_ceil(workers);
        let size = BatchSize { sentences: size.sentences.min(share), ..size };
        if size.sentences == 0 {
            return Vec::new();
        }
        let count = size.fitting(self.window.iter().map(|w| w.job.source.len()));
        self.window.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(ticket: u64, tokens: usize) -> Waiting {
        Waiting { ticket, job: Job { source: vec![1; tokens], ..Job::default() } }
    }

    fn tickets(taken: &[Waiting]) -> Vec<u64> {
        taken.iter().map(|w| w.ticket).collect()
    }

    fn filled(policy: Policy, read_ahead: usize, lengths: &[usize]) -> Queue {
        let queue = Queue::new(policy, read_ahead, 1);
        for (i, &tokens) in lengths.iter().enumerate() {
            queue.push(waiting(i as u64, tokens));
        }
        queue
    }

    const TWO: BatchSize = BatchSize { sentences: 2, tokens: 10 };

    #[test]
    fn in_order_of_arrival() {
        let queue = filled(Policy::Shrink, 1, &[1, 9, 5]);
        queue.close();
        assert_eq!(tickets(&queue.take(TWO, Haste::Idle)), [0, 1]);
        assert_eq!(tickets(&queue.take(TWO, Haste::Idle)), [2]);
        assert!(queue.take(TWO, Haste::Idle).is_empty());
    }

    #[test]
    fn longest_first_within_a_window() {
        let queue = filled(Policy::Sorted, 3, &[1, 9, 5]);
        assert_eq!(tickets(&queue.take(TWO, Haste::Busy)), [1]);
        // What comes later waits for the window to end, however long it is.
        queue.push(waiting(3, 10));
        assert_eq!(tickets(&queue.take(TWO, Haste::Busy)), [2, 0]);
        assert!(queue.take(TWO, Haste::Busy).is_empty(), "the next window is not full");
        queue.set_stalled(true);
        assert_eq!(tickets(&queue.take(TWO, Haste::Busy)), [3]);
    }

    #[test]
    fn an_idle_worker_begins_when_the_reader_is_quiet() {
        let queue = filled(Policy::Sorted, 100, &[4]);
        assert!(queue.take(TWO, Haste::Busy).is_empty());
        assert_eq!(tickets(&queue.take(TWO, Haste::Idle)), [0]);
    }

    /// Windows follow the speed of those who take from them.
    #[test]
    fn windows_are_of_about_equal_work() {
        let mut pace = Pace { least: 4, sentences: 4, last: None };
        let start = Instant::now();
        let after = |windows: u32| start + windows * WINDOW;
        pace.begin(4, 100, after(0));
        assert_eq!(pace.sentences, 4, "nothing is known yet");
        // A window took half the time it may take.
        pace.begin(4, 100, start + WINDOW / 2);
        assert_eq!(pace.sentences, 8);
        // One took no time at all: the next has twice as many sentences, and no more.
        pace.begin(8, 100, start + WINDOW / 2);
        assert_eq!(pace.sentences, 8);
        // One took four times as long as it may.
        pace.last = Some((after(1), 40));
        pace.begin(40, 100, after(5));
        assert_eq!(pace.sentences, 10);
        pace.last = Some((after(5), 1000));
        pace.begin(1000, 100, after(6));
        assert_eq!(pace.sentences, 100);
        pace.last = Some((after(6), 1));
        pace.begin(1, 100, after(60));
        assert_eq!(pace.sentences, 4);
    }

    #[test]
    fn a_paced_window_leaves_the_rest_for_later() {
        let queue = Queue::new(Policy::Sorted, 100, 1).paced(2);
        (0..5).for_each(|i| queue.push(waiting(i, 1 + i as usize)));
        let size = BatchSize { sentences: 64, tokens: 100 };
        // The longest of the first two, not of all.
        assert_eq!(tickets(&queue.take(size, Haste::Busy)), [1, 0]);
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn workers_get_equal_shares() {
        let queue = Queue::new(Policy::Shrink, 1, 3);
        (0..6).for_each(|i| queue.push(waiting(i, 1)));
        queue.close();
        let size = BatchSize { sentences: 64, tokens: 100 };
        assert_eq!(queue.take(size, Haste::Idle).len(), 2);
    }

    #[test]
    fn a_stopped_queue_is_empty() {
        let queue = filled(Policy::TopUp, 1, &[1, 2]);
        queue.stop();
        assert!(queue.take(TWO, Haste::Idle).is_empty());
        assert!(queue.is_empty() && queue.is_stopped());
    }
}
