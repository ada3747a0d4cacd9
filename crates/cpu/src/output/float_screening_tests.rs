//! Screening of float32 output layers against products with all words.

use peregrine_model::{Precision, Weight};
use peregrine_nn::Dense;
use proptest::prelude::*;

use super::*;
use crate::gemm::int8::tests::{levels, numbers};
use crate::memory::arena::Arena;

/// A float32 layer with biases.
fn layer(inputs: usize, weights: &[f32], bias: &[f32]) -> Linear {
    let weight = Weight::from_f32(vec![bias.len(), inputs], weights);
    let bias = Weight::from_f32(vec![bias.len()], bias);
    let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
    Linear::prepare(&[dense], Precision::Float32, &Arena::default())
}

fn request(banned: &[u32]) -> RowRequest<'_> {
    RowRequest { count: 1, banned, forced: None, path: 0.0, scoring: Scoring::Logit }
}

/// Each row's best word and the bits of its score.
fn best_words(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    requests: &[RowRequest<'_>],
) -> Vec<Option<(u32, u32)>> {
    let mut choices = Choices::default();
    let query = TopKQuery { requests, device_beams: None };
    best(isa, x, output, &vec![None; x.rows()], query, &mut choices);
    let one = |row| choices.of(row).first().map(|word| (word.token, word.score.to_bits()));
    (0..x.rows()).map(one).collect()
}

/// An output layer that screens from the first row on, and one that never does.
fn screened_and_plain(linear: impl Fn() -> Linear) -> [Output; 2] {
    [true, false].map(|screening| {
        let output = Output::new(linear(), screening, true);
        output.screenable_rows.store(ROWS_BEFORE_FLOAT_SCREENING, Relaxed);
        output
    })
}

/// Rows so far that were screened, and those of them that failed.
fn tried_and_failed(output: &Output) -> (u64, u64) {
    output.float_screen.get().map_or((0, 0), FloatScreen::counts)
}

/// What a test may do to inputs or weights.
#[derive(Debug, Clone, Copy)]
enum Numbers {
    /// As they are, and so near one another that words tie.
    Random,
    Signs,
    /// Some far larger than the others.
    Outliers,
    /// So small or large that squares, products or scores leave the range of float32.
    Scaled(f32),
    /// Some of them no numbers.
    Holes(f32),
}

impl Numbers {
    fn make(self, count: usize, seed: u64) -> Vec<f32> {
        let change = |(i, x): (usize, f32)| match self {
            Numbers::Random => x,
            Numbers::Signs => x.signum(),
            Numbers::Outliers => {
                if i % 37 == 5 {
                    40.0 * x
                } else {
                    x
                }
            }
            Numbers::Scaled(scale) => scale * x,
            Numbers::Holes(hole) => {
                if i % 501 == 3 {
                    hole
                } else {
                    x
                }
            }
        };
        numbers(count, seed).into_iter().enumerate().map(change).collect()
    }

    fn any() -> impl Strategy<Value = Numbers> {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(Numbers::Holes);
        let scales = [0.0, 1e-44, 1e-38, 1e-20, 1e14, 1e20, 1e38].map(Numbers::Scaled);
        let all = [Numbers::Signs, Numbers::Outliers].into_iter().chain(scales).chain(special);
        prop_oneof![Just(Numbers::Random), prop::sample::select(all.collect::<Vec<_>>())]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The best word and the bits of its score are those of a product with all words, whatever the numbers are.
    #[test]
    fn screening_changes_no_best_word(
        rows in 1usize..70,
        (inputs, outputs) in (1usize..150, 1usize..1300),
        (of_x, of_weights, of_bias) in (Numbers::any(), Numbers::any(), Numbers::any()),
        banned in prop::collection::btree_set(0u32..1300, 0..5),
        seed in 1u64..1000,
    ) {
        let weights = of_weights.make(inputs * outputs, seed);
        let bias = of_bias.make(outputs, seed + 1);
        let [screened, plain] = screened_and_plain(|| layer(inputs, &weights, &bias));
        let x = Matrix::from_rows(inputs, of_x.make(rows * inputs, seed + 2));
        let banned: Vec<u32> = banned.into_iter().collect();
        let requests: Vec<RowRequest<'_>> =
            (0..rows).map(|row| request(if row % 3 == 0 { &[] } else { &banned })).collect();
        for isa in levels() {
            let got = best_words(isa, &x, &screened, &requests);
            prop_assert_eq!(got, best_words(isa, &x, &plain, &requests), "{:?}", isa.level());
        }
    }

    /// No score is farther from its approximation than the bound says.
    #[test]
    fn bounds_hold(
        rows in 1usize..20,
        (inputs, outputs) in (1usize..300, 1usize..600),
        (of_x, of_weights, of_bias) in (Numbers::any(), Numbers::any(), Numbers::any()),
        seed in 1u64..1000,
    ) {
        let weights = of_weights.make(inputs * outputs, seed);
        let linear = layer(inputs, &weights, &of_bias.make(outputs, seed + 1));
        let Linear::Float32(packed) = &linear else { unreachable!("a float32 layer") };
        let x = of_x.make(rows * inputs, seed + 2);
        for isa in levels() {
            let screen = FloatScreen::new(isa, packed);
            if screen.pays() {
                let (mut exact, mut bounds) = (vec![0.0; rows * outputs], Vec::new());
                linear.multiply(isa, Activation::Identity, &x, &mut exact);
                screen.each_bound(isa, &x, |row, word, bounds_of_word| bounds.push((row, word, bounds_of_word)));
                for (row, word, (lower, upper)) in bounds {
                    let score = exact[row * outputs + word];
                    prop_assert!(lower <= score && score <= upper, "{lower} <= {score} <= {upper}");
                }
            }
        }
    }
}

/// With words that point in random directions few survive; if all are the same, all do, and screening stops.
#[test]
fn screening_stops_where_it_does_not_pay() {
    let (inputs, outputs, rows) = (64, 2000, 10);
    let bias = vec![0.0; outputs];
    let x = Matrix::from_rows(inputs, numbers(rows * inputs, 5));
    let isa = Isa::best();
    for (same, failed) in [(false, 0), (true, rows as u64)] {
        let mut weights = numbers(inputs * outputs, 6);
        if same {
            weights = weights[..inputs].repeat(outputs);
        }
        let [screened, plain] = screened_and_plain(|| layer(inputs, &weights, &bias));
        for _ in 0..3 {
            let requests = vec![request(&[]); rows];
            let expected = best_words(isa, &x, &plain, &requests);
            assert_eq!(best_words(isa, &x, &screened, &requests), expected);
        }
        let tried = if same { rows as u64 } else { 3 * rows as u64 };
        assert_eq!(tried_and_failed(&screened), (tried, failed));
        assert_eq!(tried_and_failed(&plain), (0, 0));
    }
}

/// Screening begins after some rows, and only for rows of which nothing but the best logit is wanted.
#[test]
fn rows_that_want_more_are_not_screened() {
    let (inputs, outputs) = (64, 2000);
    let (weights, bias) = (numbers(inputs * outputs, 6), vec![0.0; outputs]);
    let isa = Isa::best();
    let output = Output::new(layer(inputs, &weights, &bias), true, true);
    let x = Matrix::from_rows(inputs, numbers(2 * inputs, 5));
    for _ in 0..ROWS_BEFORE_FLOAT_SCREENING / ROWS_OF_READING {
        best_words(isa, &x, &output, &[request(&[]); 2]);
    }
    assert_eq!(tried_and_failed(&output), (0, 0));
    let plain = request(&[]);
    for other in [
        RowRequest { count: 2, ..plain },
        RowRequest { forced: Some(3), ..plain },
        RowRequest { scoring: Scoring::LogProbability, ..plain },
    ] {
        best_words(isa, &x, &output, &[plain, other]);
        assert_eq!(tried_and_failed(&output), (0, 0));
    }
    best_words(isa, &x, &output, &[plain; 2]);
    assert_eq!(tried_and_failed(&output), (2, 0));
}
