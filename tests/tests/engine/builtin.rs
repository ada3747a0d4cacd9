//! The model inside: the embedded int8 file, and, where the reference models are, the float16 weights
//! it was made from against Marian in float32.
//!
//! The latter translates the first 200 lines of FLORES, all 1,012 with `PEREGRINE_FULL=1`. BLEU is
//! measured with the commands in docs/builtin-model.md.

use peregrine::{OpenOptions, Precision, Translator};
use peregrine_tests::{beam, first, lines, open, shared, translate};

#[test]
fn examples() {
    let translator = Translator::builtin().unwrap();
    let examples = [
        ("Two dogs play in the snow.", "Dois cães brincam na neve."),
        ("Hello, how are you?", "Olá, como você está?"),
        ("", ""),
    ];
    for (english, portuguese) in examples {
        assert_eq!(translator.translate(english).unwrap(), portuguese);
    }
}

#[test]
fn the_embedded_file_is_small_and_stored_in_int8() {
    let model = peregrine::builtin_model().unwrap();
    let matrices = model.members[0].weights.iter().filter(|(name, weight)| {
        weight.shape.len() == 2 && weight.shape[0] > 1 && !name.ends_with(".positions")
    });
    for (name, weight) in matrices {
        assert_eq!(weight.precision, Precision::Int8, "{name}");
    }
    assert!((10_600_000..10_800_000).contains(&model.parameters()), "{}", model.parameters());
}

#[test]
fn float32_as_marian() {
    let Some(folder) = shared("models/builtin") else { return };
    let Some(source) = shared("data/flores/devtest.en") else { return };
    let translator = open(&folder, &OpenOptions::default());
    let input = lines(&source);
    let input = first(&input, 200);
    let mut options = beam(&translator, 1, 0.0);
    options.search.max_length_factor = Some(2.5);
    let translations = translate(&translator, input, &options);
    let reference = lines(&folder.join("flores-devtest.marian-float32.greedy"));
    let pairs = translations.iter().zip(&reference).enumerate();
    let different: Vec<String> = pairs
        .filter(|(_, (ours, theirs))| ours.text() != theirs.as_str())
        .map(|(line, (ours, theirs))| format!("line {line}: {}\nnot {theirs}", ours.text()))
        .collect();
    let same = input.len() - different.len();
    println!("built-in, float32: {same} of {} the same", input.len());
    // The reference has no scores by which a near-tie could be shown, so there may be none.
    assert!(different.is_empty(), "{}", different.join("\n"));
}
