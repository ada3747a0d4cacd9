//! One translation, whatever the instructions: in int8 and int16 each level this machine has gives the same words, scores and
//! alignments, to the last bit.

use std::path::Path;

use peregrine::{
    Compute, Level, Model, OpenOptions, Precision, Translation, Translator, builtin_model,
    has_instructions,
};
use peregrine_tests::{beam, first, fixture, lines, shared, translate};

/// All there is to a translation but the text, floats as their bits.
fn bits(translation: &Translation) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    for (rank, a) in translation.alternatives.iter().enumerate() {
        let scores = [a.score, a.path_score];
        let floats = scores.iter().chain(&a.token_scores).chain(&a.member_scores);
        let alignment = translation.alignment(rank);
        all.push(floats.chain(alignment.iter().flatten()).map(|v| v.to_bits()).collect());
    }
    all
}

/// Translates lines with every level, greedily and with a beam.
fn check(what: &str, open: impl Fn() -> Model, input: &[String]) {
    for precision in [Precision::Int8, Precision::Int16] {
        let mut expected: Option<[Vec<Translation>; 2]> = None;
        for level in Level::ALL.into_iter().filter(|&level| has_instructions(level)) {
            let compute =
                Compute { isa: Some(level), precision: Some(precision), ..Compute::default() };
            let translator =
                Translator::prepare(open(), &compute).unwrap_or_else(|e| panic!("{e}"));
            let got = [1, 4].map(|size| {
                let mut options = beam(&translator, size, 1.0);
                options.alignments = true;
                translate(&translator, input, &options)
            });
            let expected = expected.get_or_insert_with(|| got.clone());
            for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                let what = format!("{what}, {precision:?}, {}", level.name());
                assert_eq!(got.text(), expected.text(), "{what}");
                assert_eq!(bits(got), bits(expected), "{what}: {}", got.text());
            }
        }
    }
}

fn check_file(what: &str, path: &Path, input: &[String]) {
    let open = || {
        let model = peregrine::model::open(&[path.to_path_buf()], &OpenOptions::default());
        model.unwrap_or_else(|e| panic!("{e}"))
    };
    check(what, open, input);
}

#[test]
fn the_fixture() {
    let folder = fixture("transformer-post");
    check_file("fixture", &folder, first(&lines(&folder.join("input.en")), 20));
}

#[test]
fn the_builtin_model() {
    let input = [
        "Two dogs play in the snow.",
        "The museum, which was built in 1897, is closed on Mondays because of the strike.",
        "\"We now have 4-month-old mice that are non-diabetic that used to be diabetic,\" he added.",
        "Hello!",
    ];
    check("built-in", || builtin_model().unwrap(), &input.map(String::from));
}

/// Transformers of all kinds and recurrent networks.
#[test]
fn golden_models() {
    let Some(golden) = shared("models/golden") else { return };
    let plain = lines(&golden.join("inputs/test.en"));
    let split = lines(&golden.join("inputs/test.bpe.en"));
    for model in ["pre", "aan", "ssru", "options"] {
        let input = if model == "pre" { &split } else { &plain };
        check_file(model, &golden.join(format!("transformer-{model}")), first(input, 6));
    }
    for model in ["gru", "lstm", "bideep"] {
        check_file(model, &golden.join(model), first(&split, 6));
    }
}

#[test]
fn a_real_model_with_its_shortlist() {
    let Some(folder) = shared("models/enpt") else { return };
    let Some(source) = shared("data/flores/devtest.en") else { return };
    check_file("en-pt", &folder, first(&lines(&source), 4));
}
