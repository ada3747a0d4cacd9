//! Matrix products in int8: `y = (x̂ · Ŵᵀ) · scales + b`, exact in integers.
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

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Zeroable;
use peregrine_model::{Precision, quantise_row};
use peregrine_nn::Dense;

use crate::gemm::panels::{Lanes, Panels, Row, gather, set_lane};
use crate::gemm::split;
use crate::gemm::tiles::Order;
#[cfg(target_arch = "x86_64")]
use crate::gemm::tiles::panels_for;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;
use crate::isa::{Isa, Level};
use crate::memory::arena::Arena;
use crate::technique::Technique;
#[cfg(target_arch = "x86_64")]
use crate::tuning::tuner::Kernel;
use crate::tuning::tuner::Shape;

pub(crate) use quantise::QuantisedInt8;

/// Inputs are filled up to a multiple of this.
pub(crate) const INPUT_MULTIPLE: usize = 64;

/// Rows that are multiplied with all panels before the next ones, but with tiles: few enough for their inputs and outputs to stay
/// in cache, enough for the weights of a panel to be there as soon as the last one's are used up.
pub(crate) const BLOCK_ROWS: usize = 64;

/// From so many rows on tiles are worth filling.
const AMX_ROWS: usize = 13;

/// Four weights of each output of a panel.
pub(crate) type Bytes = Lanes<[i8; 4]>;

/// A starting sum of each output of a panel.
pub(crate) type Sums = Lanes<i32>;

/// Weights ready for integer products.
pub struct PackedInt8 {
    panels: Panels<[i8; 4]>,
    /// For each output −128 · the sum of its weights.
    pub(crate) starts: Vec<Sums>,
    pub(crate) scales: Vec<Lanes<f32>>,
    pub(crate) options: LayerOptions,
    /// Who finds out which kernel is fastest for this shape, if somebody does.
    pub(crate) tuning: Option<Arc<Shape>>,
}

impl Deref for PackedInt8 {
    type Target = Panels<[i8; 4]>;

    fn deref(&self) -> &Self::Target {
        &self.panels
    }
}

/// Ways to depart from the usual product; the default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LayerOptions {
    /// Inputs are multiplied with this before rounding, whatever is in a row.
    pub(crate) alpha: Option<f32>,
    /// Products are summed in 16 bits, and a sum that does not fit stays at the largest number that does.
    pub(crate) saturating: bool,
    /// Inputs from within a feed-forward block are not rounded to half precision first.
    pub(crate) float_hidden: bool,
}

impl PackedInt8 {
    /// Whether its sums may stop short, see [`LayerOptions::saturating`].
    pub(crate) fn saturates(&self) -> bool {
        self.options.saturating
    }

    /// Packs dense layers that share their input.
    pub(crate) fn from_dense(parts: &[Dense<'_>], arena: &Arena) -> PackedInt8 {
        let groups = |inputs: usize| inputs.next_multiple_of(INPUT_MULTIPLE) / 4;
        let mut panels = Panels::new(parts, groups, arena);
        let inputs = panels.inputs;
        let mut starts = vec![Sums::zeroed(); panels.panels()];
        let mut scales = vec![Lanes::zeroed(); panels.panels()];
        let extras = starts.iter_mut().zip(&mut scales).collect();
        panels.pack(parts, extras, |rows, lines, extra| pack_panel(rows, inputs, lines, extra));
        PackedInt8 { panels, starts, scales, options: LayerOptions::default(), tuning: None }
    }

    /// A layer with some of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> PackedInt8 {
        let panels = self.panels.select(outputs);
        let mut starts = vec![Sums::zeroed(); panels.panels()];
        gather(&self.starts, 1, outputs, &mut starts);
        let mut scales = vec![Lanes::zeroed(); panels.panels()];
        gather(&self.scales, 1, outputs, &mut scales);
        PackedInt8 { panels, starts, scales, options: self.options, tuning: None }
    }
}

/// Packs up to sixteen rows of weights.
fn pack_panel(
    rows: &[Row<'_>],
    inputs: usize,
    lines: &mut [Bytes],
    (starts, scales): (&mut Sums, &mut Lanes<f32>),
) {
    let (mut floats, mut rounded) = (Vec::new(), vec![0; inputs]);
    for (lane, &(weight, row)) in rows.iter().enumerate() {
        let integers = if weight.precision == Precision::Int8 {
            scales.0[lane] = weight.scale(row);
            &weight.data[row * inputs..][..inputs]
        } else {
            floats.resize(inputs, 0.0);
            weight.read_row(row, &mut floats);
            scales.0[lane] = quantise_row(&floats, &mut rounded);
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
    scales: &'a [f32],
    stride: usize,
    order: Order,
    packed: &'a PackedInt8,
    first_panel: usize,
    panels: usize,
    relu: bool,
    /// Whether the next panels are prefetched.
    prefetch: bool,
}

impl<'a> Task<'a> {
    fn new(
        isa: Isa,
        x: &'a QuantisedInt8,
        packed: &'a PackedInt8,
        panels: Range<usize>,
        relu: bool,
    ) -> Task<'a> {
        assert_eq!(x.stride, packed.groups() * 4, "as many inputs as weights");
        assert!(panels.end <= packed.panels(), "panels that exist");
        let (first_panel, panels) = (panels.start, panels.len());
        Task {
            bytes: &x.bytes,
            memory: x.bytes.memory(),
            scales: &x.scales,
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
        let blocks = self.bytes.chunks(of_block).zip(self.scales.chunks(rows)).enumerate();
        blocks.map(move |(i, (bytes, scales))| Task {
            bytes,
            memory: &self.memory[i * of_block..],
            scales,
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
    x: &QuantisedInt8,
    packed: &PackedInt8,
    panels: Range<usize>,
    relu: bool,
    out: &mut [f32],
) {
    let task = Task::new(isa, x, packed, panels, relu);
    let width = task.width();
    assert_eq!(out.len(), x.scales.len() * width, "room for every output");
    if out.is_empty() || x.stride == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if x.order == Order::Tiles {
        let rows = if isa.uses(Technique::TwoPanels) { x.scales.len() } else { BLOCK_ROWS };
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
pub(crate) fn goes_to_halves(
    isa: Isa,
    rows: usize,
    packed: &PackedInt8,
    next: &PackedInt8,
) -> bool {
    let tiles = |packed| order_for(isa, rows, packed) == Order::Tiles;
    let whole = packed.outputs.is_multiple_of(INPUT_MULTIPLE);
    let all_rows = isa.uses(Technique::TwoPanels) && split::members() == 1;
    tiles(packed) && tiles(next) && whole && all_rows
}

/// As [`multiply`] with all panels and no negative outputs, in half precision, as [`Float16`] has it but infinite where it is too
/// large for that. A piece of all rows comes before the next: outputs of a row are written where those of the last one end, and not
/// a page behind them.
pub(crate) fn multiply_to_halves(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    out: &mut [[Float16; PIECE]],
) {
    let task = Task::new(isa, x, packed, 0..packed.panels(), true);
    assert_eq!(x.order, Order::Tiles, "there is a kernel");
    assert_eq!(out.len() * PIECE, x.scales.len() * task.width(), "room for every output");
    assert!(task.width().is_multiple_of(PIECE), "whole pieces");
    // SAFETY: inputs lie in tiles only where the processor has them, and the sizes have been checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        amx::multiply_to_halves(task, out)
    };
}

/// How so many rows of inputs are to lie for the layer's products.
fn order_for(isa: Isa, rows: usize, packed: &PackedInt8) -> Order {
    let tiles = isa.level() == Level::Amx && rows >= AMX_ROWS && isa.uses(Technique::TileOrder);
    if tiles && !packed.options.saturating && packed.options.alpha.is_none() {
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
/// [`ScoreSink::rows`], until another of its functions is called.
pub(crate) unsafe trait ScoreSink {
    #[cfg(target_arch = "x86_64")]
    type RegisterSink: RegisterSink;

    /// How many rows it takes outputs of.
    fn rows(&self) -> usize;

    /// Takes some columns of all rows, row by row.
    fn block(&mut self, isa: Isa, columns: Range<usize>, outputs: &[f32]);

    /// Hands out who hears the columns from `column` on first, if that is of use.
    #[cfg(target_arch = "x86_64")]
    fn register_sink(&mut self, column: usize) -> Option<Self::RegisterSink>;

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
pub(crate) trait RegisterSink: Copy {
    /// Takes some columns of a row, or says no: then they are to come again. Those that do not exist are at negative infinity.
    ///
    /// # Safety
    /// The processor has AVX-512; the row is below the [`ScoreSink::rows`] of who handed it out, and nobody has used that since.
    unsafe fn accept(self, row: usize, outputs: [__m512; 2]) -> bool;
}

/// Whether [`multiply_in_pieces`] is there for so many rows, and worth it.
pub(crate) fn hands_out_pieces(isa: Isa, rows: usize, packed: &PackedInt8) -> bool {
    let there = isa.level() == Level::Amx && rows >= AMX_ROWS && split::members() == 1;
    there && !packed.options.saturating && packed.inputs > 0
}

/// As [`multiply`], but `take` is handed each row's outputs, two panels at a time from an even one on, while they are in registers.
pub(crate) fn multiply_in_pieces(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    take: &mut impl ScoreSink,
) {
    let task = Task::new(isa, x, packed, 0..packed.panels(), false);
    assert!(hands_out_pieces(isa, x.scales.len(), packed), "there is a kernel");
    assert_eq!(take.rows(), x.scales.len(), "somebody to take each row");
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
    if task.packed.options.saturating {
        return multiply_saturating(isa, task, out);
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        level @ (Level::Avx512Vnni | Level::Amx) => {
            let rows = task.scales.len();
            let mut product = |kernel| match kernel {
                // SAFETY: only a level with AMX offers it; `multiply` has checked the sizes.
                Kernel::Amx => unsafe { amx::multiply(task, out) },
                // SAFETY: an `Isa` of this level proves the instructions (AMX comes with VNNI).
                Kernel::Four => unsafe { avx512vnni::multiply(task, 4, out) },
                // SAFETY: as above.
                Kernel::Eight => unsafe { avx512vnni::multiply(task, 8, out) },
                // SAFETY: as above; of the others only `Two` is offered.
                _ => unsafe { avx512vnni::multiply(task, 2, out) },
            };
            match &task.packed.tuning {
                Some(shape) => shape.run(rows, kernels(level, rows), product),
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
fn usual_way(level: Level, rows: usize) -> Kernel {
    match panels_for(rows) {
        _ if level == Level::Amx && rows >= AMX_ROWS => Kernel::Amx,
        8 => Kernel::Eight,
        4 => Kernel::Four,
        _ => Kernel::Two,
    }
}

/// What is worth timing for so many rows.
#[cfg(target_arch = "x86_64")]
fn kernels(level: Level, rows: usize) -> &'static [Kernel] {
    match (level == Level::Amx, rows) {
        (_, 0..=4) => &[Kernel::Two, Kernel::Four, Kernel::Eight],
        (false, _) => &[Kernel::Two, Kernel::Four],
        (true, _) => &[Kernel::Two, Kernel::Four, Kernel::Amx],
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
    let (scales, bias) = (&packed.scales[of_panel].0, &packed.bias[of_panel].0);
    let columns = panel * LANES..width.min((panel + 1) * LANES);
    let rows = out.chunks_exact_mut(width).zip(task.scales).skip(first);
    for (sums, (out, row_scale)) in sums.iter().zip(rows) {
        let mut y = [0.0; LANES];
        for i in 0..LANES {
            // Not fused: every kernel must round alike.
            y[i] = (sums[i] + starts[i]) as f32 * (scales[i] * row_scale) + bias[i];
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
mod tests;
