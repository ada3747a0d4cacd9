//! Lanes are moved, added and converted to float16 alike on every instruction set.

use proptest::prelude::*;

use super::*;
use crate::isa::lanes::add_up;
use crate::isa::{Isa, Level};

fn check<I: Vectors>(isa: I) {
    let rows: [[f32; LANES]; LANES] = array(|r| array(|c| (r * LANES + c) as f32));
    let mut transposed = [[0.0; LANES]; LANES];
    isa.transpose(array(|r| &rows[r]), &mut transposed);
    for (c, r) in (0..LANES).flat_map(|c| (0..LANES).map(move |r| (c, r))) {
        assert_eq!(transposed[c][r], rows[r][c], "column {c} of row {r}");
    }
    for run in [1, 2, 4, 8] {
        let mut exchanged = [0.0; LANES];
        isa.store(isa.exchange(isa.load(&rows[1]), run), &mut exchanged);
        assert_eq!(exchanged, array(|i| rows[1][i ^ run]));
    }
    // Numbers of very different sizes: another order of additions would round differently.
    let odd: [[f32; LANES]; LANES] = array(|r| {
        array(|c| (((r * 7 + c * 5) % 23) as f32 - 11.3) * 10f32.powi((c * 3 % 7) as i32))
    });
    let mut sums = [0.0; LANES];
    isa.store(isa.sums(&odd), &mut sums);
    assert_eq!(sums, array(|r| add_up(odd[r])));
}

#[test]
fn lanes_are_moved_and_added_in_the_documented_order() {
    check(Plain::<false>);
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features were detected just before.
            check(unsafe { Avx2::new() });
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the features were detected just before.
            check(unsafe { Avx512::new() });
        }
    }
}

vector_kernel! {
    fn narrow_all(from: &[f32; LANES], to: &mut [Float16; LANES]) = narrow_all_body
}

#[inline(always)]
fn narrow_all_body<I: Vectors>(isa: I, from: &[f32; LANES], to: &mut [Float16; LANES]) {
    isa.store_float16(isa.load(from), to);
}

vector_kernel! {
    fn widen_all(from: &[Float16; LANES], to: &mut [f32; LANES]) = widen_all_body
}

#[inline(always)]
fn widen_all_body<I: Vectors>(isa: I, from: &[Float16; LANES], to: &mut [f32; LANES]) {
    isa.store(isa.load_float16(from), to);
}

fn levels() -> impl Iterator<Item = Isa> {
    Level::ALL.into_iter().filter_map(Isa::new)
}

/// The definition of a finite float16's value.
fn value(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[test]
fn every_float16_has_its_value_and_converts_back() {
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

proptest! {
    #[test]
    fn float16_rounds_to_the_nearest(bits: u32, small in -70_000f32..70_000.0) {
        for v in [f32::from_bits(bits), small, small * 1e-4, small * 1e-9] {
            for isa in levels() {
                let mut rounded = [Float16(0); LANES];
                narrow_all(isa, &[v; LANES], &mut rounded);
                let rounded = rounded[3];
                prop_assert_eq!(rounded.widen().is_nan(), v.is_nan());
                if v.is_nan() {
                    continue;
                }
                let v = f64::from(v).clamp(-65504.0, 65504.0);
                let error = (value(rounded.0) - v).abs();
                for other in [rounded.0.wrapping_sub(1), rounded.0.wrapping_add(1)] {
                    if other & 0x7fff < 0x7c00 {
                        let others = (value(other) - v).abs();
                        prop_assert!(error < others || error == others && rounded.0 & 1 == 0);
                    }
                }
            }
        }
    }
}
