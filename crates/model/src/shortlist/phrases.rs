//! Target words for phrases of source words.

use rustc_hash::FxHashMap;

/// Target words by phrases of two or more source words.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Phrases {
    lists: FxHashMap<Vec<u32>, Vec<u32>>,
    /// Number of words of the longest key.
    longest: usize,
}

impl Phrases {
    /// Sets the list of a key, in place of an earlier one.
    pub(crate) fn insert(&mut self, key: Vec<u32>, targets: Vec<u32>) {
        self.longest = self.longest.max(key.len());
        self.lists.insert(key, targets);
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    /// All target words of all keys.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &u32> {
        self.lists.values().flatten()
    }

    /// Calls `add` with the targets of every key that occurs in a sentence.
    pub(crate) fn each(&self, source: &[u32], mut add: impl FnMut(u32)) {
        if self.lists.is_empty() {
            return;
        }
        for start in 0..source.len() {
            for end in start + 2..=source.len().min(start + self.longest) {
                let list = self.lists.get(&source[start..end]);
                list.into_iter().flatten().for_each(|&target| add(target));
            }
        }
    }

    /// A flat array: for each key its length, its words, the length of its list, the list.
    pub(crate) fn to_numbers(&self) -> Vec<u32> {
        let mut sorted: Vec<_> = self.lists.iter().collect();
        sorted.sort();
        let mut numbers = Vec::new();
        for (key, list) in sorted {
            for words in [key, list] {
                numbers.push(words.len() as u32);
                numbers.extend(words);
            }
        }
        numbers
    }

    /// The inverse of [`Phrases::to_numbers`]; `None` if the array ends in the middle of a list.
    pub(crate) fn from_numbers(mut numbers: &[u32]) -> Option<Phrases> {
        let mut phrases = Phrases::default();
        while !numbers.is_empty() {
            let mut words = || {
                let (&length, rest) = numbers.split_first()?;
                let (words, rest) = rest.split_at_checked(length as usize)?;
                numbers = rest;
                Some(words.to_vec())
            };
            let (key, list) = (words()?, words()?);
            phrases.insert(key, list);
        }
        Some(phrases)
    }
}
