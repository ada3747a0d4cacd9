//! The positions of the KV cache that each row reads of its own past.

use crate::device_beam::Origin;
use crate::reads::Reads;

/// How a step extends its rows' lists: a row reads what the one it goes on from read, and its own position.
#[derive(Debug, Clone, Copy)]
pub struct PastExtension<'a> {
    /// What each row goes on from.
    pub from: &'a [Origin],
    /// For each row the number of words before it, which is the number of positions it reads beside its own.
    pub positions: &'a [u32],
    /// The position each row stores.
    pub own: &'a [u32],
    /// The first position of each row's list, in place of the list of the row it goes on from. Given at the
    /// first two steps. At the first step it is the whole list.
    pub first: &'a [Option<u32>],
}

/// The lists of two steps, for backends without device beams.
#[derive(Debug, Default)]
pub struct PastReads {
    now: Reads,
    before: Reads,
}

impl PastReads {
    /// Makes the lists of the next step.
    pub fn extend(&mut self, step: PastExtension<'_>) {
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
