//! Matrix products in bfloat16: `y = x̃ · W̃ᵀ + b`, with inputs and weights rounded to bfloat16 (ties to even) and sums in
//! float32.
//!
//! The product of two bfloat16 numbers is exact in float32, so only the order of additions matters, and it is the order of AMX:
//! of 32 inputs at a time, those at even indices and those at odd indices are summed separately from zero; the two sums are
//! added, and then added to the total; the bias comes last. Every kernel gives the same bits, except that AMX flushes numbers
//! below 1.2e-38 (subnormal ones) to zero.
//!
//! Sixteen outputs make a panel, which holds two inputs at a time, sixteen pairs to a cache line:
//!
//! ```text
//! panel 0:  w[0][0..2] w[1][0..2] … w[15][0..2] │ w[0][2..4] … w[15][2..4] │ …
//! panel 1:  w[16][0..2] …
//! ```
//!
//! Inputs are padded with zeros to a multiple of 32. Cost: two bytes of weights for each output and input, read once for every
//! block of rows.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::ops::Range;

use peregrine_nn::Dense;

use crate::gemm::panels::{Panels, set_lane};
use crate::gemm::product;
use crate::isa::amx::TILE_ROWS;
use crate::isa::bfloat16::round_to_bfloat16;
use crate::isa::{Isa, Level, kernel};
use crate::memory::arena::{Aligned, Arena};

/// Inputs that are summed from zero before they are added to the total.
const PARTIAL: usize = 32;
/// Cache lines of a panel that hold the weights of so many inputs.
const PARTIAL_LINES: usize = PARTIAL / 2;

/// Bytes of inputs in a block of rows, which is read again for every pair of panels.
const BLOCK_BYTES: usize = 256 << 10;

/// A pair of weights of each output of a panel.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type Pairs = crate::gemm::panels::Lanes<[u16; 2]>;

/// Bfloat16 weights packed for products.
pub type PackedBfloat16 = Panels<[u16; 2]>;

impl PackedBfloat16 {
    /// Packs dense layers that share their input.
    pub(crate) fn from_dense(parts: &[Dense<'_>], arena: &Arena) -> PackedBfloat16 {
        let groups = |inputs: usize| inputs.next_multiple_of(PARTIAL) / 2;
        let mut packed = PackedBfloat16::new(parts, groups, arena);
        packed.pack_floats(parts, vec![(); packed.panels()], |floats, lines, lane, ()| {
            let rounded: Vec<u16> = floats.iter().map(|&w| round_to_bfloat16(w)).collect();
            set_lane(lines, lane, &rounded);
        });
        packed
    }
}

/// Rows of inputs rounded to bfloat16, each padded to a multiple of 32.
#[derive(Default)]
pub(crate) struct Rounded {
    /// Rounded inputs widened to float32, for all kernels but AMX.
    floats: Vec<f32>,
    /// Inputs as bfloat16, for AMX.
    bfloats: Aligned<u16>,
    rows: usize,
    stride: usize,
}

impl Rounded {
    /// Rounds rows of `width` numbers.
    pub(crate) fn fill(&mut self, isa: Isa, x: &[f32], width: usize) {
        self.stride = width.next_multiple_of(PARTIAL);
        self.rows = x.len() / width.max(1);
        let (floats, bfloats) = match isa.level() {
            Level::Amx => (0, self.rows * self.stride),
            _ => (self.rows * self.stride, 0),
        };
        self.floats.resize(floats, 0.0);
        // AMX loads whole tiles: there must be memory behind the last row.
        self.bfloats.reshape(bfloats, TILE_ROWS * self.stride);
        if bfloats > 0 {
            round_to_bfloats(isa, x, width, self.stride, &mut self.bfloats);
        } else {
            round_to_floats(isa, x, width, self.stride, &mut self.floats);
        }
    }
}

kernel! {
    fn round_to_bfloats(x: &[f32], width: usize, stride: usize, out: &mut [u16]) = to_bfloats
}

kernel! {
    fn round_to_floats(x: &[f32], width: usize, stride: usize, out: &mut [f32]) = to_floats
}

#[inline(always)]
fn to_bfloats<const FMA: bool>(x: &[f32], width: usize, stride: usize, out: &mut [u16]) {
    round_rows(x, width, stride, out, round_to_bfloat16);
}

#[inline(always)]
fn to_floats<const FMA: bool>(x: &[f32], width: usize, stride: usize, out: &mut [f32]) {
    round_rows(x, width, stride, out, |x| f32::from_bits(u32::from(round_to_bfloat16(x)) << 16));
}

/// Rounds rows and clears their padding: a longer row may have left infinity there.
#[inline(always)]
fn round_rows<T: Copy + Default>(
    x: &[f32],
    width: usize,
    stride: usize,
    out: &mut [T],
    round: impl Fn(f32) -> T,
) {
    for (row, out) in x.chunks_exact(width.max(1)).zip(out.chunks_exact_mut(stride.max(1))) {
        let (out, padding) = out.split_at_mut(width);
        out.iter_mut().zip(row).for_each(|(out, &x)| *out = round(x));
        padding.fill(T::default());
    }
}

/// A block of the rows of a [`Rounded`].
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AMX reads bfloats"))]
struct Rows<'a> {
    floats: &'a [f32],
    /// The memory from the first row to the end of the buffer: AMX loads whole tiles.
    bfloats: &'a [u16],
    rows: usize,
    stride: usize,
}

type Product<'a> = product::Product<Rows<'a>, &'a PackedBfloat16>;

/// Writes the outputs of a range of panels, for all rows of `x`, to `out`.
pub(crate) fn multiply(
    isa: Isa,
    x: &Rounded,
    packed: &PackedBfloat16,
    panels: Range<usize>,
    out: &mut [f32],
) {
    let rows =
        Rows { floats: &x.floats, bfloats: x.bfloats.memory(), rows: x.rows, stride: x.stride };
    let product = Product::new(isa, rows, (packed, packed.outputs), panels);
    let width = product.width;
    assert_eq!(x.stride, packed.groups() * 2, "as many inputs as weights");
    let rounded = if isa.level() == Level::Amx { x.bfloats.len() } else { x.floats.len() };
    assert_eq!(rounded, x.rows * x.stride, "whole rows, rounded for this level");
    assert_eq!(out.len(), x.rows * width, "room for every output");
    if width == 0 || x.stride == 0 {
        return;
    }
    let block = (BLOCK_BYTES / (x.stride * size_of::<f32>())).next_multiple_of(2 * TILE_ROWS);
    for (i, out) in out.chunks_mut(block * width).enumerate() {
        let (first, rows) = (i * block, out.len() / width);
        let part = first * x.stride..(first + rows) * x.stride;
        let bfloats = x.bfloats.memory().get(part.start..).unwrap_or_default();
        let floats = x.floats.get(part).unwrap_or_default();
        let x = Rows { floats, bfloats, rows, stride: x.stride };
        multiply_block(isa, Product { x, ..product }, out);
    }
}

fn multiply_block(isa: Isa, product: Product<'_>, out: &mut [f32]) {
    match isa.level() {
        // For few rows too: AMX flushes subnormal numbers to zero, so a row's bits would otherwise depend on the number of rows.
        // SAFETY: an `Isa` of this level proves the instructions; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        Level::Amx => unsafe { amx::multiply(product, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Vnni => unsafe { avx512::multiply(product, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { avx2::multiply(product, out) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDot => neon::multiply(product, out),
        _ => portable::multiply(product, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peregrine_model::Weight;
    use proptest::prelude::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn run(isa: Isa, x: &[f32], packed: &PackedBfloat16) -> Vec<f32> {
        let mut rounded = Rounded::default();
        rounded.fill(isa, x, packed.inputs());
        let mut out = vec![f32::NAN; rounded.rows * packed.outputs()];
        multiply(isa, &rounded, packed, 0..packed.panels(), &mut out);
        out
    }

    fn rounded(v: f32) -> f64 {
        f64::from(f32::from_bits(u32::from(round_to_bfloat16(v)) << 16))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_level_gives_the_same_bits(
            rows in 0usize..70, inputs in 1usize..150, outputs in 1usize..90, seed in 1u64..1000,
        ) {
            let (x, w) = (numbers(rows * inputs, seed), numbers(outputs * inputs, seed + 7));
            let bias = numbers(outputs, seed + 13);
            let weight = Weight::from_f32(vec![outputs, inputs], &w);
            let biases = Weight::from_f32(vec![outputs], &bias);
            let dense = Dense { weight: &weight, bias: Some(&biases), alpha: None };
            let packed = PackedBfloat16::from_dense(&[dense], &Arena::default());
            let expected = run(Isa::new(Level::Portable).unwrap(), &x, &packed);
            for (i, got) in expected.iter().enumerate() {
                let (row, output) = (i / outputs, i % outputs);
                let pairs = x[row * inputs..].iter().zip(&w[output * inputs..]).take(inputs);
                let dot: f64 = pairs.map(|(&x, &w)| rounded(x) * rounded(w)).sum();
                let want = dot + f64::from(bias[output]);
                prop_assert!((f64::from(*got) - want).abs() < 1e-5, "{got} for {want}");
            }
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                prop_assert_eq!(&run(isa, &x, &packed), &expected, "{:?}", isa.level());
            }
        }
    }

    /// Flushing subnormal numbers to zero is the only difference of AMX.
    #[test]
    fn subnormal_numbers_are_zero_for_amx_alone() {
        let (inputs, outputs) = (40, 5);
        let weight = Weight::from_f32(vec![outputs, inputs], &vec![1.0; outputs * inputs]);
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let packed = PackedBfloat16::from_dense(&[dense], &Arena::default());
        let subnormal = f32::MIN_POSITIVE / 2.0;
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let expected = if isa.level() == Level::Amx { 0.0 } else { subnormal * inputs as f32 };
            for rows in [1, 12, 20] {
                let got = run(isa, &vec![subnormal; rows * inputs], &packed);
                assert!(got.iter().all(|&y| y == expected), "{:?}: {got:?}", isa.level());
            }
        }
    }
}
