//! Top-k requests whose results may still be on their way from the device.

use std::collections::VecDeque;

/// Requests in the order in which they were begun, and the memory of those whose results were taken.
pub(crate) struct PendingQueue<P> {
    waiting: VecDeque<P>,
    spare: Vec<P>,
}

impl<P: Default> PendingQueue<P> {
    pub(crate) fn new() -> PendingQueue<P> {
        PendingQueue { waiting: VecDeque::new(), spare: Vec::new() }
    }

    /// Begins one more request.
    pub(crate) fn begin(&mut self, begin: impl FnOnce(&mut P)) {
        let mut pending = self.spare.pop().unwrap_or_default();
        begin(&mut pending);
        self.waiting.push_back(pending);
    }

    /// Takes the results of the earliest request.
    pub(crate) fn take(&mut self, take: impl FnOnce(&mut P)) {
        if let Some(mut pending) = self.waiting.pop_front() {
            take(&mut pending);
            self.spare.push(pending);
        }
    }
}
