//! Position vectors: computed as they are first needed, or taken from a stored table.

use std::sync::OnceLock;

use peregrine_model::Spacing;

/// Rows computed together.
const CHUNK: usize = 256;
/// No position beyond `CHUNK * CHUNKS` is ever asked for: see [`PositionTable::limit`].
const CHUNKS: usize = 256;

/// One vector a position.
pub struct PositionTable {
    width: usize,
    kind: Kind,
}

enum Kind {
    Stored(Vec<f32>),
    Sinusoid { first: u32, spacing: Spacing, chunks: Vec<OnceLock<Vec<f32>>> },
}

impl PositionTable {
    /// Vectors from a file.
    pub fn stored(width: usize, rows: Vec<f32>) -> PositionTable {
        PositionTable { width, kind: Kind::Stored(rows) }
    }

    /// Sines, then cosines.
    pub fn sinusoid(width: usize, first: u32, spacing: Spacing) -> PositionTable {
        let chunks = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        PositionTable { width, kind: Kind::Sinusoid { first, spacing, chunks } }
    }

    /// Number of positions there are vectors for.
    pub fn limit(&self) -> usize {
        match &self.kind {
            Kind::Stored(rows) => rows.len() / self.width.max(1),
            Kind::Sinusoid { .. } => CHUNK * CHUNKS,
        }
    }

    /// The vector of position `position`, below [`Self::limit`].
    pub fn row(&self, position: usize) -> &[f32] {
        match &self.kind {
            Kind::Stored(rows) => &rows[position * self.width..][..self.width],
            Kind::Sinusoid { first, spacing, chunks } => {
                let chunk = position / CHUNK;
                let rows = chunks[chunk].get_or_init(|| {
                    (0..CHUNK)
                        .flat_map(|i| {
                            sinusoid(self.width, (chunk * CHUNK + i) as u32 + first, *spacing)
                        })
                        .collect()
                });
                &rows[(position % CHUNK) * self.width..][..self.width]
            }
        }
    }
}

/// In float32 throughout, in the order in which Marian computes it.
fn sinusoid(width: usize, position: u32, spacing: Spacing) -> Vec<f32> {
    let half = width / 2;
    let divisor = match spacing {
        Spacing::HalfLessOne => half as f32 - 1.0,
        Spacing::Half => half as f32,
    };
    let step = 10000f32.ln() / divisor;
    let angle = |i: usize| position as f32 * (i as f32 * -step).exp();
    let sines = (0..half).map(|i| angle(i).sin());
    let cosines = (0..width - half).map(|i| angle(i).cos());
    sines.chain(cosines).collect()
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
    fn spacings_differ_where_they_should() {
        let marian = PositionTable::sinusoid(4, 0, Spacing::HalfLessOne);
        let hugging_face = PositionTable::sinusoid(4, 0, Spacing::Half);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(close(marian.row(300)[1], (300.0 / 10000f32).sin()));
        assert!(close(hugging_face.row(3)[1], (3.0 / 100f32).sin()));
        assert_eq!(marian.row(5)[0], hugging_face.row(5)[0]);
    }
}
