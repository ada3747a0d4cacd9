//! A parallel loop for packing weights, which may use all cores. Operations of a backend use one each.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// The fewest weights for a thread: packing them takes longer than to start one.
const LEAST: usize = 1 << 17;

/// The number of cores that this process may use. The system needs some time to tell.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Calls `work` for each of `parts`, which have that many weights together, on as many threads as pay.
pub(crate) fn for_each<T: Send>(parts: Vec<T>, weights: usize, work: impl Fn(T) + Sync) {
    let threads = cores().min(parts.len()).min(weights / LEAST);
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
