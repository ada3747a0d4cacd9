//! Few rows: tiles of 2 rows by 2 panels, 8 accumulators. The sign of an input is moved to its weights, which are read from memory
//! once and prefetched.
//!
//! For a negative input, |x| is multiplied with the complement of the weight, which is −w − 1: no pair exceeds 2 · 127 · 128. Each
//! negative input thereby adds its own value once too often to every output of its row, and sums start at minus those values. A
//! complement (`vpxor`) runs on three ports where `vpsignb`, which would need no correction, runs on two.
//!
//! Two groups of four inputs are added in int16 before they are widened, if they are *small*: if both pairs of magnitudes together
//! are at most 255. Nearly all groups are, as an input at the end of the range is rare.
//!
//! The step of small groups is in `asm!` because the compiler otherwise keeps weights for the second row in registers, and sums in
//! memory.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Bytes, Product, Sums, broadcast, write_row};
use crate::memory::prefetch::prefetch_next_window_8;

/// Groups whose lines of a panel are prefetched at a time.
const PREFETCHED_GROUPS: usize = 8;

const ROWS: usize = 2;
const PANELS: usize = 2;

/// Rows of inputs prepared for the kernel.
#[derive(Default)]
pub(super) struct Prepared {
    magnitudes: Vec<u8>,
    masks: Vec<u8>,
    /// Minus the sum of each row's negative inputs.
    starts: Vec<i32>,
    /// For each tile of rows, the first group of every two: small ones, then large ones.
    order: Vec<u32>,
    /// The number of small ones of each tile.
    small: Vec<usize>,
}

impl Prepared {
    /// The small and the large groups of the tile that begins with this row.
    fn order(&self, row: usize) -> (&[u32], &[u32]) {
        let (tile, twos) = (row / ROWS, self.order.len() / self.small.len());
        self.order[tile * twos..][..twos].split_at(self.small[tile])
    }
}

/// See [`super::multiply`].
#[target_feature(enable = "avx2")]
pub(super) fn multiply(product: Product<'_>, prepared: &mut Prepared, out: &mut [f32]) {
    prepare(product, prepared);
    for panel in (0..product.panels).step_by(PANELS) {
        let wide = product.panels - panel >= PANELS;
        for row in (0..product.x.scales.len()).step_by(ROWS) {
            let high = product.x.scales.len() - row >= ROWS;
            match (high, wide) {
                (true, true) => tile::<2, 2>(product, prepared, (row, panel), out),
                (true, false) => tile::<2, 1>(product, prepared, (row, panel), out),
                (false, true) => tile::<1, 2>(product, prepared, (row, panel), out),
                (false, false) => tile::<1, 1>(product, prepared, (row, panel), out),
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn prepare(product: Product<'_>, out: &mut Prepared) {
    let bytes = product.x.bytes;
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
    out.starts.extend(bytes.chunks_exact(product.x.stride).map(negative));
    let twos = product.x.stride / 8;
    out.order.resize(out.starts.len().div_ceil(ROWS) * twos, 0);
    out.small.clear();
    let tiles =
        out.magnitudes.chunks(ROWS * product.x.stride).zip(out.order.chunks_exact_mut(twos));
    out.small.extend(tiles.map(|(rows, order)| order_groups(rows, product.x.stride, order)));
}

/// Orders the groups of a tile's rows, small ones first; returns how many are small.
#[target_feature(enable = "avx2")]
fn order_groups(magnitudes: &[u8], stride: usize, order: &mut [u32]) -> usize {
    let (mut small, mut large) = (0, order.len() - 1);
    for (at, firsts) in (0..stride).step_by(32).zip((0..).step_by(8)) {
        let mut max = _mm256_setzero_si256();
        for row in magnitudes.chunks_exact(stride) {
            let row = &row[at..at + 32];
            // SAFETY: 32 bytes.
            let row = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
            let pairs = _mm256_maddubs_epi16(row, _mm256_set1_epi8(1));
            let other_group = _mm256_shuffle_epi32::<0b10_11_00_01>(pairs);
            max = _mm256_max_epi16(max, _mm256_add_epi16(pairs, other_group));
        }
        let is_large = _mm256_cmpgt_epi16(max, _mm256_set1_epi16(255));
        let is_large = _mm256_movemask_epi8(is_large).to_le_bytes();
        for (first, is_large) in (firsts..).step_by(2).zip(is_large) {
            // Written to both ends, of which one advances: no branch to mispredict.
            (order[small], order[large]) = (first, first);
            small += usize::from(is_large == 0);
            large = large.wrapping_sub(usize::from(is_large != 0));
        }
    }
    small
}

/// `R` rows times `P` panels from `(row, panel)` on.
// Not inlined: the variables of the loops around it would take registers that it needs.
#[target_feature(enable = "avx2")]
#[inline(never)]
fn tile<const R: usize, const P: usize>(
    product: Product<'_>,
    prepared: &Prepared,
    (row, panel): (usize, usize),
    out: &mut [f32],
) {
    let first = product.first_panel + panel;
    let starts = &prepared.starts[row..row + R];
    let sums = if starts.iter().all(|&start| start == 0) {
        sums::<R, P, false>(product, prepared, row, first)
    } else {
        sums::<R, P, true>(product, prepared, row, first)
    };
    for (row, sums) in (row..).zip(&sums) {
        // SAFETY: a `Sums` is two vectors.
        let sums: [Sums; P] = unsafe { std::mem::transmute_copy(sums) };
        write_row(product, panel, row, &sums, out);
    }
}

/// The sums of a register tile. If not `SIGNED`, no input is negative.
#[target_feature(enable = "avx2")]
fn sums<const R: usize, const P: usize, const SIGNED: bool>(
    product: Product<'_>,
    prepared: &Prepared,
    row: usize,
    panel: usize,
) -> [[[__m256i; 2]; P]; R] {
    let (groups, stride) = (product.packed.groups(), product.x.stride);
    assert_eq!(groups * 4, stride, "as many inputs as weights");
    let magnitudes = &prepared.magnitudes[row * stride..(row + R) * stride];
    let masks = &prepared.masks[row * stride..(row + R) * stride];
    let lines = &product.packed.lines[panel * groups..(panel + P) * groups];
    // SAFETY: `R` rows of `stride` bytes, four a group.
    let fours = |bytes: &[u8], r: usize, g: usize| unsafe {
        broadcast(bytes.as_ptr().add(r * stride + g * 4))
    };
    // SAFETY: `P` panels of `groups` lines.
    let line = |p: usize, g: usize| unsafe { lines.as_ptr().add(p * groups + g) };
    let mut sums = [[[_mm256_setzero_si256(); 2]; P]; R];
    for (sums, &start) in sums.iter_mut().zip(&prepared.starts[row..]) {
        *sums = [[_mm256_set1_epi32(start); 2]; P];
    }
    let (small, large) = prepared.order(row);
    let prefetch = |group: usize| {
        for p in 0..P {
            prefetch_next_window_8(lines.as_ptr().wrapping_add(p * groups + group).cast());
        }
    };
    // The tiles of a panel take turns.
    let apart = PREFETCHED_GROUPS * prepared.small.len();
    let mut ahead = if product.prefetch { PREFETCHED_GROUPS * (row / ROWS) } else { groups };
    for (i, g) in small.iter().map(|&g| g as usize).enumerate() {
        if 2 * i == ahead && ahead < groups {
            prefetch(ahead);
            ahead += apart;
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = [fours(magnitudes, r, g), fours(magnitudes, r, g + 1)];
            let masks = [fours(masks, r, g), fours(masks, r, g + 1)];
            for (p, [low, high]) in sums.iter_mut().enumerate() {
                // SAFETY: the lines of both groups.
                unsafe {
                    add_two_groups::<SIGNED, 0>(low, x, masks, line(p, g));
                    add_two_groups::<SIGNED, 32>(high, x, masks, line(p, g));
                }
            }
        }
    }
    while ahead < groups {
        prefetch(ahead);
        ahead += apart;
    }
    for g in large.iter().flat_map(|&g| [g as usize, g as usize + 1]) {
        for (r, sums) in sums.iter_mut().enumerate() {
            let (x, mask) = (fours(magnitudes, r, g), fours(masks, r, g));
            for (p, sums) in sums.iter_mut().enumerate() {
                for (half, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: a line is two aligned vectors.
                    let w = unsafe { _mm256_load_si256(line(p, g).cast::<__m256i>().add(half)) };
                    let w = if SIGNED { _mm256_xor_si256(w, mask) } else { w };
                    let pairs = _mm256_maddubs_epi16(x, w);
                    let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                    *sum = _mm256_add_epi32(*sum, fours);
                }
            }
        }
    }
    sums
}

/// Adds the products of two small groups and half of their lines, from byte `HALF` on.
///
/// # Safety
/// There are two lines.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_two_groups<const SIGNED: bool, const HALF: usize>(
    sum: &mut __m256i,
    x: [__m256i; 2],
    masks: [__m256i; 2],
    lines: *const Bytes,
) {
    macro_rules! add {
        ($($multiply:literal)*) => {
            asm!(
                $($multiply,)*
                "vpaddw {a}, {a}, {b}",
                "vpmaddwd {a}, {a}, {ones}",
                "vpaddd {sum}, {sum}, {a}",
                sum = inout(ymm_reg) *sum,
                x0 = in(ymm_reg) x[0],
                x1 = in(ymm_reg) x[1],
                mask0 = in(ymm_reg) if SIGNED { masks[0] } else { x[0] },
                mask1 = in(ymm_reg) if SIGNED { masks[1] } else { x[1] },
                ones = in(ymm_reg) _mm256_set1_epi16(1),
                lines = in(reg) lines,
                low = const HALF,
                high = const HALF + size_of::<Bytes>(),
                a = out(ymm_reg) _,
                b = out(ymm_reg) _,
                options(readonly, nostack, preserves_flags),
            )
        };
    }
    // SAFETY: reads the two lines.
    unsafe {
        if SIGNED {
            add!(
                "vpxor {a}, {mask0}, [{lines} + {low}]"
                "vpxor {b}, {mask1}, [{lines} + {high}]"
                "vpmaddubsw {a}, {x0}, {a}"
                "vpmaddubsw {b}, {x1}, {b}"
            )
        } else {
            // Every operand must be named; the masks are named in comments and alias `x`, so they take no register.
            add!(
                "vpmaddubsw {a}, {x0}, [{lines} + {low}] /* {mask0} */"
                "vpmaddubsw {b}, {x1}, [{lines} + {high}] /* {mask1} */"
            )
        }
    }
}
