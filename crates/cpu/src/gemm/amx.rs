//! The tile registers of AMX, by hand: compilers have no stable names for them.
//!
//! A tile is 16 rows of 64 bytes. Four tiles of sums (16 rows of inputs by 16 outputs each) are fed by
//! two tiles of inputs and two of weights:
//!
//! ```text
//!                 weights 6 │ weights 7        one step: 64 bytes of every input row,
//!     inputs 4  │  sums 0   │  sums 1          16 lines of a panel
//!     inputs 5  │  sums 2   │  sums 3
//! ```
//!
//! Cost: four products of tiles for four loads, 16 · 16 · 64 multiply-adds each. Tiles are always whole: what
//! is computed of rows that do not exist is not looked at. All rows go through two panels before the next two, which are asked
//! for meanwhile (see `ahead`), some at every step.
//!
//! The first cache has no room for both the inputs of many rows and two panels. Which are needed again sooner depends on the
//! number of rows; the others are loaded with the word that it need not keep them (`tileloaddt1`).
//!
//! Sums are turned into outputs one block late, while tiles are multiplied: a product of two tiles, then the outputs of a row.
//! The processor does both at a time only if one comes soon enough behind the other: with the four products of a step in one
//! go, and then four rows, the same loop takes 40 % longer if a row takes many instructions, and where the core's other half is
//! busy in any case.
//!
//! Tiles keep their contents from one `asm!` to the next, although nothing tells the compiler so: it was not told that the
//! processor has them, so it has no instruction that could change them, and no function that is called in between has one.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use crate::gemm::tiles::{Order, TILE_ROWS};
use crate::memory::prefetch::{self, LINE, PAGE, PAGES, RUN};

/// Rows of a tile.
pub(crate) const ROWS: usize = TILE_ROWS;
/// Bytes of a tile's row.
pub(crate) const BYTES: usize = 64;
/// Bytes of lines that are asked for together, one of every page.
const EIGHT: usize = LINE * PAGES;
/// Lines of two panels that a step reads.
const STEP_LINES: usize = 2 * ROWS;

/// Whether the processor has tiles for bytes and bfloat16 and the system lets this process use them.
/// Asked once: the answer is for the whole process. Unit tests emulate tiles where there are none.
pub(crate) fn available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let real = in_processor() && in_system() && permitted();
        #[cfg(all(test, target_os = "linux"))]
        let real = real || crate::emulated::installed();
        real
    })
}

/// Bits 22, 24 and 25 of `edx` in leaf 7: AMX-BF16, AMX-TILE, AMX-INT8.
fn in_processor() -> bool {
    const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    std::arch::x86_64::__cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
}

/// Bits 17 and 18 of XCR0: the system saves the tiles' shapes and contents.
fn in_system() -> bool {
    const BITS: u64 = 1 << 17 | 1 << 18;
    #[target_feature(enable = "xsave")]
    fn enabled() -> u64 {
        // SAFETY: there is a register 0 wherever there is the instruction.
        unsafe { _xgetbv(0) }
    }
    // SAFETY: the feature was just asked for.
    is_x86_feature_detected!("xsave") && unsafe { enabled() } & BITS == BITS
}

/// Linux wants to be asked before a process uses tiles: `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes two numbers and touches no memory of ours; `rcx` and `r11` are what a
    // system call may change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// Shapes of the eight tiles, as `ldtilecfg` reads them.
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

/// The tiles in use by this thread. They are given up when this is dropped.
pub(crate) struct Tiles(());

impl Tiles {
    /// # Safety
    /// [`available`] has said yes, and this thread has no other `Tiles`.
    unsafe fn new() -> Tiles {
        // SAFETY: 64 readable bytes in the layout the instruction wants.
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

/// Most rows whose inputs stay in the first cache, while weights do not.
const KEPT_ROWS: usize = 48;

/// Rows of inputs times panels of weights.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    /// First of the rows of inputs,
    pub(crate) inputs: *const u8,
    /// where the others are,
    pub(crate) order: Order,
    /// and how many they are. Tiles are loaded whole: up to a multiple of 16, there is memory that may be read.
    pub(crate) rows: usize,
    /// First of the panels,
    pub(crate) weights: *const u8,
    /// and how many they are.
    pub(crate) panels: usize,
    /// What the sums of the first panel begin with, a line; those of the others are behind it. Without, sums begin at zero.
    pub(crate) starts: Option<*const u8>,
    /// Steps of 64 bytes of inputs.
    pub(crate) steps: usize,
    /// Whether the next panels are prefetched.
    pub(crate) prefetch: bool,
}

/// Who makes something of sums, a block after the other. All of it becomes one loop with the products: what is not in a register
/// there has them wait for memory.
///
/// # Safety
/// Its functions leave the tiles alone, which are in use while they are called: they start no other product.
pub(crate) unsafe trait Finish<T> {
    /// Sums of some rows and of these panels, one or two, come next. Tells whether they are wanted a row after the other.
    ///
    /// # Safety
    /// They are panels of the product.
    unsafe fn begin(&mut self, panels: Range<usize>) -> bool;

    /// Takes those of a row. There are sums of two panels in any case.
    ///
    /// # Safety
    /// It is a row of the product, and `begin` was told the panels.
    unsafe fn row(&mut self, row: usize, sums: &[[T; 16]; 2]);

    /// Those were all, of rows from the given one on.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn end(&mut self, _row: usize, _sums: &[[[T; 16]; 2]]) {}
}

impl Product {
    /// Hands all sums to `finish`.
    ///
    /// # Safety
    /// [`available`] has said yes; rows and panels are whole steps long and where `self` says, and `finish` was made for them.
    #[inline(always)]
    pub(crate) unsafe fn multiply<T: Sum>(self, finish: &mut impl Finish<T>) {
        let Some(mut late) = self.block_from(0, 0) else { return };
        // SAFETY: the caller vouches for tiles.
        let tiles = unsafe { Tiles::new() };
        let turns = self.turns();
        let mut sums = [const { MaybeUninit::<Sums<T>>::uninit() }; 2];
        let (mut to, mut from) = sums.split_at_mut(1);
        // SAFETY: what the caller vouches for; four tiles fit, of a block's sums only those that were stored are looked at, and
        // blocks are of rows and panels of the product.
        unsafe {
            tiles.begin(self.starts_of(late));
            self.feed(late, turns).rest::<T>(self.steps);
            tiles.store(to[0].as_mut_ptr().cast());
            while let Some(block) = self.block_from(late.row + late.rows, late.panel) {
                (to, from) = (from, to);
                tiles.begin(self.starts_of(block));
                let (mut feed, mut steps) = (self.feed(block, turns), self.steps);
                let sums = late.sums(from[0].as_ptr());
                if finish.begin(late.panels()) {
                    steps = match (feed.keep_weights, feed.both) {
                        (true, true) => feed.finish::<T, true, true>(steps, late.row, sums, finish),
                        (true, false) => {
                            feed.finish::<T, true, false>(steps, late.row, sums, finish)
                        }
                        (false, true) => {
                            feed.finish::<T, false, true>(steps, late.row, sums, finish)
                        }
                        (false, false) => {
                            feed.finish::<T, false, false>(steps, late.row, sums, finish)
                        }
                    };
                }
                if steps > 0 {
                    feed.rest::<T>(steps);
                }
                finish.end(late.row, sums);
                tiles.store(to[0].as_mut_ptr().cast());
                late = block;
            }
            let sums = late.sums(to[0].as_ptr());
            if finish.begin(late.panels()) {
                (late.row..).zip(sums).for_each(|(row, sums)| finish.row(row, sums));
            }
            finish.end(late.row, sums);
        }
    }

    /// The block that begins there. All rows go through two panels before the next two.
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

    /// Where the sums of a block's panels begin. Where there is no second panel the first is computed twice.
    #[inline(always)]
    fn starts_of(&self, block: Block) -> Option<[*const u8; 2]> {
        let of = |starts: *const u8, panel: usize| starts.wrapping_add(panel * BYTES);
        self.starts.map(|starts| [of(starts, block.panel), of(starts, block.panels().end - 1)])
    }

    /// How blocks take turns in asking for weights.
    fn turns(&self) -> Turns {
        let share = STEP_LINES.div_ceil(self.rows.div_ceil(2 * ROWS)).next_power_of_two();
        let lines = if self.prefetch { share } else { 0 };
        // Where two panels are more than a run, what comes after the first run is being read already.
        let behind = (2 * self.panel_bytes()).saturating_sub(RUN) / RUN * RUN;
        Turns { lines, behind }
    }

    #[inline(always)]
    fn feed(&self, block: Block, Turns { lines, behind }: Turns) -> Feed {
        let (row, left, right) = (block.row, block.panel, block.panels().end - 1);
        let panel = |panel: usize| self.weights.wrapping_add(panel * self.panel_bytes());
        let turn = row / (2 * ROWS) * lines;
        let read = panel(left).wrapping_add(turn / PAGES * self.steps * EIGHT);
        let soon = prefetch::target(read.wrapping_sub(read as usize % EIGHT)).wrapping_add(behind);
        let (row_bytes, keep_weights) = (self.steps * BYTES, self.rows > KEPT_ROWS);
        let (stride, advance) = match self.order {
            Order::Rows => (row_bytes, BYTES),
            Order::Tiles => (BYTES, ROWS * BYTES),
        };
        Feed {
            upper: self.inputs.wrapping_add(row * row_bytes),
            lower: self.inputs.wrapping_add((row + ROWS) * row_bytes),
            stride,
            advance,
            keep_weights,
            both: block.rows > ROWS,
            panels: [panel(left), panel(right)],
            soon: soon.wrapping_add(turn % PAGES * PAGE),
            lines: if turn < STEP_LINES { lines } else { 0 },
        }
    }
}

/// How many lines a block asks for at every step, and how far ahead.
#[derive(Clone, Copy)]
struct Turns {
    lines: usize,
    behind: usize,
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
    /// The sums of its rows are stored there.
    #[inline(always)]
    unsafe fn sums<'a, T>(&self, sums: *const Sums<T>) -> &'a [[[T; 16]; 2]] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(sums.cast(), self.rows) }
    }
}

/// Four tiles of sums, a row of both panels after the other.
#[repr(C, align(64))]
struct Sums<T>([[[T; 16]; 2]; 2 * ROWS]);

/// What the next products of a block are computed from.
#[derive(Clone, Copy)]
struct Feed {
    /// Inputs of the first 16 rows,
    upper: *const u8,
    /// and of the others,
    lower: *const u8,
    /// if there are more,
    both: bool,
    /// bytes from one row to the next,
    stride: usize,
    /// and from one step to the next.
    advance: usize,
    panels: [*const u8; 2],
    /// Whether the first cache is to keep weights or inputs.
    keep_weights: bool,
    /// Weights that are wanted next, see [`ahead`],
    soon: *const u8,
    /// and how many lines of them to ask for at every step.
    lines: usize,
}

/// Loads a tile of rows that are so far apart. It is kept in the first cache or not.
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

impl Feed {
    /// Has the sums of another block finished, each row behind a product: four rows come with a step, and with as many more as are
    /// their share of so many steps. Tells how many are left.
    ///
    /// # Safety
    /// As below; they are sums of the product's rows from the given one on, of whose panels `finish` was told.
    #[inline(always)]
    unsafe fn finish<T: Sum, const KEEP_WEIGHTS: bool, const BOTH: bool>(
        &mut self,
        mut steps: usize,
        mut row: usize,
        sums: &[[[T; 16]; 2]],
        finish: &mut impl Finish<T>,
    ) -> usize {
        let (fours, rest) = sums.as_chunks::<4>();
        let share = steps / fours.len().max(1);
        // Where there are more fours than steps, some come alone.
        let gap = fours.len().div_ceil(steps.max(1));
        let mut wait = 0;
        for four in fours {
            if wait == 0 && steps > 0 {
                // SAFETY: the caller's.
                unsafe {
                    self.product::<T, KEEP_WEIGHTS, BOTH, 0>();
                    finish.row(row, &four[0]);
                    self.product::<T, KEEP_WEIGHTS, BOTH, 1>();
                    finish.row(row + 1, &four[1]);
                    self.product::<T, KEEP_WEIGHTS, BOTH, 2>();
                    finish.row(row + 2, &four[2]);
                    self.product::<T, KEEP_WEIGHTS, BOTH, 3>();
                    finish.row(row + 3, &four[3]);
                    for _ in 1..share {
                        self.step::<T, KEEP_WEIGHTS, BOTH>();
                    }
                }
                steps -= share.max(1);
                wait = gap;
            } else {
                // SAFETY: the caller's.
                (row..).zip(four).for_each(|(row, sums)| unsafe { finish.row(row, sums) });
            }
            wait = wait.saturating_sub(1);
            row += 4;
        }
        // SAFETY: the caller's.
        (row..).zip(rest).for_each(|(row, sums)| unsafe { finish.row(row, sums) });
        steps
    }

    /// So many steps.
    ///
    /// # Safety
    /// As below.
    #[inline(never)]
    unsafe fn rest<T: Sum>(mut self, steps: usize) {
        for _ in 0..steps {
            // SAFETY: the caller's.
            unsafe {
                match (self.keep_weights, self.both) {
                    (true, true) => self.step::<T, true, true>(),
                    (true, false) => self.step::<T, true, false>(),
                    (false, true) => self.step::<T, false, true>(),
                    (false, false) => self.step::<T, false, false>(),
                }
            }
        }
    }

    /// A step.
    ///
    /// # Safety
    /// As below.
    #[inline(always)]
    unsafe fn step<T: Sum, const KEEP_WEIGHTS: bool, const BOTH: bool>(&mut self) {
        // SAFETY: the caller's.
        unsafe {
            self.product::<T, KEEP_WEIGHTS, BOTH, 0>();
            self.product::<T, KEEP_WEIGHTS, BOTH, 1>();
            self.product::<T, KEEP_WEIGHTS, BOTH, 2>();
            self.product::<T, KEEP_WEIGHTS, BOTH, 3>();
        }
    }

    /// One of the four products of a step, of which the last two are of the lower rows, if there are any. What is wanted next is
    /// loaded before the first two.
    ///
    /// # Safety
    /// This thread has the tiles, and there are rows, `stride` apart, and panels of 16 lines of 64 bytes.
    #[inline(always)]
    unsafe fn product<T: Sum, const KEEP_WEIGHTS: bool, const BOTH: bool, const WHICH: usize>(
        &mut self,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match WHICH {
                0 => {
                    load!("tmm6", self.panels[0], BYTES, KEEP_WEIGHTS);
                    load!("tmm4", self.upper, self.stride, !KEEP_WEIGHTS);
                    T::upper_left();
                }
                1 => {
                    load!("tmm7", self.panels[1], BYTES, KEEP_WEIGHTS);
                    if BOTH {
                        load!("tmm5", self.lower, self.stride, !KEEP_WEIGHTS);
                    }
                    T::upper_right();
                }
                2 if BOTH => T::lower_left(),
                3 if BOTH => T::lower_right(),
                _ => {}
            }
        }
        if WHICH == 3 {
            self.next_step();
        }
    }

    /// Goes on to the next 64 bytes of every row.
    #[inline(always)]
    fn next_step(&mut self) {
        self.upper = self.upper.wrapping_add(self.advance);
        self.lower = self.lower.wrapping_add(self.advance);
        self.panels = self.panels.map(|panel| panel.wrapping_add(ROWS * BYTES));
        for _ in (0..self.lines).step_by(PAGES) {
            for page in 0..self.lines.min(PAGES) {
                prefetch::line(self.soon.wrapping_add(page * PAGE));
            }
            self.soon = self.soon.wrapping_add(LINE);
            if (self.soon as usize).is_multiple_of(PAGE) {
                self.soon = self.soon.wrapping_add(PAGE * (PAGES - 1));
            }
        }
    }
}

impl Tiles {
    /// Sums begin with these, the same in each row, or at zero.
    ///
    /// # Safety
    /// There are two lines of numbers, if any.
    #[inline(always)]
    unsafe fn begin(&self, starts: Option<[*const u8; 2]>) {
        // SAFETY: this thread has tiles; a line is read sixteen times.
        unsafe {
            match starts {
                Some([left, right]) => asm!(
                    "tileloadd tmm0, [{left} + {none}*1]",
                    "tileloadd tmm1, [{right} + {none}*1]",
                    "tileloadd tmm2, [{left} + {none}*1]",
                    "tileloadd tmm3, [{right} + {none}*1]",
                    left = in(reg) left,
                    right = in(reg) right,
                    none = in(reg) 0usize,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    options(nostack, readonly),
                ),
                None => asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    options(nostack, nomem),
                ),
            }
        }
    }

    /// # Safety
    /// There is room for four tiles.
    unsafe fn store(&self, sums: *mut u8) {
        // SAFETY: the caller's.
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

/// What sums are made of: bytes or halves of floats. The products of a step, of tiles that are loaded.
pub(crate) trait Sum: Copy + 'static {
    /// The upper rows times the first panel.
    ///
    /// # Safety
    /// This thread has tiles.
    unsafe fn upper_left();

    /// The upper rows times the other panel.
    ///
    /// # Safety
    /// As above.
    unsafe fn upper_right();

    /// The lower rows times the first panel.
    ///
    /// # Safety
    /// As above.
    unsafe fn lower_left();

    /// The lower rows times the other panel.
    ///
    /// # Safety
    /// As above.
    unsafe fn lower_right();
}

macro_rules! sums {
    ($sum:ty, $product:literal) => {
        impl Sum for $sum {
            sums!(upper_left, $product, "tmm0", "tmm4", "tmm6");
            sums!(upper_right, $product, "tmm1", "tmm4", "tmm7");
            sums!(lower_left, $product, "tmm2", "tmm5", "tmm6");
            sums!(lower_right, $product, "tmm3", "tmm5", "tmm7");
        }
    };
    ($name:ident, $product:literal, $sums:tt, $inputs:literal, $weights:literal) => {
        #[inline(always)]
        unsafe fn $name() {
            // SAFETY: the caller's.
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

// Unsigned bytes of inputs times signed bytes of weights, exact in 32 bits.
sums!(i32, "tdpbusd");
// bfloat16 inputs times bfloat16 weights: see `bfloat16` for the order of additions.
sums!(f32, "tdpbf16ps");
