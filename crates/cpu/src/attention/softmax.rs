//! Softmax of the scores of many heads, vectorised across heads.

use crate::isa::lanes::{LANES, exp_down};
use crate::isa::vectors::Vectors;

/// Lower bound of `score - max`. Lower scores would give denormal weights, which take processors a hundred times as long.
const MIN_EXPONENT: f32 = -60.0;

/// Turns scores into probabilities. Scores whose distance is a multiple of `columns`, a power of two, share a softmax. Padding of
/// negative infinity does not count.
#[inline(always)]
pub(super) fn softmax<I: Vectors>(isa: I, scores: &mut [[f32; LANES]], columns: usize) {
    let vectors = columns.div_ceil(LANES);
    for first in 0..vectors {
        let mut max = isa.all(f32::NEG_INFINITY);
        for scores in scores.iter().skip(first).step_by(vectors) {
            max = isa.larger(isa.load(scores), max);
        }
        for lanes in [8, 4, 2, 1].into_iter().filter(|&lanes| lanes >= columns) {
            max = isa.larger(max, isa.exchange(max, lanes));
        }
        let mut maxima = [0.0; LANES];
        isa.store(max, &mut maxima);
        let mut sums = isa.all(0.0);
        for scores in scores.iter_mut().skip(first).step_by(vectors) {
            for i in 0..LANES {
                let x = scores[i] - maxima[i];
                let x = if x > MIN_EXPONENT { x } else { MIN_EXPONENT };
                scores[i] = if I::FMA { exp_down::<true>(x) } else { exp_down::<false>(x) };
            }
            sums = isa.add(sums, isa.load(scores));
        }
        for lanes in [8, 4, 2, 1].into_iter().filter(|&lanes| lanes >= columns) {
            sums = isa.add(sums, isa.exchange(sums, lanes));
        }
        let mut scales = [0.0; LANES];
        isa.store(sums, &mut scales);
        for scale in &mut scales {
            *scale = 1.0 / *scale;
        }
        let scales = isa.load(&scales);
        for scores in scores.iter_mut().skip(first).step_by(vectors) {
            isa.store(isa.multiply(isa.load(scores), scales), scores);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::vectors::Plain;

    #[test]
    fn many_softmaxes_are_the_same_as_each_alone() {
        for (n, columns) in (1..70usize).flat_map(|n| [1, 2, 4, 8, 16, 32].map(|c| (n, c))) {
            let score = |i: usize| (i as f32 * 0.7).sin() * 3.0;
            let mut all = vec![[f32::NEG_INFINITY; LANES]; (n * columns).div_ceil(LANES)];
            for (i, s) in all.as_flattened_mut()[..n * columns].iter_mut().enumerate() {
                *s = score(i);
            }
            softmax(Plain::<true>, &mut all, columns);
            for column in 0..columns {
                let exact = |i: usize| f64::from(score(i * columns + column)).exp();
                let total: f64 = (0..n).map(exact).sum();
                for i in 0..n {
                    let got = f64::from(all.as_flattened()[i * columns + column]);
                    assert!((got - exact(i) / total).abs() < 1e-6, "{columns} columns of {n}");
                }
            }
        }
    }
}
