//! Attention over keys and values that are kept in bytes, computed in integers.
//!
//! A key and a value are rounded to multiples of a step each, `max|row| / 127`. A line of a cache holds sixteen columns
//! of four heads, four by four: so do instructions that narrow numbers leave them.
//!
//! ```text
//! line (g, m), quarter l:   columns 16 m + 4 l … + 3 of head 4 g │ of head 4 g + 1 │ of head 4 g + 2 │ of head 4 g + 3
//! row of a position:        key: line (0, 0), (0, 1) … (1, 0) … │ value: the same │ unused, to an odd number of lines
//! ```
//!
//! Products of a query with a key add up in lanes that are of one head each, and no others; weighted values add up in
//! lanes that are neighbouring columns. Keys are kept with 128 added: of the bytes that `vpdpbusd` multiplies one is
//! unsigned.
//!
//! A query is rounded to 16 bits, and a softmax's weights, each times the step of its value, to 15: both are next to
//! exact beside 8. Sums are integers that fit 32 bits, so they have the same bits on each instruction set, and in any
//! company.
//!
//! Weights of a row stand as they do in [`super`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512vnni;
mod layout;
mod plain;
mod prefetch;

use std::ops::Range;

use peregrine_nn::Reads;

use super::softmax::softmax;
use super::{Queries, ROWS, Reading};
use crate::isa::Isa;
use crate::isa::lanes::LANES;
use crate::isa::vectors::{Vectors, vector_kernel};
use crate::memory::arena::{Aligned, CacheLine};
use crate::technique::Technique;
use layout::HEADS;
pub(crate) use layout::{KEYS_HAVE, Kept, Shape, round};
use prefetch::{Prefetch, prefetch_line};

/// Positions whose values are weighed together.
const BLOCK: usize = 4;

/// The largest number of a rounded query: its upper byte, of which the lower may borrow, is 127 at most.
const MOST_OF_QUERY: f32 = 32_512.0;

/// Columns of a head whose products surely add up to 32 bits.
const COLUMNS: usize = 512;

/// The largest weight.
const MOST_OF_WEIGHTS: f32 = 32_767.0;

/// What rows read.
#[derive(Clone, Copy)]
struct Task<'a> {
    rows: &'a [CacheLine],
    shape: Shape,
    /// Where the row of each position begins, filled up to whole blocks with the last: behind each there are its lines.
    starts: &'a [usize],
    /// The steps of keys, with `BLOCK` more numbers behind them.
    steps: &'a [f32],
    /// What makes weights integers: of each position, and zeros that fill up.
    scales: &'a [f32],
    /// What turns sums of weighted values into their means.
    unit: f32,
}

impl Task<'_> {
    #[cfg(target_arch = "x86_64")]
    fn key(&self, place: usize) -> *const CacheLine {
        self.rows.as_ptr().wrapping_add(self.starts[place])
    }

    /// Integer weights of a row, two in a number.
    fn integers(&self) -> usize {
        self.starts.len() / 2 * self.shape.columns()
    }
}

/// How a query is rounded.
#[derive(Clone, Copy)]
struct Rounding {
    /// What makes a number an integer.
    scale: f32,
    /// What makes a sum of products with a key's integers a score, but for the key's step.
    unit: f32,
}

impl Rounding {
    /// Of a query with that largest magnitude.
    fn new(shape: Shape, largest: f32) -> Rounding {
        let most = MOST_OF_QUERY.min(MOST_OF_QUERY * COLUMNS as f32 / shape.head_width as f32);
        let unit = 1.0 / (most * (shape.head_width as f32).sqrt());
        match largest > 0.0 {
            true => Rounding { scale: most / largest, unit: largest * unit },
            false => Rounding { scale: 0.0, unit: 0.0 },
        }
    }
}

/// Working memory.
#[derive(Default)]
pub(crate) struct Memory {
    lists: [List; ROWS],
    ahead: Prefetch,
    /// A query's integers as a kernel wants them.
    query: Vec<CacheLine>,
    /// Weights of each row.
    weights: [Aligned<[f32; LANES]>; ROWS],
}

/// A list of positions that rows read, and the integer weights of those rows.
#[derive(Default)]
struct List {
    starts: Vec<usize>,
    steps: Vec<f32>,
    scales: Vec<f32>,
    unit: f32,
    integers: Vec<u32>,
}

impl List {
    /// Looks up what so many rows read.
    fn find(&mut self, kept: Kept<'_>, rows: usize, positions: &[u32]) {
        let (count, places) = (positions.len(), positions.len().next_multiple_of(BLOCK));
        let last = positions.iter().max().map_or(0, |&most| (most as usize + 1) * kept.stride);
        assert!(last <= kept.rows.len(), "positions are in the cache");
        self.starts.resize(places, 0);
        self.steps.resize(places + BLOCK, 0.0);
        self.scales.resize(places, 0.0);
        let found = self.starts.iter_mut().zip(&mut self.steps).zip(&mut self.scales);
        let mut most = 0.0;
        for (((start, step), scale), &position) in found.zip(positions) {
            *start = position as usize * kept.stride;
            [*step, *scale] = kept.steps[position as usize];
            most = if *scale > most { *scale } else { most };
        }
        self.unit = most / MOST_OF_WEIGHTS;
        let scale = if most > 0.0 { MOST_OF_WEIGHTS / most } else { 0.0 };
        self.scales.iter_mut().for_each(|step| *step *= scale);
        for place in count..places {
            // No weight.
            (self.starts[place], self.scales[place]) = (self.starts[count - 1], 0.0);
        }
        self.integers.resize(rows * places / 2 * kept.shape.columns(), 0);
    }

    /// In how many steps so many rows are worked on: a step for each vector of scores, and for each block of two heads.
    fn prefetch_steps(&self, shape: Shape, rows: usize) -> usize {
        let places = self.starts.len();
        rows * places * shape.columns() / LANES + places / BLOCK * shape.heads.div_ceil(2)
    }

    /// The parts of it that work needs.
    fn parts<'a>(&'a mut self, kept: Kept<'a>) -> (Task<'a>, &'a mut [u32]) {
        let List { starts, steps, scales, unit, integers } = self;
        let task = Task { rows: kept.rows, shape: kept.shape, starts, steps, scales, unit: *unit };
        (task, integers)
    }
}

/// Attends for all rows of `out`, D numbers each.
///
/// Four rows at a time go through each part of the work, since a row's part waits for the end of the one before.
pub(crate) fn attend(
    isa: Isa,
    queries: Queries<'_>,
    kept: Kept<'_>,
    reads: &Reads,
    out: &mut [f32],
) {
    let (mut memory, width) = (Memory::default(), kept.shape.width());
    let prefetch = isa.uses(Technique::Prefetch);
    let together = if isa.uses(Technique::SharedReads) { ROWS } else { 1 };
    let mut rest = &runs(reads, together)[..];
    while !rest.is_empty() {
        let (runs, behind) = rest.split_at(batch(rest));
        rest = behind;
        let mut steps = 0;
        for (list, (rows, positions)) in memory.lists.iter_mut().zip(runs) {
            list.find(kept, rows.len(), positions);
            steps += list.prefetch_steps(kept.shape, rows.len());
        }
        memory.ahead.plan(kept, runs, if prefetch { behind } else { &[] }, steps);
        let first = runs[0].0.start;
        for (list, (rows, positions)) in memory.lists.iter_mut().zip(runs) {
            let (task, _) = list.parts(kept);
            for row in rows.clone() {
                let query = &queries.row(row)[..width];
                let weights = &mut memory.weights[row - first];
                let count = positions.len();
                if row + 1 < reads.len() && prefetch {
                    let next = queries.row(row + 1)[..width].chunks(LANES);
                    next.for_each(|line| prefetch_line(line.as_ptr().cast()));
                }
                scores(isa, task, count, query, &mut memory.ahead, &mut memory.query, weights);
            }
        }
        for (list, (rows, _)) in memory.lists.iter_mut().zip(runs) {
            let (task, integers) = list.parts(kept);
            let integers = integers.chunks_exact_mut(task.integers().max(1));
            for (integers, row) in integers.zip(rows.clone()) {
                to_integers(isa, task, &mut memory.weights[row - first], integers);
            }
        }
        for (list, (rows, _)) in memory.lists.iter_mut().zip(runs) {
            let (task, integers) = list.parts(kept);
            let out = &mut out[rows.start * width..rows.end * width];
            weigh(isa, task, integers, &mut memory.ahead, out);
        }
    }
}

/// Up to [`ROWS`] rows that read the same positions, and these.
type Run<'a> = (Range<usize>, &'a [u32]);

fn runs(reads: &Reads, most: usize) -> Vec<Run<'_>> {
    let cut = |(rows, positions): (Range<usize>, _)| {
        rows.clone().step_by(most).map(move |row| (row..rows.end.min(row + most), positions))
    };
    reads.groups().flat_map(cut).collect()
}

/// How many of the next runs are worked on together.
fn batch(runs: &[Run<'_>]) -> usize {
    let first = runs[0].0.start;
    runs.iter().take_while(|(rows, _)| rows.end - first <= ROWS).count()
}

/// The weights themselves for one row: the mean over the first `heads` heads, added to `out`.
pub(crate) fn mean_weights(
    isa: Isa,
    query: &[f32],
    reading: Reading<'_>,
    heads: usize,
    memory: &mut Memory,
    out: &mut [f32],
) {
    let kept = reading.cache.bytes();
    let (columns, width) = (kept.shape.columns(), kept.shape.width());
    let ([list, ..], [weights, ..]) = (&mut memory.lists, &mut memory.weights);
    list.find(kept, 1, reading.positions);
    let (task, _) = list.parts(kept);
    let (ahead, count) = (&mut Prefetch::default(), reading.positions.len());
    scores(isa, task, count, &query[..width], ahead, &mut memory.query, weights);
    to_weights(isa, weights, columns);
    let used = heads.min(kept.shape.heads);
    for (out, weights) in out.iter_mut().zip(weights.as_flattened().chunks_exact(columns)) {
        *out += weights[..used].iter().sum::<f32>() / heads as f32;
    }
}

vector_kernel! {
    fn to_weights(scores: &mut [[f32; LANES]], columns: usize) = softmax
}

/// Calls a function of the kernels for an instruction set.
macro_rules! of_kernels {
    ($isa:expr, $name:ident($($arg:expr),*)) => {
        match $isa.level() {
            // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512 VNNI.
            #[cfg(target_arch = "x86_64")]
            crate::isa::Level::Avx512Vnni | crate::isa::Level::Amx => unsafe { avx512vnni::$name($($arg),*) },
            // SAFETY: an `Isa` of these levels exists only where the processor has AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            crate::isa::Level::Avx2 | crate::isa::Level::AvxVnni | crate::isa::Level::Avx512 => unsafe {
                avx2::$name($($arg),*)
            },
            _ => plain::$name($($arg),*),
        }
    };
}

/// The scores of a row that reads so many positions.
fn scores(
    isa: Isa,
    task: Task<'_>,
    count: usize,
    query: &[f32],
    ahead: &mut Prefetch,
    memory: &mut Vec<CacheLine>,
    weights: &mut Aligned<[f32; LANES]>,
) {
    let columns = task.shape.columns();
    weights.reshape(task.starts.len() * columns / LANES, 0);
    of_kernels!(isa, scores(task, query, ahead, memory, weights));
    weights.as_flattened_mut()[count * columns..].fill(f32::NEG_INFINITY);
}

/// Turns scores into integer weights, in an order that [`weigh`] knows.
fn to_integers(isa: Isa, task: Task<'_>, scores: &mut [[f32; LANES]], integers: &mut [u32]) {
    of_kernels!(isa, to_integers(task, scores, integers));
}

/// Weighted means of values.
fn weigh(isa: Isa, task: Task<'_>, integers: &[u32], ahead: &mut Prefetch, out: &mut [f32]) {
    if task.starts.is_empty() {
        return out.fill(0.0);
    }
    of_kernels!(isa, weigh(task, integers, ahead, out));
}

/// Weights of two positions in a number, the first in its low half: for each two positions a run of all columns.
#[inline(always)]
fn to_pairs<I: Vectors>(isa: I, task: Task<'_>, scores: &mut [[f32; LANES]], pairs: &mut [u32]) {
    let columns = task.shape.columns();
    softmax(isa, scores, columns);
    let weights = scores.as_flattened().chunks_exact(2 * columns);
    let scales = task.scales.as_chunks::<2>().0;
    for ((pairs, weights), scales) in pairs.chunks_exact_mut(columns).zip(weights).zip(scales) {
        let both = weights[..columns].iter().zip(&weights[columns..]);
        for (pair, (first, second)) in pairs.iter_mut().zip(both) {
            *pair = nearest(first * scales[0]) | nearest(second * scales[1]) << 16;
        }
    }
}

/// The nearest integer, of two the even one, to a number from 0 to 65,535: adding 2²³ leaves it in the low bits.
#[inline(always)]
fn nearest(v: f32) -> u32 {
    (v + 8_388_608.0).to_bits() & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::kv_cache::{Cache, CachePrecision};
    use crate::isa::Level;
    use crate::memory::arena::Pages;
    use crate::memory::matrix::Matrix;
    use proptest::prelude::*;

    proptest! {
        /// Of any shape, with numbers of very different sizes.
        #[test]
        fn every_instruction_set_computes_the_same(
            (heads, head_width) in (1..20usize, 1..70usize),
            (positions, rows) in (1..30usize, 1..7usize),
            seed: u32,
        ) {
            let mut state = seed;
            let mut numbers = |count: usize| -> Vec<f32> {
                let number = |_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let v = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                    if state & 0xf00 == 0 { v * 40.0 } else { v }
                };
                (0..count).map(number).collect()
            };
            let width = heads * head_width;
            let kept = Matrix::from_rows(2 * width, numbers(40 * 2 * width));
            let queries = numbers(rows * width);
            let at: Vec<u32> = (0..40).collect();
            let reads: Vec<u32> = (0..positions as u32).map(|i| i * 7 % 40).collect();
            let mut expected = None;
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut cache = Cache::new(CachePrecision::Int8, Pages::Large);
                cache.grow(40, width, heads);
                cache.store(isa, &kept, 0, &at);
                let mut bits: Vec<u32> =
                    cache.bytes().rows.iter().flat_map(|line| line.0.map(u32::from)).collect();
                let (mut list, mut query_memory, mut weights) =
                    (List::default(), Vec::new(), Aligned::default());
                list.find(cache.bytes(), rows, &reads);
                let (task, integers) = list.parts(cache.bytes());
                let ahead = &mut Prefetch::default();
                let of_rows = integers.chunks_exact_mut(task.integers());
                for (query, integers) in queries.chunks_exact(width).zip(of_rows) {
                    scores(isa, task, positions, query, ahead, &mut query_memory, &mut weights);
                    bits.extend(weights.as_flattened().iter().map(|v| v.to_bits()));
                    to_integers(isa, task, &mut weights, integers);
                }
                let mut out = vec![f32::NAN; rows * width];
                weigh(isa, task, integers, ahead, &mut out);
                bits.extend(out.iter().map(|v| v.to_bits()));
                prop_assert_eq!(&bits, expected.get_or_insert_with(|| bits.clone()), "{:?}", isa);
            }
        }
    }
}
