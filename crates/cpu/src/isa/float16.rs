//! Numbers in 16 bits: 5 for the exponent, 10 behind the point (IEEE 754's binary16).
//!
//! Rust has no such type yet. Processors with AVX2 turn them into floats and back by one instruction each
//! (`vectors`); this is the same in plain Rust.

use bytemuck::{Pod, Zeroable};

use crate::isa::lanes::{LANES, largest};
use crate::isa::vectors::{Vectors, vector_kernel};

/// A number of half precision. What is too large for one becomes the largest there is; NaN stays NaN.
#[derive(Debug, Default, Clone, Copy, PartialEq, Zeroable, Pod)]
#[repr(transparent)]
pub(crate) struct Float16(u16);

impl Float16 {
    pub(crate) const MOST: f32 = 65504.0;

    /// What lies between this and the largest one rounds to that, what is above does not.
    const TOO_LARGE: f32 = 65520.0;
    /// See [`Float16::suits`]: 2⁻¹⁰, a byte's step of which is 130 of the least steps.
    const LEAST_MOST: f32 = 16.0 * Float16::LEAST_NORMAL;

    const SIGN: u32 = 0x8000;
    const NAN: u32 = 0x7e00;
    /// What exponents differ by, in bits of a half and as a factor.
    const BIAS: u32 = 112 << 10;
    const UNBIAS: f32 = f32::from_bits((127 + 112) << 23);
    /// Below this one, steps are all the same: 2⁻²⁴, those of floats from a half to one.
    const LEAST_NORMAL: f32 = f32::from_bits((127 - 14) << 23);

    /// Whether half precision suits numbers that are to become bytes, the largest of which is this one, rounded to it: it is a
    /// finite one, and what is rounded to becomes no coarser than a hundredth of a byte's step.
    #[inline(always)]
    pub(crate) fn suits(most: f32) -> bool {
        (Float16::LEAST_MOST..=Float16::MOST).contains(&most)
    }

    /// The nearest one, of two the even one.
    #[inline(always)]
    pub(crate) fn narrow(v: f32) -> Float16 {
        let sign = v.to_bits() >> 16 & Float16::SIGN;
        let size = v.abs();
        let size = if size > Float16::MOST { Float16::MOST } else { size };
        let bits = size.to_bits();
        let small = (size + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let normal =
            (bits.wrapping_add(0xfff + (bits >> 13 & 1)) >> 13).wrapping_sub(Float16::BIAS);
        let bits = if size < Float16::LEAST_NORMAL { small } else { normal };
        let bits = if v.is_nan() { Float16::NAN } else { bits };
        Float16((sign | bits) as u16)
    }

    /// Its value.
    #[inline(always)]
    pub(crate) fn widen(self) -> f32 {
        let bits = u32::from(self.0);
        let size = bits & !Float16::SIGN;
        let value = f32::from_bits(size << 13) * Float16::UNBIAS;
        let value = if size >= Float16::NAN { f32::NAN } else { value };
        f32::from_bits(value.to_bits() | (bits & Float16::SIGN) << 16)
    }
}

vector_kernel! {
    /// Rounds rows of numbers that are not negative to half precision, but those that it does not [suit](Half::suits).
    pub(crate) fn round_rows(width: usize, rows: &mut [f32]) = round_rows_body
}

#[inline(always)]
fn round_rows_body<I: Vectors>(isa: I, width: usize, rows: &mut [f32]) {
    for row in rows.chunks_exact_mut(width.max(1)) {
        let most = largest(row);
        if most >= Float16::TOO_LARGE || !Float16::suits(Float16::narrow(most).widen()) {
            continue;
        }
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        for chunk in chunks {
            let mut halves = [Float16(0); LANES];
            isa.store_half(isa.load(chunk), &mut halves);
            isa.store(isa.load_half(&halves), chunk);
        }
        rest.iter_mut().for_each(|v| *v = Float16::narrow(*v).widen());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Level};
    use proptest::prelude::*;

    vector_kernel! {
        fn narrow_all(from: &[f32; LANES], to: &mut [Float16; LANES]) = narrow_all_body
    }

    #[inline(always)]
    fn narrow_all_body<I: Vectors>(isa: I, from: &[f32; LANES], to: &mut [Float16; LANES]) {
        isa.store_half(isa.load(from), to);
    }

    vector_kernel! {
        fn widen_all(from: &[Float16; LANES], to: &mut [f32; LANES]) = widen_all_body
    }

    #[inline(always)]
    fn widen_all_body<I: Vectors>(isa: I, from: &[Float16; LANES], to: &mut [f32; LANES]) {
        isa.store(isa.load_half(from), to);
    }

    fn levels() -> impl Iterator<Item = Isa> {
        Level::ALL.into_iter().filter_map(Isa::new)
    }

    /// The definition, for finite ones.
    fn value(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let size = match exponent {
            0 => fraction * 2f64.powi(-24),
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        if bits & 0x8000 == 0 { size } else { -size }
    }

    #[test]
    fn every_half_has_its_value_and_comes_back() {
        for bits in (0..0x7c00u16).chain(0x8000..0xfc00) {
            for isa in levels() {
                let (mut wide, mut back) = ([0.0; LANES], [Float16(1); LANES]);
                widen_all(isa, &[Float16(bits); LANES], &mut wide);
                assert_eq!(f64::from(wide[5]), value(bits), "{bits:#x}, {isa:?}");
                narrow_all(isa, &wide, &mut back);
                assert_eq!(back[9], Float16(bits), "{isa:?}");
            }
        }
    }

    #[test]
    fn rows_are_rounded_where_that_suits_them() {
        let least = 2f32.powi(-10);
        let suited = [(least, true), (1.0, true), (65504.0, true), (65519.9, true)];
        let not = [(0.0, false), (1e-9, false), (least * 0.999, false), (65520.0, false)];
        for (most, rounds) in suited.into_iter().chain(not).chain([(f32::INFINITY, false)]) {
            // Two rows that are no whole vectors, the second of which half precision suits in any case.
            let row = |most: f32| {
                (0..37).map(move |i| if i == 20 { most } else { most.min(1e30) * i as f32 / 41.0 })
            };
            let rows: Vec<f32> = row(most).chain(row(3.0)).collect();
            for isa in levels() {
                let mut got = rows.clone();
                round_rows(isa, 37, &mut got);
                for (i, (&v, &got)) in rows.iter().zip(&got).enumerate() {
                    let expected = if rounds || i >= 37 { Float16::narrow(v).widen() } else { v };
                    assert_eq!(got, expected, "{v} of a row up to {most}, {isa:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_nearest_is_taken(bits: u32, small in -70_000f32..70_000.0) {
            for v in [f32::from_bits(bits), small, small * 1e-4, small * 1e-9] {
                for isa in levels() {
                    let mut half = [Float16(0); LANES];
                    narrow_all(isa, &[v; LANES], &mut half);
                    let half = half[3];
                    prop_assert_eq!(half.widen().is_nan(), v.is_nan());
                    if v.is_nan() {
                        continue;
                    }
                    let v = f64::from(v).clamp(-65504.0, 65504.0);
                    let error = (value(half.0) - v).abs();
                    for other in [half.0.wrapping_sub(1), half.0.wrapping_add(1)] {
                        if other & 0x7fff < 0x7c00 {
                            let others = (value(other) - v).abs();
                            prop_assert!(error < others || error == others && half.0 & 1 == 0);
                        }
                    }
                }
            }
        }
    }
}
