//! A byte trie in a double array: the look-up table of every vocabulary in this crate.
//!
//! Segmentation asks "which pieces start here?" at each character. A trie answers all lengths in one
//! walk, and a double array takes each step with one load and one comparison, no hashing:
//!
//! ```text
//! child of n by byte b  =  nodes[n].base ^ b,  real if nodes[child].parent == n
//! ```
//!
//! `base ^ b` stays inside one block of 256 slots, so any base inside the array is safe for any byte.
//! Construction takes time in proportion to the bytes of all keys.

/// Index of a node; [`ROOT`] is the empty prefix.
pub(crate) type NodeIndex = u32;

/// Where every walk starts.
pub(crate) const ROOT: NodeIndex = 0;

const NONE: u32 = u32::MAX;
const BLOCK: usize = 256;

/// How many free slots to try for a node with several children before opening a new block. Newest slots
/// are tried first, so success is quick and memory stays close to the number of nodes.
const ATTEMPTS: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Node {
    base: u32,
    parent: NodeIndex,
    value: u32,
}

const FREE: Node = Node { base: 0, parent: NONE, value: NONE };

/// Byte strings mapped to numbers below `u32::MAX`.
#[derive(Debug, Clone)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

impl Trie {
    /// Builds from keys in ascending order; of equal keys the first counts.
    pub(crate) fn from_sorted(entries: &[(&[u8], u32)]) -> Self {
        let mut builder = Builder::new();
        // A stack of (node, entries below it, length of its prefix): keys may be too long for recursion.
        let mut pending = vec![(ROOT, 0..entries.len(), 0)];
        while let Some((node, mut range, depth)) = pending.pop() {
            if let [(key, value)] = &entries[range.clone()] {
                builder.add_chain(node, &key[depth..], *value);
                continue;
            }
            while range.start < range.end && entries[range.start].0.len() == depth {
                builder.set_value(node, entries[range.start].1);
                range.start += 1;
            }
            let runs =
                entries[range.clone()].chunk_by(|left, right| left.0[depth] == right.0[depth]);
            builder.labels.clear();
            builder.labels.extend(runs.clone().map(|run| run[0].0[depth]));
            let base = builder.place_children(node);
            let mut start = range.start;
            for run in runs {
                let child = base ^ u32::from(run[0].0[depth]);
                pending.push((child, start..start + run.len(), depth + 1));
                start += run.len();
            }
        }
        Self { nodes: builder.nodes }
    }

    /// Puts entries in the order that [`Trie::from_sorted`] wants, equal keys as they were.
    pub(crate) fn sort(entries: &mut Vec<(&[u8], u32)>) {
        // Sixteen bytes decide nearly every comparison, and numbers sort much faster than slices.
        let mut keyed: Vec<(u128, u32)> =
            (0..).zip(entries.iter()).map(|(at, entry)| (leading_bytes(entry.0), at)).collect();
        keyed.sort_unstable();
        let key = |at: u32| entries[at as usize].0;
        for run in keyed.chunk_by_mut(|left, right| left.0 == right.0) {
            run.sort_unstable_by_key(|&(_, at)| (key(at), at));
        }
        *entries = keyed.into_iter().map(|(_, at)| entries[at as usize]).collect();
    }

    /// All non-empty keys that `text` starts with, shorter first: length and number.
    #[inline]
    pub(crate) fn prefixes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut index = ROOT;
        let mut base = self.nodes[ROOT as usize].base;
        let walk = text.iter().enumerate().map_while(move |(at, &byte)| {
            let child = base ^ u32::from(byte);
            let node = self.nodes[child as usize];
            if node.parent != index {
                return None;
            }
            (index, base) = (child, node.base);
            Some((at + 1, node.value))
        });
        walk.filter(|&(_, value)| value != NONE)
    }

    /// The node reached from `node` by one more byte.
    #[inline]
    pub(crate) fn step(&self, node: NodeIndex, byte: u8) -> Option<NodeIndex> {
        let child = self.nodes[node as usize].base ^ u32::from(byte);
        (self.nodes[child as usize].parent == node).then_some(child)
    }

    /// The node reached from `node` by all of `bytes`.
    #[inline]
    pub(crate) fn walk(&self, node: NodeIndex, bytes: &[u8]) -> Option<NodeIndex> {
        bytes.iter().try_fold(node, |node, &byte| self.step(node, byte))
    }

    /// The number of the key that ends exactly at `node`.
    #[inline]
    pub(crate) fn value(&self, node: NodeIndex) -> Option<u32> {
        let value = self.nodes[node as usize].value;
        (value != NONE).then_some(value)
    }

    /// The number of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<u32> {
        self.value(self.walk(ROOT, key)?)
    }

    /// Length of the longest non-empty key that `text` starts with.
    #[inline]
    pub(crate) fn longest_prefix(&self, text: &[u8]) -> Option<usize> {
        self.prefixes(text).last().map(|(length, _)| length)
    }
}

/// The first sixteen bytes as a number that sorts like them.
fn leading_bytes(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(16);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

/// The array under construction, with its free slots in a doubly linked list.
struct Builder {
    nodes: Vec<Node>,
    /// Neighbours in the list of free slots; meaningful for free slots only.
    links: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
    /// Bytes of the children being placed.
    labels: Vec<u8>,
}

impl Builder {
    fn new() -> Self {
        let mut builder = Self {
            nodes: Vec::new(),
            links: Vec::new(),
            oldest: NONE,
            newest: NONE,
            labels: Vec::new(),
        };
        builder.add_block();
        builder.take(ROOT, NONE);
        builder
    }

    /// Of equal keys the first one is kept.
    fn set_value(&mut self, node: NodeIndex, value: u32) {
        let slot = &mut self.nodes[node as usize].value;
        if *slot == NONE {
            *slot = value;
        }
    }

    /// The rest of a key that no other key shares: one child after the other.
    fn add_chain(&mut self, mut node: NodeIndex, rest: &[u8], value: u32) {
        for &byte in rest {
            self.labels.clear();
            self.labels.push(byte);
            node = self.place_children(node) ^ u32::from(byte);
        }
        self.set_value(node, value);
    }

    /// Finds room for one child per label and returns the base.
    fn place_children(&mut self, node: NodeIndex) -> u32 {
        let Some(&first) = self.labels.first() else { return 0 };
        let base = self.find_base(first);
        self.nodes[node as usize].base = base;
        for index in 0..self.labels.len() {
            self.take(base ^ u32::from(self.labels[index]), node);
        }
        base
    }

    fn find_base(&mut self, first: u8) -> u32 {
        // A single child fits everywhere: fill the oldest gap.
        if self.labels.len() == 1 && self.oldest != NONE {
            return self.oldest ^ u32::from(first);
        }
        let mut slot = self.newest;
        for _ in 0..ATTEMPTS {
            if slot == NONE {
                break;
            }
            let base = slot ^ u32::from(first);
            if self.labels.iter().all(|&label| self.is_free(base ^ u32::from(label))) {
                return base;
            }
            slot = self.links[slot as usize].0;
        }
        self.add_block()
    }

    fn is_free(&self, slot: u32) -> bool {
        slot != ROOT && self.nodes[slot as usize].parent == NONE
    }

    /// Appends free slots and returns the first.
    fn add_block(&mut self) -> u32 {
        let start = self.nodes.len();
        self.nodes.resize(start + BLOCK, FREE);
        for slot in start as u32..(start + BLOCK) as u32 {
            self.links.push((self.newest, NONE));
            match self.newest {
                NONE => self.oldest = slot,
                newest => self.links[newest as usize].1 = slot,
            }
            self.newest = slot;
        }
        start as u32
    }

    /// Takes a slot out of the free list and gives it to `parent`.
    fn take(&mut self, slot: u32, parent: NodeIndex) {
        let (older, newer) = self.links[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].1 = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].0 = older,
        }
        self.nodes[slot as usize].parent = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn trie(keys: &BTreeMap<Vec<u8>, u32>) -> Trie {
        let entries: Vec<_> = keys.iter().map(|(key, &value)| (key.as_slice(), value)).collect();
        Trie::from_sorted(&entries)
    }

    #[test]
    fn the_empty_trie_finds_nothing() {
        let trie = trie(&BTreeMap::new());
        assert_eq!(trie.get(b""), None);
        assert_eq!(trie.get(b"\0"), None);
        assert_eq!(trie.longest_prefix(b"abc"), None);
    }

    #[test]
    fn the_first_of_equal_keys_counts() {
        let trie = Trie::from_sorted(&[(b"a", 7), (b"a", 8), (b"ab", 9)]);
        assert_eq!(trie.get(b"a"), Some(7));
        assert_eq!(trie.longest_prefix(b"abc"), Some(2));
    }

    #[test]
    fn wide_nodes_do_not_waste_blocks() {
        // 256 children below each of 256 children.
        let keys = (0..=65535u32).map(|n| (vec![(n >> 8) as u8, n as u8], n)).collect();
        let trie = trie(&keys);
        assert!(trie.nodes.len() <= 65536 + 3 * BLOCK, "{}", trie.nodes.len());
        assert!(keys.iter().all(|(key, &value)| trie.get(key) == Some(value)));
    }

    proptest::proptest! {
        #[test]
        fn sorts_like_the_standard_library(keys: Vec<Vec<u8>>, zeros: Vec<u8>) {
            // Keys that share sixteen bytes, or differ only in zeros at the end, are the hard part.
            let zeros = zeros.iter().map(|&count| vec![0; usize::from(count % 40)]);
            let keys: Vec<Vec<u8>> = keys.into_iter().chain(zeros).collect();
            let mut entries: Vec<(&[u8], u32)> = keys.iter().map(Vec::as_slice).zip(0..).collect();
            let mut expected = entries.clone();
            expected.sort();
            Trie::sort(&mut entries);
            proptest::prop_assert_eq!(entries, expected);
        }

        #[test]
        fn agrees_with_a_map(
            keys: BTreeMap<Vec<u8>, u16>,
            queries: Vec<Vec<u8>>,
        ) {
            let keys = keys.into_iter().map(|(key, value)| (key, value.into())).collect();
            let trie = trie(&keys);
            for key in keys.keys().chain(&queries) {
                proptest::prop_assert_eq!(trie.get(key), keys.get(key).copied());
                let longest = (1..=key.len()).rev().find(|&end| keys.contains_key(&key[..end]));
                proptest::prop_assert_eq!(trie.longest_prefix(key), longest);
            }
        }
    }
}
