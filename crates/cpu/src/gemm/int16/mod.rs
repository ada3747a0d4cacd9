//! Matrix products in 16-bit fixed point, as Devlin (2017): `y = (x̂ · Ŵᵀ) / (S·1024) + b`.
//!
//! A weight is rounded to a multiple of 1/1024. A layer with a weight that does not fit int16 (beyond ±31.99) cannot be packed,
//! see [`fits_int16`]. A row of inputs is rounded to multiples of 1/S with S = 1024; where a value would not fit, or the sum of
//! an output could exceed 2³¹, S is halved for that row until neither can happen ([`narrowed_rows`] counts such rows). Products
//! are summed in int32, so every kernel gives the same bits.
//!
//! Sixteen outputs make a panel, which holds two inputs at a time, sixteen pairs to a cache line:
//!
//! ```text
//! panel 0:  w[0][0..2] w[1][0..2] … w[15][0..2] │ w[0][2..4] … w[15][2..4] │ …
//! panel 1:  w[16][0..2] …
//! ```
//!
//! Cost: two bytes of weights for each output and input, read once for every block of rows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use peregrine_model::Weight;
use peregrine_nn::Dense;

use crate::gemm::panels::{Lanes, Panels, set_lane};
use crate::gemm::product;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
use crate::isa::Level;
use crate::isa::lanes::LANES;
use crate::isa::{Isa, kernel};
use crate::memory::arena::Arena;

/// The fixed-point scale of weights, and of inputs that fit with it: 1.0 is stored as 1024.
const ONE: f32 = 1024.0;

/// Bytes of inputs in a block of rows, which is read again for every pair of panels.
const BLOCK_BYTES: usize = 256 << 10;

/// 1.5 · 2²³: adding and subtracting it rounds to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

static NARROWED: AtomicU64 = AtomicU64::new(0);

/// The number of rows so far that had to be rounded to fewer bits to fit.
pub fn narrowed_rows() -> u64 {
    NARROWED.load(Ordering::Relaxed)
}

/// Whether every number of a weight matrix fits int16.
pub fn fits_int16(weight: &Weight) -> bool {
    weight.to_f32().iter().all(|w| (w * ONE).abs() <= f32::from(i16::MAX))
}

/// A pair of weights of each output of a panel.
pub(crate) type Pairs = Lanes<[i16; 2]>;

/// Int16 weights packed for products.
pub struct PackedInt16 {
    panels: Panels<[i16; 2]>,
    /// The largest input, as an integer, with which no sum can overflow.
    limit: i32,
}

impl Deref for PackedInt16 {
    type Target = Panels<[i16; 2]>;

    fn deref(&self) -> &Self::Target {
        &self.panels
    }
}

impl PackedInt16 {
    /// Packs dense layers that share their input. Returns none if a weight does not fit.
    pub(crate) fn from_dense(parts: &[Dense<'_>], arena: &Arena) -> Option<PackedInt16> {
        let mut panels = Panels::new(parts, |inputs| inputs.div_ceil(2), arena);
        // One for each panel; none if a weight does not fit.
        let mut limits = vec![Some(i32::from(i16::MAX)); panels.panels()];
        let extras = limits.iter_mut().collect();
        panels.pack_floats(parts, extras, |floats, lines, lane, limit: &mut &mut Option<i32>| {
            let row = pack_row(floats, lines, lane);
            **limit = limit.zip(row).map(|(limit, row)| limit.min(row));
        });
        let limits = limits.into_iter().collect::<Option<Vec<i32>>>()?;
        let limit = limits.into_iter().min().unwrap_or(i32::from(i16::MAX));
        Some(PackedInt16 { panels, limit })
    }

    /// A layer with a selection of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> PackedInt16 {
        PackedInt16 { panels: self.panels.select(outputs), limit: self.limit }
    }
}

/// Packs one output's weights, if they fit. Returns the largest input with which their sum cannot overflow.
fn pack_row(weights: &[f32], lines: &mut [Pairs], lane: usize) -> Option<i32> {
    let fits = |w: &f32| (w * ONE).abs() <= f32::from(i16::MAX);
    if !weights.iter().all(fits) {
        return None;
    }
    let integer = |w: &f32| ((w * ONE + ROUND) - ROUND) as i16;
    let integers: Vec<i16> = weights.iter().map(integer).collect();
    set_lane(lines, lane, &integers);
    let sum: i64 = integers.iter().map(|&w| i64::from(w).abs()).sum();
    Some((i64::from(i32::MAX) / sum.max(1)).min(i64::from(i16::MAX)) as i32)
}

/// Rows of inputs in int16.
#[derive(Default)]
pub(crate) struct QuantisedInt16 {
    values: Vec<i16>,
    /// The factor of each row's sums.
    scales: Vec<f32>,
    stride: usize,
}

impl QuantisedInt16 {
    /// Rounds rows for a layer.
    pub(crate) fn fill(&mut self, isa: Isa, x: &[f32], packed: &PackedInt16) {
        let inputs = packed.inputs;
        let rows = x.len() / inputs.max(1);
        self.stride = 2 * packed.groups();
        self.scales.clear();
        self.values.clear();
        self.values.resize(rows * self.stride, 0);
        let limit = packed.limit as f32;
        let rows =
            x.chunks_exact(inputs.max(1)).zip(self.values.chunks_exact_mut(self.stride.max(1)));
        for (row, values) in rows {
            let mut max = 0.0;
            largest_of(isa, row, &mut max);
            let mut scale = ONE;
            // The bound ends the loop for an infinite value, which the conversion saturates.
            while max * scale > limit && scale > 1e-6 {
                scale /= 2.0;
            }
            if scale != ONE {
                NARROWED.fetch_add(1, Ordering::Relaxed);
            }
            round(isa, row, scale, &mut values[..inputs]);
            self.scales.push(1.0 / (scale * ONE));
        }
    }
}

kernel! {
    fn largest_of(values: &[f32], max: &mut f32) = largest_of_body
}

#[inline(always)]
fn largest_of_body<const FMA: bool>(values: &[f32], max: &mut f32) {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            let v = chunk[i].abs();
            lanes[i] = if v > lanes[i] { v } else { lanes[i] };
        }
    }
    *max = lanes.iter().chain(rest).fold(0.0, |m: f32, v| m.max(v.abs()));
}

kernel! {
    fn round(values: &[f32], scale: f32, out: &mut [i16]) = round_body
}

#[inline(always)]
fn round_body<const FMA: bool>(values: &[f32], scale: f32, out: &mut [i16]) {
    for (out, &v) in out.iter_mut().zip(values) {
        let v = v * scale;
        let v = if v > -32767.0 { v } else { -32767.0 };
        let v = if v < 32767.0 { v } else { 32767.0 };
        let bits = (v + ROUND).to_bits();
        *out = bits.wrapping_sub(ROUND.to_bits()) as i16;
    }
}

/// A block of the rows of a [`QuantisedInt16`].
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [i16],
    stride: usize,
    scales: &'a [f32],
}

type Product<'a> = product::Product<Rows<'a>, &'a PackedInt16>;

/// Writes the outputs of a range of panels, for all rows of `x`, to `out`.
pub(crate) fn multiply(
    isa: Isa,
    x: &QuantisedInt16,
    packed: &PackedInt16,
    panels: Range<usize>,
    out: &mut [f32],
) {
    let (stride, rows) =
        (x.stride, Rows { values: &x.values, stride: x.stride, scales: &x.scales });
    let product = Product::new(isa, rows, (packed, packed.outputs), panels);
    assert_eq!(stride, 2 * packed.groups(), "as many inputs as weights");
    if product.panels == 0 || stride == 0 {
        return;
    }
    let width = product.width;
    assert_eq!(x.values.len(), x.scales.len() * stride, "whole rows");
    assert_eq!(out.len(), x.scales.len() * width, "room for every output");
    let block = (BLOCK_BYTES / (2 * stride)).max(1);
    let values = x.values.chunks(block * stride);
    for ((values, scales), out) in
        values.zip(x.scales.chunks(block)).zip(out.chunks_mut(block * width))
    {
        multiply_block(isa, Product { x: Rows { values, stride, scales }, ..product }, out);
    }
}

fn multiply_block(isa: Isa, product: Product<'_>, out: &mut [f32]) {
    match isa.level() {
        // SAFETY: an `Isa` of this level proves the instructions; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni | Level::Amx => unsafe { avx512::vnni::multiply(product, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512::plain::multiply(product, out) },
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
    use proptest::prelude::*;

    fn numbers(count: usize, seed: u64, scale: f32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * scale
        };
        (0..count).map(|_| next()).collect()
    }

    fn packed(weights: &[f32], bias: &[f32], inputs: usize) -> PackedInt16 {
        let weight = Weight::from_f32(vec![bias.len(), inputs], weights);
        let bias = Weight::from_f32(vec![bias.len()], bias);
        let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        PackedInt16::from_dense(&[dense], &Arena::default()).expect("small weights fit")
    }

    fn product(isa: Isa, x: &[f32], packed: &PackedInt16) -> Vec<f32> {
        let mut quantised = QuantisedInt16::default();
        quantised.fill(isa, x, packed);
        let mut out = vec![f32::NAN; quantised.scales.len() * packed.outputs()];
        multiply(isa, &quantised, packed, 0..packed.panels(), &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_level_gives_the_same_bits_near_the_exact_product(
            rows in 0usize..30, inputs in 1usize..90, outputs in 1usize..70, seed in 1u64..1000,
            size in prop::sample::select(vec![1.0f32, 2.0, 60.0, 1e4]),
        ) {
            let (x, w) = (numbers(rows * inputs, seed, size), numbers(outputs * inputs, seed + 7, 2.0));
            let bias = numbers(outputs, seed + 13, 1.0);
            let packed = packed(&w, &bias, inputs);
            let expected = product(Isa::new(Level::Portable).unwrap(), &x, &packed);
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                prop_assert_eq!(&product(isa, &x, &packed), &expected);
            }
            for (r, row) in x.chunks(inputs).enumerate() {
                let max = row.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                // Half the spacing of either factor; that of the inputs grows with large inputs.
                let scale = (max / 32767.0).max(1.0 / 1024.0) * 2.0;
                let allowed = inputs as f32 * (scale + max / 2048.0) + 1e-4;
                for (o, bias) in bias.iter().enumerate() {
                    let dot: f64 = row.iter().zip(&w[o * inputs..]).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    let error = (f64::from(expected[r * outputs + o]) - dot - f64::from(*bias)).abs();
                    prop_assert!(error < f64::from(allowed), "off by {error}, allowed {allowed}");
                }
            }
        }
    }

    #[test]
    fn weights_that_do_not_fit_are_refused() {
        let weight = |w: f32| Weight::from_f32(vec![1, 2], &[0.5, w]);
        for (w, fits) in [(31.9, true), (-31.9, true), (32.1, false), (f32::NAN, false)] {
            assert_eq!(fits_int16(&weight(w)), fits);
            let dense = Dense { weight: &weight(w), bias: None, alpha: None };
            assert_eq!(PackedInt16::from_dense(&[dense], &Arena::default()).is_some(), fits);
        }
    }

    #[test]
    fn no_sum_overflows_whatever_the_inputs() {
        // 4096 products of about 30 · 30 are far beyond 2³¹ multiples of 2⁻²⁰.
        let w = vec![30.0; 4096];
        let packed = packed(&w, &[0.0], 4096);
        let before = narrowed_rows();
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let got = product(isa, &vec![30.0; 4096], &packed)[0];
            assert!((got / (30.0 * 30.0 * 4096.0) - 1.0).abs() < 0.05, "{got}");
        }
        assert!(narrowed_rows() > before);
        let odd = product(Isa::best(), &[f32::INFINITY; 4096], &packed)[0];
        assert!(!odd.is_nan());
    }
}
