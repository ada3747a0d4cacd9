//! What rows read of their own past, where attention keeps keys and values by position.

use crate::backend::Reads;
use crate::device_beam::Origin;

/// What a step adds to its rows' lists: a row reads what the one it goes on from read, and itself.
#[derive(Debug, Clone, Copy)]
pub struct Grow<'a> {
    /// What each row goes on from.
    pub from: &'a [Origin],
    /// Number of words before it: how many positions it reads beside its own.
    pub positions: &'a [u32],
    /// The position it stores.
    pub own: &'a [u32],
    /// What a list begins with, instead of what the row before had: given for the first two steps. At the
    /// first it is all there is.
    pub first: &'a [Option<u32>],
}

/// The lists of two steps, for backends where every row before is known.
#[derive(Debug, Default)]
pub struct PastReads {
    now: Reads,
    before: Reads,
}

impl PastReads {
    /// The lists of the next step.
    pub fn grow(&mut self, step: Grow<'_>) {
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.clear();
        for (row, from) in step.from.iter().enumerate() {
            let own = step.own[row];
            match (step.first[row], from.greedy_row()) {
                (Some(first), _) if step.positions[row] == 0 => self.now.push([first]),
                (Some(first), _) => self.now.push([first, own]),
                (None, Some(parent)) => {
                    let known = &self.before.of(parent as usize)[..step.positions[row] as usize];
                    self.now.push(known.iter().copied().chain([own]));
                }
                (None, None) => self.now.push([own]),
            }
        }
    }
}

impl AsRef<Reads> for PastReads {
    fn as_ref(&self) -> &Reads {
        &self.now
    }
}
