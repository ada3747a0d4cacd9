//! Screening in float32: an int8 copy of the weights finds the words that can be a row's best.
//!
//! Int8 products are several times as fast as float32 products, and read a quarter of the bytes. With quantised inputs `x̂` and
//! weights `ŵ`, a score differs from its approximation `x̂ · ŵ` by at most `‖x̂‖ · ‖w − ŵ‖ + ‖x − x̂‖ · ‖w‖` (Cauchy-Schwarz
//! inequality), and by the rounding of both. A word whose upper bound is below the lower bound of another is ruled out. The others,
//! the survivors, are computed in float32, by the kernel that computes all words otherwise: a panel alone has the bits it has in the
//! whole product. The best word and its score are the same to the last bit.
//!
//! Approximate scores come in blocks of words. Nearly always no score of a block reaches the largest lower bound so far, and finding
//! its maximum is all there is to do.
//!
//! Cost: an int8 product of all words and a float32 product of a panel for each survivor; a quarter of the layer's bytes for the copy.

use std::cell::RefCell;
use std::ops::Range;

use peregrine_nn::profile;

use super::BLOCK_PANELS;
use super::score_sinks::ScoreSinks;
use super::screening::{SURVIVOR_RATIO, Tally};
use crate::gemm::float32::{self, PackedFloat32};
use crate::gemm::int8::{PackedInt8, QuantisedInt8, ScoreSink};
use crate::gemm::linear::{Linear, with_quantised_rows};
use crate::gemm::parallel;
use crate::isa::lanes::{LANES, largest};
use crate::isa::{Isa, Level, kernel};
use crate::technique::Technique;

/// Words of a block.
const BLOCK: usize = BLOCK_PANELS * LANES;

/// Relative rounding errors of the bounds themselves: some ten operations of 2⁻²⁴ each.
const SLACK: f32 = 2e-6;

/// What underflow can change a score or a bound by.
const UNDERFLOW: f32 = 1e-25;

/// Norms of inputs and weights are below this, so that no score overflows.
const LARGEST_NORM: f32 = 1e15;

/// A bound of the relative rounding error of a float32 sum of so many products and a bias, `(inputs + 1) · 2⁻²⁴` in theory. It is
/// taken twice as large, and larger than the rounding of the approximate score.
fn rounding(inputs: usize) -> f32 {
    (inputs + 16) as f32 * f32::EPSILON
}

/// Int8 weights of a float32 output layer.
pub(super) struct FloatScreen {
    /// The quantised layer, with the same biases.
    int8: Linear,
    /// The errors of each block of words.
    blocks: Vec<BlockErrors>,
    tally: Tally,
}

/// What bounds the error of an approximate score, for each word of a block.
#[derive(Clone)]
struct BlockErrors {
    /// `‖w − ŵ‖`.
    lost: [f32; BLOCK],
    /// `‖w‖`.
    norm: [f32; BLOCK],
    /// The rounding of the bias.
    bias: [f32; BLOCK],
    /// The maximum of each.
    max: [f32; 3],
}

impl BlockErrors {
    const ZERO: BlockErrors =
        BlockErrors { lost: [0.0; BLOCK], norm: [0.0; BLOCK], bias: [0.0; BLOCK], max: [0.0; 3] };

    /// Measures the words of some panels from `first` on.
    fn measure(&mut self, layer: &PackedFloat32, int8: &PackedInt8, panels: Range<usize>) {
        let (inputs, groups) = (layer.inputs, int8.groups());
        let rounding = rounding(inputs);
        for (place, panel) in panels.enumerate() {
            let (mut lost, mut norm) = ([0f64; LANES], [0f64; LANES]);
            let scales = &int8.scales[panel].0;
            let integers = &int8.lines[panel * groups..][..groups];
            for (i, w) in layer.lines[panel * inputs..][..inputs].iter().enumerate() {
                for lane in 0..LANES {
                    let w = f64::from(w.0[lane]);
                    let q = f64::from(integers[i / 4].0[lane][i % 4]) * f64::from(scales[lane]);
                    lost[lane] += (w - q) * (w - q);
                    norm[lane] += w * w;
                }
            }
            for lane in 0..LANES {
                let word = place * LANES + lane;
                self.lost[word] = lost[lane].sqrt() as f32 * (1.0 + SLACK);
                self.norm[word] = norm[lane].sqrt() as f32 * (1.0 + SLACK);
                self.bias[word] = layer.bias[panel].0[lane].abs() * rounding + UNDERFLOW;
            }
        }
        self.max = [&self.lost, &self.norm, &self.bias].map(|errors| largest(errors));
    }

    /// Whether every number is finite and no score can overflow.
    fn usable(&self) -> bool {
        [&self.lost, &self.norm, &self.bias].iter().all(|e| e.iter().all(|e| *e < LARGEST_NORM))
    }
}

/// A row while it is screened.
#[derive(Default)]
struct ScreenedRow {
    /// `‖x̂‖`.
    norm: f32,
    /// `‖x − x̂‖`, and the rounding of a score in parts of `‖w‖`.
    lost: f32,
    /// The largest lower bound so far. The best score is not below it.
    lower: f32,
    /// Words whose upper bound reaches it, in ascending order, and their bounds.
    survivors: Vec<(u32, f32)>,
    /// Whether all words have to be computed in full.
    failed: bool,
}

impl ScreenedRow {
    /// Starts a row of inputs and their quantised bytes.
    #[inline(always)]
    fn start(&mut self, x: &[f32], bytes: &[u8], scale: f32) {
        let (mut lost, mut norms) = ([0f64; LANES], [[0f64; LANES]; 2]);
        let mut add = |lane: usize, x: f32, byte: u8| {
            let x = f64::from(x);
            let q = f64::from(i32::from(byte) - 128) * f64::from(scale);
            lost[lane] += (x - q) * (x - q);
            norms[0][lane] += x * x;
            norms[1][lane] += q * q;
        };
        let (chunks, rest) = x.as_chunks::<LANES>();
        for (x, bytes) in chunks.iter().zip(bytes.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                add(lane, x[lane], bytes[lane]);
            }
        }
        for (lane, (x, byte)) in rest.iter().zip(&bytes[chunks.len() * LANES..]).enumerate() {
            add(lane, *x, *byte);
        }
        let norm = |squares: [f64; LANES]| squares.iter().sum::<f64>().sqrt();
        let [exact, quantised] = norms.map(norm);
        self.norm = quantised as f32 * (1.0 + SLACK);
        let lost = norm(lost) + f64::from(rounding(x.len())) * (exact + quantised);
        self.lost = lost as f32 * (1.0 + SLACK);
        self.lower = f32::NEG_INFINITY;
        self.survivors.clear();
        // Also if it is NaN.
        self.failed = !(exact + quantised < f64::from(LARGEST_NORM));
    }

    /// How far a score may be from its approximation.
    #[inline(always)]
    fn error(&self, lost: f32, norm: f32, bias: f32) -> f32 {
        self.norm * lost + self.lost * norm + bias
    }

    /// Sets the bounds of the words of a block.
    #[inline(always)]
    fn bounds(
        &self,
        errors: &BlockErrors,
        scores: &[f32],
        lower: &mut [f32; BLOCK],
        upper: &mut [f32; BLOCK],
    ) {
        let of_words = errors.lost.iter().zip(&errors.norm).zip(&errors.bias).zip(scores);
        for (bounds, (((lost, norm), bias), score)) in lower.iter_mut().zip(upper).zip(of_words) {
            let error = self.error(*lost, *norm, *bias);
            (*bounds.0, *bounds.1) = (score - error, score + error);
        }
    }

    /// Looks for survivors among approximate scores of the words from `first` on. At most `limit` survivors are kept.
    #[inline(always)]
    fn scan(&mut self, errors: &BlockErrors, first: usize, scores: &[f32], limit: usize) {
        let [lost, norm, bias] = errors.max;
        if self.failed || largest(scores) + self.error(lost, norm, bias) < self.lower {
            return;
        }
        let (mut lower, mut upper) = ([f32::NEG_INFINITY; BLOCK], [f32::NEG_INFINITY; BLOCK]);
        self.bounds(errors, scores, &mut lower, &mut upper);
        self.lower = self.lower.max(largest(&lower[..scores.len()]));
        for (first, upper) in (first..).step_by(LANES).zip(upper[..scores.len()].chunks(LANES)) {
            if largest(upper) >= self.lower {
                let words = (first as u32..).zip(upper.iter().copied());
                self.survivors.extend(words.filter(|(_, upper)| *upper >= self.lower));
            }
        }
        if self.survivors.len() > limit {
            self.rule_out(limit);
        }
    }

    /// Gives the sink the scores of the survivors, and of their neighbours in a panel.
    fn multiply_survivors(
        &mut self,
        isa: Isa,
        x: &[f32],
        layer: &PackedFloat32,
        sink: &mut ScoreSinks<'_, '_>,
    ) {
        let panel_of = |word: u32| word as usize / LANES;
        let likely = self.survivors.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(likely, _)) = likely else { return };
        // The score of a likely word rules out most others.
        let known = multiply_panel(isa, x, layer, panel_of(likely));
        self.lower = self.lower.max(known.0[likely as usize % LANES]);
        self.survivors.retain(|(_, upper)| *upper >= self.lower);
        // In ascending order: of words with equal scores, a sink of one word keeps the first.
        for neighbours in self.survivors.chunk_by(|a, b| panel_of(a.0) == panel_of(b.0)) {
            let panel = panel_of(neighbours[0].0);
            let (scores, columns) = if panel == panel_of(likely) {
                known.clone()
            } else {
                multiply_panel(isa, x, layer, panel)
            };
            let scores = &scores[..columns.len()];
            sink.take_block(isa, columns, scores);
        }
    }

    /// Drops survivors whose upper bound is below the lower bound of another. The row has failed if more than `limit` are left, or
    /// none.
    fn rule_out(&mut self, limit: usize) {
        self.survivors.retain(|(_, upper)| *upper >= self.lower);
        let none = self.lower == f32::NEG_INFINITY;
        self.failed |= none || self.survivors.len() > limit;
    }
}

kernel! {
    fn start(rows: &mut [ScreenedRow], x: &[f32], quantised: &QuantisedInt8) = start_body
}

#[inline(always)]
fn start_body<const FMA: bool>(rows: &mut [ScreenedRow], x: &[f32], quantised: &QuantisedInt8) {
    let width = x.len() / rows.len();
    let bytes = quantised.bytes.chunks_exact(quantised.stride).zip(&quantised.scales);
    for ((row, x), (bytes, scale)) in rows.iter_mut().zip(x.chunks_exact(width)).zip(bytes) {
        row.start(x, bytes, *scale);
    }
}

kernel! {
    fn scan(
        rows: &mut [ScreenedRow],
        errors: &BlockErrors,
        columns: Range<usize>,
        scores: &[f32],
        limit: usize,
    ) = scan_body
}

#[inline(always)]
fn scan_body<const FMA: bool>(
    rows: &mut [ScreenedRow],
    errors: &BlockErrors,
    columns: Range<usize>,
    scores: &[f32],
    limit: usize,
) {
    for (row, scores) in rows.iter_mut().zip(scores.chunks_exact(columns.len())) {
        row.scan(errors, columns.start, scores, limit);
    }
}

impl FloatScreen {
    pub(super) fn new(layer: &PackedFloat32) -> FloatScreen {
        let int8 = PackedInt8::from_float32(layer);
        let mut blocks = vec![BlockErrors::ZERO; layer.panels().div_ceil(BLOCK_PANELS)];
        let starts = (0..layer.panels()).step_by(BLOCK_PANELS);
        let weights = layer.panels() * LANES * layer.inputs;
        parallel::for_each(starts.zip(&mut blocks).collect(), weights, |(start, block)| {
            block.measure(layer, &int8, start..(start + BLOCK_PANELS).min(layer.panels()));
        });
        let tally = Tally::default();
        if !blocks.iter().all(BlockErrors::usable) {
            tally.give_up();
        }
        FloatScreen { int8: Linear::Int8(int8), blocks, tally }
    }

    /// Whether int8 products are so much faster than float32 products that screening can pay.
    pub(super) fn is_fast(isa: Isa) -> bool {
        // Tests screen with every instruction set.
        cfg!(test)
            || matches!(
                isa.level(),
                Level::AvxVnni | Level::Avx512Vnni | Level::Amx | Level::NeonDot
            )
    }

    /// Whether few rows had too many survivors.
    pub(super) fn pays(&self) -> bool {
        self.tally.pays()
    }

    /// Gives the sinks the scores of the survivors of each row of `x`. Returns the rows that had too many.
    pub(super) fn multiply(
        &self,
        isa: Isa,
        x: &[f32],
        layer: &PackedFloat32,
        sinks: &mut ScoreSinks<'_, '_>,
    ) -> Vec<usize> {
        let mut memory = ROWS.take();
        let count = sinks.rows.len();
        memory.resize_with(count.max(memory.len()), ScreenedRow::default);
        let rows = &mut memory[..count];
        self.screen(isa, x, rows, sinks);
        profile::lap("output screening");
        let mut failed = Vec::new();
        for (i, (row, x)) in rows.iter_mut().zip(x.chunks_exact(layer.inputs)).enumerate() {
            self.tally.record(!row.failed);
            if row.failed {
                failed.push(i);
            } else {
                row.multiply_survivors(isa, x, layer, &mut sinks.slice_rows(i..i + 1, None));
            }
        }
        ROWS.set(memory);
        failed
    }

    /// Finds the survivors of the rows of `x`. Banned words are none, and rule out none.
    fn screen(&self, isa: Isa, x: &[f32], rows: &mut [ScreenedRow], sinks: &ScoreSinks<'_, '_>) {
        let Linear::Int8(int8) = &self.int8 else { return };
        with_quantised_rows(isa, x, int8, |quantised, _| start(isa, rows, x, quantised));
        let limit = int8.outputs() / SURVIVOR_RATIO;
        let mut blocks = self.blocks.iter();
        self.int8.each_block(isa, x, BLOCK_PANELS, |columns, scores| {
            for (sink, scores) in sinks.rows.iter().zip(scores.chunks_exact_mut(columns.len())) {
                exclude(sink.request.banned, &columns, scores);
            }
            if let Some(errors) = blocks.next() {
                scan(isa, rows, errors, columns, scores, limit);
            }
        });
        for row in rows {
            row.rule_out(limit);
        }
    }
}

#[cfg(test)]
impl FloatScreen {
    /// Calls `check(row, word, (lower, upper))` with the bounds of every word for the rows of `x`, if they are to be screened.
    pub(super) fn each_bound(
        &self,
        isa: Isa,
        x: &[f32],
        mut check: impl FnMut(usize, usize, (f32, f32)),
    ) {
        let Linear::Int8(int8) = &self.int8 else { return };
        let mut rows = Vec::new();
        rows.resize_with(x.len() / int8.inputs, ScreenedRow::default);
        with_quantised_rows(isa, x, int8, |quantised, _| start(isa, &mut rows, x, quantised));
        let mut blocks = self.blocks.iter();
        self.int8.each_block(isa, x, BLOCK_PANELS, |columns, scores| {
            let errors = blocks.next().expect("errors of the block");
            for (i, (row, scores)) in rows.iter().zip(scores.chunks(columns.len())).enumerate() {
                let (mut lower, mut upper) = ([0.0; BLOCK], [0.0; BLOCK]);
                row.bounds(errors, scores, &mut lower, &mut upper);
                for (word, bounds) in columns.clone().zip(lower.into_iter().zip(upper)) {
                    if !row.failed {
                        check(i, word, bounds);
                    }
                }
            }
        });
    }

    /// The rows so far, and those of them that failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.tally.counts()
    }
}

/// Sets the scores of banned words to negative infinity.
fn exclude(banned: &[u32], columns: &Range<usize>, scores: &mut [f32]) {
    let first = banned.partition_point(|&word| (word as usize) < columns.start);
    let words = banned[first..].iter().map(|&word| word as usize);
    for word in words.take_while(|&word| word < columns.end) {
        scores[word - columns.start] = f32::NEG_INFINITY;
    }
}

/// The scores of a panel's words for one row.
fn multiply_panel(
    isa: Isa,
    x: &[f32],
    layer: &PackedFloat32,
    panel: usize,
) -> ([f32; LANES], Range<usize>) {
    let columns = panel * LANES..((panel + 1) * LANES).min(layer.outputs);
    let mut scores = [0.0; LANES];
    // The next panel is not read.
    let isa = isa.without(&[Technique::Prefetch]);
    float32::multiply(isa, x, layer, panel..panel + 1, &mut scores[..columns.len()]);
    (scores, columns)
}

thread_local! {
    /// Scratch memory of a worker, kept between steps so that they allocate nothing.
    static ROWS: RefCell<Vec<ScreenedRow>> = RefCell::default();
}
