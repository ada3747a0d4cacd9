//! Networks with random weights, for tests and for benchmarks without a trained model.

use std::sync::Arc;

use peregrine_text::Tokenizer;

use crate::names::{self, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING, transformer_weights};
use crate::{
    Architecture, Dialect, Member, Model, ModelError, Search, Transformer, Weight, Weights,
};

/// Weights for a description: matrices scaled by their number of inputs, norms near the identity,
/// small biases. Tables of equal size are tied, as in most models. The same seed gives the same
/// numbers on every machine.
///
/// Position tables are filled like matrices: a description with computed positions is more useful.
pub fn random_transformer(description: &Transformer, seed: u64) -> Weights {
    random_list(transformer_weights(description), seed)
}

/// Weights for any description.
pub fn random_weights(architecture: &Architecture, seed: u64) -> Weights {
    random_list(names::weights(architecture), seed)
}

/// A model with random weights whose vocabulary is `</s>`, `<unk>`, `w2`, `w3`, …
pub fn made_up_model(architecture: Architecture, seed: u64) -> Result<Model, ModelError> {
    let words = |count: usize| -> Result<Arc<Tokenizer>, ModelError> {
        let mut list = String::from("</s>\n<unk>\n");
        for id in 2..count {
            list.push_str(&format!("w{id}\n"));
        }
        Ok(Arc::new(Tokenizer::words("words.txt", list.into_bytes().into(), None)?))
    };
    let dialect = match architecture {
        Architecture::RnnFc(_) => Dialect::Devlin,
        _ => Dialect::Marian,
    };
    let source = words(architecture.source_vocabulary())?;
    let target = match architecture.source_vocabulary() == architecture.target_vocabulary() {
        true => Arc::clone(&source),
        false => words(architecture.target_vocabulary())?,
    };
    let weights = random_weights(&architecture, seed);
    Ok(Model {
        dialect,
        members: vec![Member { path: "random".into(), architecture, weights }],
        member_weights: vec![1.0],
        source,
        target,
        search: Search::of(dialect),
        shortlist: None,
        languages: None,
        notes: Vec::new(),
    })
}

fn random_list(list: Vec<names::Expected>, seed: u64) -> Weights {
    let mut weights = Weights::default();
    let mut random = Random(seed);
    for expected in list {
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

    /// A number of the uniform distribution from -1 to 1.
    fn even(&mut self) -> f32 {
        const STEP: f32 = 1.0 / (1 << 23) as f32;
        (self.next() >> 40) as f32 * STEP - 1.0
    }

    fn weight(&mut self, expected: &names::Expected) -> Weight {
        // A uniform distribution of variance 1/n reaches from -sqrt(3/n) to sqrt(3/n).
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
