//! Sentences of one source, in the order in which workers get them.

use std::collections::VecDeque;
use std::time::Duration;

use super::{BatchSize, Order, Priority, SourceId};
use crate::clock::Moment;
use crate::job::Job;

/// The time of a window that is sorted together, if results are wanted in order. The first line of a window may be
/// the last one to be ready, so this is the delay of a line, and the work that is lost if a job is
/// stopped.
const WINDOW: Duration = Duration::from_millis(600);

/// A waiting sentence with its ticket.
#[derive(Debug)]
pub struct Waiting {
    /// The number that is returned with its translation.
    pub ticket: u64,
    /// The sentence.
    pub job: Job,
}

/// Sentences of one source that wait for a worker.
///
/// Policies that sort do so within a *window*: the sentences read ahead are sorted and all taken
/// before any that came later. So no sentence waits for ever, and results can be
/// given in order with bounded memory.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) priority: Priority,
    /// Its group: sources of a group share a turn.
    pub(super) group: Option<SourceId>,
    /// The number of the call that put its sentences in order last.
    pub(super) put_in_order: u64,
    arrivals: VecDeque<Waiting>,
    /// Sentences in the order in which they are taken, all before the arrivals.
    window: VecDeque<Waiting>,
    /// Whether sentences are taken without waiting for a full window.
    complete: bool,
    /// Whether no more will come. A closed source is removed when it is empty.
    pub(super) closed: bool,
    /// Whether no more can come before some have left.
    pub(super) stalled: bool,
    /// Whether none has come for the queue's `QUIET` time.
    pub(super) quiet: bool,
    /// The size of windows, if their time is bounded.
    pace: Option<Pace>,
}

impl Source {
    /// A source whose sentences are taken as they come.
    pub(super) fn complete(priority: Priority) -> Source {
        Source { priority, complete: true, ..Source::default() }
    }

    /// A source that is read ahead, with windows of about equal time and at least `least` sentences, or
    /// of all that may be read ahead.
    pub(super) fn read_ahead(least: Option<usize>) -> Source {
        let priority = Priority::Bulk;
        Source { priority, pace: least.map(Pace::new), ..Source::default() }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.arrivals.push_back(waiting);
        self.quiet = false;
    }

    pub(super) fn len(&self) -> usize {
        self.arrivals.len() + self.window.len()
    }

    /// Whether a worker may have some of its sentences now.
    pub(super) fn is_ready(&self, order: Order, read_ahead: usize, size: BatchSize) -> bool {
        let enough = match order {
            Order::Arrival => self.fills(size),
            Order::LongestFirst => {
                !self.window.is_empty() || self.arrivals.len() >= self.window_size(read_ahead)
            }
        };
        self.len() > 0 && (enough || self.complete || self.closed || self.stalled || self.quiet)
    }

    /// Whether the waiting sentences fill a batch of that size.
    fn fills(&self, size: BatchSize) -> bool {
        let mut tokens = 0;
        let waiting = self.window.iter().chain(&self.arrivals);
        waiting.map(|w| w.job.source.len()).enumerate().any(|(i, length)| {
            tokens += length;
            i + 1 >= size.sentences || tokens >= size.tokens
        })
    }

    /// The number of sentences of a full window.
    fn window_size(&self, most: usize) -> usize {
        self.pace.as_ref().map_or(most, |pace| pace.sentences)
    }

    /// Puts the arrivals in order: behind the others, or as the next window.
    pub(super) fn order(&mut self, order: Order, most: usize) {
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
                    pace.begin(count, most, crate::clock::now());
                }
                let longest_first = |w: &Waiting| std::cmp::Reverse(w.job.source.len());
                self.window.make_contiguous().sort_by_key(longest_first);
            }
            Order::LongestFirst => {}
        }
    }

    /// Source tokens of the next sentence, of those in order.
    pub(super) fn next_length(&self) -> Option<usize> {
        self.window.front().map(|waiting| waiting.job.source.len())
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.window.pop_front()
    }

    /// Removes those sentences for which `gone` is true.
    pub(super) fn remove(&mut self, mut gone: impl FnMut(&Waiting) -> bool) {
        self.arrivals.retain(|waiting| !gone(waiting));
        self.window.retain(|waiting| !gone(waiting));
    }
}

/// Sizes windows to about the same time on fast and slow machines.
#[derive(Debug)]
struct Pace {
    least: usize,
    /// Sentences of the next window.
    sentences: usize,
    /// The start of the last window and its number of sentences.
    last: Option<(Moment, usize)>,
}

impl Pace {
    fn new(least: usize) -> Pace {
        Pace { least, sentences: least, last: None }
    }

    /// Notes that a window of so many sentences begins, and sizes the next one by the time the last one
    /// took: at most twice the last, as a reader may have been slow.
    fn begin(&mut self, sentences: usize, most: usize, now: Moment) {
        if let Some((begun, count)) = self.last {
            let rate = count as f64 / now.duration_since(begun).as_secs_f64().max(1e-6);
            let wanted = (rate * WINDOW.as_secs_f64()).round() as usize;
            self.sentences = wanted.min(2 * count).clamp(self.least, most.max(self.least));
        }
        self.last = Some((now, sentences));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows follow the speed of those who take from them.
    #[test]
    fn windows_are_of_about_equal_work() {
        let mut pace = Pace::new(4);
        let start = crate::clock::now();
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
}
