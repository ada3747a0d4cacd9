//! Rows of inputs of either sign: tiles of 2 rows by 2 panels, 8 accumulators. Weights + 128 are the unsigned operand, inputs the
//! signed one.

use std::arch::asm;
use std::arch::x86_64::*;

use super::order::{BLOCK_GROUPS, Order, TILE_ROWS};
use super::{
    Bytes, CACHE_LINE, Product, Scratch, Sums, broadcast, magnitudes_and_signs, prefetch_share,
    write_row,
};
use crate::gemm::panels::Lanes;
use crate::isa::lanes::LANES;

/// See [`super::multiply`].
#[target_feature(enable = "avx2")]
pub(super) fn multiply(product: Product<'_>, scratch: &mut Scratch, out: &mut [f32]) {
    scratch.inputs.prepare_signed(product.x.bytes, product.x.stride);
    for panel in (0..product.panels).step_by(2) {
        match product.panels - panel {
            1 => panels::<1>(product, scratch, panel, out),
            _ => panels::<2>(product, scratch, panel, out),
        }
    }
}

/// All rows times `P` panels.
#[target_feature(enable = "avx2")]
fn panels<const P: usize>(
    product: Product<'_>,
    scratch: &mut Scratch,
    panel: usize,
    out: &mut [f32],
) {
    let (groups, stride) = (product.packed.groups(), product.x.stride);
    let all = &product.packed.lines[(product.first_panel + panel) * groups..][..P * groups];
    let Scratch { inputs, lines, sums, .. } = scratch;
    sums.clear();
    for &start in &inputs.starts {
        sums.extend([Lanes([start; LANES]); P]);
    }
    let (blocks, tiles) = (groups.div_ceil(BLOCK_GROUPS), inputs.starts.len() / TILE_ROWS);
    for (block, first) in (0..groups).step_by(BLOCK_GROUPS).enumerate() {
        let of = BLOCK_GROUPS.min(groups - first);
        let pieces: [&[Bytes]; P] = std::array::from_fn(|p| &all[p * groups + first..][..of]);
        add_offset(&pieces, lines);
        let pieces = pieces.map(<[_]>::as_ptr);
        let rows = inputs.signed.chunks_exact(TILE_ROWS * stride);
        for (tile, (rows, sums)) in rows.zip(sums.chunks_exact_mut(TILE_ROWS * P)).enumerate() {
            if product.prefetch {
                prefetch_share(&pieces, of, P * groups, (tile, tiles));
            }
            let (one, other) = rows.split_at(stride);
            let x = [&one[first * 4..][..of * 4], &other[first * 4..][..of * 4]];
            let order = &inputs.orders[tile * blocks + block];
            // SAFETY: the lines of `P` panels, of which an order has the groups; sums of two rows.
            unsafe { add_tile::<P>(lines, x, order, sums) };
            if block + 1 == blocks {
                let rows = (tile * TILE_ROWS..product.x.scales.len()).zip(sums.chunks_exact(P));
                rows.for_each(|(row, sums)| write_row(product, panel, row, sums, out));
            }
        }
    }
}

/// Sets `lines` to those of all pieces with 128 added to every weight, as unsigned bytes.
#[target_feature(enable = "avx2")]
fn add_offset(pieces: &[&[Bytes]], lines: &mut Vec<Bytes>) {
    lines.resize(pieces.iter().map(|piece| piece.len()).sum(), bytemuck::Zeroable::zeroed());
    for (to, from) in lines.iter_mut().zip(pieces.iter().copied().flatten()) {
        let (to, from) = (std::ptr::from_mut(to), std::ptr::from_ref(from));
        for half in 0..2 {
            // SAFETY: a line is two aligned vectors.
            unsafe {
                let w = _mm256_load_si256(from.cast::<__m256i>().add(half));
                let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                _mm256_store_si256(to.cast::<__m256i>().add(half), w);
            }
        }
    }
}

#[repr(align(32))]
struct Ones(#[expect(dead_code, reason = "read by address")] [i16; 16]);

/// In memory, as there is no register left for it.
static ONES: Ones = Ones([1; 16]);

/// Adds two rows of a block of inputs times `P` panels to sums.
///
/// # Safety
/// `lines` has as many lines for each of `P` panels as there are groups of inputs, of which `order` has some; `sums` has `P` for
/// each row.
// Not inlined: the variables of the loops around it would take registers that it needs.
#[target_feature(enable = "avx2")]
#[inline(never)]
unsafe fn add_tile<const P: usize>(
    lines: &[Bytes],
    x: [&[u8]; TILE_ROWS],
    order: &Order,
    out: &mut [Sums],
) {
    let piece = lines.len() / P * CACHE_LINE;
    let (lines, x) = (lines.as_ptr().cast::<u8>(), x.map(<[_]>::as_ptr));
    let ones = _mm256_set1_epi16(1);
    // SAFETY: the caller's.
    unsafe {
        let out = out.as_mut_ptr().cast::<[[[__m256i; 2]; P]; TILE_ROWS]>();
        let [mut top, mut bottom] = *out;
        for &group in order.joint() {
            let g = usize::from(group);
            let x0 = [broadcast(x[0].add(g * 4)), broadcast(x[0].add(g * 4 + 4))];
            let x1 = [broadcast(x[1].add(g * 4)), broadcast(x[1].add(g * 4 + 4))];
            for (p, (top, bottom)) in top.iter_mut().zip(&mut bottom).enumerate() {
                let line = lines.add(p * piece + g * CACHE_LINE);
                let ([low0, high0], [low1, high1]) = (top, bottom);
                add_two_groups::<0>(low0, low1, x0, x1, line);
                add_two_groups::<32>(high0, high1, x0, x1, line);
            }
        }
        for &group in order.single() {
            let g = usize::from(group);
            let (x0, x1) = (broadcast(x[0].add(g * 4)), broadcast(x[1].add(g * 4)));
            for (p, (top, bottom)) in top.iter_mut().zip(&mut bottom).enumerate() {
                let line = lines.add(p * piece + g * CACHE_LINE).cast::<__m256i>();
                for (half, (top, bottom)) in top.iter_mut().zip(bottom).enumerate() {
                    let w = _mm256_load_si256(line.add(half));
                    for (sum, x) in [(top, x0), (bottom, x1)] {
                        let pairs = _mm256_maddubs_epi16(w, x);
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        }
        for &group in order.large() {
            let g = usize::from(group);
            let (x0, sign0) = magnitudes_and_signs(broadcast(x[0].add(g * 4)));
            let (x1, sign1) = magnitudes_and_signs(broadcast(x[1].add(g * 4)));
            // These take away the offset too.
            let sign0 = _mm256_xor_si256(sign0, _mm256_set1_epi8(-128));
            let sign1 = _mm256_xor_si256(sign1, _mm256_set1_epi8(-128));
            for (p, (top, bottom)) in top.iter_mut().zip(&mut bottom).enumerate() {
                let line = lines.add(p * piece + g * CACHE_LINE).cast::<__m256i>();
                for (half, (top, bottom)) in top.iter_mut().zip(bottom).enumerate() {
                    let w = _mm256_load_si256(line.add(half));
                    for (sum, (x, sign)) in [(top, (x0, sign0)), (bottom, (x1, sign1))] {
                        let pairs = _mm256_maddubs_epi16(x, _mm256_xor_si256(w, sign));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        }
        *out = [top, bottom];
    }
}

/// Adds the products of two rows, two groups of inputs and half of their lines, from byte `HALF` on.
///
/// # Safety
/// There are two lines.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_two_groups<const HALF: usize>(
    top: &mut __m256i,
    bottom: &mut __m256i,
    [x0, x1]: [__m256i; 2],
    [y0, y1]: [__m256i; 2],
    lines: *const u8,
) {
    // SAFETY: reads the two lines and ones.
    unsafe {
        asm!(
            "vmovdqa {b}, [{lines} + {low}]",
            "vpmaddubsw {a}, {b}, {x0}",
            "vpmaddubsw {b}, {b}, {y0}",
            "vmovdqa {d}, [{lines} + {high}]",
            "vpmaddubsw {c}, {d}, {x1}",
            "vpmaddubsw {d}, {d}, {y1}",
            "vpaddw {a}, {a}, {c}",
            "vpaddw {b}, {b}, {d}",
            "vpmaddwd {a}, {a}, [{ones}]",
            "vpmaddwd {b}, {b}, [{ones}]",
            "vpaddd {top}, {top}, {a}",
            "vpaddd {bottom}, {bottom}, {b}",
            top = inout(ymm_reg) *top,
            bottom = inout(ymm_reg) *bottom,
            x0 = in(ymm_reg) x0,
            x1 = in(ymm_reg) x1,
            y0 = in(ymm_reg) y0,
            y1 = in(ymm_reg) y1,
            lines = in(reg) lines,
            ones = in(reg) &raw const ONES,
            low = const HALF,
            high = const HALF + CACHE_LINE,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
}
