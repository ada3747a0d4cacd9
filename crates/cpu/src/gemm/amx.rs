//! Products with the AMX tile registers, in assembly: Rust has no stable intrinsics for them.
//!
//! An AMX tile is 16 rows of 64 bytes. Four tiles of sums (16 rows of inputs by 16 outputs each) are computed from two tiles of
//! inputs and two of weights:
//!
//! ```text
//!                 weights 6 │ weights 7        one step: 64 bytes of every input row,
//!     inputs 4  │  sums 0   │  sums 1          16 lines of a panel
//!     inputs 5  │  sums 2   │  sums 3
//! ```
//!
//! Cost: four tile products for four tile loads, 16 · 16 · 64 multiply-adds each. Tiles are always whole: sums of rows that do not
//! exist are ignored. All rows are multiplied with two panels before the next two, which are prefetched meanwhile
//! (`Operands::prefetch_at`), some lines at every step.
//!
//! L1 cannot hold the inputs of many rows and two panels as well. It keeps the inputs where they leave room for weights
//! (`MAX_L1_INPUTS`), else the panels; the other is loaded with the non-temporal hint (`tileloaddt1`).
//!
//! The epilogue of a block is computed one block later, interleaved with tile products: a tile product, then the outputs of a row.
//! The processor overlaps the two only if they are close to each other: with the four products of a step together, followed by
//! four rows, the same loop takes 40 % longer if the epilogue of a row takes many instructions, and in any case while the sibling
//! hyper-thread is busy.
//!
//! Tiles keep their contents from one `asm!` to the next, although the compiler does not model that: AMX is not among its enabled
//! target features, so no code that it generates, and no function called in between, has an instruction that changes them.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::gemm::tiles::InputLayout;
use crate::isa::amx::{TILE_BYTES as BYTES, TILE_ROWS as ROWS};
use crate::memory::prefetch::{CACHE_LINE, prefetch_line};

/// Every second cache line is prefetched: the adjacent-line prefetcher fetches the other of a pair, and more prefetches would take
/// the buffers that loads from L2 need.
const LINE_PAIR: usize = 2 * CACHE_LINE;
/// Pairs of cache lines of two panels that a step reads.
const STEP_PAIRS: usize = ROWS;

/// Shapes of the eight tiles in the format of `ldtilecfg`.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight whole tiles.
static WHOLE: Shapes = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        row_bytes[tile] = BYTES as u16;
        rows[tile] = ROWS as u8;
        tile += 1;
    }
    Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// The configured tiles of this thread. Dropping it releases them.
pub(crate) struct Tiles(());

impl Tiles {
    /// # Safety
    /// [`available`](crate::isa::amx::available) has returned true, and this thread has no other `Tiles`.
    unsafe fn new() -> Tiles {
        // SAFETY: 64 readable bytes in the format of the instruction.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &WHOLE, options(nostack, readonly)) };
        Tiles(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles were available when this was made.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Up to so many bytes of inputs, L1 keeps the inputs and not the weights.
const MAX_L1_INPUTS: usize = 32 << 10;

/// Rows of inputs times panels of weights.
#[derive(Clone, Copy)]
pub(crate) struct TileProduct {
    /// Address of the first row of inputs.
    pub(crate) inputs: *const u8,
    pub(crate) layout: InputLayout,
    /// Number of rows. Tiles are loaded whole, so memory must be readable up to a multiple of 16 rows.
    pub(crate) rows: usize,
    /// Address of the first panel.
    pub(crate) weights: *const u8,
    /// Number of panels.
    pub(crate) panels: usize,
    /// Number of steps, each of 64 bytes of every input row.
    pub(crate) steps: usize,
    /// Whether the next panels are prefetched.
    pub(crate) prefetch: bool,
}

/// The epilogue of a product, block by block. It is inlined into the loop of tile products: state that is not in a register makes
/// the products wait for memory.
///
/// # Safety
/// No function starts another product, as the tiles are in use.
pub(crate) unsafe trait TileEpilogue<T> {
    /// Begins a block: some rows of these panels, one or two. Returns whether [`TileEpilogue::row`] is to be called.
    ///
    /// # Safety
    /// They are panels of the product.
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool;

    /// Consumes the sums of a row. There are sums of two panels even if the block has one.
    ///
    /// # Safety
    /// It is a row of the product, and `begin` was called for its panels.
    unsafe fn row(&mut self, row: usize, sums: &[[T; 16]; 2]);

    /// Ends a block, whose first row is `row`.
    ///
    /// # Safety
    /// As for [`TileEpilogue::row`].
    #[inline(always)]
    unsafe fn end(&mut self, _row: usize, _sums: &[[[T; 16]; 2]]) {}
}

impl TileProduct {
    /// Computes the product and runs the epilogue on all sums.
    ///
    /// # Safety
    /// [`available`](crate::isa::amx::available) has returned true; rows and panels are whole steps long and at the addresses in `self`, and `epilogue` was made for them.
    #[inline(always)]
    pub(crate) unsafe fn multiply<T: Accumulator>(self, epilogue: &mut impl TileEpilogue<T>) {
        let Some(mut previous) = self.block_from(0, 0) else { return };
        // SAFETY: the caller guarantees AMX.
        let tiles = unsafe { Tiles::new() };
        let pairs = self.pairs_to_prefetch();
        let mut sums = [const { MaybeUninit::<Sums<T>>::uninit() }; 2];
        let (mut to, mut from) = sums.split_at_mut(1);
        // SAFETY: guaranteed by the caller; a buffer holds four tiles, only sums that were stored are read, and blocks are of rows
        // and panels of the product.
        unsafe {
            tiles.zero();
            self.operands(previous, pairs).remaining::<T>(self.steps);
            tiles.store(to[0].as_mut_ptr().cast());
            while let Some(block) = self.block_from(previous.row + previous.rows, previous.panel) {
                (to, from) = (from, to);
                tiles.zero();
                let (mut operands, mut steps) = (self.operands(block, pairs), self.steps);
                let sums = previous.sums(from[0].as_ptr());
                if epilogue.begin(previous.panels()) {
                    steps = match (operands.keep_weights, operands.two_row_tiles) {
                        (true, true) => operands.interleave::<T, true, true>(
                            steps,
                            previous.row,
                            sums,
                            epilogue,
                        ),
                        (true, false) => operands.interleave::<T, true, false>(
                            steps,
                            previous.row,
                            sums,
                            epilogue,
                        ),
                        (false, true) => operands.interleave::<T, false, true>(
                            steps,
                            previous.row,
                            sums,
                            epilogue,
                        ),
                        (false, false) => operands.interleave::<T, false, false>(
                            steps,
                            previous.row,
                            sums,
                            epilogue,
                        ),
                    };
                }
                if steps > 0 {
                    operands.remaining::<T>(steps);
                }
                epilogue.end(previous.row, sums);
                tiles.store(to[0].as_mut_ptr().cast());
                previous = block;
            }
            let sums = previous.sums(to[0].as_ptr());
            if epilogue.begin(previous.panels()) {
                (previous.row..).zip(sums).for_each(|(row, sums)| epilogue.row(row, sums));
            }
            epilogue.end(previous.row, sums);
        }
    }

    /// The block that begins there. All rows are multiplied with two panels before the next two.
    #[inline(always)]
    fn block_from(&self, row: usize, panel: usize) -> Option<Block> {
        let (row, panel) = if row < self.rows { (row, panel) } else { (0, panel + 2) };
        (self.rows > 0 && panel < self.panels).then(|| Block {
            row,
            rows: (self.rows - row).min(2 * ROWS),
            panel,
            panels: (self.panels - panel).min(2),
        })
    }

    fn panel_bytes(&self) -> usize {
        self.steps * ROWS * BYTES
    }

    /// Pairs of cache lines that a block prefetches at every step: the next two panels' share of a block.
    fn pairs_to_prefetch(&self) -> usize {
        let blocks = self.rows.div_ceil(2 * ROWS);
        if self.prefetch { STEP_PAIRS.div_ceil(blocks).next_power_of_two() } else { 0 }
    }

    #[inline(always)]
    fn operands(&self, block: Block, pairs: usize) -> Operands {
        let (row, left, right) = (block.row, block.panel, block.panels().end - 1);
        let panel = |panel: usize| self.weights.wrapping_add(panel * self.panel_bytes());
        let first_pair = row / (2 * ROWS) * pairs;
        let prefetch_at = panel(left + 2).wrapping_add(first_pair * self.steps * LINE_PAIR);
        let row_bytes = self.steps * BYTES;
        let (stride, advance) = match self.layout {
            InputLayout::RowMajor => (row_bytes, BYTES),
            InputLayout::AmxTiles => (BYTES, ROWS * BYTES),
        };
        Operands {
            upper: self.inputs.wrapping_add(row * row_bytes),
            lower: self.inputs.wrapping_add((row + ROWS) * row_bytes),
            stride,
            advance,
            keep_weights: self.rows * row_bytes > MAX_L1_INPUTS,
            two_row_tiles: block.rows > ROWS,
            panels: [panel(left), panel(right)],
            prefetch_at,
            pairs: if first_pair < STEP_PAIRS { pairs } else { 0 },
        }
    }
}

/// Up to 32 rows and two panels.
#[derive(Clone, Copy)]
struct Block {
    row: usize,
    rows: usize,
    panel: usize,
    panels: usize,
}

impl Block {
    #[inline(always)]
    fn panels(&self) -> Range<usize> {
        self.panel..self.panel + self.panels
    }

    /// # Safety
    /// The sums of the block's rows are stored there.
    #[inline(always)]
    unsafe fn sums<'a, T>(&self, sums: *const Sums<T>) -> &'a [[[T; 16]; 2]] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(sums.cast(), self.rows) }
    }
}

/// Four tiles of sums: for each row, those of both panels.
#[repr(C, align(64))]
struct Sums<T>([[[T; 16]; 2]; 2 * ROWS]);

/// The operands of a block's next step.
#[derive(Clone, Copy)]
struct Operands {
    /// Inputs of the first 16 rows.
    upper: *const u8,
    /// Inputs of the next 16 rows.
    lower: *const u8,
    /// Whether the block has more than 16 rows.
    two_row_tiles: bool,
    /// Bytes from one row to the next.
    stride: usize,
    /// Bytes from one step to the next.
    advance: usize,
    panels: [*const u8; 2],
    /// Whether L1 is to keep the weights, or else the inputs.
    keep_weights: bool,
    /// Address of the weights to prefetch next.
    prefetch_at: *const u8,
    /// Pairs of cache lines to prefetch at every step.
    pairs: usize,
}

/// Loads a tile of rows that are `$stride` bytes apart. With `$keep`, L1 keeps them.
macro_rules! load {
    (by $load:literal, $tile:tt, $from:expr, $stride:expr) => {
        asm!(
            concat!($load, " ", $tile, ", [{from} + {stride}*1]"),
            from = in(reg) $from,
            stride = in(reg) $stride,
            out($tile) _,
            options(nostack, readonly),
        )
    };
    ($tile:tt, $from:expr, $stride:expr, $keep:expr) => {
        if $keep {
            load!(by "tileloadd", $tile, $from, $stride)
        } else {
            load!(by "tileloaddt1", $tile, $from, $stride)
        }
    };
}

impl Operands {
    /// Runs the epilogue on the sums of the previous block, interleaved with steps of this one: a row behind each of the four
    /// products of a step. The other steps are spread evenly. Returns the number of steps left.
    ///
    /// # Safety
    /// As [`Operands::product`]; `sums` are those of the product's rows from `row` on, for whose panels the epilogue has begun.
    #[inline(always)]
    unsafe fn interleave<T: Accumulator, const KEEP_WEIGHTS: bool, const TWO_ROW_TILES: bool>(
        &mut self,
        mut steps: usize,
        mut row: usize,
        sums: &[[[T; 16]; 2]],
        epilogue: &mut impl TileEpilogue<T>,
    ) -> usize {
        let (fours, rest) = sums.as_chunks::<4>();
        let share = steps / fours.len().max(1);
        // Where there are more groups of four rows than steps, some come without a step.
        let gap = fours.len().div_ceil(steps.max(1));
        let mut wait = 0;
        for four in fours {
            if wait == 0 && steps > 0 {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 0>();
                    epilogue.row(row, &four[0]);
                    self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 1>();
                    epilogue.row(row + 1, &four[1]);
                    self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 2>();
                    epilogue.row(row + 2, &four[2]);
                    self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 3>();
                    epilogue.row(row + 3, &four[3]);
                    for _ in 1..share {
                        self.step::<T, KEEP_WEIGHTS, TWO_ROW_TILES>();
                    }
                }
                steps -= share.max(1);
                wait = gap;
            } else {
                // SAFETY: guaranteed by the caller.
                (row..).zip(four).for_each(|(row, sums)| unsafe { epilogue.row(row, sums) });
            }
            wait = wait.saturating_sub(1);
            row += 4;
        }
        // SAFETY: guaranteed by the caller.
        (row..).zip(rest).for_each(|(row, sums)| unsafe { epilogue.row(row, sums) });
        steps
    }

    /// Computes so many steps.
    ///
    /// # Safety
    /// As [`Operands::product`].
    #[inline(never)]
    unsafe fn remaining<T: Accumulator>(mut self, steps: usize) {
        for _ in 0..steps {
            // SAFETY: guaranteed by the caller.
            unsafe {
                match (self.keep_weights, self.two_row_tiles) {
                    (true, true) => self.step::<T, true, true>(),
                    (true, false) => self.step::<T, true, false>(),
                    (false, true) => self.step::<T, false, true>(),
                    (false, false) => self.step::<T, false, false>(),
                }
            }
        }
    }

    /// Computes a step.
    ///
    /// # Safety
    /// As [`Operands::product`].
    #[inline(always)]
    unsafe fn step<T: Accumulator, const KEEP_WEIGHTS: bool, const TWO_ROW_TILES: bool>(&mut self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 0>();
            self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 1>();
            self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 2>();
            self.product::<T, KEEP_WEIGHTS, TWO_ROW_TILES, 3>();
        }
    }

    /// Computes one of the four tile products of a step. The last two are those of the lower rows, if there are any. Operands are
    /// loaded before the first two.
    ///
    /// # Safety
    /// This thread has the tiles, and there are rows, `stride` apart, and panels of 16 lines of 64 bytes.
    #[inline(always)]
    unsafe fn product<
        T: Accumulator,
        const KEEP_WEIGHTS: bool,
        const TWO_ROW_TILES: bool,
        const WHICH: usize,
    >(
        &mut self,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match WHICH {
                0 => {
                    load!("tmm6", self.panels[0], BYTES, KEEP_WEIGHTS);
                    load!("tmm4", self.upper, self.stride, !KEEP_WEIGHTS);
                    T::upper_left();
                }
                1 => {
                    load!("tmm7", self.panels[1], BYTES, KEEP_WEIGHTS);
                    if TWO_ROW_TILES {
                        load!("tmm5", self.lower, self.stride, !KEEP_WEIGHTS);
                    }
                    T::upper_right();
                }
                2 if TWO_ROW_TILES => T::lower_left(),
                3 if TWO_ROW_TILES => T::lower_right(),
                _ => {}
            }
        }
        if WHICH == 3 {
            self.next_step();
        }
    }

    /// Advances to the next 64 bytes of every row and prefetches this step's share of the next panels.
    #[inline(always)]
    fn next_step(&mut self) {
        self.upper = self.upper.wrapping_add(self.advance);
        self.lower = self.lower.wrapping_add(self.advance);
        self.panels = self.panels.map(|panel| panel.wrapping_add(ROWS * BYTES));
        for _ in 0..self.pairs {
            prefetch_line(self.prefetch_at);
            self.prefetch_at = self.prefetch_at.wrapping_add(LINE_PAIR);
        }
    }
}

impl Tiles {
    /// Sets all sums to zero.
    #[inline(always)]
    fn zero(&self) {
        // SAFETY: this thread has tiles.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, nomem),
            );
        }
    }

    /// Stores the sums.
    ///
    /// # Safety
    /// There is room for four tiles.
    unsafe fn store(&self, sums: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            asm!(
                "tilestored [{sums} + {row}*1], tmm0",
                "tilestored [{sums} + {row}*1 + 64], tmm1",
                "tilestored [{lower} + {row}*1], tmm2",
                "tilestored [{lower} + {row}*1 + 64], tmm3",
                sums = in(reg) sums,
                lower = in(reg) sums.wrapping_add(ROWS * 2 * BYTES),
                row = in(reg) 2 * BYTES,
                options(nostack),
            );
        }
    }
}

/// The type of sums, which decides the instruction for tile products: int32 for int8 inputs, float32 for bfloat16 inputs. The
/// functions are the products of a step, of loaded tiles.
pub(crate) trait Accumulator: Copy + 'static {
    /// Adds the upper rows times the first panel.
    ///
    /// # Safety
    /// This thread has tiles.
    unsafe fn upper_left();

    /// Adds the upper rows times the other panel.
    ///
    /// # Safety
    /// This thread has tiles.
    unsafe fn upper_right();

    /// Adds the lower rows times the first panel.
    ///
    /// # Safety
    /// This thread has tiles.
    unsafe fn lower_left();

    /// Adds the lower rows times the other panel.
    ///
    /// # Safety
    /// This thread has tiles.
    unsafe fn lower_right();
}

macro_rules! sums {
    ($sum:ty, $product:literal) => {
        impl Accumulator for $sum {
            sums!(upper_left, $product, "tmm0", "tmm4", "tmm6");
            sums!(upper_right, $product, "tmm1", "tmm4", "tmm7");
            sums!(lower_left, $product, "tmm2", "tmm5", "tmm6");
            sums!(lower_right, $product, "tmm3", "tmm5", "tmm7");
        }
    };
    ($name:ident, $product:literal, $sums:tt, $inputs:literal, $weights:literal) => {
        #[inline(always)]
        unsafe fn $name() {
            // SAFETY: guaranteed by the caller.
            unsafe {
                asm!(
                    concat!($product, " ", $sums, ", ", $inputs, ", ", $weights),
                    out($sums) _,
                    options(nostack, nomem),
                );
            }
        }
    };
}

// Unsigned bytes of inputs times signed bytes of weights, summed exactly in int32.
sums!(i32, "tdpbusd");
// bfloat16 inputs times bfloat16 weights: see `bfloat16` for the order of additions.
sums!(f32, "tdpbf16ps");
