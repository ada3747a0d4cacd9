//! The integer product with AVX2 alone, exact: tiles of 2 rows by 2 panels, 8 accumulators.
//!
//! AVX2's instruction for bytes (`vpmaddubsw`) multiplies unsigned with signed ones and adds pairs of
//! products in 16 bits, where pairs that use the whole range do not fit. So the sign of an input goes over
//! to its weights: of a negative input, |x| is multiplied with the weight's complement, which is −w − 1. No
//! pair exceeds 2 · 127 · 128, which fits, and each negative input adds its own value once too often to
//! every output of its row: sums start at minus those values. A complement (`vpxor`) runs on three ports
//! where `vpsignb`, which would need no correction, runs on two. Rows without negative inputs, as after a
//! relu, are spared it.
//!
//! Inputs are prepared once for all panels:
//!
//! ```text
//! magnitudes   |x[0..4]| │ |x[4..8]| │ …
//! masks        255 where the input is negative
//! ```
//!
//! Cost: four instructions for 32 products, three without negative inputs: 24 or 32 products a cycle at
//! best. Tried and not faster: weights widened to 16 bits once for all rows (`vpmaddwd`), tiles of 3 rows (16
//! registers do not hold them), and adding two pairs in 16 bits where their sizes tell that the sum fits.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::Task;
use crate::lanes::LANES;
use crate::product::Line;

const ROWS: usize = 2;
const PANELS: usize = 2;

/// Rows of inputs, ready to be multiplied.
#[derive(Default)]
struct Prepared {
    magnitudes: Vec<u8>,
    masks: Vec<u8>,
    /// Minus the sum of each row's negative inputs.
    starts: Vec<i32>,
}

thread_local! {
    /// A worker's products come one after the other.
    static PREPARED: RefCell<Prepared> = RefCell::default();
}

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AVX2, and the sizes of `task` and `out` agree as [`super::multiply`] checks.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    PREPARED.with_borrow_mut(|prepared| {
        prepare(task, prepared);
        let width = task.width();
        for panel in (0..task.panels).step_by(PANELS) {
            let wide = task.panels - panel >= PANELS;
            for (i, out) in out.chunks_mut(ROWS * width).enumerate() {
                let (row, out) = (i * ROWS, &mut out[panel * LANES..]);
                let high = task.steps.len() - row >= ROWS;
                match (high, wide) {
                    (true, true) => tile::<2, 2>(task, prepared, (row, panel), out),
                    (true, false) => tile::<2, 1>(task, prepared, (row, panel), out),
                    (false, true) => tile::<1, 2>(task, prepared, (row, panel), out),
                    (false, false) => tile::<1, 1>(task, prepared, (row, panel), out),
                }
            }
        }
    });
}

#[target_feature(enable = "avx2")]
fn prepare(task: Task<'_>, out: &mut Prepared) {
    let bytes = task.bytes;
    out.magnitudes.resize(bytes.len(), 0);
    out.masks.resize(bytes.len(), 0);
    for (magnitude, &byte) in out.magnitudes.iter_mut().zip(bytes) {
        *magnitude = byte.abs_diff(128);
    }
    for (mask, &byte) in out.masks.iter_mut().zip(bytes) {
        *mask = if byte < 128 { 255 } else { 0 };
    }
    let negative = |row: &[u8]| row.iter().map(|&byte| 128 - i32::from(byte.min(128))).sum::<i32>();
    out.starts.clear();
    out.starts.extend(bytes.chunks_exact(task.stride).map(negative));
}

/// `R` rows times `P` panels, the first at `(row, panel)`; `out` begins with this tile's first output, and its
/// rows are as far apart as they are wide.
#[target_feature(enable = "avx2")]
fn tile<const R: usize, const P: usize>(
    task: Task<'_>,
    prepared: &Prepared,
    (row, panel): (usize, usize),
    out: &mut [f32],
) {
    let (packed, width) = (task.packed, task.width());
    let first = task.first_panel + panel;
    let starts = &prepared.starts[row..row + R];
    let sums = if starts.iter().all(|&start| start == 0) {
        sums::<R, P, false>(task, prepared, row, first)
    } else {
        sums::<R, P, true>(task, prepared, row, first)
    };
    for (r, sums) in sums.iter().enumerate() {
        for (p, sums) in sums.iter().enumerate() {
            let columns = (width - (panel + p) * LANES).min(LANES);
            let (steps, bias) = (&packed.steps[first + p], &packed.bias[first + p]);
            let out = &mut out[r * width + p * LANES..][..columns];
            finish(sums, task.steps[row + r], (steps, bias), task.relu, out);
        }
    }
}

/// The sums of a tile. If it is not `SIGNED`, no input is negative.
#[target_feature(enable = "avx2")]
fn sums<const R: usize, const P: usize, const SIGNED: bool>(
    task: Task<'_>,
    prepared: &Prepared,
    row: usize,
    panel: usize,
) -> [[[__m256i; 2]; P]; R] {
    let (groups, stride) = (task.packed.groups(), task.stride);
    assert_eq!(groups * 4, stride, "as many inputs as weights");
    let magnitudes = &prepared.magnitudes[row * stride..(row + R) * stride];
    let masks = &prepared.masks[row * stride..(row + R) * stride];
    let lines = &task.packed.lines[panel * groups..(panel + P) * groups];
    // SAFETY: `R` rows of `stride` bytes, four a group.
    let fours = |bytes: &[u8], r: usize, g: usize| unsafe {
        let at = bytes.as_ptr().add(r * stride + g * 4).cast::<i32>();
        _mm256_set1_epi32(at.read_unaligned())
    };
    let mut sums = [[[_mm256_setzero_si256(); 2]; P]; R];
    for (sums, &start) in sums.iter_mut().zip(&prepared.starts[row..]) {
        *sums = [[_mm256_set1_epi32(start); 2]; P];
    }
    for g in 0..groups {
        for (r, sums) in sums.iter_mut().enumerate() {
            let (magnitude, mask) = (fours(magnitudes, r, g), fours(masks, r, g));
            for (p, sums) in sums.iter_mut().enumerate() {
                for (half, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `P` panels of `groups` lines, each two aligned vectors.
                    let w = unsafe {
                        let line = lines.as_ptr().add(p * groups + g).cast::<__m256i>();
                        _mm256_load_si256(line.add(half))
                    };
                    let w = if SIGNED { _mm256_xor_si256(w, mask) } else { w };
                    let pairs = _mm256_maddubs_epi16(magnitude, w);
                    let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                    *sum = _mm256_add_epi32(*sum, fours);
                }
            }
        }
    }
    sums
}

/// Outputs from sums: as many as there is room for.
#[target_feature(enable = "avx2")]
fn finish(
    sums: &[__m256i; 2],
    row_step: f32,
    (steps, bias): (&Line, &Line),
    relu: bool,
    out: &mut [f32],
) {
    let floor = _mm256_set1_ps(if relu { 0.0 } else { f32::NEG_INFINITY });
    let mut last: Line = bytemuck::Zeroable::zeroed();
    let whole = out.len() == LANES;
    let to = if whole { out.as_mut_ptr() } else { last.0.as_mut_ptr() };
    for (half, &sum) in sums.iter().enumerate() {
        // SAFETY: a `Line` is two vectors of floats, aligned to 64 bytes, and there is room for one.
        unsafe {
            let step = _mm256_load_ps(steps.0.as_ptr().add(half * 8));
            let step = _mm256_mul_ps(step, _mm256_set1_ps(row_step));
            // Not fused: every kernel must round alike.
            let sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), step);
            let sum = _mm256_add_ps(sum, _mm256_load_ps(bias.0.as_ptr().add(half * 8)));
            _mm256_storeu_ps(to.add(half * 8), _mm256_max_ps(sum, floor));
        }
    }
    if !whole {
        out.copy_from_slice(&last.0[..out.len()]);
    }
}
