//! Output layers reduced to shortlists. Sentences with the same shortlist share one: a shortlist for a whole
//! text is packed once, and the rows of its sentences are computed in one product.

use std::sync::Arc;

use crate::backend::Backend;

/// A shortlist and its part of the output layer.
pub(crate) struct WordList<B: Backend> {
    words: Vec<u32>,
    pub(crate) selection: B::Selection,
}

/// The shortlists of a worker.
pub(crate) struct WordLists<B: Backend> {
    /// The last shortlist is kept after its sentence, as the next sentence may have the same.
    last: Option<Arc<WordList<B>>>,
}

impl<B: Backend> WordLists<B> {
    pub(crate) fn new() -> Self {
        WordLists { last: None }
    }

    /// The shortlist of these words: the last one made, one in use, or else a new one.
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
