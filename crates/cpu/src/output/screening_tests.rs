//! Screening of the output layer against products with all words.

use proptest::prelude::*;

use super::scattered::OutputRows;
use super::screening::{Sample, Screen};
use crate::gemm::int8::QuantisedInt8;
use crate::gemm::int8::tests::{levels, numbers, pack, run};
use crate::isa::Isa;

/// With 2048 random inputs the bounds are wider than the differences of scores, unless one word is far ahead.
#[test]
fn a_sample_tells_whether_screening_pays() {
    let Some(isa) = levels().find(|&isa| OutputRows::is_fast(isa)) else { return };
    let (inputs, outputs) = (2048, 640);
    let x = numbers(inputs, 3);
    for (ahead, pays) in [(0.0, false), (1.0, true)] {
        let mut weights = numbers(inputs * outputs, 4);
        for (weight, x) in weights.iter_mut().zip(&x) {
            *weight += ahead * x;
        }
        let (packed, _) = pack(weights, &vec![0.0; outputs], inputs);
        let sample = Sample::new(&packed);
        let mut quantised = QuantisedInt8::default();
        quantised.fill(isa, &x, &packed);
        let best = run(isa, &x, &packed).into_iter().reduce(f32::max).expect("words");
        for _ in 0..20 {
            sample.look(isa, &quantised, best, &mut Vec::new());
        }
        assert_eq!(sample.pays(), pays, "the best word's score is {best}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Survivors of screening include every best word, ties included, and no score exceeds its bound.
    #[test]
    fn screening_loses_no_best_word(
        inputs in 1usize..300,
        outputs in 1usize..400,
        banned in prop::collection::vec(0u32..400, 0..5),
        coarse: bool,
        seed in 1u64..1000,
    ) {
        let isa = Isa::best();
        if OutputRows::is_fast(isa) {
            let mut weights = numbers(outputs * inputs, seed);
            if coarse {
                // Weights of two values only: words tie, and all weights are at the ends of the range.
                weights.iter_mut().for_each(|w| *w = w.signum());
            }
            let (packed, _) = pack(weights, &numbers(outputs, seed + 2), inputs);
            let x = numbers(inputs, seed + 1);
            let mut quantised = QuantisedInt8::default();
            quantised.fill(isa, &x, &packed);
            let (rows, screen) = (OutputRows::new(&packed), Screen::new(&packed));
            let (mut bounds, mut words) = (Vec::new(), Vec::new());
            let memory = (&mut bounds, &mut words);
            let few = screen.survivors(isa, (&quantised, &packed, &rows), &banned, memory);
            let scores = run(isa, &x, &packed);
            let allowed = |word: &u32| !banned.contains(word);
            for word in (0..outputs as u32).filter(allowed) {
                prop_assert!(bounds[word as usize] >= scores[word as usize]);
            }
            if few {
                let score = |word: &u32| scores[*word as usize];
                let best = (0..outputs as u32).filter(allowed).map(|w| score(&w)).fold(f32::MIN, f32::max);
                let best: Vec<u32> =
                    (0..outputs as u32).filter(|w| allowed(w) && score(w) == best).collect();
                prop_assert!(best.iter().all(|word| words.contains(word)), "{best:?}");
                prop_assert!(words.is_sorted() && words.iter().all(allowed));
            }
        }
    }
}
