//! Which shortlists have each word: a mask of up to 64 bits for every word, a bit for each shortlist.

use std::sync::Arc;

use super::frequent_words::Members;

/// Shortlists of a table: the bits of a mask.
pub(super) const LISTS_IN_TABLE: usize = u64::BITS as usize;

/// Masks processed at once.
pub(super) const MASKS: usize = 8;

/// Which of up to 64 shortlists have each word.
#[derive(Default)]
pub(super) struct MembershipTable {
    /// The mask of every word, padded to a multiple of [`MASKS`].
    pub(super) masks: Vec<u64>,
    /// The shortlist of each bit. A shortlist that is no longer used keeps its bit until another needs it.
    pub(super) lists: Vec<Arc<[u32]>>,
    /// The first words of each shortlist.
    members: Vec<Members>,
    /// The bits of the shortlists that this step uses.
    used: u64,
}

impl MembershipTable {
    /// The first words of the shortlist of a bit.
    pub(super) fn members(&self, bit: usize) -> &Members {
        &self.members[bit]
    }

    fn bit_of(&self, list: &Arc<[u32]>) -> Option<usize> {
        // The table owns its lists, so that no other list can have the address of one of them.
        self.lists.iter().position(|own| Arc::ptr_eq(own, list))
    }

    /// Assigns an unused bit to a shortlist. None if all bits are used.
    fn assign_bit(&mut self, list: &Arc<[u32]>) -> Option<usize> {
        let bit = (!self.used).trailing_zeros() as usize;
        if bit == LISTS_IN_TABLE {
            return None;
        }
        self.used |= 1 << bit;
        // Bits are assigned from the lowest on.
        if let Some(before) = self.lists.get_mut(bit) {
            for &word in before.iter() {
                self.masks[word as usize] &= !(1 << bit);
            }
            *before = Arc::clone(list);
            self.members[bit] = Members::of(list);
        } else {
            self.lists.push(Arc::clone(list));
            self.members.push(Members::of(list));
        }
        assert!(list.is_sorted(), "words in ascending order");
        let words = list.last().map_or(0, |&last| last as usize + 1).next_multiple_of(MASKS);
        if self.masks.len() < words {
            self.masks.resize(words, 0);
        }
        for &word in list.iter() {
            self.masks[word as usize] |= 1 << bit;
        }
        Some(bit)
    }
}

/// Writes the table and the bit of each row's shortlist to `bits`. `lists` are the rows' shortlists, with words in ascending order.
/// Tables are added where the bits of the others are all used.
pub(super) fn assign_bits<'a>(
    tables: &mut Vec<MembershipTable>,
    lists: impl Iterator<Item = &'a Arc<[u32]>> + Clone,
    bits: &mut Vec<(usize, usize)>,
) {
    let find = |tables: &[MembershipTable], list| {
        let mut tables = tables.iter().enumerate();
        tables.find_map(|(t, table)| table.bit_of(list).map(|bit| (t, bit)))
    };
    tables.iter_mut().for_each(|table| table.used = 0);
    for list in lists.clone() {
        if let Some((table, bit)) = find(tables, list) {
            tables[table].used |= 1 << bit;
        }
    }
    let mut find_or_assign = |list| {
        if let Some(found) = find(tables, list) {
            return found;
        }
        loop {
            for (t, table) in tables.iter_mut().enumerate() {
                if let Some(bit) = table.assign_bit(list) {
                    return (t, bit);
                }
            }
            tables.push(MembershipTable::default());
        }
    };
    bits.clear();
    bits.extend(lists.map(&mut find_or_assign));
}
