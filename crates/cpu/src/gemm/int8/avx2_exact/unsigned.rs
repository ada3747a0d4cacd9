//! Rows without negative inputs, as after a ReLU: tiles of a row by 4 panels, 8 accumulators. Inputs are the unsigned operand,
//! weights the signed one, which is read from memory.

use std::arch::asm;
use std::arch::x86_64::*;

use bytemuck::Zeroable;

use super::order::Order;
use super::{Bytes, CACHE_LINE, Product, Scratch, Sums, broadcast, prefetch_share, write_row};

/// Groups of a block of inputs, whose weights of four panels stay in L1.
const BLOCK_GROUPS: usize = 64;

/// See [`super::multiply`].
#[target_feature(enable = "avx2")]
pub(super) fn multiply(product: Product<'_>, scratch: &mut Scratch, out: &mut [f32]) {
    scratch.inputs.prepare_magnitudes::<4>(product.x.bytes, product.x.stride, BLOCK_GROUPS);
    let mut panel = 0;
    while panel < product.panels {
        panel += match product.panels - panel {
            1 => panels::<1>(product, scratch, panel, out),
            2 | 3 => panels::<2>(product, scratch, panel, out),
            _ => panels::<4>(product, scratch, panel, out),
        };
    }
}

/// All rows times `P` panels; returns `P`.
#[target_feature(enable = "avx2")]
fn panels<const P: usize>(
    product: Product<'_>,
    scratch: &mut Scratch,
    panel: usize,
    out: &mut [f32],
) -> usize {
    let (groups, stride) = (product.packed.groups(), product.x.stride);
    let all = &product.packed.lines[(product.first_panel + panel) * groups..][..P * groups];
    let Scratch { inputs, sums, .. } = scratch;
    let rows = product.x.scales.len();
    sums.clear();
    sums.resize(rows * P, Sums::zeroed());
    let blocks = groups.div_ceil(BLOCK_GROUPS);
    for (block, first) in (0..groups).step_by(BLOCK_GROUPS).enumerate() {
        let of = BLOCK_GROUPS.min(groups - first);
        let lines = std::array::from_fn(|p| all[p * groups + first..][..of].as_ptr());
        let x = inputs.signed.chunks_exact(stride).zip(sums.as_chunks_mut::<P>().0);
        for (row, (x, sums)) in x.enumerate() {
            if product.prefetch {
                prefetch_share(&lines, of, P * groups, (row, rows));
            }
            let order = &inputs.orders[row * blocks + block];
            // SAFETY: as many inputs as lines, of which the order has the groups.
            unsafe { add_row::<P>(lines, &x[first * 4..][..of * 4], order, sums) };
            if block + 1 == blocks {
                write_row(product, panel, row, sums, out);
            }
        }
    }
    P
}

/// Adds a block of a row's inputs times `P` panels to sums.
///
/// # Safety
/// Each panel has as many lines as there are groups of inputs, of which `order` has some.
// Not inlined: the variables of the loops around it would take registers that it needs.
#[target_feature(enable = "avx2")]
#[inline(never)]
unsafe fn add_row<const P: usize>(
    lines: [*const Bytes; P],
    x: &[u8],
    order: &Order,
    out: &mut [Sums; P],
) {
    let ones = _mm256_set1_epi16(1);
    let x = x.as_ptr();
    // SAFETY: the caller's.
    unsafe {
        let out = std::ptr::from_mut(out).cast::<[[__m256i; 2]; P]>();
        let mut sums = *out;
        for &group in order.joint() {
            let g = usize::from(group);
            let first = x.add(g * 4);
            let x = [
                broadcast(first),
                broadcast(first.add(4)),
                broadcast(first.add(8)),
                broadcast(first.add(12)),
            ];
            for ([low, high], lines) in sums.iter_mut().zip(lines) {
                add_four_groups::<0>(low, x, ones, lines.add(g));
                add_four_groups::<32>(high, x, ones, lines.add(g));
            }
        }
        for &group in order.single() {
            let g = usize::from(group);
            let x = broadcast(x.add(g * 4));
            for (sums, lines) in sums.iter_mut().zip(lines) {
                for (half, sum) in sums.iter_mut().enumerate() {
                    let w = _mm256_load_si256(lines.add(g).cast::<__m256i>().add(half));
                    let pairs = _mm256_maddubs_epi16(x, w);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        *out = sums;
    }
}

/// Adds the products of four groups of inputs and half of their lines, from byte `HALF` on.
///
/// # Safety
/// There are four lines.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_four_groups<const HALF: usize>(
    sum: &mut __m256i,
    x: [__m256i; 4],
    ones: __m256i,
    lines: *const Bytes,
) {
    // SAFETY: reads the four lines.
    unsafe {
        asm!(
            "vpmaddubsw {a}, {x0}, [{lines} + {first}]",
            "vpmaddubsw {b}, {x1}, [{lines} + {second}]",
            "vpaddw {a}, {a}, {b}",
            "vpmaddubsw {b}, {x2}, [{lines} + {third}]",
            "vpaddw {a}, {a}, {b}",
            "vpmaddubsw {b}, {x3}, [{lines} + {fourth}]",
            "vpaddw {a}, {a}, {b}",
            "vpmaddwd {a}, {a}, {ones}",
            "vpaddd {sum}, {sum}, {a}",
            sum = inout(ymm_reg) *sum,
            x0 = in(ymm_reg) x[0],
            x1 = in(ymm_reg) x[1],
            x2 = in(ymm_reg) x[2],
            x3 = in(ymm_reg) x[3],
            ones = in(ymm_reg) ones,
            lines = in(reg) lines,
            first = const HALF,
            second = const HALF + CACHE_LINE,
            third = const HALF + 2 * CACHE_LINE,
            fourth = const HALF + 3 * CACHE_LINE,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
}
