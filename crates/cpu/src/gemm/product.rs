//! The arguments that kernels of all precisions have in common.

use std::ops::Range;

use crate::isa::Isa;
use crate::isa::lanes::LANES;
use crate::technique::Technique;

/// Rows of inputs `x` times a range of the panels of a `packed` layer.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX-512 prefetches"))]
pub(super) struct Product<X, W> {
    /// Rows of inputs in the precision of the kernel.
    pub(super) x: X,
    /// The packed layer.
    pub(super) packed: W,
    pub(super) first_panel: usize,
    /// Number of panels from `first_panel` on.
    pub(super) panels: usize,
    /// Columns of the result: the outputs of these panels, less the padding of the layer's last one.
    pub(super) width: usize,
    /// Whether the epilogue replaces negative outputs by zero. Only int8 kernels do.
    pub(super) relu: bool,
    /// Whether the kernel prefetches the next panels.
    pub(super) prefetch: bool,
}

impl<X, W> Product<X, W> {
    /// `outputs` is the number of outputs of the layer.
    pub(super) fn new(
        isa: Isa,
        x: X,
        (packed, outputs): (W, usize),
        panels: Range<usize>,
    ) -> Product<X, W> {
        assert!(panels.end <= outputs.div_ceil(LANES), "panels that exist");
        Product {
            x,
            packed,
            first_panel: panels.start,
            panels: panels.len(),
            width: (panels.end * LANES).min(outputs) - panels.start * LANES,
            relu: false,
            prefetch: isa.uses(Technique::Prefetch),
        }
    }
}
