//! Matrix products in int8: `y = (x̂ · Ŵᵀ) · steps + b`, exact in integers.
//!
//! Weights are integers in −127..127 with a step for each output (a weight is integer · step). A
//! row of inputs is quantised on its own, with step `max|x| / 127`, so that a row never depends on
//! its neighbours, and products are summed in int32 without saturation: every kernel gives the same
//! bits.
//!
//! Inputs are kept shifted to unsigned bytes (integer + 128), as the VNNI instructions want them.
//! The shift adds `128 · Σ weights` to an output, which is taken off again by where its sum starts.
//!
//! Sixteen outputs make a panel. A panel holds, four inputs at a time, sixteen groups of four
//! bytes, a cache line:
//!
//! ```text
//! panel 0:  w[0][0..4] w[1][0..4] … w[15][0..4] │ w[0][4..8] … w[15][4..8] │ …
//! panel 1:  w[16][0..4] …
//! ```
//!
//! Inputs are filled up with zero weights to a multiple of 64, outputs to a multiple of 16. The same
//! layout is what AMX tiles load (16 lines are 64 inputs by 16 outputs).
//!
//! Cost: a byte of weights for each output and input, read once for every block of rows.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_exact;
#[cfg(target_arch = "x86_64")]
mod avx512vnni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod quantise;
pub(crate) mod rows;
pub(crate) mod screen;
pub(crate) mod shared;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Zeroable;
use peregrine_model::{Precision, quantise_row};
use peregrine_nn::Dense;

use crate::arena::Arena;
use crate::half::Half;
use crate::isa::{Isa, Level};
use crate::lanes::LANES;
use crate::panels::{Lanes, Panels, Row, gather, set_lane};
use crate::product::Line;
use crate::split;
use crate::technique::Technique;
use crate::tiles::Order;
#[cfg(target_arch = "x86_64")]
use crate::tiles::panels_for;
use crate::tuner::Shape;
#[cfg(target_arch = "x86_64")]
use crate::tuner::Way;

pub(crate) use quantise::Quantised;

/// Inputs are filled up to a multiple of this.
const INPUT_MULTIPLE: usize = 64;

/// Rows that are multiplied with all panels before the next ones, but with tiles: few enough for their inputs and outputs to stay
/// in cache, enough for the weights of a panel to be there as soon as the last one's are used up.
pub(crate) const BLOCK_ROWS: usize = 64;

/// From so many rows on tiles are worth filling.
const AMX_ROWS: usize = 13;

/// Four weights of each output of a panel.
pub(crate) type Bytes = Lanes<[i8; 4]>;

/// A starting sum of each output of a panel.
type Sums = Lanes<i32>;

/// Weights ready for integer products.
pub struct Packed8 {
    panels: Panels<[i8; 4]>,
    /// For each output −128 · the sum of its weights.
    starts: Vec<Sums>,
    steps: Vec<Line>,
    pub(crate) ways: Ways,
    /// Who finds out which kernel is fastest for this shape, if somebody does.
    pub(crate) tuning: Option<Arc<Shape>>,
}

impl Deref for Packed8 {
    type Target = Panels<[i8; 4]>;

    fn deref(&self) -> &Self::Target {
        &self.panels
    }
}

/// Ways to depart from the usual product; the default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ways {
    /// Inputs are multiplied with this before rounding, whatever is in a row.
    pub(crate) alpha: Option<f32>,
    /// Products are summed in 16 bits, and a sum that does not fit stays at the largest number that does.
    pub(crate) saturating: bool,
    /// Inputs from within a feed-forward block are not rounded to half precision first.
    pub(crate) float_hidden: bool,
}

impl Packed8 {
    /// Whether its sums may stop short, see [`Ways::saturating`].
    pub(crate) fn saturates(&self) -> bool {
        self.ways.saturating
    }

    /// Packs dense layers that share their input.
    pub(crate) fn from_dense(parts: &[Dense<'_>], arena: &Arena) -> Packed8 {
        let groups = |inputs: usize| inputs.next_multiple_of(INPUT_MULTIPLE) / 4;
        let mut panels = Panels::new(parts, groups, arena);
        let inputs = panels.inputs;
        let mut starts = vec![Sums::zeroed(); panels.panels()];
        let mut steps = vec![Line::zeroed(); panels.panels()];
        let extras = starts.iter_mut().zip(&mut steps).collect();
        panels.pack(parts, extras, |rows, lines, extra| pack_panel(rows, inputs, lines, extra));
        Packed8 { panels, starts, steps, ways: Ways::default(), tuning: None }
    }

    /// A layer with some of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> Packed8 {
        let panels = self.panels.select(outputs);
        let mut starts = vec![Sums::zeroed(); panels.panels()];
        gather(&self.starts, 1, outputs, &mut starts);
        let mut steps = vec![Line::zeroed(); panels.panels()];
        gather(&self.steps, 1, outputs, &mut steps);
        Packed8 { panels, starts, steps, ways: self.ways, tuning: None }
    }
}

/// Packs up to sixteen rows of weights.
fn pack_panel(
    rows: &[Row<'_>],
    inputs: usize,
    lines: &mut [Bytes],
    (starts, steps): (&mut Sums, &mut Line),
) {
    let (mut floats, mut rounded) = (Vec::new(), vec![0; inputs]);
    for (lane, &(weight, row)) in rows.iter().enumerate() {
        let integers = if weight.precision == Precision::Int8 {
            steps.0[lane] = weight.scale(row);
            &weight.data[row * inputs..][..inputs]
        } else {
            floats.resize(inputs, 0.0);
            weight.read_row(row, &mut floats);
            steps.0[lane] = quantise_row(&floats, &mut rounded);
            &rounded
        };
        let integers: &[i8] = bytemuck::cast_slice(integers);
        starts.0[lane] = -128 * integers.iter().map(|&w| i32::from(w)).sum::<i32>();
        set_lane(lines, lane, integers);
    }
}

/// A part of a product: some panels, for all rows.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "only AVX-512 and AMX read all of it")
)]
struct Task<'a> {
    bytes: &'a [u8],
    /// From the first of these to the end of their memory: tiles are loaded whole.
    memory: &'a [u8],
    steps: &'a [f32],
    stride: usize,
    order: Order,
    packed: &'a Packed8,
    first_panel: usize,
    panels: usize,
    relu: bool,
    /// Whether the next panels are prefetched.
    prefetch: bool,
}

impl<'a> Task<'a> {
    fn new(
        isa: Isa,
        x: &'a Quantised,
        packed: &'a Packed8,
        panels: Range<usize>,
        relu: bool,
    ) -> Task<'a> {
        assert_eq!(x.stride, packed.groups() * 4, "as many inputs as weights");
        assert!(panels.end <= packed.panels(), "panels that exist");
        let (first_panel, panels) = (panels.start, panels.len());
        Task {
            bytes: &x.bytes,
            memory: x.bytes.memory(),
            steps: &x.steps,
            stride: x.stride,
            order: x.order,
            packed,
            first_panel,
            panels,
            relu,
            prefetch: isa.uses(Technique::Prefetch),
        }
    }

    /// So many of the rows at a time.
    fn in_blocks(self, rows: usize) -> impl Iterator<Item = Task<'a>> {
        let of_block = rows * self.stride;
        let blocks = self.bytes.chunks(of_block).zip(self.steps.chunks(rows)).enumerate();
        blocks.map(move |(i, (bytes, steps))| Task {
            bytes,
            memory: &self.memory[i * of_block..],
            steps,
            ..self
        })
    }

    /// Columns of the result.
    fn width(&self) -> usize {
        let end = ((self.first_panel + self.panels) * LANES).min(self.packed.outputs);
        end - self.first_panel * LANES
    }
}

/// Writes the outputs of a run of panels, for all rows of `x`, to `out`. With `relu`, negative ones
/// become zero.
pub(crate) fn multiply(
    isa: Isa,
    x: &Quantised,
    packed: &Packed8,
    panels: Range<usize>,
    relu: bool,
    out: &mut [f32],
) {
    let task = Task::new(isa, x, packed, panels, relu);
    let width = task.width();
    assert_eq!(out.len(), x.steps.len() * width, "room for every output");
    if out.is_empty() || x.stride == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if x.order == Order::Tiles {
        let rows = if isa.uses(Technique::TwoPanels) { x.steps.len() } else { BLOCK_ROWS };
        for (task, out) in task.in_blocks(rows).zip(out.chunks_mut(rows * width)) {
            // SAFETY: inputs lie in tiles only where the processor has them, and the sizes have been checked.
            unsafe { amx::multiply(task, out) };
        }
        return;
    }
    for (task, out) in task.in_blocks(BLOCK_ROWS).zip(out.chunks_mut(BLOCK_ROWS * width)) {
        multiply_block(isa, task, out);
    }
}

/// Whether [`multiply_to_halves`] is there for so many rows that become inputs of the next layer.
pub(crate) fn goes_to_halves(isa: Isa, rows: usize, packed: &Packed8, next: &Packed8) -> bool {
    let tiles = |packed| order_for(isa, rows, packed) == Order::Tiles;
    let whole = packed.outputs.is_multiple_of(INPUT_MULTIPLE);
    let all_rows = isa.uses(Technique::TwoPanels) && split::members() == 1;
    tiles(packed) && tiles(next) && whole && all_rows
}

/// As [`multiply`] with all panels and no negative outputs, in half precision, as [`Half`] has it but infinite where it is too
/// large for that. A piece of all rows comes before the next: outputs of a row are written where those of the last one end, and not
/// a page behind them.
pub(crate) fn multiply_to_halves(
    isa: Isa,
    x: &Quantised,
    packed: &Packed8,
    out: &mut [[Half; PIECE]],
) {
    let task = Task::new(isa, x, packed, 0..packed.panels(), true);
    assert_eq!(x.order, Order::Tiles, "there is a kernel");
    assert_eq!(out.len() * PIECE, x.steps.len() * task.width(), "room for every output");
    assert!(task.width().is_multiple_of(PIECE), "whole pieces");
    // SAFETY: inputs lie in tiles only where the processor has them, and the sizes have been checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        amx::multiply_to_halves(task, out)
    };
}

/// How so many rows of inputs are to lie for the layer's products.
fn order_for(isa: Isa, rows: usize, packed: &Packed8) -> Order {
    let tiles = isa.level() == Level::Amx && rows >= AMX_ROWS && isa.uses(Technique::TileOrder);
    if tiles && !packed.ways.saturating && packed.ways.alpha.is_none() {
        Order::Tiles
    } else {
        Order::Rows
    }
}

/// A row's outputs of two panels.
pub(crate) type Piece = [[f32; LANES]; 2];

/// Columns of a piece.
pub(crate) const PIECE: usize = 2 * LANES;

/// Who takes the outputs of a product that nobody stores.
///
/// # Safety
/// Its functions compute no product, as they are called while the tiles of one are in use. An ear may hear of every row below
/// [`Take::rows`], until another of its functions is called.
pub(crate) unsafe trait Take {
    #[cfg(target_arch = "x86_64")]
    type Ear: Ear;

    /// How many rows it takes outputs of.
    fn rows(&self) -> usize;

    /// Takes some columns of all rows, row by row.
    fn block(&mut self, isa: Isa, columns: Range<usize>, outputs: &[f32]);

    /// Hands out who hears the columns from `column` on first, if that is of use.
    #[cfg(target_arch = "x86_64")]
    fn ear(&mut self, column: usize) -> Option<Self::Ear>;

    /// Which outputs of a row want a closer look: those above it.
    fn threshold(&self, row: usize) -> f32;

    /// Takes the columns of a row from `column` on, which the ear has `heard` and refused, or not heard. Those that are `above` the
    /// row's threshold have their bit set.
    fn again<const FMA: bool>(
        &mut self,
        row: usize,
        column: usize,
        outputs: (Piece, u32),
        heard: bool,
    );

    /// The columns of these rows that a piece from `column` on has have been taken.
    fn end(&mut self, rows: Range<usize>, column: usize);
}

/// What is done for every piece of outputs, with what it takes: it stays in registers, and calls nothing.
#[cfg(target_arch = "x86_64")]
pub(crate) trait Ear: Copy {
    /// Takes some columns of a row, or says no: then they are to come again. Those that do not exist are at negative infinity.
    ///
    /// # Safety
    /// The processor has AVX-512; the row is below the [`Take::rows`] of who handed it out, and nobody has used that since.
    unsafe fn hear(self, row: usize, outputs: [__m512; 2]) -> bool;
}

/// Whether [`multiply_in_pieces`] is there for so many rows, and worth it.
pub(crate) fn hands_out_pieces(isa: Isa, rows: usize, packed: &Packed8) -> bool {
    let there = isa.level() == Level::Amx && rows >= AMX_ROWS && split::members() == 1;
    there && !packed.ways.saturating && packed.inputs > 0
}

/// As [`multiply`], but `take` is handed each row's outputs, two panels at a time from an even one on, while they are in registers.
pub(crate) fn multiply_in_pieces(isa: Isa, x: &Quantised, packed: &Packed8, take: &mut impl Take) {
    let task = Task::new(isa, x, packed, 0..packed.panels(), false);
    assert!(hands_out_pieces(isa, x.steps.len(), packed), "there is a kernel");
    assert_eq!(take.rows(), x.steps.len(), "somebody to take each row");
    // All rows at a time: no outputs want room in cache beside their inputs, and weights are wanted at an even pace.
    // SAFETY: there is a kernel only where the processor has AMX; `take` has all rows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        amx::multiply_in_pieces(task, take)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = task;
}

fn multiply_block(isa: Isa, task: Task<'_>, out: &mut [f32]) {
    if task.packed.ways.saturating {
        return multiply_saturating(isa, task, out);
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        level @ (Level::Avx512Vnni | Level::Amx) => {
            let rows = task.steps.len();
            let mut product = |way| match way {
                // SAFETY: only a level with AMX offers it; `multiply` has checked the sizes.
                Way::Amx => unsafe { amx::multiply(task, out) },
                // SAFETY: an `Isa` of this level proves the instructions (AMX comes with VNNI).
                Way::Four => unsafe { avx512vnni::multiply(task, 4, out) },
                // SAFETY: as above.
                Way::Eight => unsafe { avx512vnni::multiply(task, 8, out) },
                // SAFETY: as above; of the others only `Two` is offered.
                _ => unsafe { avx512vnni::multiply(task, 2, out) },
            };
            match &task.packed.tuning {
                Some(shape) => shape.run(rows, ways(level, rows), product),
                None => product(usual_way(level, rows)),
            }
        }
        // SAFETY: an `Isa` of this level proves the instructions; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => unsafe { avx2::vnni::multiply(task, out) },
        // SAFETY: as above; AVX-512 includes AVX2.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => unsafe { avx2_exact::multiply(task, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => unsafe { neon::dot::multiply(task, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { neon::plain::multiply(task, out) },
        _ => portable::multiply(task, out),
    }
}

/// What is best for so many rows, as far as one can tell without timing it.
#[cfg(target_arch = "x86_64")]
fn usual_way(level: Level, rows: usize) -> Way {
    match panels_for(rows) {
        _ if level == Level::Amx && rows >= AMX_ROWS => Way::Amx,
        8 => Way::Eight,
        4 => Way::Four,
        _ => Way::Two,
    }
}

/// What is worth timing for so many rows.
#[cfg(target_arch = "x86_64")]
fn ways(level: Level, rows: usize) -> &'static [Way] {
    match (level == Level::Amx, rows) {
        (_, 0..=4) => &[Way::Two, Way::Four, Way::Eight],
        (false, _) => &[Way::Two, Way::Four],
        (true, _) => &[Way::Two, Way::Four, Way::Amx],
    }
}

/// Turns sums into outputs, for kernels that do not do so in registers: those of one panel of `task` and
/// the rows from `first` on, to which `starts` are added.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn finish(
    task: Task<'_>,
    first: usize,
    panel: usize,
    sums: &[[i32; LANES]],
    starts: [i32; LANES],
    out: &mut [f32],
) {
    let (packed, width, of_panel) = (task.packed, task.width(), task.first_panel + panel);
    let (steps, bias) = (&packed.steps[of_panel].0, &packed.bias[of_panel].0);
    let columns = panel * LANES..width.min((panel + 1) * LANES);
    let rows = out.chunks_exact_mut(width).zip(task.steps).skip(first);
    for (sums, (out, row_step)) in sums.iter().zip(rows) {
        let mut y = [0.0; LANES];
        for i in 0..LANES {
            // Not fused: every kernel must round alike.
            y[i] = (sums[i] + starts[i]) as f32 * (steps[i] * row_step) + bias[i];
            y[i] = if task.relu && y[i] < 0.0 { 0.0 } else { y[i] };
        }
        let out = &mut out[columns.clone()];
        out.copy_from_slice(&y[..out.len()]);
    }
}

/// The same with sums in 16 bits.
fn multiply_saturating(isa: Isa, task: Task<'_>, out: &mut [f32]) {
    match isa.level() {
        Level::Portable => portable::multiply_saturating(task, out),
        // SAFETY: every other level includes AVX2; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        _ => unsafe { avx2::saturating::multiply(task, out) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable::multiply_saturating(task, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::Tuner;
    use peregrine_model::Weight;
    use proptest::prelude::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn pack(weights: Vec<f32>, bias: &[f32], inputs: usize) -> (Packed8, Weight) {
        let weight = Weight::from_f32(vec![bias.len(), inputs], &weights).convert(Precision::Int8);
        let bias = Weight::from_f32(vec![bias.len()], bias);
        let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        (Packed8::from_dense(&[dense], &Arena::default()), weight)
    }

    fn run(isa: Isa, x: &[f32], packed: &Packed8) -> Vec<f32> {
        let mut quantised = Quantised::default();
        quantised.fill(isa, x, packed);
        let mut out = vec![f32::NAN; quantised.steps.len() * packed.outputs()];
        multiply(isa, &quantised, packed, 0..packed.panels(), false, &mut out);
        out
    }

    fn levels() -> impl Iterator<Item = Isa> {
        Level::ALL.into_iter().filter_map(Isa::new)
    }

    /// The definition: integers of rows and weights, summed exactly.
    fn naive(x: &[f32], weight: &Weight, bias: &[f32]) -> Vec<f32> {
        let inputs = weight.columns();
        let mut out = Vec::new();
        for row in x.chunks(inputs) {
            let most = row.iter().fold(0f32, |m, v| m.max(v.abs()));
            let scale = if most > 0.0 { 127.0 / most } else { 0.0 };
            let step = most / 127.0;
            for (o, b) in bias.iter().enumerate() {
                let integers = &weight.data[o * inputs..][..inputs];
                let sum: i64 = row
                    .iter()
                    .zip(integers)
                    .map(|(&x, &w)| (x * scale).round_ties_even() as i64 * i64::from(w as i8))
                    .sum();
                out.push(sum as f32 * (weight.scale(o) * step) + b);
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_level_gives_the_defined_bits(
            rows in 0usize..70, inputs in 1usize..150, outputs in 1usize..90, seed in 1u64..1000,
        ) {
            let (x, bias) = (numbers(rows * inputs, seed), numbers(outputs, seed + 13));
            let (packed, weight) = pack(numbers(outputs * inputs, seed + 7), &bias, inputs);
            let expected = naive(&x, &weight, &bias);
            for isa in levels() {
                prop_assert_eq!(&run(isa, &x, &packed), &expected, "{:?}", isa.level());
            }
            // Whatever a tuner picks.
            let (mut packed, tuner) = (packed, Tuner::default());
            packed.tuning = Some(tuner.shape(inputs, outputs));
            for _ in 0..16 {
                prop_assert_eq!(&run(Isa::best(), &x, &packed), &expected);
            }
        }
    }

    #[test]
    fn sums_in_16_bits_saturate_alike_everywhere() {
        for (inputs, size) in [(64, 0.01), (150, 1.0), (512, 1.0)] {
            let bias = numbers(40, 2);
            let (mut packed, _) = pack(numbers(40 * inputs, 3), &bias, inputs);
            let x: Vec<f32> = numbers(7 * inputs, 5).iter().map(|x| x.abs() * size).collect();
            packed.ways.saturating = true;
            let expected = run(Isa::new(Level::Portable).unwrap(), &x, &packed);
            for isa in levels() {
                assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
            }
        }
        // One pair of products always fits.
        let (mut packed, _) = pack(numbers(40 * 4, 3), &numbers(40, 2), 4);
        let x = numbers(3 * 4, 8);
        let exact = run(Isa::best(), &x, &packed);
        packed.ways.saturating = true;
        assert_eq!(run(Isa::best(), &x, &packed), exact);
        // All at their largest: 2 · 127 · 127 is the first and last that fits.
        let (mut packed, weight) = pack(vec![1.0; 64], &[0.0], 64);
        packed.ways.saturating = true;
        let most = 2.0 * f32::from(i16::MAX) * (weight.scale(0) * (1.0 / 127.0));
        assert_eq!(run(Isa::best(), &[1.0; 64], &packed), [most]);
    }

    #[test]
    fn fixed_scales_cut_off_what_does_not_fit() {
        let (mut packed, weight) = pack(numbers(5 * 70, 3), &[0.0; 5], 70);
        packed.ways.alpha = Some(100.0);
        let mut x = numbers(2 * 70, 4);
        x[3] = 50.0;
        x[71] = -50.0;
        let cut: Vec<f32> = x.iter().map(|x| (x * 100.0).clamp(-127.0, 127.0)).collect();
        for isa in levels() {
            let got = run(isa, &x, &packed);
            for (i, got) in got.iter().enumerate() {
                let (row, output) = (i / 5, i % 5);
                let integers = weight.data[output * 70..][..70].iter().map(|&w| i64::from(w as i8));
                let inputs = cut[row * 70..][..70].iter().map(|x| x.round_ties_even() as i64);
                let sum: i64 = inputs.zip(integers).map(|(x, w)| x * w).sum();
                assert_eq!(*got, sum as f32 * (weight.scale(output) * (1.0 / 100.0)));
            }
        }
    }

    /// All at the largest magnitude, where 16-bit sums of pairs would overflow.
    #[test]
    fn extremes_do_not_saturate() {
        let (inputs, outputs) = (256, 33);
        let bias = vec![0.0; outputs];
        for sign in [1.0, -1.0] {
            let (packed, weight) = pack(vec![sign; inputs * outputs], &bias, inputs);
            for x in [vec![1.0; inputs * 3], vec![-1.0; inputs * 3]] {
                let expected = naive(&x, &weight, &bias);
                for isa in levels() {
                    assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
                }
            }
        }
    }

    /// Four products that together just fit 16 bits, and four that do not.
    #[test]
    fn sums_around_16_bits_are_exact() {
        let (inputs, outputs) = (256, 33);
        let bias = vec![0.0; outputs];
        for sign in [1.0, -1.0] {
            let (packed, weight) = pack(vec![sign; inputs * outputs], &bias, inputs);
            for (most, others) in [(63.0, 64.0), (64.0, 64.0), (65.0, 64.0), (127.0, 128.0 / 3.0)] {
                for direction in [1.0, -1.0] {
                    let mut x = vec![others * direction; inputs * 3];
                    x.iter_mut().step_by(4).for_each(|x| *x = most * direction);
                    // What a step is measured by; one group goes over for sure.
                    x.iter_mut().skip(9).step_by(inputs).for_each(|x| *x = 127.0);
                    let expected = naive(&x, &weight, &bias);
                    for isa in levels() {
                        assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_and_empty_rows_are_fine() {
        let (packed, _) = pack(numbers(5 * 7, 1), &[1.0, 2.0, 3.0, 4.0, 5.0], 7);
        for isa in levels() {
            assert_eq!(run(isa, &[0.0; 7], &packed), [1.0, 2.0, 3.0, 4.0, 5.0]);
            assert!(run(isa, &[], &packed).is_empty());
        }
    }

    #[test]
    fn a_selection_has_the_same_outputs() {
        let bias = numbers(50, 2);
        let (packed, _) = pack(numbers(50 * 20, 3), &bias, 20);
        let words = [0, 3, 17, 18, 30, 49];
        let x = numbers(4 * 20, 5);
        let whole = run(Isa::best(), &x, &packed);
        let part = run(Isa::best(), &x, &packed.select(&words));
        for (part, whole) in part.chunks(words.len()).zip(whole.chunks(50)) {
            let expected: Vec<f32> = words.iter().map(|&w| whole[w as usize]).collect();
            assert_eq!(part, expected);
        }
    }

    proptest! {
        /// Scattered outputs are the panels' to the last bit.
        #[test]
        fn scattered_outputs(
            inputs in 1usize..300,
            rows in 0usize..4,
            words in prop::collection::vec(0u32..70, 0..60),
            seed in 1u64..1000,
        ) {
            let isa = Isa::best();
            if rows::Rows8::is_fast(isa) {
                let (packed, _) = pack(numbers(70 * inputs, seed), &numbers(70, 2), inputs);
                let x = numbers(rows * inputs, seed + 1);
                let expected = run(isa, &x, &packed.select(&words));
                let mut quantised = Quantised::default();
                quantised.fill(isa, &x, &packed);
                let table = rows::Rows8::new(&packed);
                let picked = rows::Picked8::new(&packed, &words);
                let mut out = vec![0.0; rows * words.len()];
                rows::multiply(isa, (&quantised, 0..rows), &table, &picked, 0..words.len(), &mut out);
                prop_assert_eq!(out, expected);
            }
        }
    }

    /// With 2048 random inputs bounds are wider than scores differ; a word far ahead needs no screen to be
    /// told from the others.
    #[test]
    fn a_sample_tells_whether_screening_pays() {
        let Some(isa) = levels().find(|&isa| rows::Rows8::is_fast(isa)) else { return };
        let (inputs, outputs) = (2048, 640);
        let x = numbers(inputs, 3);
        for (ahead, pays) in [(0.0, false), (1.0, true)] {
            let mut weights = numbers(inputs * outputs, 4);
            for (weight, x) in weights.iter_mut().zip(&x) {
                *weight += ahead * x;
            }
            let (packed, _) = pack(weights, &vec![0.0; outputs], inputs);
            let sample = screen::Sample::new(&packed);
            let mut quantised = Quantised::default();
            quantised.fill(isa, &x, &packed);
            let best = run(isa, &x, &packed).into_iter().reduce(f32::max).expect("words");
            for _ in 0..20 {
                sample.look(isa, &quantised, best, &mut Vec::new());
            }
            assert_eq!(sample.pays(), pays, "the best word's score is {best}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// What screening leaves has the best word of all, ties included, and bounds are kept.
        #[test]
        fn screening_loses_no_best_word(
            inputs in 1usize..300,
            outputs in 1usize..400,
            banned in prop::collection::vec(0u32..400, 0..5),
            coarse: bool,
            seed in 1u64..1000,
        ) {
            let isa = Isa::best();
            if rows::Rows8::is_fast(isa) {
                let mut weights = numbers(outputs * inputs, seed);
                if coarse {
                    // Few different weights: equal words, and all at the ends of the range.
                    weights.iter_mut().for_each(|w| *w = w.signum());
                }
                let (packed, _) = pack(weights, &numbers(outputs, seed + 2), inputs);
                let x = numbers(inputs, seed + 1);
                let mut quantised = Quantised::default();
                quantised.fill(isa, &x, &packed);
                let (rows, screen) = (rows::Rows8::new(&packed), screen::Screen::new(&packed));
                let (mut bounds, mut words) = (Vec::new(), Vec::new());
                let memory = (&mut bounds, &mut words);
                let few = screen.survivors(isa, (&quantised, &packed, &rows), &banned, memory);
                let scores = run(isa, &x, &packed);
                let allowed = |word: &u32| !banned.contains(word);
                for word in (0..outputs as u32).filter(allowed) {
                    prop_assert!(bounds[word as usize] >= scores[word as usize]);
                }
                if few {
                    let score = |word: &u32| scores[*word as usize];
                    let best = (0..outputs as u32).filter(allowed).map(|w| score(&w)).fold(f32::MIN, f32::max);
                    let best: Vec<u32> =
                        (0..outputs as u32).filter(|w| allowed(w) && score(w) == best).collect();
                    prop_assert!(best.iter().all(|word| words.contains(word)), "{best:?}");
                    prop_assert!(words.is_sorted() && words.iter().all(allowed));
                }
            }
        }
    }
}
