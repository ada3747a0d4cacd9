//! Output layers cut down to word lists, shared by the sentences that have the same list: one set of
//! candidates for a whole text is packed once, and its rows are computed together.

use std::sync::Arc;

use crate::Backend;

/// A word list, and the part of the output layer it leaves.
pub(crate) struct WordList<B: Backend> {
    words: Vec<u32>,
    pub(crate) selection: B::Selection,
}

/// The lists of a worker.
pub(crate) struct WordLists<B: Backend> {
    /// Outlives its sentence: the next one may have the same.
    last: Option<Arc<WordList<B>>>,
}

impl<B: Backend> WordLists<B> {
    pub(crate) fn new() -> Self {
        WordLists { last: None }
    }

    /// The list of these words: the last one made, one of those in use, or else a new one.
    pub(crate) fn find<'a>(
        &mut self,
        words: &[u32],
        mut in_use: impl Iterator<Item = &'a Arc<WordList<B>>>,
        select: impl FnOnce(&[u32]) -> B::Selection,
    ) -> Arc<WordList<B>>
    where
        B: 'a,
    {
        let same = |list: &&Arc<WordList<B>>| list.words == words;
        let known = self.last.as_ref().filter(same).cloned();
        let list = match known.or_else(|| in_use.find(same).cloned()) {
            Some(list) => list,
            None => Arc::new(WordList { words: words.to_vec(), selection: select(words) }),
        };
        self.last = Some(Arc::clone(&list));
        list
    }
}
