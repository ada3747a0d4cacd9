//! What can be turned off to see what it gives.
//!
//! Precisions, caches and lists of words have options of their own, because they change results. What is here changes how
//! soon they come, so its switches are for measuring, and for the whole process: kernels look at them where a product or a
//! sentence's attention begins.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A way to be faster that leaves results as they are, to the last bit where [`Technique::keeps_bits`] says so.
///
/// ```
/// use peregrine_cpu::{Technique, turn_off};
///
/// turn_off(&[Technique::Prefetch]);
/// assert!(!Technique::Prefetch.is_on() && Technique::LargePages.is_on());
/// turn_off(&[]);
/// assert!(Technique::Prefetch.is_on());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// Weights are packed once, and not anew for every product.
    PackedOnce,
    /// Weights, keys and values are asked for ahead of their use.
    Prefetch,
    /// Packed weights and what else is large lie on pages of 2 MB.
    LargePages,
    /// Queries, keys and values come out of one product.
    JointProducts,
    /// With AMX, inputs lie in the order in which tiles are loaded, and hidden rows never become floats in memory.
    TileOrder,
    /// With AMX, all rows go through two panels before the next two.
    TwoPanels,
    /// A sum and its norm are computed a row at a time.
    FusedNorms,
    /// Rows of a beam, or of a source sentence, read keys and values together, four at a time.
    SharedReads,
    /// Sixteen words of a source sentence at a time attend to all of it.
    SixteenRows,
}

static OFF: AtomicU32 = AtomicU32::new(0);

/// Turns off these techniques and turns on all others, in the whole process. To be called while nothing is translated.
pub fn turn_off(techniques: &[Technique]) {
    OFF.store(techniques.iter().fold(0, |off, technique| off | technique.bit()), Relaxed);
}

impl Technique {
    /// All of them.
    pub const ALL: [Technique; 9] = [
        Technique::PackedOnce,
        Technique::Prefetch,
        Technique::LargePages,
        Technique::JointProducts,
        Technique::TileOrder,
        Technique::TwoPanels,
        Technique::FusedNorms,
        Technique::SharedReads,
        Technique::SixteenRows,
    ];

    /// The name it is turned off by.
    pub fn name(self) -> &'static str {
        match self {
            Technique::PackedOnce => "packed-once",
            Technique::Prefetch => "prefetch",
            Technique::LargePages => "large-pages",
            Technique::JointProducts => "joint-products",
            Technique::TileOrder => "tile-order",
            Technique::TwoPanels => "two-panels",
            Technique::FusedNorms => "fused-norms",
            Technique::SharedReads => "shared-reads",
            Technique::SixteenRows => "sixteen-rows",
        }
    }

    /// Whether results are the same without it, or may differ by rounding.
    pub fn keeps_bits(self) -> bool {
        self != Technique::SixteenRows
    }

    /// Whether nobody has turned it off.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        OFF.load(Relaxed) & self.bit() == 0
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}
