//! Alone or in company: a sentence's translation and scores do not depend on the batch it is in, on
//! the order of the sentences, or on the number of threads.

use std::path::{Path, PathBuf};

use peregrine::{
    BatchSize, CachePrecision, Compute, OpenOptions, Options, Precision, Request, ShortlistChoice,
    ShortlistFile, Translation, Translator, Tuner,
};
use peregrine_tests::{beam, fixture, full, lines, open, open_as, shared};

/// How far scores may be apart, as a share of them (of 1 if they are smaller).
const TOLERANCE: f32 = 1e-5;

/// Sentences together, threads, and whether they come in another order.
const COMPANIES: [(usize, usize, bool); 5] =
    [(1, 1, false), (7, 1, false), (7, 2, true), (64, 1, true), (64, 2, false)];

/// A fixed order that puts sentences beside other neighbours.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    order
}

fn in_company(
    translator: &Translator,
    input: &[String],
    options: &Options,
    (sentences, threads, shuffle): (usize, usize, bool),
) -> Vec<Translation> {
    let batch = BatchSize { sentences, tokens: usize::MAX };
    let workers = translator.workers().with_batch(batch).with_threads(threads);
    let translate = |input: &[String]| {
        let requests: Vec<Request<'_>> = input.iter().map(|line| Request::new(line)).collect();
        translator.translate_batch_with(&requests, options, &workers, None).unwrap()
    };
    if !shuffle {
        return translate(input);
    }
    let order = shuffled(input.len());
    let mixed: Vec<String> = order.iter().map(|&i| input[i].clone()).collect();
    let mut result = vec![Translation::default(); input.len()];
    for (&i, translation) in order.iter().zip(translate(&mixed)) {
        result[i] = translation;
    }
    result
}

/// The largest difference of scores; other words fail.
fn distance(what: &str, ours: &[Translation], theirs: &[Translation]) -> f32 {
    let mut worst: f32 = 0.0;
    assert_eq!(ours.len(), theirs.len());
    for (line, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(a.alternatives.len(), b.alternatives.len(), "{what}, line {line}");
        for (a, b) in a.alternatives.iter().zip(&b.alternatives) {
            assert_eq!(a.tokens, b.tokens, "{what}, line {line}");
            assert_eq!(a.token_scores.len(), b.token_scores.len(), "{what}, line {line}");
            let scores = a.token_scores.iter().zip(&b.token_scores);
            for (&x, &y) in scores.chain([(&a.score, &b.score)]) {
                let off = (x - y).abs() / y.abs().max(1.0);
                assert!(off <= TOLERANCE, "{what}, line {line}: {x} and {y}");
                worst = worst.max(off);
            }
        }
    }
    worst
}

fn check(what: &str, model: &Path, input: &[String], options: &OpenOptions) {
    check_translator(what, &open(model, options), input);
}

/// In int8 the sums are whole numbers: nothing at all may change.
fn check_int8(what: &str, model: &Path, input: &[String]) {
    let translator = open_as(model, &OpenOptions::default(), &Compute::int8());
    let worst = check_translator(&format!("{what} in int8"), &translator, input);
    assert_eq!(worst, 0.0, "{what}");
}

fn check_translator(what: &str, translator: &Translator, input: &[String]) -> f32 {
    let mut worst_of_all: f32 = 0.0;
    for size in [1, 4] {
        let search = beam(translator, size, 1.0);
        let mut worst: f32 = 0.0;
        let mut expected: Option<Vec<Translation>> = None;
        for company in COMPANIES {
            let translations = in_company(translator, input, &search, company);
            let what = format!("{what}, beam {size}, {company:?}");
            match &expected {
                Some(expected) => worst = worst.max(distance(&what, &translations, expected)),
                None => expected = Some(translations),
            }
        }
        println!("{what}, beam {size}: {} lines, scores within {worst:.1e}", input.len());
        worst_of_all = worst_of_all.max(worst);
    }
    worst_of_all
}

/// The first sentences and all odd lines; with `PEREGRINE_FULL=1` the lot.
fn some(input: &[String]) -> Vec<String> {
    if full() { input.to_vec() } else { [&input[..40], &input[300..]].concat() }
}

#[test]
#[ignore = "slow: .ci/run runs it"]
fn golden_models() {
    let Some(golden) = shared("models/golden") else { return };
    let plain = some(&lines(&golden.join("inputs/test.en")));
    let split = some(&lines(&golden.join("inputs/test.bpe.en")));
    for model in ["post", "pre", "aan", "aan-plain", "ssru", "options"] {
        let input = if model == "pre" { &split } else { &plain };
        let folder = golden.join(format!("transformer-{model}"));
        check(model, &folder, input, &OpenOptions::default());
    }
    for model in ["post", "pre", "aan", "ssru"] {
        let input = if model == "pre" { &split } else { &plain };
        check_int8(model, &golden.join(format!("transformer-{model}")), input);
    }
    check("ensemble", &golden.join("ensemble"), &plain, &OpenOptions::default());
}

#[test]
fn golden_models_with_shortlist() {
    let Some(golden) = shared("models/golden") else { return };
    let folder = tempfile::tempdir().unwrap();
    let table = unpacked(&golden.join("inputs/lex.en-de.txt.gz"), folder.path());
    let file = ShortlistFile { first: 50, best: 20, prune: 0.0, ..ShortlistFile::new(table) };
    let options = OpenOptions { shortlist: ShortlistChoice::File(file), ..OpenOptions::default() };
    let input = some(&lines(&golden.join("inputs/test.en")));
    for model in ["post", "aan", "aan-plain", "ssru", "options"] {
        let folder = golden.join(format!("transformer-{model}"));
        check(&format!("{model} with shortlist"), &folder, &input, &options);
    }
}

fn unpacked(path: &Path, folder: &Path) -> PathBuf {
    let table = folder.join("lex.txt");
    std::fs::write(&table, peregrine_tests::read(path)).unwrap();
    table
}

#[test]
fn the_fixture() {
    let folder = fixture("transformer-post");
    check("fixture", &folder, &lines(&folder.join("input.en")), &OpenOptions::default());
    check_int8("fixture", &folder, &lines(&folder.join("input.en")));
}

/// Whatever keeps keys and values, and whoever picks kernels.
#[test]
fn other_ways_to_compute() {
    let folder = fixture("transformer-post");
    let input = lines(&folder.join("input.en"));
    for cache in CachePrecision::ALL {
        let tuner = Some(Tuner::default());
        let ways = [
            Compute { cache: Some(cache), tuner, ..Compute::int8() },
            Compute {
                cache: Some(cache),
                precision: Some(Precision::Bfloat16),
                ..Compute::default()
            },
        ];
        for compute in ways {
            let translator = open_as(&folder, &OpenOptions::default(), &compute);
            let what = format!("{:?} with caches in {}", compute.precision, cache.name());
            assert_eq!(check_translator(&what, &translator, &input), 0.0, "{what}");
        }
    }
}
