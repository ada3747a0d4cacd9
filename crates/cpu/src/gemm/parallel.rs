//! A parallel loop for packing weights, which may use all cores. Operations of a backend use one each.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Calls `work` for each of `parts`, on as many threads as this process may use cores.
pub(crate) fn for_each<T: Send>(parts: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(parts.len());
    let parts = Mutex::new(parts.into_iter());
    let run = || {
        loop {
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(part) = part else { return };
            work(part);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}
