//! The int8 product with AMX, two blocks of sixteen rows times two panels at a time. Sums are the same integers as in every
//! kernel, and are converted to float32 in the same order of operations.

use std::arch::x86_64::*;
use std::ops::Range;

use super::avx512vnni::{Scales, lanes_of};
use super::{PIECE, Piece, Product, RegisterSink, ScoreSink};
use crate::gemm::amx::{TileEpilogue, TileProduct};
use crate::isa::amx::TILE_ROWS;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `product` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let (width, out) = (product.width, out.as_mut_ptr());
    let mut epilogue = StoreFloat32 { product, panels: NO_PANELS, width, out, column: 0 };
    // SAFETY: the caller guarantees AMX; rows and panels have the same number of inputs.
    unsafe { tile_product(product).multiply(&mut epilogue) };
}

/// See [`super::multiply_to_float16`].
///
/// # Safety
/// The processor has AMX, and there is room for each row's outputs, which are whole pieces.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply_to_float16(product: Product<'_>, out: &mut [[Float16; PIECE]]) {
    let mut epilogue = StoreFloat16 { product, panels: NO_PANELS, out, first: 0 };
    // SAFETY: as above.
    unsafe { tile_product(product).multiply(&mut epilogue) };
}

/// See [`super::multiply_to_sink`].
///
/// # Safety
/// The processor has AMX, and `sink` has the rows of `product`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub(super) unsafe fn multiply_to_sink(product: Product<'_>, sink: &mut impl ScoreSink) {
    let mut epilogue = FeedSink {
        product,
        panels: NO_PANELS,
        range: 0..0,
        register_sink: None,
        accepted: 0,
        bit: 1,
        sink,
    };
    // SAFETY: as above.
    unsafe { tile_product(product).multiply(&mut epilogue) };
}

/// Stores outputs in float32.
struct StoreFloat32<'a> {
    product: Product<'a>,
    panels: [PanelEpilogue; 2],
    /// Address of the first output.
    out: *mut f32,
    /// Outputs from one row to the next.
    width: usize,
    /// First column of the current block.
    column: usize,
}

// SAFETY: it starts no product.
unsafe impl TileEpilogue<i32> for StoreFloat32<'_> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        self.column = panels.start * LANES;
        // SAFETY: `multiply`, which makes these, has the instructions; the caller guarantees panels of the product.
        self.panels = unsafe { PanelEpilogue::of_both(self.product, panels) };
        true
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        let to = self.out.wrapping_add(row * self.width + self.column);
        // SAFETY: as above; a row and panels of the product, for which the caller of `multiply` has checked that there is room.
        unsafe {
            let scale = *self.product.x.scales.get_unchecked(row);
            self.panels[0].store(left, scale, to);
            self.panels[1].store(right, scale, to.wrapping_add(LANES));
        }
    }
}

/// Stores outputs in float16.
struct StoreFloat16<'a> {
    product: Product<'a>,
    panels: [PanelEpilogue; 2],
    out: &'a mut [[Float16; PIECE]],
    /// Index in `out` of the first row's piece of the current block.
    first: usize,
}

// SAFETY: it starts no product.
unsafe impl TileEpilogue<i32> for StoreFloat16<'_> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        self.first = panels.start / 2 * self.product.x.scales.len();
        // SAFETY: `multiply_to_float16`, which makes these, has the instructions; the caller guarantees panels of the product.
        self.panels = unsafe { PanelEpilogue::of_both(self.product, panels) };
        true
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, [left, right]: &[[i32; LANES]; 2]) {
        let to = &mut self.out[self.first + row];
        // SAFETY: as above; a row of the product; both stores are of 16 numbers of 16 bits.
        unsafe {
            let scale = *self.product.x.scales.get_unchecked(row);
            let (to_left, to_right) = to.split_at_mut(LANES);
            let float16 = |panel: PanelEpilogue, sums| {
                let outputs = panel.scales.apply_with_floor(panel.add_up(sums), scale);
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(outputs)
            };
            _mm256_storeu_si256(to_left.as_mut_ptr().cast(), float16(self.panels[0], left));
            _mm256_storeu_si256(to_right.as_mut_ptr().cast(), float16(self.panels[1], right));
        }
    }
}

/// Feeds outputs to a score sink.
struct FeedSink<'a, S: ScoreSink> {
    product: Product<'a>,
    panels: [PanelEpilogue; 2],
    /// Indices of the panels of the current block.
    range: Range<usize>,
    register_sink: Option<S::RegisterSink>,
    /// Mask of the current block's rows that the register sink has accepted.
    accepted: u32,
    /// Bit of the next row in that mask.
    bit: u32,
    sink: &'a mut S,
}

// SAFETY: it starts no product, and nor does a `ScoreSink`.
unsafe impl<S: ScoreSink> TileEpilogue<i32> for FeedSink<'_, S> {
    #[inline(always)]
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool {
        // SAFETY: `multiply_to_sink`, which makes these, has the instructions; the caller guarantees panels of the product.
        self.panels = unsafe { PanelEpilogue::of_both(self.product, panels.clone()) };
        self.range = panels;
        self.register_sink = self.sink.register_sink(self.column());
        (self.accepted, self.bit) = (0, 1);
        self.register_sink.is_some()
    }

    #[inline(always)]
    unsafe fn row(&mut self, row: usize, sums: &[[i32; LANES]; 2]) {
        let Some(register_sink) = self.register_sink else { return };
        // SAFETY: as above; a row of the product, of which `sink` has as many, and which has not been used since `begin`.
        let accepted = unsafe {
            let scale = *self.product.x.scales.get_unchecked(row);
            register_sink.accept(row, PanelEpilogue::piece(self.panels, sums, scale))
        };
        self.accepted |= self.bit & 0u32.wrapping_sub(u32::from(accepted));
        self.bit <<= 1;
    }

    #[inline(always)]
    unsafe fn end(&mut self, row: usize, sums: &[[[i32; LANES]; 2]]) {
        let refused = !self.accepted & u32::MAX >> (u32::BITS - sums.len() as u32);
        // Not in the loop of rows: with a call in it, the compiler would keep nothing in registers.
        if refused != 0 {
            // SAFETY: as above; `begin` got panels of the product.
            unsafe {
                take_refused(
                    (self.product, self.range.clone()),
                    (row, sums),
                    (refused, self.register_sink.is_some()),
                    self.sink,
                )
            };
        }
        self.sink.end(row..row + sums.len(), self.column());
    }
}

impl<S: ScoreSink> FeedSink<'_, S> {
    fn column(&self) -> usize {
        (self.product.first_panel + self.range.start) * LANES
    }
}

/// Passes the refused pieces of rows from `first` on to the sink. It takes the fields it needs, and not a `FeedSink`, so that the
/// others stay in registers.
///
/// # Safety
/// They are panels of the product.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
#[cold]
#[inline(never)]
unsafe fn take_refused(
    (product, panels): (Product<'_>, Range<usize>),
    (first, sums): (usize, &[[[i32; LANES]; 2]]),
    (mut refused, offered): (u32, bool),
    sink: &mut impl ScoreSink,
) {
    let column = (product.first_panel + panels.start) * LANES;
    // SAFETY: guaranteed by the caller.
    let panels = unsafe { PanelEpilogue::of_both(product, panels) };
    while refused != 0 {
        let i = refused.trailing_zeros() as usize;
        let piece = PanelEpilogue::piece(panels, &sums[i], product.x.scales[first + i]);
        let threshold = _mm512_set1_ps(sink.threshold(first + i));
        let above =
            piece.map(|panel| u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(panel, threshold)));
        // SAFETY: a register is sixteen floats.
        let piece = unsafe { std::mem::transmute::<[__m512; 2], Piece>(piece) };
        sink.take_piece::<true>(first + i, column, (piece, above[0] | above[1] << LANES), offered);
        refused &= refused - 1;
    }
}

fn tile_product(product: Product<'_>) -> TileProduct {
    let (x, packed, first) = (product.x, product.packed, product.first_panel);
    let rows = x.scales.len();
    assert!(x.memory.len() >= rows.next_multiple_of(TILE_ROWS) * x.stride, "whole tiles");
    TileProduct {
        inputs: x.memory.as_ptr(),
        layout: x.layout,
        rows,
        weights: packed.lines[first * packed.groups()..].as_ptr().cast(),
        panels: product.panels,
        steps: x.stride / 64,
        prefetch: product.prefetch,
    }
}

/// Converts a panel's sums to outputs.
#[derive(Clone, Copy)]
struct PanelEpilogue {
    scales: Scales,
    /// The initial sums.
    starts: __m512i,
    /// The columns that exist.
    lanes: __mmask16,
}

/// A placeholder before the first block.
// SAFETY: numbers and a mask, which may be zero.
const NO_PANELS: [PanelEpilogue; 2] = unsafe { std::mem::zeroed() };

impl PanelEpilogue {
    /// Those of one or two panels. Where there is no second panel, none of its columns exists.
    ///
    /// # Safety
    /// They are panels of `product`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn of_both(product: Product<'_>, panels: Range<usize>) -> [PanelEpilogue; 2] {
        // Columns that do not exist become negative infinity.
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        // SAFETY: guaranteed by the caller.
        let of_panel = |panel: usize, columns: usize| unsafe {
            let mut scales = Scales::of(product, panel);
            let lanes = lanes_of(columns);
            scales.bias = _mm512_mask_mov_ps(none, lanes, scales.bias);
            let starts = product.packed.starts[product.first_panel + panel].0.as_ptr();
            PanelEpilogue { scales, starts: _mm512_loadu_si512(starts.cast()), lanes }
        };
        let columns = product.width - panels.start * LANES;
        [of_panel(panels.start, columns), of_panel(panels.end - 1, columns.saturating_sub(LANES))]
    }

    /// A row's outputs of both panels.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn piece(
        [l, r]: [PanelEpilogue; 2],
        [left, right]: &[[i32; LANES]; 2],
        scale: f32,
    ) -> [__m512; 2] {
        [l.scales.apply(l.add_up(left), scale), r.scales.apply(r.add_up(right), scale)]
    }

    /// Stores a row's outputs of the panel.
    ///
    /// # Safety
    /// There is room for the panel's columns at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(self, sums: &[i32; LANES], scale: f32, to: *mut f32) {
        let outputs = self.scales.apply_with_floor(self.add_up(sums), scale);
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_mask_storeu_ps(to, self.lanes, outputs) };
    }

    /// A row's sums of the panel, the initial ones included.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn add_up(self, sums: &[i32; LANES]) -> __m512i {
        // SAFETY: sixteen integers.
        let sums = unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
        _mm512_add_epi32(sums, self.starts)
    }
}
