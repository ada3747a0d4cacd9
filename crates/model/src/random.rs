//! Networks of random numbers, for tests and for measuring speed where no trained model is at hand.

use crate::names::{self, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING, transformer_weights};
use crate::{Transformer, Weight, Weights};

/// Weights for a description: matrices scaled by their number of inputs, norms near the identity,
/// small biases. Tables of equal size are tied, as in most models. The same seed gives the same
/// numbers on every machine.
///
/// Position tables are filled like matrices: a description with computed positions is more useful.
pub fn random_transformer(description: &Transformer, seed: u64) -> Weights {
    let mut weights = Weights::default();
    let mut random = Random(seed);
    for expected in transformer_weights(description) {
        let tied = match expected.name.as_str() {
            TARGET_EMBEDDING => weights.get(SOURCE_EMBEDDING),
            OUTPUT_WEIGHT => weights.get(TARGET_EMBEDDING),
            _ => None,
        };
        let weight = match tied.filter(|tied| tied.shape == expected.shape) {
            Some(tied) => tied.clone(),
            None => random.weight(&expected),
        };
        weights.insert(expected.name, weight);
    }
    weights
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From -1 to 1, evenly.
    fn even(&mut self) -> f32 {
        const STEP: f32 = 1.0 / (1 << 23) as f32;
        (self.next() >> 40) as f32 * STEP - 1.0
    }

    fn weight(&mut self, expected: &names::Expected) -> Weight {
        // An even distribution of variance 1/n has the half width sqrt(3/n).
        let (centre, width) = match expected.shape[..] {
            [_, inputs] => (0.0, (3.0 / inputs as f32).sqrt()),
            _ if expected.name.ends_with(".scale") => (1.0, 0.1),
            _ => (0.0, 0.1),
        };
        let elements = expected.shape.iter().product();
        let values: Vec<f32> = (0..elements).map(|_| centre + width * self.even()).collect();
        Weight::from_f32(expected.shape.clone(), &values)
    }
}
