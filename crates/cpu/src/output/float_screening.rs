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

/// Relative rounding errors of the bounds themselves: some ten operations of 2⁻²⁴ each.
const SLACK: f32 = 2e-6;

/// What underflow can change a score or a bound by.
const UNDERFLOW: f32 = 1e-20;

/// Norms of inputs and weights are below this, so that no score overflows. NaN is not.
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
    panels: [Errors<[f32; LANES]>; BLOCK_PANELS],
    /// The maximum of each.
    max: Errors<f32>,
}

/// What bounds the error of an approximate score, for a word or for the words of a panel.
#[derive(Clone, Copy)]
struct Errors<T> {
    /// `‖w − ŵ‖`.
    lost: T,
    /// `‖w‖`.
    norm: T,
    /// The rounding of the bias.
    bias: T,
}

impl BlockErrors {
    const NONE: BlockErrors = {
        let zero = Errors { lost: [0.0; LANES], norm: [0.0; LANES], bias: [0.0; LANES] };
        let max = Errors { lost: 0.0, norm: 0.0, bias: 0.0 };
        BlockErrors { panels: [zero; BLOCK_PANELS], max }
    };

    /// Measures the words of these panels.
    #[inline(always)]
    fn measure(&mut self, layer: &PackedFloat32, int8: &PackedInt8, panels: Range<usize>) {
        let (inputs, groups) = (layer.inputs, int8.groups());
        let rounding = rounding(inputs);
        for (errors, panel) in self.panels.iter_mut().zip(panels) {
            let (mut lost, mut norm) = ([0f64; LANES], [0f64; LANES]);
            let scales = &int8.scales[panel].0;
            let integers = &int8.lines[panel * groups..][..groups];
            let weights = &layer.lines[panel * inputs..][..inputs];
            for (weights, integers) in weights.chunks(4).zip(integers) {
                let integers = integers.0.map(|four| i32::from_le_bytes(four.map(|q| q as u8)));
                for (i, w) in weights.iter().enumerate() {
                    for lane in 0..LANES {
                        let w = f64::from(w.0[lane]);
                        let q = integers[lane] << (24 - 8 * i) >> 24;
                        let error = w - f64::from(q) * f64::from(scales[lane]);
                        lost[lane] += error * error;
                        norm[lane] += w * w;
                    }
                }
            }
            for lane in 0..LANES {
                errors.lost[lane] = lost[lane].sqrt() as f32 * (1.0 + SLACK);
                errors.norm[lane] = norm[lane].sqrt() as f32 * (1.0 + SLACK);
                errors.bias[lane] = layer.bias[panel].0[lane].abs() * rounding + UNDERFLOW;
            }
            self.max.lost = self.max.lost.max(largest(&errors.lost));
            self.max.norm = self.max.norm.max(largest(&errors.norm));
            self.max.bias = self.max.bias.max(largest(&errors.bias));
        }
    }

    /// Whether every number is finite and no score can overflow.
    fn usable(&self) -> bool {
        let usable = |numbers: &[f32; LANES]| numbers.iter().all(|n| *n < LARGEST_NORM);
        self.panels.iter().all(|e| usable(&e.lost) && usable(&e.norm) && usable(&e.bias))
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
        let usable = exact + quantised < f64::from(LARGEST_NORM);
        self.failed = !usable;
    }

    /// How far a score may be from its approximation.
    #[inline(always)]
    fn error(&self, lost: f32, norm: f32, bias: f32) -> f32 {
        self.norm * lost + self.lost * norm + bias
    }

    /// Lower and upper bounds of the scores of a panel.
    #[inline(always)]
    fn bounds(
        &self,
        errors: &Errors<[f32; LANES]>,
        scores: &[f32; LANES],
    ) -> ([f32; LANES], [f32; LANES]) {
        let (mut lower, mut upper) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            let error = self.error(errors.lost[i], errors.norm[i], errors.bias[i]);
            (lower[i], upper[i]) = (scores[i] - error, scores[i] + error);
        }
        (lower, upper)
    }

    /// Looks for survivors among approximate scores of the words from `first` on. At most `limit` survivors are kept.
    #[inline(always)]
    fn scan(&mut self, errors: &BlockErrors, first: usize, scores: &[f32], limit: usize) {
        let Errors { lost, norm, bias } = errors.max;
        if self.failed || largest(scores) + self.error(lost, norm, bias) < self.lower {
            return;
        }
        let (panels, rest) = scores.as_chunks::<LANES>();
        let mut last = [f32::NEG_INFINITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() { None } else { Some(&last) };
        let panels = || errors.panels.iter().zip(panels.iter().chain(last));
        let mut max = [self.lower; LANES];
        for (errors, scores) in panels() {
            let (lower, _) = self.bounds(errors, scores);
            for i in 0..LANES {
                max[i] = if lower[i] > max[i] { lower[i] } else { max[i] };
            }
        }
        self.lower = largest(&max);
        for (first, (errors, scores)) in (first as u32..).step_by(LANES).zip(panels()) {
            let (_, upper) = self.bounds(errors, scores);
            let mut any = false;
            for bound in upper {
                any |= bound >= self.lower;
            }
            if any {
                let words = (first..).zip(upper);
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
    fn measure(
        block: &mut BlockErrors,
        layer: &PackedFloat32,
        int8: &PackedInt8,
        panels: Range<usize>,
    ) = measure_body
}

#[inline(always)]
fn measure_body<const FMA: bool>(
    block: &mut BlockErrors,
    layer: &PackedFloat32,
    int8: &PackedInt8,
    panels: Range<usize>,
) {
    block.measure(layer, int8, panels);
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
    pub(super) fn new(isa: Isa, layer: &PackedFloat32) -> FloatScreen {
        let int8 = PackedInt8::from_float32(isa, layer);
        let mut blocks = vec![BlockErrors::NONE; layer.panels().div_ceil(BLOCK_PANELS)];
        let starts = (0..layer.panels()).step_by(BLOCK_PANELS);
        let weights = layer.panels() * LANES * layer.inputs;
        parallel::for_each(starts.zip(&mut blocks).collect(), weights, |(start, block)| {
            let panels = start..(start + BLOCK_PANELS).min(layer.panels());
            measure(isa, block, layer, &int8, panels);
        });
        let tally = Tally::default();
        if !blocks.iter().all(BlockErrors::usable) {
            tally.give_up();
        }
        FloatScreen { int8: Linear::Int8(int8), blocks, tally }
    }

    /// The most rows for which int8 products are so much faster than float32 products that screening can pay.
    pub(super) fn max_rows(isa: Isa) -> usize {
        match isa.level() {
            // Tests screen with every instruction set.
            _ if cfg!(test) => usize::MAX,
            Level::Portable | Level::Neon => 0,
            // Without VNNI only reading the weights takes less time.
            Level::Avx512 => 8,
            _ => usize::MAX,
        }
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
                for (word, score) in columns.clone().zip(scores).filter(|_| !row.failed) {
                    let place = word - columns.start;
                    let of_panel = &errors.panels[place / LANES];
                    let (lower, upper) = row.bounds(of_panel, &[*score; LANES]);
                    check(i, word, (lower[place % LANES], upper[place % LANES]));
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
