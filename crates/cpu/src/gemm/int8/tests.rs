//! Products in int8, on every instruction set, against the reference.

use super::*;
use crate::tuning::tuner::Tuner;
use peregrine_model::Weight;
use proptest::prelude::*;

/// Pseudo-random numbers from -½ to ½.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// A layer packed from float32 weights, and its int8 weights.
pub(crate) fn pack(weights: Vec<f32>, bias: &[f32], inputs: usize) -> (PackedInt8, Weight) {
    let weight = Weight::from_f32(vec![bias.len(), inputs], &weights).convert(Precision::Int8);
    let bias = Weight::from_f32(vec![bias.len()], bias);
    let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
    (PackedInt8::from_dense(&[dense], &Arena::default()), weight)
}

/// All outputs of a layer.
pub(crate) fn run(isa: Isa, x: &[f32], packed: &PackedInt8) -> Vec<f32> {
    let mut quantised = QuantisedInt8::default();
    quantised.fill(isa, x, packed);
    let mut out = vec![f32::NAN; quantised.scales.len() * packed.outputs()];
    multiply(isa, &quantised, packed, 0..packed.panels(), false, &mut out);
    out
}

pub(crate) fn levels() -> impl Iterator<Item = Isa> {
    Level::ALL.into_iter().filter_map(Isa::new)
}

/// The definition: int8 rows and weights, summed exactly.
fn naive(x: &[f32], weight: &Weight, bias: &[f32]) -> Vec<f32> {
    let inputs = weight.columns();
    let mut out = Vec::new();
    for row in x.chunks(inputs) {
        let max = row.iter().fold(0f32, |m, v| m.max(v.abs()));
        let inverse = if max > 0.0 { 127.0 / max } else { 0.0 };
        let scale = max / 127.0;
        for (o, b) in bias.iter().enumerate() {
            let integers = &weight.data[o * inputs..][..inputs];
            let sum: i64 = row
                .iter()
                .zip(integers)
                .map(|(&x, &w)| (x * inverse).round_ties_even() as i64 * i64::from(w as i8))
                .sum();
            out.push(sum as f32 * (weight.scale(o) * scale) + b);
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_level_gives_the_defined_bits(
        rows in 0usize..70, inputs in 1usize..150, outputs in 1usize..90, seed in 1u64..1000,
    ) {
        let (x, bias) = (numbers(rows * inputs, seed), numbers(outputs, seed + 13));
        let (packed, weight) = pack(numbers(outputs * inputs, seed + 7), &bias, inputs);
        let expected = naive(&x, &weight, &bias);
        for isa in levels() {
            prop_assert_eq!(&run(isa, &x, &packed), &expected, "{:?}", isa.level());
        }
        // The bits do not depend on the tuner's choice.
        let (mut packed, tuner) = (packed, Tuner::default());
        packed.tuning = Some(tuner.shape(inputs, outputs));
        for _ in 0..16 {
            prop_assert_eq!(&run(Isa::best(), &x, &packed), &expected);
        }
    }
}

/// A layer that was packed in float32 before has the integers of one that was not.
#[test]
fn packed_floats_are_quantised_as_weights_are() {
    for (inputs, outputs) in [(1, 1), (70, 50), (256, 32)] {
        let (mut weights, bias) = (numbers(inputs * outputs, 4), numbers(outputs, 5));
        weights[..inputs].fill(0.0);
        let weight = Weight::from_f32(vec![outputs, inputs], &weights);
        let bias = Weight::from_f32(vec![outputs], &bias);
        let dense = [Dense { weight: &weight, bias: Some(&bias), alpha: None }];
        let expected = PackedInt8::from_dense(&dense, &Arena::default());
        let x = numbers(3 * inputs, 6);
        for isa in levels() {
            let packed = PackedFloat32::from_dense(&dense, &Arena::default());
            let packed = PackedInt8::from_float32(isa, &packed);
            assert_eq!(run(isa, &x, &packed), run(isa, &x, &expected));
        }
    }
}

/// Few groups of inputs at the ends of the range fit the 16 bits of AVX2, most of ordinary rows do.
#[test]
fn inputs_of_every_size_are_summed_exactly() {
    let (inputs, outputs) = (600, 100);
    let bias = numbers(outputs, 3);
    let (mut packed, _) = pack(numbers(outputs * inputs, 1), &bias, inputs);
    let groups = packed.groups();
    for (i, line) in packed.panels.lines.iter_mut().enumerate() {
        // A file may have −128.
        let (lane, old) = (i % LANES, line.0[i % LANES][i % 4]);
        line.0[lane][i % 4] = -128;
        packed.starts[i / groups].0[lane] += 128 * (128 + i32::from(old));
    }
    // Those that sum in 32 bits at once, and are slow where they are emulated, have enough tests.
    let levels = || levels().filter(|isa| !matches!(isa.level(), Level::Amx | Level::AvxVnni));
    for rows in [1, 5, 26, 64] {
        let uniform = numbers(rows * inputs, 5);
        let ends = uniform.iter().map(|x| x.signum()).collect();
        let not_negative = uniform.iter().map(|x| x.max(0.0)).collect();
        let one_sign = uniform.iter().map(|x| -x.abs()).collect();
        let small = uniform.iter().enumerate().map(|(i, x)| if i % 300 == 7 { 4.0 } else { *x });
        let mixed = uniform.iter().map(|x| x.powi(5)).collect();
        for x in [uniform.clone(), ends, not_negative, one_sign, small.collect(), mixed] {
            let expected = run(Isa::new(Level::Portable).unwrap(), &x, &packed);
            for isa in levels() {
                assert_eq!(run(isa, &x, &packed), expected, "{rows} rows, {:?}", isa.level());
            }
        }
    }
}

#[test]
fn sums_in_16_bits_saturate_alike_everywhere() {
    for (inputs, size) in [(64, 0.01), (150, 1.0), (512, 1.0)] {
        let bias = numbers(40, 2);
        let (mut packed, _) = pack(numbers(40 * inputs, 3), &bias, inputs);
        let x: Vec<f32> = numbers(7 * inputs, 5).iter().map(|x| x.abs() * size).collect();
        packed.options.saturating = true;
        let expected = run(Isa::new(Level::Portable).unwrap(), &x, &packed);
        for isa in levels() {
            assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
        }
    }
    // One pair of products always fits.
    let (mut packed, _) = pack(numbers(40 * 4, 3), &numbers(40, 2), 4);
    let x = numbers(3 * 4, 8);
    let exact = run(Isa::best(), &x, &packed);
    packed.options.saturating = true;
    assert_eq!(run(Isa::best(), &x, &packed), exact);
    // All at their largest: sums stop at the largest int16.
    let (mut packed, weight) = pack(vec![1.0; 64], &[0.0], 64);
    packed.options.saturating = true;
    let max = 2.0 * f32::from(i16::MAX) * (weight.scale(0) * (1.0 / 127.0));
    assert_eq!(run(Isa::best(), &[1.0; 64], &packed), [max]);
}

#[test]
fn fixed_scales_cut_off_what_does_not_fit() {
    let (mut packed, weight) = pack(numbers(5 * 70, 3), &[0.0; 5], 70);
    packed.options.alpha = Some(100.0);
    let mut x = numbers(2 * 70, 4);
    x[3] = 50.0;
    x[71] = -50.0;
    let cut: Vec<f32> = x.iter().map(|x| (x * 100.0).clamp(-127.0, 127.0)).collect();
    for isa in levels() {
        let got = run(isa, &x, &packed);
        for (i, got) in got.iter().enumerate() {
            let (row, output) = (i / 5, i % 5);
            let integers = weight.data[output * 70..][..70].iter().map(|&w| i64::from(w as i8));
            let inputs = cut[row * 70..][..70].iter().map(|x| x.round_ties_even() as i64);
            let sum: i64 = inputs.zip(integers).map(|(x, w)| x * w).sum();
            assert_eq!(*got, sum as f32 * (weight.scale(output) * (1.0 / 100.0)));
        }
    }
}

/// All at the largest magnitude, where 16-bit sums of pairs would overflow.
#[test]
fn extremes_do_not_saturate() {
    let (inputs, outputs) = (256, 33);
    let bias = vec![0.0; outputs];
    for sign in [1.0, -1.0] {
        let (packed, weight) = pack(vec![sign; inputs * outputs], &bias, inputs);
        for x in [vec![1.0; inputs * 3], vec![-1.0; inputs * 3]] {
            let expected = naive(&x, &weight, &bias);
            for isa in levels() {
                assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
            }
        }
    }
}

/// Four products that together just fit 16 bits, and four that do not.
#[test]
fn sums_around_16_bits_are_exact() {
    let (inputs, outputs) = (256, 33);
    let bias = vec![0.0; outputs];
    for sign in [1.0, -1.0] {
        let (packed, weight) = pack(vec![sign; inputs * outputs], &bias, inputs);
        for (large, others) in [(63.0, 64.0), (64.0, 64.0), (65.0, 64.0), (127.0, 128.0 / 3.0)] {
            for direction in [1.0, -1.0] {
                let mut x = vec![others * direction; inputs * 3];
                x.iter_mut().step_by(4).for_each(|x| *x = large * direction);
                // The row's maximum, which sets its scale; its group of four is sure to exceed 16 bits.
                x.iter_mut().skip(9).step_by(inputs).for_each(|x| *x = 127.0);
                let expected = naive(&x, &weight, &bias);
                for isa in levels() {
                    assert_eq!(run(isa, &x, &packed), expected, "{:?}", isa.level());
                }
            }
        }
    }
}

#[test]
fn zeros_and_empty_rows_are_fine() {
    let (packed, _) = pack(numbers(5 * 7, 1), &[1.0, 2.0, 3.0, 4.0, 5.0], 7);
    for isa in levels() {
        assert_eq!(run(isa, &[0.0; 7], &packed), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(run(isa, &[], &packed).is_empty());
    }
}

#[test]
fn a_selection_has_the_same_outputs() {
    let bias = numbers(50, 2);
    let (packed, _) = pack(numbers(50 * 20, 3), &bias, 20);
    let words = [0, 3, 17, 18, 30, 49];
    let x = numbers(4 * 20, 5);
    let whole = run(Isa::best(), &x, &packed);
    let part = run(Isa::best(), &x, &packed.select(&words));
    for (part, whole) in part.chunks(words.len()).zip(whole.chunks(50)) {
        let expected: Vec<f32> = words.iter().map(|&w| whole[w as usize]).collect();
        assert_eq!(part, expected);
    }
}
