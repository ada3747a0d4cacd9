//! Questions whose answers may still be on their way.

use std::collections::VecDeque;

/// Questions in the order they were asked, and the memory of answered ones.
pub(crate) struct Asked<P> {
    waiting: VecDeque<P>,
    spare: Vec<P>,
}

impl<P: Default> Asked<P> {
    pub(crate) fn new() -> Asked<P> {
        Asked { waiting: VecDeque::new(), spare: Vec::new() }
    }

    /// Asks one more.
    pub(crate) fn ask(&mut self, ask: impl FnOnce(&mut P)) {
        let mut pending = self.spare.pop().unwrap_or_default();
        ask(&mut pending);
        self.waiting.push_back(pending);
    }

    /// Has the earliest answered.
    pub(crate) fn answer(&mut self, answer: impl FnOnce(&mut P)) {
        if let Some(mut pending) = self.waiting.pop_front() {
            answer(&mut pending);
            self.spare.push(pending);
        }
    }
}
