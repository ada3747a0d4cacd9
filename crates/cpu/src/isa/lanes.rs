//! Arithmetic on sixteen lanes in plain Rust that compilers vectorise: sums, maxima, exp, sigmoid, softmax.
//!
//! Sums are accumulated lane by lane and the lanes added in a fixed order: a result depends on its input alone, never on how many
//! rows are computed together.

use bytemuck::Zeroable;

/// Numbers of a vector: one AVX-512 register, two AVX2 registers.
pub(crate) const LANES: usize = 16;

/// `[f(0), f(1), …]`. As `array::from_fn`, but always inlined: that one is compiled without its caller's target features and often
/// remains a call, which passes vectors through memory.
#[inline(always)]
pub(crate) fn array<T: Copy, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut all = [f(0); N];
    for (i, one) in all.iter_mut().enumerate().skip(1) {
        *one = f(i);
    }
    all
}

/// The fused multiply-add `a · b + c`, rounded once. `FMA`: there is an instruction for it.
#[inline(always)]
pub(crate) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    const ALWAYS: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
    if FMA || ALWAYS { a.mul_add(b, c) } else { multiply_add_in_doubles(a, b, c) }
}

/// At most sixteen numbers, padded with zeros.
#[inline(always)]
pub(crate) fn zero_padded<T: Copy + Zeroable>(numbers: &[T]) -> [T; LANES] {
    let mut lanes = [T::zeroed(); LANES];
    lanes[..numbers.len()].copy_from_slice(numbers);
    lanes
}

/// `a · b + c`, rounded once, with instructions of every processor. `mul_add` would call a library function, which prevents
/// vectorisation.
///
/// The product of two float32 is exact in float64, the sum need not be. Rounded to float64 it may become the midpoint of two float32
/// and then round to the wrong one. So an inexact sum is truncated and its last bit set: such a float64 is no midpoint, and lies on
/// the exact sum's side of each (rounding to odd: Boldo and Melquiond, 2008).
#[inline(always)]
fn multiply_add_in_doubles(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The exact rounding error (Knuth's two-sum).
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    // This product cannot underflow in float64. If the sum is not finite it is NaN, neither below nor above zero.
    let side = lost * sum;
    let (too_far, too_near) = (side < 0.0, side > 0.0);
    let truncated = sum.to_bits().wrapping_sub(u64::from(too_far));
    f64::from_bits(truncated | u64::from(too_far | too_near)) as f32
}

/// Rounds a number in the range of an int8 to the nearest integer, ties to even: adding 1.5 · 2²³ leaves it in the low bits.
#[inline(always)]
pub(crate) fn round_to_byte(v: f32) -> i8 {
    (v + 12_582_912.0).to_bits() as i8
}

#[inline(always)]
fn fold(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The horizontal sum.
#[inline(always)]
pub(crate) fn add_up(lanes: [f32; LANES]) -> f32 {
    fold(lanes, |a, b| a + b)
}

/// `Σ f(v)`.
#[inline(always)]
pub(crate) fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f(chunk[i]);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += f(v);
    }
    add_up(lanes)
}

/// The largest value, ignoring NaN; negative infinity if there is none.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    largest_of(values, f32::NEG_INFINITY, |v| v)
}

/// The largest magnitude, ignoring NaN; 0 if there is none.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    largest_of(values, 0.0, f32::abs)
}

/// The maximum of `f(v)` and `min`. Four accumulators hide the latency of the comparison.
#[inline(always)]
fn largest_of(values: &[f32], min: f32, f: impl Fn(f32) -> f32) -> f32 {
    const WIDE: usize = 4 * LANES;
    let max = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = values.as_chunks::<WIDE>();
    let mut wide = [min; WIDE];
    for chunk in chunks {
        for i in 0..WIDE {
            wide[i] = max(wide[i], f(chunk[i]));
        }
    }
    for (lane, &v) in wide.iter_mut().zip(rest) {
        *lane = max(*lane, f(v));
    }
    let mut lanes = [min; LANES];
    for quarter in wide.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            lanes[i] = max(lanes[i], quarter[i]);
        }
    }
    fold(lanes, max)
}

/// `y += a · x`.
#[inline(always)]
pub(crate) fn add_scaled<const FMA: bool>(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = multiply_add::<FMA>(a, x, *y);
    }
}

/// `eˣ` to about two units in the last place, with `x` clamped to −87.3 … 88.3.
///
/// `x = n ln 2 + r`: adding 1.5 · 2²³ leaves `n` in the low bits of a float, a polynomial (Cephes' `expf`) computes `eʳ`, and `n`
/// becomes the exponent of a factor.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    const POLYNOMIAL: [f32; 6] =
        [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let x = if x < 88.3 { x } else { 88.3 };
    let x = if x > -87.3 { x } else { -87.3 };
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = multiply_add::<FMA>(n, -0.693_359_4, x);
    let r = multiply_add::<FMA>(n, 2.121_944_4e-4, r);
    let mut p = POLYNOMIAL[0];
    for c in &POLYNOMIAL[1..] {
        p = multiply_add::<FMA>(p, r, *c);
    }
    let e_r = multiply_add::<FMA>(p * r, r, r) + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    e_r * f32::from_bits(exponent)
}

/// `eˣ` of a number that is not above zero, with an absolute error below 1.5e-7: enough for the terms of a softmax or log-sum-exp,
/// whose largest is 1. Below −86.5 it stays below 1e-37.
///
/// `x = n ln 2 + r`: a minimax polynomial, exact at 0, computes `eʳ`, and `n` is added to its exponent.
#[inline(always)]
pub(crate) fn exp_down<const FMA: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    const POLYNOMIAL: [f32; 5] = [8.312_738_6e-3, 4.189_003_8e-2, 1.666_711e-1, 0.499_992_35, 1.0];
    let x = if x > -86.5 { x } else { -86.5 };
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let r = multiply_add::<FMA>(shifted - ROUND, -std::f32::consts::LN_2, x);
    let mut p = POLYNOMIAL[0];
    for c in &POLYNOMIAL[1..] {
        p = multiply_add::<FMA>(p, r, *c);
    }
    let p = multiply_add::<FMA>(p, r, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// Coefficients of a minimax polynomial of `2ᶠ` for −½ to ½, the highest power first, exact at 0.
pub(crate) const EXP2: [f32; 6] =
    [1.326_472_7e-3, 9.671_513e-3, 5.550_733_6e-2, 0.240_222_42, 0.693_147_06, 1.0];

/// `2ᵗ` of a number up to 127, with a relative error below 2.5e-7, as `exp_down` computes it. Below −125 it stays below 1e-37.
#[inline(always)]
pub(crate) fn exp2<const FMA: bool>(t: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let t = if t > -125.0 { t } else { -125.0 };
    let shifted = t + ROUND;
    let f = t - (shifted - ROUND);
    let mut p = EXP2[0];
    for c in &EXP2[1..] {
        p = multiply_add::<FMA>(p, f, *c);
    }
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

#[inline(always)]
fn each_exp<const FMA: bool>(max: f32, lanes: &mut [f32; LANES]) {
    for s in lanes {
        *s = exp::<FMA>(*s - max);
    }
}

/// Softmax: replaces scores by probabilities.
#[inline(always)]
pub(crate) fn softmax<const FMA: bool>(scores: &mut [f32]) {
    let max = largest(scores);
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        each_exp::<FMA>(max, chunk);
    }
    if !rest.is_empty() {
        // As a padded vector: one by one, the rest would cost more than all whole vectors.
        let mut lanes = [max; LANES];
        lanes[..rest.len()].copy_from_slice(rest);
        each_exp::<FMA>(max, &mut lanes);
        rest.copy_from_slice(&lanes[..rest.len()]);
    }
    let scale = 1.0 / sum(scores, |v| v);
    for s in scores {
        *s *= scale;
    }
}

/// The bits of numbers, for exact comparison.
#[cfg(test)]
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        /// Any numbers, and numbers whose sum is close to the midpoint of two float32, large and small.
        #[test]
        fn a_multiply_add_rounds_once(
            bits: [u32; 3],
            (a, b) in (1u32..1 << 24, 1u32..1 << 24),
            (exponent, shift, sign) in (-149i32..40, 0i32..60, prop::sample::select(vec![-1.0f32, 1.0])),
        ) {
            let any = bits.map(f32::from_bits);
            let size = |exponent: i32| 2f64.powi(exponent) as f32;
            let c = (bits[2] | 1 << 23) as f32 * size(exponent);
            let near = [a as f32 * sign, b as f32 * size(exponent - shift), c];
            // The product is half a unit in the last place of `c`, with a tiny error.
            let middle = [(a | 1) as f32 * sign, size(exponent - 1) / (a | 1) as f32, c];
            for [a, b, c] in [any, near, middle] {
                let (got, exact) = (multiply_add_in_doubles(a, b, c), a.mul_add(b, c));
                prop_assert!(
                    got.to_bits() == exact.to_bits() || got.is_nan() && exact.is_nan(),
                    "{a:e} · {b:e} + {c:e} is {exact:e}, not {got:e}"
                );
            }
        }
    }

    /// The product is close to half a unit in the last place of `c`: in float64, the sum is a midpoint.
    #[test]
    fn a_multiply_add_is_not_rounded_to_a_double_first() {
        let step = f32::EPSILON;
        let above = (8_392_705.0, 8_384_513.0 * 2f32.powi(-70), 1.0);
        let below = (1.0 + step, (1.0 - step) * 2f32.powi(-24), 1.0 + step);
        for ((a, b, c), exact) in [(above, 1.0 + step), (below, 1.0 + step)] {
            for sign in [1.0, -1.0] {
                let got = multiply_add_in_doubles(a * sign, b, c * sign);
                assert_eq!(got, exact * sign);
                assert_ne!(got, (f64::from(a * sign) * f64::from(b) + f64::from(c * sign)) as f32);
            }
        }
    }

    fn each_x() -> impl Iterator<Item = f32> {
        (-87_000..88_000).map(|i| i as f32 * 1e-3 + 1.7e-5)
    }

    #[test]
    fn exp_is_close_everywhere() {
        for x in each_x() {
            let exact = f64::from(x).exp();
            for got in [exp::<true>(x), exp::<false>(x)] {
                let error = (f64::from(got) - exact).abs() / exact;
                assert!(error < 2.5e-7, "exp({x}) is off by {error:e}");
            }
        }
        assert_eq!(exp::<true>(0.0), 1.0);
        assert!(exp::<true>(-1e30) < 2e-38 && exp::<true>(1e30) > 1e38);
    }

    #[test]
    fn exp_down_is_close_where_it_counts() {
        for x in (0..100_000).map(|i| i as f32 * -1e-3) {
            let exact = f64::from(x).exp();
            for got in [exp_down::<true>(x), exp_down::<false>(x)] {
                let error = (f64::from(got) - exact).abs();
                assert!(
                    error < 1.5e-7 && error < 1e-5 * exact + 1e-37,
                    "exp({x}) is off by {error:e}"
                );
            }
        }
        assert_eq!(exp_down::<true>(0.0), 1.0);
        for x in [-1e30, f32::NEG_INFINITY, f32::NAN] {
            assert!((0.0..1e-37).contains(&exp_down::<true>(x)));
        }
    }

    #[test]
    fn exp2_is_close_where_it_counts() {
        for t in (-124_999..127_000).map(|i| i as f32 * 1e-3) {
            let exact = f64::from(t).exp2();
            for got in [exp2::<true>(t), exp2::<false>(t)] {
                let error = (f64::from(got) - exact).abs();
                assert!(error < 2.5e-7 * exact, "2^{t} is off by {error:e}");
            }
        }
        assert_eq!(exp2::<true>(0.0), 1.0);
        for t in [-1e30, f32::NEG_INFINITY, f32::NAN] {
            assert!((0.0..1e-37).contains(&exp2::<true>(t)));
        }
    }

    #[test]
    fn sums_include_the_rest() {
        for n in 0..70 {
            let v: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let triangle = (n * n - n) as f32 / 2.0;
            assert_eq!(sum(&v, |x| x), triangle.max(0.0));
            assert_eq!(largest(&v), if n == 0 { f32::NEG_INFINITY } else { n as f32 - 1.0 });
        }
    }
}
