//! The output layer against a plain search, and rows of a batch against rows alone.

use peregrine_model::{Precision, Weight};
use peregrine_nn::{Candidates, Dense, choose};
use proptest::prelude::*;

use super::*;
use crate::isa::Level;
use crate::memory::arena::Arena;

/// Numbers with repetitions, so that scores have ties.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let number = |i: u64| (i * 7919 + seed * 104_729) % 1009;
    (0..count as u64).map(|i| number(i * i + i) as f32 / 504.5 - 1.0).collect()
}

fn answers(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    query: TopKQuery<'_>,
) -> Vec<Vec<Choice>> {
    let mut choices = Choices::default();
    best(isa, x, output, selections, query, &mut choices);
    (0..x.rows()).map(|row| choices.of(row).to_vec()).collect()
}

/// Tokens and the bits of their scores.
fn bits(choices: &[Choice]) -> Vec<(u32, u32)> {
    choices.iter().map(|choice| (choice.token, choice.score.to_bits())).collect()
}

/// The answer for one row in a query of its own.
fn alone(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    requests: &[RowRequest<'_>],
    row: usize,
) -> Vec<Choice> {
    let x = Matrix::from_rows(x.width(), x.row(row).to_vec());
    let query = TopKQuery { requests: &requests[row..=row], device_beams: None };
    answers(isa, &x, output, &selections[row..=row], query).remove(0)
}

const SCORINGS: [Scoring; 3] =
    [Scoring::Logit, Scoring::LogProbability, Scoring::LogProbabilityOfAllowed];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// With any instruction set, scores stored or not, and any mix of scorings: the words that a plain search finds, and the bits
    /// that each row has alone.
    #[test]
    fn best_words_are_the_best(
        rows in 1usize..70,
        (inputs, outputs) in (1usize..70, 8usize..1100),
        lists in 0usize..4,
        scorings in prop::collection::vec(prop::sample::select(SCORINGS.to_vec()), 1..8),
        banned in prop::collection::btree_set(0u32..1100, 0..4),
        forced in prop::option::of(0u32..1100),
        seed in 0u64..1000,
    ) {
        let weight = Weight::from_f32(vec![outputs, inputs], &numbers(outputs * inputs, seed));
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let x = Matrix::from_rows(inputs, numbers(rows * inputs, seed + 1));
        let banned: Vec<u32> = banned.into_iter().collect();
        let requests: Vec<RowRequest<'_>> = (0..rows)
            .map(|row| RowRequest {
                count: row % 7,
                banned: if row % 3 == 0 { &[] } else { &banned },
                forced: forced.filter(|_| row % 5 == 4),
                path: 0.0,
                scoring: scorings[row % scorings.len()],
            })
            .collect();
        let query = TopKQuery { requests: &requests, device_beams: None };
        let mut first_answer = None;
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let linear = |precision| Linear::prepare(&[dense], precision, &Arena::default());
            let made = [true, false].map(|in_registers| {
                Output::new(linear(Precision::Int8), false, in_registers)
            });
            // No shortlist, one for all rows, or several, which some neighbouring rows share.
            let words: Vec<Vec<u32>> = (0..lists)
                .map(|list| (0..outputs as u32).filter(|w| (w * 7 + w / 5) % 4 != list as u32).collect())
                .collect();
            let selections: Vec<Selection> =
                words.iter().map(|words| made[0].select(isa, words)).collect();
            let of_row = |row: usize| (lists > 0).then(|| row / 3 % lists);
            let selected: Vec<_> = (0..rows).map(|r| of_row(r).map(|l| &selections[l])).collect();
            let got = answers(isa, &x, &made[0], &selected, query);
            prop_assert_eq!(&got, &answers(isa, &x, &made[1], &selected, query));
            prop_assert_eq!(&got, first_answer.get_or_insert_with(|| got.clone()), "{:?}", isa);
            let (mut scores, mut expected) = (Vec::new(), Vec::new());
            for row in 0..rows {
                let expected_bits = bits(&alone(isa, &x, &made[0], &selected, &requests, row));
                prop_assert_eq!(bits(&got[row]), expected_bits, "row {}, {:?}", row, requests[row]);
                let one = Matrix::from_rows(inputs, x.row(row).to_vec());
                logits(isa, &one, &made[0], &selected[row..=row], &[true], &mut scores);
                let words = of_row(row).map(|list| words[list].as_slice());
                choose(Candidates { scores: &scores, words }, &requests[row], &mut expected);
                let tokens = |choices: &[Choice]| choices.iter().map(|c| c.token).collect::<Vec<_>>();
                prop_assert_eq!(tokens(&got[row]), tokens(&expected));
                for (got, expected) in got[row].iter().zip(&expected) {
                    let error = (got.score - expected.score).abs();
                    let allowed = if requests[row].scoring == Scoring::Logit { 0.0 } else { 2e-5 };
                    prop_assert!(error <= allowed, "{got:?}, not {expected:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Scores so far apart that sums overflow, and some NaN: rows of a batch have the answers they have alone, with any scoring of
    /// the other rows, and those of a plain search.
    #[test]
    #[ignore = "slow: .ci/run runs it"]
    fn scores_may_be_far_apart(
        rows in 13usize..40,
        outputs in 40usize..5000,
        factor in prop::sample::select(vec![1f32, 10.0, 60.0, 1000.0]),
        nan in prop::option::of(0usize..39),
        scorings in prop::collection::vec(prop::sample::select(SCORINGS.to_vec()), 1..8),
        seed in 0u64..1000,
    ) {
        let small = numbers;
        let numbers = |count, seed| -> Vec<f32> { small(count, seed).iter().map(|v| v * factor).collect() };
        let weight = Weight::from_f32(vec![outputs, 3], &numbers(outputs * 3, seed));
        let mut bias = numbers(outputs, seed + 1);
        if let Some(nan) = nan {
            (bias[nan], bias[nan / 2]) = (f32::NAN, f32::NEG_INFINITY);
        }
        let bias = Weight::from_f32(vec![outputs], &bias);
        let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        let x = Matrix::from_rows(3, small(rows * 3, seed + 2));
        let requests: Vec<RowRequest<'_>> = (0..rows)
            .map(|row| RowRequest {
                count: row % 5,
                banned: if row % 3 == 0 { &[1, 30] } else { &[] },
                forced: (row % 5 == 0).then_some(39),
                path: 0.0,
                scoring: scorings[row % scorings.len()],
            })
            .collect();
        let query = TopKQuery { requests: &requests, device_beams: None };
        let mut first_answer = None;
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
            let output = Output::new(linear, false, true);
            let none: Vec<Option<&Selection>> = vec![None; rows];
            let got = answers(isa, &x, &output, &none, query);
            prop_assert_eq!(&got, first_answer.get_or_insert_with(|| got.clone()), "{:?}", isa);
            let (mut scores, mut expected) = (Vec::new(), Vec::new());
            for row in 0..rows {
                let expected_bits = bits(&alone(isa, &x, &output, &none, &requests, row));
                prop_assert_eq!(bits(&got[row]), expected_bits, "row {}, {:?}", row, requests[row]);
                let one = Matrix::from_rows(3, x.row(row).to_vec());
                logits(isa, &one, &output, &none[..1], &[true], &mut scores);
                scores.iter_mut().filter(|score| score.is_nan()).for_each(|score| *score = f32::NEG_INFINITY);
                choose(Candidates { scores: &scores, words: None }, &requests[row], &mut expected);
                prop_assert_eq!(got[row].len(), expected.len());
                for (got, expected) in got[row].iter().zip(&expected) {
                    prop_assert_eq!(got.token, expected.token);
                    let error = (got.score - expected.score).abs();
                    let allowed = if requests[row].scoring == Scoring::Logit { 0.0 } else { 2e-5 };
                    prop_assert!(error <= allowed * factor, "{got:?}, not {expected:?}");
                }
            }
        }
    }
}

/// Words that screening rules out still count in a softmax: of two rows one may be scored by logit and the other by
/// probability.
#[test]
fn only_rows_without_probabilities_are_screened() {
    let Some(isa) =
        Level::ALL.into_iter().filter_map(Isa::new).find(|&isa| OutputRows::is_fast(isa))
    else {
        return;
    };
    let (inputs, outputs) = (2048, 640);
    let one = numbers(inputs, 3);
    let mut weights = numbers(inputs * outputs, 4);
    // One word has a far higher score, so that screening pays.
    weights.iter_mut().zip(&one).for_each(|(weight, x)| *weight += x);
    let weight = Weight::from_f32(vec![outputs, inputs], &weights);
    let dense = Dense { weight: &weight, bias: None, alpha: None };
    let linear = || Linear::prepare(&[dense], Precision::Int8, &Arena::default());
    let [screened, plain] = [true, false].map(|screening| Output::new(linear(), screening, true));
    // Small inputs leave the other words some probability.
    let x: Vec<f32> = one.iter().map(|v| v / 100.0).collect();
    let x = Matrix::from_rows(inputs, x.repeat(2));
    let request = |scoring| RowRequest { count: 1, banned: &[], forced: None, path: 0.0, scoring };
    let of = |output, requests: &[RowRequest<'_>]| -> Vec<_> {
        let query = TopKQuery { requests, device_beams: None };
        answers(isa, &x, output, &[None, None], query).iter().map(|row| bits(row)).collect()
    };
    for _ in 0..2 * ROWS_BEFORE_SCREENING {
        of(&screened, &[request(Scoring::Logit); 2]);
    }
    assert!(screened.screen.get().is_some_and(Screen::pays));
    for scorings in [[0, 1], [1, 0], [0, 2], [0, 0], [1, 2]] {
        let requests = scorings.map(|scoring| request(SCORINGS[scoring]));
        assert_eq!(of(&screened, &requests), of(&plain, &requests), "{scorings:?}");
    }
}

/// A product whose sinks have too few rows panics before it computes a score.
#[test]
fn a_product_in_registers_wants_a_sink_for_each_row() {
    let Some(isa) = Isa::new(Level::Amx) else { return };
    let weight = Weight::from_f32(vec![40, 3], &numbers(40 * 3, 1));
    let dense = Dense { weight: &weight, bias: None, alpha: None };
    let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
    let x = numbers(20 * 3, 2);
    let outcome = std::panic::catch_unwind(|| {
        let mut no_rows = ScoreSinks::new(&mut [], &mut [], &mut []);
        linear.multiply_in_blocks(isa, &x, BLOCK_PANELS, true, &mut no_rows);
    });
    let message = outcome.unwrap_err().downcast::<String>().expect("a message");
    assert!(message.contains("a sink for each row"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Shortlists change from step to step. Some are shared by rows, some steps have more than 64, and some have rows that want
    /// probabilities. Every row has the answer it has alone.
    #[test]
    fn words_that_shortlists_share(
        lists in prop::collection::vec(prop::collection::btree_set(0u32..400, 1..60), 1..90),
        steps in prop::collection::vec(prop::collection::vec(0usize..90, 1..100), 1..5),
        inputs in prop::sample::select(vec![5usize, 70, 256, 512]),
        scored in prop::option::of(0usize..9),
        seed in 0u64..1000,
    ) {
        let weight = Weight::from_f32(vec![400, inputs], &numbers(400 * inputs, seed));
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
            let output = Output::new(linear, false, true);
            let words = lists.iter().map(|words| words.iter().copied().collect::<Vec<_>>());
            let selections: Vec<Selection> = words.map(|words| output.select(isa, &words)).collect();
            for rows in &steps {
                let x = Matrix::from_rows(inputs, numbers(rows.len() * inputs, seed + rows[0] as u64));
                let selected: Vec<_> = rows.iter().map(|list| Some(&selections[list % lists.len()])).collect();
                let banned = [7, 50, 51];
                let requests: Vec<RowRequest<'_>> = (0..rows.len())
                    .map(|row| RowRequest {
                        count: row % 3,
                        banned: &banned[row % 4..],
                        forced: None,
                        path: 0.0,
                        scoring: SCORINGS[if scored == Some(row % 9) { 1 } else { 0 }],
                    })
                    .collect();
                let query = TopKQuery { requests: &requests, device_beams: None };
                let got = answers(isa, &x, &output, &selected, query);
                for (row, got) in got.iter().enumerate() {
                    let expected = alone(isa, &x, &output, &selected, &requests, row);
                    prop_assert_eq!(bits(got), bits(&expected));
                }
            }
        }
    }
}
