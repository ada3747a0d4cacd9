//! The int8 product with AVX2 alone, exact.
//!
//! AVX2's instruction for bytes (`vpmaddubsw`) multiplies unsigned with signed bytes and adds pairs of products in int16, where a
//! sum may not fit. Which groups of four inputs fit is found once for all panels (`order`), from the inputs alone: no weight exceeds
//! 128. Sums are exact in any order, so a tile takes its groups sorted by what they need, and no step has a branch.
//!
//! | inputs | operands | what fits 16 bits | instructions for 32 products |
//! |---|---|---|---|
//! | none negative, as after a ReLU (`unsigned`) | x · w | a pair always; eight inputs of a lane whose sum is at most 255 | 2.25, or 3 |
//! | of either sign (`signed`) | (w + 128) · x | inputs of a lane whose positive, and whose negative ones, add up to at most 128 | 2.5 for four inputs, 3 for two |
//! | the same, where two inputs do not fit | \|x\| · ±w | a pair always | 4 |
//! | few rows (`few_rows`) | \|x\| · ±w | four inputs of a lane whose magnitudes add up to at most 255 | 3.5, or 4 |
//!
//! A lane has every second pair of inputs of an output: of a group, two inputs.
//!
//! Weights + 128 are written to a buffer that stays in L1, for two panels and up to 512 inputs, and all rows are multiplied with
//! them. Each output then has 128 · Σ x too much, for which the initial value of its sum compensates.

mod few_rows;
mod order;
mod signed;
mod unsigned;

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::{Bytes, Product, Sums};
use crate::gemm::panels::Lanes;
use crate::isa::lanes::LANES;
use crate::memory::prefetch::{CACHE_LINE, prefetch_line};

/// With so many rows or fewer, weights + 128 are not worth writing.
const FEW_ROWS: usize = 24;

thread_local! {
    /// Scratch memory of a worker, whose products come one after the other.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    few_rows: few_rows::Prepared,
    inputs: order::Inputs,
    /// Weights + 128.
    lines: Vec<Bytes>,
    /// The sums of all rows, as many panels of each as are multiplied at a time.
    sums: Vec<Sums>,
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2, and the sizes of `product` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(product: Product<'_>, out: &mut [f32]) {
    let groups = product.packed.groups();
    assert_eq!(groups * 4, product.x.stride, "as many inputs as weights");
    let panels = product.first_panel + product.panels;
    assert!(product.packed.lines.len() >= panels * groups, "panels that exist");
    SCRATCH.with_borrow_mut(|scratch| {
        if product.x.scales.len() <= FEW_ROWS {
            few_rows::multiply(product, &mut scratch.few_rows, out);
        } else if product.x.bytes.iter().fold(u8::MAX, |min, &byte| min.min(byte)) >= 128 {
            unsigned::multiply(product, scratch, out);
        } else {
            signed::multiply(product, scratch, out);
        }
    });
}

/// Prefetches a tile's share of the lines, `of` in each of some panels, that come `ahead` lines behind these. All tiles together
/// prefetch all of them.
fn prefetch_share(panels: &[*const Bytes], of: usize, ahead: usize, (tile, tiles): (usize, usize)) {
    let share = of.div_ceil(tiles);
    for line in (tile * share..of).take(share) {
        for panel in panels {
            prefetch_line(panel.wrapping_add(ahead + line).cast());
        }
    }
}

/// Four inputs in every lane.
///
/// # Safety
/// There are four inputs.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn broadcast(x: *const u8) -> __m256i {
    // SAFETY: the caller's.
    _mm256_set1_epi32(unsafe { x.cast::<i32>().read_unaligned() })
}

/// The magnitudes of inputs, and all ones where an input is negative.
#[target_feature(enable = "avx2")]
#[inline]
fn magnitudes_and_signs(x: __m256i) -> (__m256i, __m256i) {
    (_mm256_abs_epi8(x), _mm256_cmpgt_epi8(_mm256_setzero_si256(), x))
}

/// Writes a row's outputs of some panels, from panel `panel` of the product on.
#[target_feature(enable = "avx2")]
fn write_row(product: Product<'_>, panel: usize, row: usize, sums: &[Sums], out: &mut [f32]) {
    for (panel, sums) in (panel..).zip(sums) {
        let columns = panel * LANES..((panel + 1) * LANES).min(product.width);
        let of_layer = product.first_panel + panel;
        let scales = (&product.packed.scales[of_layer], &product.packed.bias[of_layer]);
        let out = &mut out[row * product.width..][columns];
        epilogue(sums, product.x.scales[row], scales, product.relu, out);
    }
}

/// The epilogue: writes as many outputs as `out` has room for.
#[target_feature(enable = "avx2")]
fn epilogue(
    sums: &Sums,
    row_scale: f32,
    (scales, bias): (&Lanes<f32>, &Lanes<f32>),
    relu: bool,
    out: &mut [f32],
) {
    let floor = _mm256_set1_ps(if relu { 0.0 } else { f32::NEG_INFINITY });
    let mut last: Lanes<f32> = bytemuck::Zeroable::zeroed();
    let whole = out.len() == LANES;
    let to = if whole { out.as_mut_ptr() } else { last.0.as_mut_ptr() };
    for half in 0..2 {
        // SAFETY: a `Lanes` is two vectors of numbers, aligned to 64 bytes, and there is room for one.
        unsafe {
            let sum = _mm256_load_si256(sums.0.as_ptr().add(half * 8).cast());
            let scale = _mm256_load_ps(scales.0.as_ptr().add(half * 8));
            let scale = _mm256_mul_ps(scale, _mm256_set1_ps(row_scale));
            // Not fused, so that every kernel rounds alike.
            let sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale);
            let sum = _mm256_add_ps(sum, _mm256_load_ps(bias.0.as_ptr().add(half * 8)));
            _mm256_storeu_ps(to.add(half * 8), _mm256_max_ps(sum, floor));
        }
    }
    if !whole {
        out.copy_from_slice(&last.0[..out.len()]);
    }
}
