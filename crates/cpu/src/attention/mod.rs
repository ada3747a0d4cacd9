//! Attention over a KV cache.
//!
//! For each row and each of H heads, a head being `D / H` neighbouring columns:
//!
//! ```text
//! score(p) = q · k(p) / √(D / H)        for each position p that the row reads
//! weight   = softmax(score)
//! out      = Σ weight(p) · v(p)
//! ```
//!
//! The KV cache has one row a position, the key followed by the value, in float32, float16, bfloat16 or int8 (`kv_cache`).
//! Three kernels read it:
//!
//! | cache | rows with the same positions | kernel |
//! |---|---|---|
//! | int8 | any number | `int8` |
//! | float | 8 or more, heads of 32 or 64 columns | `transposed`: 16 rows fill the lanes of a vector |
//! | float | all others | `float`: 4 rows at a time, then 1 |
//!
//! Rows that share positions are the words of a source sentence, or the hypotheses of a beam. Rows that read other positions do
//! not change the bits of a row.
//!
//! Cost: two multiply-adds for each column and position read, one exponential for each head and position.

mod float;
pub(crate) mod int8;
pub(crate) mod kv_cache;
mod softmax;
#[cfg(test)]
mod tests;
mod transposed;
mod typed_read;

use peregrine_nn::Reads;

use crate::attention::kv_cache::{Cache, CachePrecision, CacheView};
use crate::attention::typed_read::TypedRead;
use crate::isa::Isa;
use crate::memory::arena::Aligned;
use crate::technique::Technique;

/// Number of rows that are computed together.
const ROWS: usize = 4;

/// The positions that a group of rows reads.
#[derive(Clone, Copy)]
pub(crate) struct CacheRead<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) positions: &'a [u32],
    pub(crate) heads: usize,
    /// Positions that the next group reads. They are prefetched meanwhile.
    pub(crate) next: &'a [u32],
}

/// Query rows, whose first numbers are `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
}

impl<'a> Queries<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.stride..]
    }
}

/// Scratch memory of [`mean_weights`].
#[derive(Default)]
pub(crate) struct Scratch {
    float: Aligned<f32>,
    int8: int8::Scratch,
}

/// Writes the attention output of every row, D numbers each, to `out`.
pub(crate) fn attend(
    isa: Isa,
    queries: Queries<'_>,
    (cache, heads): (&Cache, usize),
    reads: &Reads,
    out: &mut [f32],
) {
    if cache.cache_precision() == CachePrecision::Int8 {
        return int8::attend(isa, queries, cache.int8_view(), reads, out);
    }
    let (mut weights, width) = (Aligned::default(), cache.width());
    let prefetch = isa.uses(Technique::Prefetch);
    let mut groups = reads.groups().peekable();
    while let Some((rows, positions)) = groups.next() {
        let next = groups.peek().filter(|_| prefetch).map_or(&[][..], |&(_, next)| next);
        let read = CacheRead { cache, positions, heads, next };
        let queries = Queries { values: queries.row(rows.start), ..queries };
        let out = &mut out[rows.start * width..rows.end * width];
        float::attend(isa, isa.techniques(), queries, read, &mut weights, out);
    }
}

/// As [`attend`] for sentences of these lengths, end to end. `joint` has the queries, keys and values of each row, which reads all
/// rows of its sentence.
pub(crate) fn attend_within(
    isa: Isa,
    joint: &[f32],
    (width, heads): (usize, usize),
    lengths: impl Iterator<Item = usize>,
    out: &mut [f32],
) {
    let (stride, techniques) = (3 * width, isa.techniques());
    let (mut weights, mut positions) = (Aligned::default(), Vec::new());
    let (mut joint, mut out) = (joint, out);
    for rows in lengths {
        positions.extend(positions.len() as u32..rows as u32);
        let (queries, next) = joint.split_at(rows * stride);
        let (out_rows, behind) = out.split_at_mut(rows * width);
        let view = CacheView::of_rows(&queries[width..], stride, width);
        let read = TypedRead { view, positions: &positions[..rows], heads, next: &[] };
        let queries = Queries { values: queries, stride };
        float::attend_within(isa, techniques, queries, read, &mut weights, out_rows);
        (joint, out) = (next, behind);
    }
}

/// Adds one row's attention weights to `out`, a number a position: the mean over the first `heads` heads.
pub(crate) fn mean_weights(
    isa: Isa,
    query: &[f32],
    read: CacheRead<'_>,
    heads: usize,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    match read.cache.cache_precision() {
        CachePrecision::Int8 => int8::mean_weights(isa, query, read, heads, &mut scratch.int8, out),
        _ => float::mean_weights(isa, query, read, heads, &mut scratch.float, out),
    }
}
