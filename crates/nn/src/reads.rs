//! What rows read: for each row of a ragged batch a list of rows of a cache.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// For each row the positions of a cache that it reads. Neighbouring rows may share a list.
#[derive(Debug, Default)]
pub struct Reads {
    positions: Vec<u32>,
    /// The range of each list in `positions`.
    spans: Vec<Range<usize>>,
    /// Whether the rows of each list are a party.
    parties: Vec<bool>,
    /// The list of each row.
    lists: Vec<u32>,
    /// Zero until [`Self::identity`] is called.
    identity: AtomicU64,
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

impl Reads {
    /// A number that no other lists have or had. It changes when the lists change.
    pub fn identity(&self) -> u64 {
        let known = self.identity.load(Relaxed);
        if known != 0 {
            return known;
        }
        let new = LAST_IDENTITY.fetch_add(1, Relaxed) + 1;
        self.identity.store(new, Relaxed);
        new
    }

    /// All lists end to end.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        *self.identity.get_mut() = 0;
        self.positions.clear();
        self.spans.clear();
        self.parties.clear();
        self.lists.clear();
    }

    /// Adds a row that reads these positions.
    pub fn push(&mut self, positions: impl IntoIterator<Item = u32>) {
        let start = self.positions.len();
        self.positions.extend(positions);
        self.push_elsewhere(start..self.positions.len());
    }

    /// Adds the first row of a party: rows that share a list, of which there may be only one. A device may compute
    /// a party by another kernel than single rows, with other last bits. So whether a row is in a
    /// party must depend on its own search only, not on how many rows the party has at this step, nor on the other
    /// sentences of the batch.
    pub fn push_party(&mut self, positions: impl IntoIterator<Item = u32>) {
        self.push(positions);
        if let Some(party) = self.parties.last_mut() {
            *party = true;
        }
    }

    /// Adds a row whose positions are in the device's memory only, at `span` of the device's lists. Either all
    /// rows are of that kind or none. [`Self::of`] is not defined for such rows.
    pub fn push_elsewhere(&mut self, span: Range<usize>) {
        *self.identity.get_mut() = 0;
        self.lists.push(self.spans.len() as u32);
        self.spans.push(span);
        self.parties.push(false);
    }

    /// Adds a row that reads what the one before it reads.
    pub fn push_same(&mut self) {
        *self.identity.get_mut() = 0;
        self.lists.extend(self.lists.last().copied());
    }

    /// The positions that row `row` reads.
    pub fn of(&self, row: usize) -> &[u32] {
        &self.positions[self.range(row)]
    }

    /// The range of row `row`'s list in all lists laid end to end.
    pub fn range(&self, row: usize) -> Range<usize> {
        self.spans[self.lists[row] as usize].clone()
    }

    /// Runs of rows that share a list, and the list.
    pub fn groups(&self) -> impl Iterator<Item = (Range<usize>, &[u32])> {
        self.runs().map(|rows| (rows.clone(), self.of(rows.start)))
    }

    /// The rows of each party.
    pub fn parties(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs().filter(|rows| self.is_in_party(rows.start))
    }

    /// Whether row `row` is in a party.
    pub fn is_in_party(&self, row: usize) -> bool {
        self.parties[self.lists[row] as usize]
    }

    /// Runs of rows that share a list.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        self.lists.chunk_by(|a, b| a == b).map(move |run| {
            let rows = start..start + run.len();
            start = rows.end;
            rows
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}
