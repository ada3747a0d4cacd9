//! Who owns what: each sentence in a batch has a slot, which says where its source is kept, which words
//! it may become, and what its hypotheses keep.

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
    /// Those that are empty.
    free: Vec<u32>,
    word_lists: WordLists<B>,
}

/// What a sentence owns.
pub(crate) struct Owned<B: Backend, P> {
    /// Rows of the memory caches, one a source token.
    pub(crate) memory: Range<u32>,
    pub(crate) past: P,
    /// The end of its encoding, to be joined by the first step.
    pub(crate) encoded: B::Beside,
    list: Option<Arc<WordList<B>>>,
}

impl<B: Backend, P> Slots<B, P> {
    pub(crate) fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new(), word_lists: WordLists::new() }
    }

    /// A slot for a sentence that may become these words, or any. `select` cuts the output layer down.
    pub(crate) fn add(
        &mut self,
        memory: Range<u32>,
        past: P,
        encoded: B::Beside,
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

    /// What the sentence owned, unless it has been released before.
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
