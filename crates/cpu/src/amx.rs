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
//! is computed of rows that do not exist is not looked at. While two panels are multiplied, those that come
//! after are asked for (see `ahead`), some at every step. Weights are loaded with the word that the first cache need not keep
//! them (`tileloaddt1`): it has no room for them beside the inputs, which are needed again. All loads of a step come before its
//! products: that makes no difference to a core alone, and is 6 % faster where the core's other half is busy. Sums are turned
//! into outputs one block late, some rows between two steps: few enough for the processor to do it while tiles are multiplied.
//!
//! Tiles keep their contents from one `asm!` to the next, although nothing tells the compiler so: it was not told that the
//! processor has them, so it has no instruction that could change them, and no function that is called in between has one.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use crate::ahead::{self, PAGE, PAGES, PAIR, RUN};
use crate::tiles::TILE_ROWS;

/// Rows of a tile.
pub(crate) const ROWS: usize = TILE_ROWS;
/// Bytes of a tile's row.
pub(crate) const BYTES: usize = 64;
/// Bytes of the pairs of lines that are asked for together, one of every page.
const EIGHT: usize = PAIR * PAGES;

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

/// Rows of inputs times panels of weights.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    /// First of the rows of inputs,
    pub(crate) inputs: *const u8,
    /// bytes from one to the next,
    pub(crate) stride: usize,
    /// and how many they are. There is memory for a multiple of 16.
    pub(crate) rows: usize,
    /// First of the panels,
    pub(crate) weights: *const u8,
    /// and how many they are.
    pub(crate) panels: usize,
    /// Steps of 64 bytes of inputs.
    pub(crate) steps: usize,
}

impl Product {
    /// Hands all sums, a block after the other, to `finish`, which is to take all its rows.
    ///
    /// # Safety
    /// [`available`] has said yes; rows and panels are whole steps long and where `self` says.
    #[inline(always)]
    pub(crate) unsafe fn multiply<T: Sum>(self, mut finish: impl FnMut(Rows<'_, T>)) {
        // SAFETY: the caller vouches for tiles.
        let tiles = unsafe { Tiles::new() };
        let mut sums = [const { MaybeUninit::<Sums<T>>::uninit() }; 2];
        let (mut to, mut from) = sums.split_at_mut(1);
        let mut late: Option<Block> = None;
        let mut next = self.block_from(0, 0);
        // One round more than there are blocks: in the last one there is only something to finish.
        while let Some(block) = next.or(late) {
            tiles.clear();
            let steps = if next.is_some() { self.steps } else { 0 };
            let mut work = Work { feed: self.feed(block), steps };
            if let Some(block) = late {
                // SAFETY: these sums were stored in the round before.
                let sums = unsafe { block.sums(from[0].as_ptr()) };
                finish(Rows::new(block, sums, &mut work));
            }
            // SAFETY: what the caller vouches for; four tiles fit.
            unsafe {
                work.go_on::<T>(usize::MAX);
                tiles.store(to[0].as_mut_ptr().cast());
            }
            (to, from) = (from, to);
            late = next;
            next = next.and_then(|block| self.block_from(block.row + block.rows, block.panel));
        }
    }

    /// The block that begins there. All rows go through two panels before the next two.
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

    fn feed(&self, block: Block) -> Feed {
        // Where there is no second panel the first is computed twice.
        let (row, left, right) = (block.row, block.panel, block.panel + block.panels - 1);
        let panel = |panel: usize| self.weights.wrapping_add(panel * self.panel_bytes());
        // Two panels are two times eight pairs of lines a step; the rounds of all rows share them.
        let (share, shares) = (row / (2 * ROWS), self.rows.div_ceil(2 * ROWS));
        let eights = 2usize.div_ceil(shares);
        let read = panel(left).wrapping_add(share * eights * self.steps * EIGHT);
        // Where two panels are more than a run, what comes after the first run is being read already.
        let behind = (2 * self.panel_bytes()).saturating_sub(RUN) / RUN * RUN;
        let soon = ahead::place(read.wrapping_sub(read as usize % EIGHT)).wrapping_add(behind);
        let eights = if share * eights < 2 { eights } else { 0 };
        let inputs = self.inputs.wrapping_add(row * self.stride);
        let panels = [panel(left), panel(right)];
        Feed { inputs, stride: self.stride, both: block.rows > ROWS, panels, soon, eights }
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
    /// # Safety
    /// The sums of its rows are stored there.
    unsafe fn sums<'a, T>(&self, sums: *const Sums<T>) -> &'a [[[T; 16]; 2]] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(sums.cast(), self.rows) }
    }
}

/// Sums of some rows and two panels, a row of both after the other. Between two rows the next block is multiplied on, as
/// far as is their share.
pub(crate) struct Rows<'a, T> {
    block: Block,
    sums: std::slice::Iter<'a, [[T; 16]; 2]>,
    work: &'a mut Work,
    /// Rows until it is worked on, and from then to the next time, and how many steps at a time.
    wait: usize,
    gap: usize,
    steps: usize,
}

impl<'a, T> Rows<'a, T> {
    fn new(block: Block, sums: &'a [[[T; 16]; 2]], work: &'a mut Work) -> Rows<'a, T> {
        let gap = (block.rows / work.steps.max(1)).max(1);
        let steps = work.steps.div_ceil(block.rows);
        Rows { block, sums: sums.iter(), work, wait: 1, gap, steps }
    }

    /// The number of the first row.
    pub(crate) fn first(&self) -> usize {
        self.block.row
    }

    /// The panels there are: one or two. A row has sums of two in any case.
    pub(crate) fn panels(&self) -> Range<usize> {
        self.block.panel..self.block.panel + self.block.panels
    }

    /// Those that are left, with nothing done in between.
    pub(crate) fn sums(&self) -> &'a [[[T; 16]; 2]] {
        self.sums.as_slice()
    }
}

impl<'a, T: Sum> Iterator for Rows<'a, T> {
    type Item = &'a [[T; 16]; 2];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [[T; 16]; 2]> {
        let sums = self.sums.next()?;
        self.wait -= 1;
        if self.wait == 0 {
            self.wait = self.gap;
            // SAFETY: `Product::multiply`, which makes these, vouches for what is worked on.
            unsafe { self.work.go_on::<T>(self.steps) };
        }
        Some(sums)
    }
}

/// What is done while sums of the block before become outputs.
struct Work {
    feed: Feed,
    /// Steps that are left.
    steps: usize,
}

impl Work {
    /// So many steps, if there are as many.
    ///
    /// # Safety
    /// This thread has tiles, and where there are steps left, there is memory where `feed` says.
    #[inline(always)]
    unsafe fn go_on<T: Sum>(&mut self, steps: usize) {
        for _ in 0..steps.min(self.steps) {
            self.steps -= 1;
            // SAFETY: the caller's.
            unsafe { self.feed.step::<T>() };
        }
    }
}

/// Four tiles of sums, a row of both panels after the other.
#[repr(C, align(64))]
struct Sums<T>([[[T; 16]; 2]; 2 * ROWS]);

/// What the next step of a block is computed from.
struct Feed {
    inputs: *const u8,
    stride: usize,
    /// Whether there are more than 16 rows.
    both: bool,
    panels: [*const u8; 2],
    /// Weights that are wanted next, see [`ahead`],
    soon: *const u8,
    /// and how many times eight pairs of lines of them to ask for at every step.
    eights: usize,
}

impl Feed {
    /// Multiplies 64 bytes of every row.
    ///
    /// # Safety
    /// This thread has the tiles, and there are rows, `stride` apart, and panels of 16 lines of 64 bytes.
    #[inline(always)]
    unsafe fn step<T: Sum>(&mut self) {
        let lower = self.inputs.wrapping_add(ROWS * self.stride);
        // SAFETY: the caller's.
        unsafe {
            if self.both {
                T::step_of_four([self.inputs, lower], self.stride, self.panels);
            } else {
                T::step_of_two(self.inputs, self.stride, self.panels);
            }
        }
        self.inputs = self.inputs.wrapping_add(BYTES);
        self.panels = self.panels.map(|panel| panel.wrapping_add(ROWS * BYTES));
        for _ in 0..self.eights {
            for page in 0..PAGES {
                ahead::fetch(self.soon.wrapping_add(page * PAGE));
            }
            self.soon = self.soon.wrapping_add(PAIR);
            if (self.soon as usize).is_multiple_of(PAGE) {
                self.soon = self.soon.wrapping_add(PAGE * (PAGES - 1));
            }
        }
    }
}

impl Tiles {
    /// Sums begin at zero.
    fn clear(&self) {
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

/// What sums are made of: bytes or halves of floats.
pub(crate) trait Sum: Copy + 'static {
    /// Adds 64 bytes of 32 rows, times two panels, to the tiles.
    ///
    /// # Safety
    /// This thread has tiles; there are rows, `stride` apart, and panels of 16 lines of 64 bytes.
    unsafe fn step_of_four(rows: [*const u8; 2], stride: usize, panels: [*const u8; 2]);

    /// The same of 16 rows: to the upper tiles.
    ///
    /// # Safety
    /// As above.
    unsafe fn step_of_two(rows: *const u8, stride: usize, panels: [*const u8; 2]);
}

macro_rules! sums {
    ($sum:ty, $product:literal) => {
        impl Sum for $sum {
            #[inline(always)]
            unsafe fn step_of_four(
                [upper, lower]: [*const u8; 2],
                stride: usize,
                [left, right]: [*const u8; 2],
            ) {
                // SAFETY: the caller's.
                unsafe {
                    asm!(
                        "tileloadd tmm4, [{upper} + {stride}*1]",
                        "tileloaddt1 tmm6, [{left} + {line}*1]",
                        "tileloaddt1 tmm7, [{right} + {line}*1]",
                        "tileloadd tmm5, [{lower} + {stride}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        concat!($product, " tmm1, tmm4, tmm7"),
                        concat!($product, " tmm2, tmm5, tmm6"),
                        concat!($product, " tmm3, tmm5, tmm7"),
                        upper = in(reg) upper,
                        lower = in(reg) lower,
                        stride = in(reg) stride,
                        left = in(reg) left,
                        right = in(reg) right,
                        line = in(reg) BYTES,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, readonly),
                    );
                }
            }

            #[inline(always)]
            unsafe fn step_of_two(
                rows: *const u8,
                stride: usize,
                [left, right]: [*const u8; 2],
            ) {
                // SAFETY: the caller's.
                unsafe {
                    asm!(
                        "tileloadd tmm4, [{rows} + {stride}*1]",
                        "tileloaddt1 tmm6, [{left} + {line}*1]",
                        "tileloaddt1 tmm7, [{right} + {line}*1]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        concat!($product, " tmm1, tmm4, tmm7"),
                        rows = in(reg) rows,
                        stride = in(reg) stride,
                        left = in(reg) left,
                        right = in(reg) right,
                        line = in(reg) BYTES,
                        out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, readonly),
                    );
                }
            }
        }
    };
}

// Unsigned bytes of inputs times signed bytes of weights, exact in 32 bits.
sums!(i32, "tdpbusd");
// bfloat16 inputs times bfloat16 weights: see `bfloat16` for the order of additions.
sums!(f32, "tdpbf16ps");
