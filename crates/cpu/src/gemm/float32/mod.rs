//! Matrix products in float32: `y = x · Wᵀ + b`, with W packed once.
//!
//! W is (outputs, inputs). Sixteen neighbouring outputs make a panel, and a panel holds their weights input by input, so that a
//! kernel reads memory in one direction:
//!
//! ```text
//! panel 0:  w[0][0] w[1][0] … w[15][0] │ w[0][1] … w[15][1] │ … │ w[0][K-1] … w[15][K-1]
//! panel 1:  w[16][0] …
//! ```
//!
//! The last panel is padded with zeros. An output is the bias plus the products of its inputs, added in the order of the inputs,
//! whatever the number of rows or the register tile: a row's result does not depend on its neighbours.
//!
//! Cost: one multiply-add for each weight and row, one read of W for each block of rows that fits the cache.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::ops::Range;

use peregrine_nn::Dense;

use crate::gemm::panels::Panels;
use crate::gemm::product;
use crate::isa::Isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
use crate::isa::Level;
use crate::memory::arena::Arena;

/// Float32 weights packed for products.
pub type PackedFloat32 = Panels<f32>;

/// Bytes of `x` in a block of rows, which is read again for every pair of panels.
const BLOCK_BYTES: usize = 512 << 10;

impl PackedFloat32 {
    /// Packs dense layers that share their input.
    pub(crate) fn from_dense(parts: &[Dense<'_>], arena: &Arena) -> PackedFloat32 {
        let mut packed = PackedFloat32::new(parts, |inputs| inputs, arena);
        packed.pack_floats(parts, vec![(); packed.panels()], |floats, lines, lane, ()| {
            for (line, &w) in lines.iter_mut().zip(floats) {
                line.0[lane] = w;
            }
        });
        packed
    }
}

/// Rows of `packed.inputs()` numbers times some panels.
type Product<'a> = product::Product<&'a [f32], &'a PackedFloat32>;

impl Product<'_> {
    fn rows(&self) -> usize {
        self.x.len() / self.packed.inputs.max(1)
    }
}

/// Writes the outputs of a range of panels, for all rows of `x`, to `out`.
pub(crate) fn multiply(
    isa: Isa,
    x: &[f32],
    packed: &PackedFloat32,
    panels: Range<usize>,
    out: &mut [f32],
) {
    let product = Product::new(isa, x, (packed, packed.outputs), panels);
    let (rows, inputs, width) = (product.rows(), packed.inputs, product.width);
    assert_eq!(x.len(), rows * inputs, "whole rows");
    assert_eq!(out.len(), rows * width, "room for every output");
    if inputs == 0 || width == 0 {
        return;
    }
    let block = (BLOCK_BYTES / (inputs * size_of::<f32>())).max(1);
    for (x, out) in x.chunks(block * inputs).zip(out.chunks_mut(block * width)) {
        multiply_block(isa, Product { x, ..product }, out);
    }
}

fn multiply_block(isa: Isa, product: Product<'_>, out: &mut [f32]) {
    match isa.level() {
        // SAFETY: an `Isa` of this level proves the instructions; `multiply` has checked the sizes.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Vnni | Level::Amx => unsafe { avx512::multiply(product, out) },
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

    fn pack(weights: &[f32], bias: &[f32], inputs: usize) -> PackedFloat32 {
        let weight = Weight::from_f32(vec![bias.len(), inputs], weights);
        let bias = Weight::from_f32(vec![bias.len()], bias);
        let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        PackedFloat32::from_dense(&[dense], &Arena::default())
    }

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

    /// The definition in float64.
    fn naive(x: &[f32], weights: &[f32], bias: &[f32], inputs: usize) -> Vec<f64> {
        let row = |x: &[f32]| -> Vec<f64> {
            let dot = |w: &[f32]| w.iter().zip(x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let dots = weights.chunks(inputs).map(dot);
            dots.zip(bias).map(|(d, &b): (f64, _)| d + f64::from(b)).collect()
        };
        x.chunks(inputs).flat_map(row).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_level_agrees_with_the_naive_product(
            rows in 0usize..40, inputs in 1usize..70, outputs in 1usize..90, seed in 1u64..1000,
        ) {
            let (x, w) = (numbers(rows * inputs, seed), numbers(outputs * inputs, seed + 7));
            let bias = numbers(outputs, seed + 13);
            let packed = pack(&w, &bias, inputs);
            let expected = naive(&x, &w, &bias, inputs);
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut got = vec![f32::NAN; rows * outputs];
                multiply(isa, &x, &packed, 0..packed.panels(), &mut got);
                for (g, e) in got.iter().zip(&expected) {
                    prop_assert!((f64::from(*g) - e).abs() < 1e-5, "{:?}: {g} for {e}", isa.level());
                }
            }
        }

        #[test]
        fn a_row_does_not_depend_on_its_neighbours(
            rows in 2usize..30, inputs in 1usize..50, outputs in 1usize..70, seed in 1u64..1000,
        ) {
            let (x, w) = (numbers(rows * inputs, seed), numbers(outputs * inputs, seed + 7));
            let packed = pack(&w, &numbers(outputs, seed), inputs);
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut together = vec![0.0; rows * outputs];
                multiply(isa, &x, &packed, 0..packed.panels(), &mut together);
                for (row, expected) in x.chunks(inputs).zip(together.chunks(outputs)) {
                    let mut alone = vec![0.0; outputs];
                    multiply(isa, row, &packed, 0..packed.panels(), &mut alone);
                    prop_assert_eq!(&alone[..], expected);
                }
            }
        }
    }

    #[test]
    fn a_range_of_panels_is_that_part_of_the_whole() {
        let (x, w) = (numbers(5 * 8, 3), numbers(70 * 8, 4));
        let packed = pack(&w, &numbers(70, 5), 8);
        let isa = Isa::best();
        let mut whole = vec![0.0; 5 * 70];
        multiply(isa, &x, &packed, 0..packed.panels(), &mut whole);
        let mut part = vec![0.0; 5 * 22];
        multiply(isa, &x, &packed, 3..5, &mut part);
        for (part, whole) in part.chunks(22).zip(whole.chunks(70)) {
            assert_eq!(part, &whole[48..]);
        }
    }
}
