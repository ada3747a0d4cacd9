//! What each sentence of a batch owns: the rows of its encoded source, its shortlist, and the cache rows of its
//! hypotheses.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::Backend;
use crate::network::Slot;
use crate::word_lists::{WordList, WordLists};

/// Rows for which a list of selections fits the stack.
const FEW_ROWS: usize = 64;

/// The slots of one worker; `P` is what a network keeps of a sentence's past.
pub(crate) struct Slots<B: Backend, P> {
    slots: Vec<Option<Owned<B, P>>>,
    /// Indexes of the empty slots.
    free: Vec<u32>,
    word_lists: WordLists<B>,
}

/// What a sentence owns.
pub(crate) struct Owned<B: Backend, P> {
    /// Rows of the source caches, one a source token.
    pub(crate) memory: Range<u32>,
    pub(crate) past: P,
    /// The end of its encoding on the side stream, which the first step joins.
    pub(crate) encoded: B::SideWork,
    list: Option<Arc<WordList<B>>>,
}

impl<B: Backend, P> Slots<B, P> {
    pub(crate) fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new(), word_lists: WordLists::new() }
    }

    /// Adds a sentence with its shortlist, if it has one. `select` gathers a shortlist's rows of the output layer.
    pub(crate) fn add(
        &mut self,
        memory: Range<u32>,
        past: P,
        encoded: B::SideWork,
        words: Option<&[u32]>,
        select: impl FnOnce(&[u32]) -> B::Selection,
    ) -> Slot {
        let list = words.map(|words| {
            let in_use = self.slots.iter().flatten().filter_map(|owned| owned.list.as_ref());
            self.word_lists.find(words, in_use, select)
        });
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[index as usize] = Some(Owned { memory, past, encoded, list });
        Slot(index)
    }

    pub(crate) fn of(&self, slot: Slot) -> &Owned<B, P> {
        self.slots[slot.0 as usize].as_ref().expect("a released slot is not used again")
    }

    pub(crate) fn past_mut(&mut self, slot: Slot) -> &mut P {
        let owned = self.slots[slot.0 as usize].as_mut();
        &mut owned.expect("a released slot is not used again").past
    }

    /// Empties a slot and returns what the sentence owned; none if it was empty.
    pub(crate) fn release(&mut self, slot: Slot) -> Option<Owned<B, P>> {
        let owned = self.slots[slot.0 as usize].take()?;
        self.free.push(slot.0);
        Some(owned)
    }

    /// Hands `read` the part of the output layer of each row.
    pub(crate) fn with_selections<R>(
        &self,
        rows: &[Slot],
        read: impl FnOnce(&[Option<&B::Selection>]) -> R,
    ) -> R {
        let of = |slot: &Slot| self.of(*slot).list.as_ref().map(|list| &list.selection);
        if rows.len() <= FEW_ROWS {
            let mut few = [None; FEW_ROWS];
            for (place, slot) in few.iter_mut().zip(rows) {
                *place = of(slot);
            }
            return read(&few[..rows.len()]);
        }
        read(&rows.iter().map(of).collect::<Vec<_>>())
    }
}
