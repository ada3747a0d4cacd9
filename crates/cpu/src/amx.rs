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
//! into outputs one block late, so that the processor does it while tiles are multiplied.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::mem::MaybeUninit;
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
    /// Hands the sums, block by block, to `finish`.
    ///
    /// # Safety
    /// [`available`] has said yes; rows and panels are whole steps long and where `self` says.
    #[inline(always)]
    pub(crate) unsafe fn multiply<T: Sum>(self, mut finish: impl FnMut(Block<'_, T>)) {
        // SAFETY: the caller vouches for tiles.
        let tiles = unsafe { Tiles::new() };
        let mut sums = [const { MaybeUninit::<Sums<T>>::uninit() }; 2];
        let mut late: Option<(usize, usize)> = None;
        let mut now = 0;
        for panel in (0..self.panels).step_by(2) {
            for row in (0..self.rows).step_by(2 * ROWS) {
                let (feed, to) = (self.feed(panel, row), sums[now].as_mut_ptr());
                // SAFETY: what the caller vouches for; `feed` stays inside it.
                unsafe {
                    if self.rows - row > ROWS {
                        T::feed_four(&tiles, feed, to);
                    } else {
                        T::feed_two(&tiles, feed, to);
                    }
                }
                now = 1 - now;
                if let Some((panel, row)) = late.replace((panel, row)) {
                    // SAFETY: these sums were stored in the round before.
                    finish(unsafe { self.block(panel, row, &sums[now]) });
                }
            }
        }
        if let Some((panel, row)) = late {
            // SAFETY: as above.
            finish(unsafe { self.block(panel, row, &sums[1 - now]) });
        }
    }

    fn panel_bytes(&self) -> usize {
        self.steps * ROWS * BYTES
    }

    fn feed(&self, left: usize, row: usize) -> Feed {
        // Where there is no second panel the first is computed twice.
        let right = (left + 1).min(self.panels - 1);
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
        Feed { inputs, stride: self.stride, panels, steps: self.steps, soon, eights }
    }

    /// # Safety
    /// The tiles of rows and panels that exist were stored in `sums`.
    unsafe fn block<'a, T>(
        &self,
        panel: usize,
        row: usize,
        sums: &'a MaybeUninit<Sums<T>>,
    ) -> Block<'a, T> {
        let tiles: *const [[T; 16]; ROWS] = sums.as_ptr().cast();
        let (rows, panels) = (self.rows - row, (self.panels - panel).min(2));
        let mut halves = [[&[][..]; 2]; 2];
        for (half, sides) in halves.iter_mut().enumerate() {
            let rows = rows.saturating_sub(half * ROWS).min(ROWS);
            for (side, sums) in sides.iter_mut().enumerate().take(panels) {
                // SAFETY: what the caller vouches for; no row of what was not stored is looked at.
                *sums =
                    unsafe { std::slice::from_raw_parts(tiles.add(2 * half + side).cast(), rows) };
            }
        }
        Block { row, panel, halves }
    }
}

/// Sums of up to 32 rows and two panels.
pub(crate) struct Block<'a, T> {
    /// The first row
    pub(crate) row: usize,
    /// and panel.
    pub(crate) panel: usize,
    /// Of each sixteen rows, the sums of the first panel and of the second: those there are.
    pub(crate) halves: [[&'a [[T; 16]]; 2]; 2],
}

/// Four tiles of sums.
#[repr(C, align(64))]
pub(crate) struct Sums<T>([[[T; 16]; ROWS]; 4]);

/// What one block is computed from.
pub(crate) struct Feed {
    inputs: *const u8,
    stride: usize,
    panels: [*const u8; 2],
    steps: usize,
    /// Weights that are wanted next, see [`ahead`],
    soon: *const u8,
    /// and how many times eight pairs of lines of them to ask for at every step.
    eights: usize,
}

/// What sums are made of: bytes or halves of floats.
pub(crate) trait Sum: Copy + 'static {
    /// Sums of 32 rows and two panels.
    ///
    /// # Safety
    /// This thread has `tiles`; `feed` names rows, `stride` apart and `64 · steps` bytes long, panels
    /// of `16 · steps` lines of 64 bytes, and more than no steps; `sums` can be written.
    unsafe fn feed_four(tiles: &Tiles, feed: Feed, sums: *mut Sums<Self>);

    /// Sums of 16 rows and two panels: the upper half.
    ///
    /// # Safety
    /// As above, for 16 rows.
    unsafe fn feed_two(tiles: &Tiles, feed: Feed, sums: *mut Sums<Self>);
}

/// A function of [`Sum`]: what is done with the tiles at the start, at every step and at the end.
macro_rules! feed {
    ($name:ident, $sum:ty, [$($start:literal)*], [$($step:expr),*], [$($end:literal)*]) => {
        unsafe fn $name(_tiles: &Tiles, feed: Feed, sums: *mut Sums<$sum>) {
            // SAFETY: every address is inside what the caller vouches for, or in `sums`; what is only asked for need
            // not exist.
            unsafe {
                asm!(
                    $($start,)*
                    "2:",
                    $($step,)*
                    "add {upper}, 64",
                    "add {lower}, 64",
                    "add {left}, 1024",
                    "add {right}, 1024",
                    "mov {n}, {eights}",
                    "test {n}, {n}",
                    "jz 4f",
                    "3:",
                    "prefetcht1 [{soon}]",
                    "prefetcht1 [{soon} + {page}]",
                    "prefetcht1 [{soon} + 2*{page}]",
                    "prefetcht1 [{soon} + 3*{page}]",
                    "prefetcht1 [{soon} + 4*{page}]",
                    "prefetcht1 [{soon} + 5*{page}]",
                    "prefetcht1 [{soon} + 6*{page}]",
                    "prefetcht1 [{soon} + 7*{page}]",
                    "add {soon}, {pair}",
                    "test {soon}, {page} - 1",
                    "jnz 5f",
                    "add {soon}, {others}",
                    "5:",
                    "dec {n}",
                    "jnz 3b",
                    "4:",
                    "dec {steps}",
                    "jnz 2b",
                    $($end,)*
                    upper = inout(reg) feed.inputs => _,
                    lower = inout(reg) feed.inputs.wrapping_add(ROWS * feed.stride) => _,
                    stride = in(reg) feed.stride,
                    left = inout(reg) feed.panels[0] => _,
                    right = inout(reg) feed.panels[1] => _,
                    line = in(reg) BYTES,
                    steps = inout(reg) feed.steps => _,
                    soon = inout(reg) feed.soon => _,
                    eights = in(reg) feed.eights,
                    n = out(reg) _,
                    page = const PAGE,
                    pair = const PAIR,
                    others = const PAGE * (PAGES - 1),
                    sums = in(reg) sums,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

macro_rules! sums {
    ($sum:ty, $product:literal) => {
        impl Sum for $sum {
            feed!(
                feed_four,
                $sum,
                [
                    "tilezero tmm0"
                    "tilezero tmm1"
                    "tilezero tmm2"
                    "tilezero tmm3"
                ],
                [
                    "tileloadd tmm4, [{upper} + {stride}*1]",
                    "tileloaddt1 tmm6, [{left} + {line}*1]",
                    "tileloaddt1 tmm7, [{right} + {line}*1]",
                    "tileloadd tmm5, [{lower} + {stride}*1]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7"),
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7")
                ],
                [
                    "tilestored [{sums} + {line}*1], tmm0"
                    "tilestored [{sums} + {line}*1 + 1024], tmm1"
                    "tilestored [{sums} + {line}*1 + 2048], tmm2"
                    "tilestored [{sums} + {line}*1 + 3072], tmm3"
                ]
            );

            feed!(
                feed_two,
                $sum,
                [
                    "tilezero tmm0"
                    "tilezero tmm1"
                ],
                [
                    "tileloadd tmm4, [{upper} + {stride}*1]",
                    "tileloaddt1 tmm6, [{left} + {line}*1]",
                    "tileloaddt1 tmm7, [{right} + {line}*1]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7")
                ],
                [
                    "tilestored [{sums} + {line}*1], tmm0"
                    "tilestored [{sums} + {line}*1 + 1024], tmm1"
                ]
            );
        }
    };
}

// Unsigned bytes of inputs times signed bytes of weights, exact in 32 bits.
sums!(i32, "tdpbusd");
// bfloat16 inputs times bfloat16 weights: see `bfloat16` for the order of additions.
sums!(f32, "tdpbf16ps");
