//! Matrix products in int8: `y = (x̂ · Ŵᵀ) · scales + b`, exact in integers.
//!
//! Weights are integers in −127..127 with a quantisation scale for each output. A row of inputs is quantised with a scale of its
//! own, `max|x| / 127`, so that a row never depends on its neighbours. Products are summed in int32 without saturation: every
//! kernel gives the same bits.
//!
//! Inputs are stored as unsigned bytes (integer + 128), the operand type of the VNNI instructions. The offset adds
//! `128 · Σ weights` to an output, for which the initial value of its sum compensates.
//!
//! Sixteen outputs make a panel. A panel holds, four inputs at a time, sixteen groups of four bytes, a cache line:
//!
//! ```text
//! panel 0:  w[0][0..4] w[1][0..4] … w[15][0..4] │ w[0][4..8] … w[15][4..8] │ …
//! panel 1:  w[16][0..4] …
//! ```
//!
//! Weights are padded with zeros to a multiple of 64 inputs and of 16 outputs. AMX tiles load the same layout (16 lines are 64
//! inputs by 16 outputs).
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
mod hidden;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod quantise;
mod sparse;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Zeroable;
use peregrine_model::{Precision, quantise_row};
use peregrine_nn::Dense;

use crate::gemm::float32::PackedFloat32;
use crate::gemm::panels::{Lanes, Panels, Row, gather, set_lane};
use crate::gemm::tiles::InputLayout;
#[cfg(target_arch = "x86_64")]
use crate::gemm::tiles::panels_for;
use crate::gemm::{parallel, product, split};
use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, round_to_byte};
use crate::isa::{Isa, Level, kernel};
use crate::memory::arena::Arena;
use crate::technique::Technique;
#[cfg(target_arch = "x86_64")]
use crate::tuning::tuner::Kernel;
use crate::tuning::tuner::Shape;

use sparse::InputRows;

pub(crate) use hidden::round_to_float16;
pub(crate) use quantise::QuantisedInt8;
pub(crate) use sparse::{NonZeros, multiply_sparse};

/// The number of inputs is padded to a multiple of this.
pub(crate) const INPUT_MULTIPLE: usize = 64;

/// Rows of a block, which is multiplied with all panels before the next block (except with AMX): few enough for their inputs and
/// outputs to stay in cache, enough to hide the prefetch of a panel's weights.
pub(crate) const BLOCK_ROWS: usize = 64;

/// AMX is faster from so many rows on: a tile computes sixteen in any case.
const MIN_AMX_ROWS: usize = 13;

/// Four weights of each output of a panel.
pub(crate) type Bytes = Lanes<[i8; 4]>;

/// An int32 sum of each output of a panel.
pub(crate) type Sums = Lanes<i32>;

/// Int8 weights packed for products.
pub struct PackedInt8 {
    panels: Panels<[i8; 4]>,
    /// Initial sum of each output: −128 · the sum of its weights.
    pub(crate) starts: Vec<Sums>,
    /// Quantisation scale of each output.
    pub(crate) scales: Vec<Lanes<f32>>,
    pub(crate) options: LayerOptions,
    /// Timings of the kernels for this shape, if they are auto-tuned.
    pub(crate) tuning: Option<Arc<Shape>>,
    input_rows: InputRows,
}

impl Deref for PackedInt8 {
    type Target = Panels<[i8; 4]>;

    fn deref(&self) -> &Self::Target {
        &self.panels
    }
}

/// Deviations from the exact product; the default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LayerOptions {
    /// A fixed multiplier of inputs before rounding, instead of `127 / max|x|` of each row.
    pub(crate) alpha: Option<f32>,
    /// Products are summed in int16 with saturation.
    pub(crate) saturating: bool,
    /// Feed-forward activations are not rounded to float16 before they are quantised.
    pub(crate) float_hidden: bool,
}

impl PackedInt8 {
    /// Whether sums may saturate, see [`LayerOptions::saturating`].
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
        PackedInt8 {
            panels,
            starts,
            scales,
            options: LayerOptions::default(),
            tuning: None,
            input_rows: InputRows::new(arena),
        }
    }

    /// Quantises a layer that is packed in float32.
    pub(crate) fn from_float32(isa: Isa, from: &PackedFloat32) -> PackedInt8 {
        let groups = from.inputs.next_multiple_of(INPUT_MULTIPLE) / 4;
        let mut panels: Panels<[i8; 4]> = from.with_weights(groups);
        let mut starts = vec![Sums::zeroed(); panels.panels()];
        let mut scales = vec![Lanes::zeroed(); panels.panels()];
        let lines =
            from.lines.chunks(from.inputs.max(1)).zip(panels.lines.chunks_mut(groups.max(1)));
        let parts = lines.zip(starts.iter_mut().zip(&mut scales)).collect();
        parallel::for_each(parts, from.lines.len() * LANES, |((from, lines), (starts, scales))| {
            quantise_panel(isa, from, lines, starts, scales);
        });
        let (options, tuning, input_rows) = Default::default();
        PackedInt8 { panels, starts, scales, options, tuning, input_rows }
    }

    /// A layer with a selection of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> PackedInt8 {
        PackedInt8 {
            panels: self.panels.select(outputs),
            starts: gather(&self.starts, outputs),
            scales: gather(&self.scales, outputs),
            options: self.options,
            tuning: None,
            input_rows: InputRows::default(),
        }
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

kernel! {
    fn quantise_panel(
        from: &[Lanes<f32>],
        lines: &mut [Bytes],
        starts: &mut Sums,
        scales: &mut Lanes<f32>,
    ) = quantise_panel_body
}

/// As [`pack_panel`], from a panel in float32.
#[inline(always)]
fn quantise_panel_body<const FMA: bool>(
    from: &[Lanes<f32>],
    lines: &mut [Bytes],
    starts: &mut Sums,
    scales: &mut Lanes<f32>,
) {
    let mut max = [0f32; LANES];
    for line in from {
        for (max, w) in max.iter_mut().zip(line.0) {
            *max = if w.abs() > *max { w.abs() } else { *max };
        }
    }
    scales.0 = max.map(|max| if max > 0.0 && max.is_finite() { max / 127.0 } else { 1.0 });
    let inverse = scales.0.map(|scale| 1.0 / scale);
    // Four bytes at a time: stored one by one they would take most of the time.
    for (four, to) in from.chunks(4).zip(lines) {
        let mut words = [0u32; LANES];
        for (i, line) in four.iter().enumerate() {
            for lane in 0..LANES {
                let integer = round_to_byte(line.0[lane] * inverse[lane]);
                starts.0[lane] -= 128 * i32::from(integer);
                words[lane] |= u32::from(integer as u8) << (8 * i);
            }
        }
        to.0 = words.map(|word| word.to_le_bytes().map(|byte| byte as i8));
    }
}

/// A block of the rows of a [`QuantisedInt8`].
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AMX reads whole tiles"))]
struct Rows<'a> {
    bytes: &'a [u8],
    /// The memory from the first row to the end of the buffer: AMX loads whole tiles.
    memory: &'a [u8],
    /// Quantisation scale of each row.
    scales: &'a [f32],
    stride: usize,
    layout: InputLayout,
}

type Product<'a> = product::Product<Rows<'a>, &'a PackedInt8>;

impl<'a> Product<'a> {
    fn of_rows(
        isa: Isa,
        x: &'a QuantisedInt8,
        packed: &'a PackedInt8,
        panels: Range<usize>,
        relu: bool,
    ) -> Product<'a> {
        assert_eq!(x.stride, packed.groups() * 4, "as many inputs as weights");
        let (bytes, scales) = (&x.bytes, &x.scales);
        let (memory, stride, layout) = (bytes.memory(), x.stride, x.layout);
        let x = Rows { bytes, memory, scales, stride, layout };
        Product { relu, ..Product::new(isa, x, (packed, packed.outputs), panels) }
    }

    /// The same product in blocks of so many rows.
    fn in_blocks(self, rows: usize) -> impl Iterator<Item = Product<'a>> {
        let of_block = rows * self.x.stride;
        let blocks = self.x.bytes.chunks(of_block).zip(self.x.scales.chunks(rows)).enumerate();
        blocks.map(move |(i, (bytes, scales))| {
            let memory = &self.x.memory[i * of_block..];
            Product { x: Rows { bytes, memory, scales, ..self.x }, ..self }
        })
    }
}

/// Writes the outputs of a range of panels, for all rows of `x`, to `out`. With `relu`, negative outputs become zero.
pub(crate) fn multiply(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    panels: Range<usize>,
    relu: bool,
    out: &mut [f32],
) {
    let product = Product::of_rows(isa, x, packed, panels, relu);
    let width = product.width;
    assert_eq!(out.len(), x.scales.len() * width, "room for every output");
    if out.is_empty() || x.stride == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if x.layout == InputLayout::AmxTiles {
        let rows = if isa.uses(Technique::TwoPanels) { x.scales.len() } else { BLOCK_ROWS };
        for (product, out) in product.in_blocks(rows).zip(out.chunks_mut(rows * width)) {
            // SAFETY: inputs have the layout of AMX tiles only where the processor has AMX, and the sizes have been checked.
            unsafe { amx::multiply(product, out) };
        }
        return;
    }
    for (product, out) in product.in_blocks(BLOCK_ROWS).zip(out.chunks_mut(BLOCK_ROWS * width)) {
        multiply_block(isa, product, out);
    }
}

/// Whether [`multiply_to_float16`] has a kernel for so many rows whose outputs are inputs of the `next` layer.
pub(crate) fn can_write_float16(
    isa: Isa,
    rows: usize,
    packed: &PackedInt8,
    next: &PackedInt8,
) -> bool {
    let tiles = |packed| layout_for(isa, rows, packed) == InputLayout::AmxTiles;
    let whole = packed.outputs.is_multiple_of(INPUT_MULTIPLE);
    let all_rows = isa.uses(Technique::TwoPanels) && split::members() == 1;
    tiles(packed) && tiles(next) && whole && all_rows
}

/// As [`multiply`] with all panels and `relu`, but outputs are [`Float16`], infinite where they overflow. A piece of all rows comes
/// before the next piece: consecutive rows are written to consecutive addresses, and not a page apart.
pub(crate) fn multiply_to_float16(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    out: &mut [[Float16; PIECE]],
) {
    let product = Product::of_rows(isa, x, packed, 0..packed.panels(), true);
    assert_eq!(x.layout, InputLayout::AmxTiles, "there is a kernel");
    assert_eq!(out.len() * PIECE, x.scales.len() * product.width, "room for every output");
    assert!(product.width.is_multiple_of(PIECE), "whole pieces");
    // SAFETY: inputs have the layout of AMX tiles only where the processor has AMX, and the sizes have been checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        amx::multiply_to_float16(product, out)
    };
}

/// The layout of so many rows of inputs for the layer's products.
fn layout_for(isa: Isa, rows: usize, packed: &PackedInt8) -> InputLayout {
    let tiles = isa.level() == Level::Amx && rows >= MIN_AMX_ROWS && isa.uses(Technique::TileOrder);
    if tiles && !packed.options.saturating && packed.options.alpha.is_none() {
        InputLayout::AmxTiles
    } else {
        InputLayout::RowMajor
    }
}

/// A row's outputs of two panels.
pub(crate) type Piece = [[f32; LANES]; 2];

/// Columns of a piece.
pub(crate) const PIECE: usize = 2 * LANES;

/// Consumes the outputs of a product without storing them all: the scores of the output layer.
///
/// # Safety
/// No function computes a product, as they are called while the AMX tiles of one are in use. A register sink accepts every row
/// below [`ScoreSink::rows`], until another function of its score sink is called.
pub(crate) unsafe trait ScoreSink {
    /// The part of the sink that runs in the loop of tile products.
    #[cfg(target_arch = "x86_64")]
    type RegisterSink: RegisterSink;

    /// The number of rows whose outputs it consumes.
    fn rows(&self) -> usize;

    /// Consumes some columns of all rows, row by row.
    fn take_block(&mut self, isa: Isa, columns: Range<usize>, outputs: &[f32]);

    /// The register sink for the piece that begins at `column`. None if every row of that piece needs [`ScoreSink::take_piece`].
    #[cfg(target_arch = "x86_64")]
    fn register_sink(&mut self, column: usize) -> Option<Self::RegisterSink>;

    /// The threshold of a row: outputs above it need [`ScoreSink::take_piece`].
    fn threshold(&self, row: usize) -> f32;

    /// Consumes a row's piece that begins at `column`, with a mask of the outputs above the row's threshold. `offered`: the
    /// register sink has seen it and refused it.
    fn take_piece<const FMA: bool>(
        &mut self,
        row: usize,
        column: usize,
        outputs: (Piece, u32),
        offered: bool,
    );

    /// Ends a block: these rows have been consumed up to the end of the piece that begins at `column`.
    fn end(&mut self, rows: Range<usize>, column: usize);
}

/// The fast path of a [`ScoreSink`]: it runs for every piece, keeps its state in registers and calls no function.
#[cfg(target_arch = "x86_64")]
pub(crate) trait RegisterSink: Copy {
    /// Consumes a row's piece, or refuses it: then [`ScoreSink::take_piece`] gets it. Columns that do not exist are negative infinity.
    ///
    /// # Safety
    /// The processor has AVX-512; the row is below [`ScoreSink::rows`] of its score sink, which has not been used since.
    unsafe fn accept(self, row: usize, outputs: [__m512; 2]) -> bool;
}

/// Whether [`multiply_to_sink`] has a kernel for so many rows.
pub(crate) fn can_feed_sink(isa: Isa, rows: usize, packed: &PackedInt8) -> bool {
    let there = isa.level() == Level::Amx && rows >= MIN_AMX_ROWS && split::members() == 1;
    there && !packed.options.saturating && packed.inputs > 0
}

/// As [`multiply`], but the sink gets each row's outputs, two panels at a time from an even one on, while they are in registers.
pub(crate) fn multiply_to_sink(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    panels: Range<usize>,
    sink: &mut impl ScoreSink,
) {
    let product = Product::of_rows(isa, x, packed, panels, false);
    assert!(can_feed_sink(isa, x.scales.len(), packed), "there is a kernel");
    assert_eq!(sink.rows(), x.scales.len(), "a sink for each row");
    // All rows at a time: outputs need no room in cache beside the inputs, and weights are read at an even pace.
    // SAFETY: there is a kernel only where the processor has AMX; `sink` has all rows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        amx::multiply_to_sink(product, sink)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = product;
}

fn multiply_block(isa: Isa, product: Product<'_>, out: &mut [f32]) {
    if product.packed.options.saturating {
        return multiply_saturating(isa, product, out);
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        level @ (Level::Avx512Vnni | Level::Amx) => {
            let rows = product.x.scales.len();
            let mut run = |kernel| match kernel {
                // SAFETY: only a level with AMX has it as a candidate; `multiply` has checked the sizes.
                Kernel::Amx => unsafe { amx::multiply(product, out) },
                // SAFETY: an `Isa` of this level proves the instructions (AMX comes with VNNI).
                Kernel::FourPanels => unsafe { avx512vnni::multiply(product, 4, out) },
                // SAFETY: as above.
                Kernel::EightPanels => unsafe { avx512vnni::multiply(product, 8, out) },
                // SAFETY: as above; of the others only `TwoPanels` is a candidate.
                _ => unsafe { avx512vnni::multiply(product, 2, out) },
            };
            match &product.packed.tuning {
                Some(shape) => shape.run(rows, kernels(level, rows), run),
                None => run(default_kernel(level, rows)),
            }
        }
        // SAFETY: an `Isa` of this level proves the instructions; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => unsafe { avx2::vnni::multiply(product, out) },
        // SAFETY: as above; AVX-512 includes AVX2.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => unsafe { avx2_exact::multiply(product, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => unsafe { neon::dot::multiply(product, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { neon::plain::multiply(product, out) },
        _ => portable::multiply(product, out),
    }
}

/// The kernel for so many rows without auto-tuning.
#[cfg(target_arch = "x86_64")]
fn default_kernel(level: Level, rows: usize) -> Kernel {
    match panels_for(rows) {
        _ if level == Level::Amx && rows >= MIN_AMX_ROWS => Kernel::Amx,
        8 => Kernel::EightPanels,
        4 => Kernel::FourPanels,
        _ => Kernel::TwoPanels,
    }
}

/// The candidates of auto-tuning for so many rows.
#[cfg(target_arch = "x86_64")]
fn kernels(level: Level, rows: usize) -> &'static [Kernel] {
    match (level == Level::Amx, rows) {
        (_, 0..=4) => &[Kernel::TwoPanels, Kernel::FourPanels, Kernel::EightPanels],
        (false, _) => &[Kernel::TwoPanels, Kernel::FourPanels],
        (true, _) => &[Kernel::TwoPanels, Kernel::FourPanels, Kernel::Amx],
    }
}

/// The epilogue of kernels that do not compute it in registers: for one panel of `product` and the rows from `first` on, to whose
/// sums `starts` are added.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn epilogue(
    product: Product<'_>,
    first: usize,
    panel: usize,
    sums: &[[i32; LANES]],
    starts: [i32; LANES],
    out: &mut [f32],
) {
    let (packed, width, of_panel) = (product.packed, product.width, product.first_panel + panel);
    let (scales, bias) = (&packed.scales[of_panel].0, &packed.bias[of_panel].0);
    let columns = panel * LANES..width.min((panel + 1) * LANES);
    let rows = out.chunks_exact_mut(width).zip(product.x.scales).skip(first);
    for (sums, (out, row_scale)) in sums.iter().zip(rows) {
        let mut y = [0.0; LANES];
        for i in 0..LANES {
            // Not fused, so that every kernel rounds alike.
            y[i] = (sums[i] + starts[i]) as f32 * (scales[i] * row_scale) + bias[i];
            y[i] = if product.relu && y[i] < 0.0 { 0.0 } else { y[i] };
        }
        let out = &mut out[columns.clone()];
        out.copy_from_slice(&y[..out.len()]);
    }
}

/// As [`multiply_block`] with sums in int16, which saturate.
fn multiply_saturating(isa: Isa, product: Product<'_>, out: &mut [f32]) {
    match isa.level() {
        Level::Portable => portable::multiply_saturating(product, out),
        // SAFETY: every other level includes AVX2; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        _ => unsafe { avx2::saturating::multiply(product, out) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable::multiply_saturating(product, out),
    }
}

#[cfg(test)]
pub(crate) mod tests;
