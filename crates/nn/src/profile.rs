//! Where the time inside a network goes.
//!
//! [`begin`] starts the clock of a worker, and [`end`] gives the time of each named part. Parts
//! call [`lap`] when they are done. The clock is thread-local, so no signature has to carry it;
//! without [`begin`] a lap costs one test of a flag.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

struct Clock {
    last: Instant,
    times: Vec<(&'static str, Duration)>,
}

/// Begins to measure on this thread.
pub fn begin() {
    let clock = Clock { last: Instant::now(), times: Vec::new() };
    CLOCK.with_borrow_mut(|c| *c = Some(clock));
    ON.set(true);
}

/// Whether this thread measures.
pub fn is_on() -> bool {
    ON.get()
}

/// Adds the time since the last lap or mark to `part`.
#[inline]
pub fn lap(part: &'static str) {
    if !is_on() {
        return;
    }
    CLOCK.with_borrow_mut(|clock| {
        let Some(clock) = clock else { return };
        let now = Instant::now();
        let time = now - clock.last;
        clock.last = now;
        match clock.times.iter_mut().find(|(name, _)| *name == part) {
            Some((_, sum)) => *sum += time,
            None => clock.times.push((part, time)),
        }
    });
}

/// Drops the time since the last lap.
#[inline]
pub fn mark() {
    if is_on() {
        CLOCK.with_borrow_mut(|clock| {
            if let Some(clock) = clock {
                clock.last = Instant::now();
            }
        });
    }
}

/// Ends measuring: the time of each part, in the order in which they first came.
///
/// ```
/// use peregrine_nn::profile;
/// profile::lap("ignored");
/// profile::begin();
/// profile::lap("first");
/// profile::lap("second");
/// profile::lap("first");
/// let names: Vec<&str> = profile::end().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["first", "second"]);
/// ```
pub fn end() -> Vec<(&'static str, Duration)> {
    ON.set(false);
    CLOCK.with_borrow_mut(Option::take).map(|clock| clock.times).unwrap_or_default()
}
