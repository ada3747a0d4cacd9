//! The tile registers of AMX, by hand: compilers have no stable names for them.
//!
//! A tile is up to 16 rows of 64 bytes. Four tiles of sums (16 rows of inputs by 16 outputs each) are
//! fed by two tiles of inputs and two of weights:
//!
//! ```text
//!                 weights 6 │ weights 7        one step: 64 bytes of every input row,
//!     inputs 4  │  sums 0   │  sums 1          16 lines of a panel
//!     inputs 5  │  sums 2   │  sums 3
//! ```
//!
//! Cost: four products of tiles for four loads, 16 · 16 · 64 multiply-adds each.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Bytes of a tile's row.
pub(crate) const BYTES: usize = 64;

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

/// The tiles in use by this thread, for `upper` and `lower` rows of inputs (at most 16 each). They are
/// given up when this is dropped.
pub(crate) struct Tiles {
    upper: usize,
    lower: usize,
}

impl Tiles {
    /// Shapes the tiles.
    ///
    /// # Safety
    /// [`available`] has said yes, and this thread has no other `Tiles`.
    pub(crate) unsafe fn new(upper: usize, lower: usize) -> Tiles {
        assert!(upper <= ROWS && lower <= ROWS, "rows of a tile");
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        // A tile must have a row; one of a missing lower half is never stored.
        let heights = [upper, upper, lower, lower, upper, lower, ROWS, ROWS];
        for (tile, height) in heights.into_iter().enumerate() {
            shapes.row_bytes[tile] = BYTES as u16;
            shapes.rows[tile] = height.max(1) as u8;
        }
        // SAFETY: 64 readable bytes in the layout the instruction wants.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, readonly));
        }
        Tiles { upper, lower }
    }

    /// Whether these are the tiles for so many rows.
    pub(crate) fn fit(&self, upper: usize, lower: usize) -> bool {
        (self.upper, self.lower) == (upper, lower)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles were available when this was made.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Four tiles of sums.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Block<T>(pub(crate) [[[T; 16]; ROWS]; 4]);

/// What [`feed_bytes`] and [`feed_halves`] multiply.
#[derive(Clone, Copy)]
pub(crate) struct Feed {
    /// First of the upper rows of inputs,
    pub(crate) upper: *const u8,
    /// and of the lower ones (again the upper ones where there are none).
    pub(crate) lower: *const u8,
    /// Bytes from row to row.
    pub(crate) stride: usize,
    /// Panels of weights (the same twice where there is one only).
    pub(crate) panels: [*const u8; 2],
    /// Steps of 64 bytes of inputs.
    pub(crate) steps: usize,
}

macro_rules! feed {
    ($(#[$meta:meta])* $name:ident, $type:ty, $product:literal) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// `tiles` are this thread's; each half has as many rows at its address as its tile, of
        /// `64 · steps` bytes, `stride` apart; each panel has `16 · steps` lines of 64 bytes;
        /// `steps > 0`.
        pub(crate) unsafe fn $name(_tiles: &Tiles, feed: Feed, sums: &mut Block<$type>) {
            // SAFETY: every address is inside what the caller vouches for or `sums`.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    "tileloadd tmm4, [{upper} + {stride}*1]",
                    "tileloadd tmm5, [{lower} + {stride}*1]",
                    "tileloadd tmm6, [{left} + {line}*1]",
                    "tileloadd tmm7, [{right} + {line}*1]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7"),
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "add {upper}, 64",
                    "add {lower}, 64",
                    "add {left}, 1024",
                    "add {right}, 1024",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{sums} + {line}*1], tmm0",
                    "tilestored [{sums} + {line}*1 + 1024], tmm1",
                    "tilestored [{sums} + {line}*1 + 2048], tmm2",
                    "tilestored [{sums} + {line}*1 + 3072], tmm3",
                    upper = inout(reg) feed.upper => _,
                    lower = inout(reg) feed.lower => _,
                    stride = in(reg) feed.stride,
                    left = inout(reg) feed.panels[0] => _,
                    right = inout(reg) feed.panels[1] => _,
                    line = in(reg) 64usize,
                    steps = inout(reg) feed.steps => _,
                    sums = in(reg) sums,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

feed!(
    /// Sums of unsigned bytes of inputs times signed bytes of weights, exact in 32 bits.
    feed_bytes,
    i32,
    "tdpbusd"
);

feed!(
    /// Sums of bfloat16 inputs times bfloat16 weights: see `bfloat16` for the order of additions.
    feed_halves,
    f32,
    "tdpbf16ps"
);
