//! Position embeddings, sinusoidal or learned: computed or read from a stored table as they are first needed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use peregrine_model::{Spacing, Weight};

/// Rows computed together: the first sentence waits for few, and stored tables often have thousands of rows.
const CHUNK: usize = 64;
/// Chunks of computed vectors.
const CHUNKS: usize = 1024;

/// The longest sentence any network takes.
pub const MOST_POSITIONS: usize = CHUNK * CHUNKS;

/// A vector for each position.
pub struct PositionTable {
    width: usize,
    kind: Kind,
    chunks: Vec<OnceLock<Vec<f32>>>,
    identity: u64,
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

enum Kind {
    Stored(Weight),
    Sinusoid { first: u32, spacing: Spacing },
}

impl PositionTable {
    /// A table from a file.
    pub fn stored(rows: Weight) -> PositionTable {
        let (width, chunks) = (rows.columns(), rows.rows().div_ceil(CHUNK));
        PositionTable::new(width, Kind::Stored(rows), chunks)
    }

    /// A table of sinusoids: sines in the first columns, then cosines.
    pub fn sinusoid(width: usize, first: u32, spacing: Spacing) -> PositionTable {
        PositionTable::new(width, Kind::Sinusoid { first, spacing }, CHUNKS)
    }

    fn new(width: usize, kind: Kind, chunks: usize) -> PositionTable {
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        let identity = LAST_IDENTITY.fetch_add(1, Relaxed) + 1;
        PositionTable { width, kind, chunks, identity }
    }

    /// A number that no other table has or had, by which a device finds its copy of the table.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Numbers in a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of positions there are vectors for.
    pub fn limit(&self) -> usize {
        match &self.kind {
            Kind::Stored(rows) => rows.rows(),
            Kind::Sinusoid { .. } => MOST_POSITIONS,
        }
    }

    /// The vector of position `position`, below [`Self::limit`].
    pub fn row(&self, position: usize) -> &[f32] {
        let chunk = position / CHUNK;
        let rows = self.chunks[chunk].get_or_init(|| self.chunk(chunk));
        &rows[(position % CHUNK) * self.width..][..self.width]
    }

    fn chunk(&self, chunk: usize) -> Vec<f32> {
        let positions = chunk * CHUNK..((chunk + 1) * CHUNK).min(self.limit());
        let mut made = vec![0.0; positions.len() * self.width];
        let rates = match &self.kind {
            Kind::Stored(_) => Vec::new(),
            Kind::Sinusoid { spacing, .. } => rates(self.width / 2, *spacing),
        };
        for (position, out) in positions.zip(made.chunks_exact_mut(self.width.max(1))) {
            match &self.kind {
                Kind::Stored(rows) => rows.read_row(position, out),
                Kind::Sinusoid { first, .. } => sinusoid(position as u32 + first, &rates, out),
            }
        }
        made
    }
}

/// The angle between two positions in each of `half` columns, in float32, with Marian's order of operations.
fn rates(half: usize, spacing: Spacing) -> Vec<f32> {
    let divisor = match spacing {
        Spacing::HalfLessOne => half as f32 - 1.0,
        Spacing::Half => half as f32,
    };
    let step = 10000f32.ln() / divisor;
    (0..half).map(|i| (i as f32 * -step).exp()).collect()
}

/// Computes one vector.
fn sinusoid(position: u32, rates: &[f32], out: &mut [f32]) {
    let (sines, cosines) = out.split_at_mut(out.len() / 2);
    let angles = rates.iter().map(|rate| position as f32 * rate);
    for ((angle, sine), cosine) in angles.zip(sines).zip(cosines) {
        (*sine, *cosine) = (angle.sin(), angle.cos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_is_zeros_and_ones() {
        let table = PositionTable::sinusoid(8, 0, Spacing::HalfLessOne);
        assert_eq!(table.row(0), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn stored_rows_are_those_of_the_file() {
        let numbers: Vec<f32> = (0..300 * 3).map(|i| i as f32).collect();
        let table = PositionTable::stored(Weight::from_f32(vec![300, 3], &numbers));
        assert_eq!(table.limit(), 300);
        for position in [299, 0, 255, 256] {
            assert_eq!(table.row(position), &numbers[position * 3..][..3]);
        }
    }

    #[test]
    fn spacings_differ_where_they_should() {
        let marian = PositionTable::sinusoid(4, 0, Spacing::HalfLessOne);
        let hugging_face = PositionTable::sinusoid(4, 0, Spacing::Half);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(close(marian.row(300)[1], (300.0 / 10000f32).sin()));
        assert!(close(hugging_face.row(3)[1], (3.0 / 100f32).sin()));
        assert_eq!(marian.row(5)[0], hugging_face.row(5)[0]);
    }
}
