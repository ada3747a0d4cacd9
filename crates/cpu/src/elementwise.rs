//! Elementwise operations between products: activations, layer and RMS norms, residual sums, highway gates, SSRU cells and the
//! running mean of an AAN (average attention network).

use peregrine_model::Activation;

use crate::isa::kernel;
use crate::isa::lanes::{exp, multiply_add, sigmoid, sum};

kernel! {
    /// Applies an activation in place.
    pub(crate) fn activate(activation: Activation, values: &mut [f32]) = activate_body
}

#[inline(always)]
fn activate_body<const FMA: bool>(activation: Activation, values: &mut [f32]) {
    match activation {
        Activation::Identity => {}
        Activation::Relu => each(values, |v| if v > 0.0 { v } else { 0.0 }),
        Activation::Swish => each(values, |v| v * sigmoid::<FMA>(v)),
        Activation::Gelu => {
            each(values, |v| 0.5 * v * (1.0 + libm::erff(v * std::f32::consts::FRAC_1_SQRT_2)));
        }
        Activation::GeluTanh => {
            let inner = |v: f32| 0.797_884_6 * (v + 0.044_715 * v * v * v);
            each(values, |v| v * sigmoid::<FMA>(2.0 * inner(v)));
        }
        Activation::GeluSigmoid => each(values, |v| v * sigmoid::<FMA>(1.702 * v)),
        Activation::Sigmoid => each(values, sigmoid::<FMA>),
        Activation::Tanh => each(values, |v| 1.0 - 2.0 / (1.0 + exp::<FMA>(2.0 * v))),
    }
}

#[inline(always)]
fn each(values: &mut [f32], f: impl Fn(f32) -> f32) {
    for v in values {
        *v = f(*v);
    }
}

/// Parameters of a layer norm, or of an RMS norm if it is not centred.
pub struct Norm {
    pub(crate) scale: Vec<f32>,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) epsilon: f32,
    pub(crate) centred: bool,
}

kernel! {
    /// Normalises rows in place, after adding the rows of `input` (residual sum), if given.
    pub(crate) fn normalise(norm: &Norm, input: Option<&[f32]>, rows: &mut [f32]) = normalise_body
}

/// Row by row, so that the sum is still in L1 when it is normalised.
#[inline(always)]
fn normalise_body<const FMA: bool>(norm: &Norm, input: Option<&[f32]>, rows: &mut [f32]) {
    let width = norm.scale.len().max(1);
    for (i, row) in rows.chunks_exact_mut(width).enumerate() {
        if let Some(input) = input {
            add_body::<FMA>(&input[i * width..], row);
        }
        normalise_row::<FMA>(norm, row);
    }
}

#[inline(always)]
fn normalise_row<const FMA: bool>(norm: &Norm, row: &mut [f32]) {
    let n = row.len() as f32;
    if norm.centred {
        let mean = sum(row, |v| v) / n;
        each(row, |v| v - mean);
    }
    let variance = sum(row, |v| v * v) / n;
    let inverse = 1.0 / (variance + norm.epsilon).sqrt();
    match &norm.bias {
        Some(bias) => {
            for ((v, s), b) in row.iter_mut().zip(&norm.scale).zip(bias) {
                *v = multiply_add::<FMA>(*v * inverse, *s, *b);
            }
        }
        None => {
            for (v, s) in row.iter_mut().zip(&norm.scale) {
                *v = *v * inverse * s;
            }
        }
    }
}

kernel! {
    /// Clamps values to `min..=max`.
    pub(crate) fn clamp(min: f32, max: f32, values: &mut [f32]) = clamp_body
}

#[inline(always)]
fn clamp_body<const FMA: bool>(min: f32, max: f32, values: &mut [f32]) {
    each(values, |v| if v > min { if v < max { v } else { max } } else { min });
}

kernel! {
    /// `y += x`.
    pub(crate) fn add(x: &[f32], y: &mut [f32]) = add_body
}

#[inline(always)]
fn add_body<const FMA: bool>(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

kernel! {
    /// `y = gate∘y + (1 − gate)∘input`.
    pub(crate) fn highway(gate: &[f32], input: &[f32], y: &mut [f32]) = highway_body
}

#[inline(always)]
fn highway_body<const FMA: bool>(gate: &[f32], input: &[f32], y: &mut [f32]) {
    for ((y, &g), &x) in y.iter_mut().zip(gate).zip(input) {
        *y = multiply_add::<FMA>(g, *y - x, x);
    }
}

kernel! {
    /// `y = a∘x + b∘y`.
    pub(crate) fn mix(a: &[f32], x: &[f32], b: &[f32], y: &mut [f32]) = mix_body
}

#[inline(always)]
fn mix_body<const FMA: bool>(a: &[f32], x: &[f32], b: &[f32], y: &mut [f32]) {
    for (((y, &a), &x), &b) in y.iter_mut().zip(a).zip(x).zip(b) {
        *y = multiply_add::<FMA>(a, x, b * *y);
    }
}

kernel! {
    /// One row of an SSRU (simpler simple recurrent unit): updates the cell `state` and writes the hidden state to `out`.
    pub(crate) fn ssru(
        candidate: &[f32],
        forget: &[f32],
        state: &mut [f32],
        out: &mut [f32],
    ) = ssru_body
}

#[inline(always)]
fn ssru_body<const FMA: bool>(
    candidate: &[f32],
    forget: &[f32],
    state: &mut [f32],
    out: &mut [f32],
) {
    for (((out, c), &x), &f) in out.iter_mut().zip(state).zip(candidate).zip(forget) {
        *c = multiply_add::<FMA>(sigmoid::<FMA>(f), *c - x, x);
        *out = if *c > 0.0 { *c } else { 0.0 };
    }
}

kernel! {
    /// One row of an AAN (average attention network): updates the mean of `before` inputs to that of `before + 1`.
    pub(crate) fn average(x: &[f32], before: u32, state: &mut [f32]) = average_body
}

#[inline(always)]
fn average_body<const FMA: bool>(x: &[f32], before: u32, state: &mut [f32]) {
    let before = before as f32;
    for (mean, x) in state.iter_mut().zip(x) {
        *mean = multiply_add::<FMA>(*mean, before, *x) / (before + 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::lanes::bits;
    use crate::isa::{Isa, Level, same_everywhere};

    fn levels() -> impl Iterator<Item = Isa> {
        Level::ALL.into_iter().filter_map(Isa::new)
    }

    /// The textbook definitions in float64.
    fn exact(activation: Activation, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match activation {
            Activation::Identity => x,
            Activation::Relu => x.max(0.0),
            Activation::Swish => x * sigmoid(x),
            Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
            Activation::GeluSigmoid => x * sigmoid(1.702 * x),
            Activation::Sigmoid => sigmoid(x),
            Activation::Tanh => x.tanh(),
        }
    }

    #[test]
    fn activations_match_their_definitions() {
        use Activation::*;
        let x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.05).collect();
        for activation in [Identity, Relu, Swish, Gelu, GeluTanh, GeluSigmoid, Sigmoid, Tanh] {
            for isa in levels() {
                let mut y = x.clone();
                activate(isa, activation, &mut y);
                for (&x, &y) in x.iter().zip(&y) {
                    let error = (f64::from(y) - exact(activation, x.into())).abs();
                    let allowed = 1e-6 * (1.0 + f64::from(x.abs()));
                    assert!(error < allowed, "{activation:?}({x}) = {y}, off by {error:e}");
                }
            }
        }
    }

    /// Numbers whose sums and products are not exact.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + seed * 11) % 1013) as f32 * 0.0137 - 6.9).collect()
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        use Activation::*;
        for n in [1, 7, 16, 83, 512] {
            for activation in [Identity, Relu, Swish, Gelu, GeluTanh, GeluSigmoid, Sigmoid, Tanh] {
                same_everywhere(&format!("{activation:?}"), |isa| {
                    let mut y = numbers(n, 1);
                    activate(isa, activation, &mut y);
                    bits(&y)
                });
            }
            for (bias, centred) in [(true, true), (false, false)] {
                let bias = bias.then(|| numbers(n, 2));
                let norm = Norm { scale: numbers(n, 3), bias, epsilon: 1e-6, centred };
                same_everywhere("norm", |isa| {
                    let mut y = numbers(3 * n, 4);
                    normalise(isa, &norm, Some(&numbers(3 * n, 5)), &mut y);
                    bits(&y)
                });
            }
            same_everywhere("gates and cells", |isa| {
                let [a, b, c] = [6, 7, 8].map(|seed| numbers(n, seed));
                let [mut highways, mut mixed, mut state, mut out, mut mean] =
                    [9, 10, 11, 12, 13].map(|seed| numbers(n, seed));
                highway(isa, &a, &b, &mut highways);
                mix(isa, &a, &b, &c, &mut mixed);
                ssru(isa, &a, &b, &mut state, &mut out);
                average(isa, &a, 6, &mut mean);
                [highways, mixed, state, out, mean].map(|values| bits(&values))
            });
        }
    }

    #[test]
    fn a_normalised_row_has_mean_zero_and_variance_one() {
        for isa in levels() {
            for width in [1usize, 7, 16, 48, 100] {
                let mut row: Vec<f32> = (0..width).map(|i| (i * i % 17) as f32).collect();
                let norm =
                    Norm { scale: vec![1.0; width], bias: None, epsilon: 1e-6, centred: true };
                normalise(isa, &norm, None, &mut row);
                let mean: f32 = row.iter().sum::<f32>() / width as f32;
                let square: f32 = row.iter().map(|v| v * v).sum::<f32>() / width as f32;
                assert!(mean.abs() < 1e-5);
                assert!(width == 1 || (square - 1.0).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn fused_add_and_normalise_is_add_then_normalise() {
        for (isa, width) in levels().flat_map(|isa| [1usize, 7, 48].map(|width| (isa, width))) {
            let input: Vec<f32> = (0..3 * width).map(|i| (i * i % 13) as f32).collect();
            let norm = Norm { scale: vec![2.0; width], bias: None, epsilon: 1e-6, centred: true };
            let mut fused: Vec<f32> = (0..3 * width).map(|i| (i % 5) as f32).collect();
            let mut apart = fused.clone();
            normalise(isa, &norm, Some(&input), &mut fused);
            add(isa, &input, &mut apart);
            apart.chunks_mut(width).for_each(|row| normalise(isa, &norm, None, row));
            assert_eq!(fused, apart);
        }
    }

    #[test]
    fn recurrent_cells_follow_their_equations() {
        for isa in levels() {
            let (mut state, mut out) = (vec![2.0, -2.0], vec![0.0; 2]);
            ssru(isa, &[1.0, -4.0], &[0.0, 0.0], &mut state, &mut out);
            assert_eq!(state, [1.5, -3.0]);
            assert_eq!(out, [1.5, 0.0]);
            let mut mean = vec![3.0];
            average(isa, &[9.0], 2, &mut mean);
            assert_eq!(mean, [5.0]);
            let mut y = vec![10.0];
            highway(isa, &[0.25], &[2.0], &mut y);
            assert_eq!(y, [4.0]);
        }
    }
}
