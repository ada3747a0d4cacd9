//! An allocator of cache rows.
//!
//! A sentence gets rows when it needs them and gives them back when it ends; rows are never
//! moved. One pool serves all layers of a network, since their caches grow and shrink alike.

use std::collections::BTreeMap;

/// Hands out contiguous runs of rows.
#[derive(Debug, Default)]
pub(crate) struct RowPool {
    /// Free runs, start to length; never two that touch.
    free: BTreeMap<u32, u32>,
    /// Rows ever handed out: the size caches must have.
    size: u32,
}

impl RowPool {
    /// Takes `count` neighbouring rows and returns the first.
    pub(crate) fn take(&mut self, count: u32) -> u32 {
        let fitting = self.free.iter().find(|&(_, &length)| length >= count);
        if let Some((&start, &length)) = fitting {
            self.free.remove(&start);
            if length > count {
                self.free.insert(start + count, length - count);
            }
            return start;
        }
        let start = self.size;
        self.size += count;
        start
    }

    /// Gives back what [`Self::take`] returned.
    pub(crate) fn give_back(&mut self, start: u32, count: u32) {
        let (mut start, mut count) = (start, count);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
            count += length;
        }
        if let Some(length) = self.free.remove(&(start + count)) {
            count += length;
        }
        self.free.insert(start, count);
    }

    /// Rows a cache must have for everything handed out so far.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_given_back_are_used_again() {
        let mut pool = RowPool::default();
        let (a, b, c) = (pool.take(4), pool.take(4), pool.take(4));
        assert_eq!((a, b, c), (0, 4, 8));
        pool.give_back(b, 4);
        assert_eq!(pool.take(2), 4);
        assert_eq!(pool.take(2), 6);
        assert_eq!(pool.size(), 12);
    }

    #[test]
    fn neighbours_grow_together() {
        let mut pool = RowPool::default();
        let runs: Vec<u32> = (0..8).map(|_| pool.take(3)).collect();
        for &i in &[1usize, 3, 2, 0, 7, 5, 6, 4] {
            pool.give_back(runs[i], 3);
        }
        assert_eq!(pool.take(24), 0);
        assert_eq!(pool.size(), 24);
    }
}
