//! The repository's own small model against what Marian gave for it: the code that the larger
//! reference models test, tested in a clone that has none of them. `fixtures/make.py` made the files.

use std::path::Path;

use peregrine::{OpenOptions, Translation, Translator};
use peregrine_tests::marian::{hard, n_best, split_word_scores};
use peregrine_tests::{
    Tally, Verdict, beam, compare_greedy, compare_lists, fixture, lines, open, translate,
};

const FOLDER: &str = "transformer-post";

fn file(name: &str) -> std::path::PathBuf {
    fixture(FOLDER).join(name)
}

fn translator() -> Translator {
    open(&fixture(FOLDER), &OpenOptions::default())
}

#[test]
fn greedy() {
    let translator = translator();
    let translations =
        translate(&translator, &lines(&file("input.en")), &beam(&translator, 1, 0.0));
    let reference = n_best(&file("greedy.nbest"));
    assert_eq!(translations.len(), reference.len());
    let mut tally = Tally::new("fixture greedy");
    for (line, (ours, theirs)) in translations.iter().zip(&reference).enumerate() {
        let verdict = compare_greedy(&mut tally, ours, &theirs[0]);
        tally.add(line, verdict);
    }
    tally.finish(0.995);
}

fn check_lists(what: &str, translations: &[Translation]) {
    let reference = n_best(&file("beam4.nbest"));
    assert_eq!(translations.len(), reference.len());
    let mut tally = Tally::new(what);
    for (line, (ours, theirs)) in translations.iter().zip(&reference).enumerate() {
        let verdict = compare_lists(&mut tally, ours, theirs);
        tally.add(line, verdict);
    }
    tally.finish(0.99);
}

#[test]
fn beam_4() {
    let translator = translator();
    let options = beam(&translator, 4, 1.0).with_alignments(true);
    let translations = translate(&translator, &lines(&file("input.en")), &options);
    check_lists("fixture beam 4", &translations);
    let texts: Vec<&str> = translations.iter().map(Translation::text).collect();
    assert_eq!(texts, lines(&file("beam4.txt")));
    for (ours, theirs) in translations.iter().zip(lines(&file("beam4-hard.txt"))) {
        let rows = ours.alignment(0);
        let (words, pairs) = theirs.rsplit_once(" ||| ").unwrap();
        if !words.is_empty() {
            let largest = |row: &Vec<f32>| row.iter().copied().fold(f32::MIN, f32::max);
            let chosen = rows.iter().map(|row| row.iter().position(|&w| w == largest(row)));
            assert!(chosen.eq(hard(pairs).into_iter().map(Some)), "{theirs}");
        }
    }
}

/// What `convert` writes is the same model.
#[test]
fn converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.peregrine");
    let model = peregrine::model::open(&[fixture(FOLDER)], &OpenOptions::default()).unwrap();
    peregrine::model::save(&model, &path, None).unwrap();
    let translator = open(&path, &OpenOptions::default());
    let options = beam(&translator, 4, 1.0);
    check_lists("converted", &translate(&translator, &lines(&file("input.en")), &options));
}

#[test]
fn scores() {
    let translator = translator();
    let (sources, targets) = (lines(&file("pairs.en")), lines(&file("pairs.de")));
    let pairs: Vec<(&str, &str)> =
        sources.iter().map(String::as_str).zip(targets.iter().map(String::as_str)).collect();
    let scored = translator.score(&pairs, &translator.options()).unwrap();
    let reference = lines(&file("pairs.scores"));
    assert_eq!(scored.len(), reference.len());
    let mut tally = Tally::new("fixture scores");
    for (line, (ours, theirs)) in scored.iter().zip(&reference).enumerate() {
        let (sum, words) = split_word_scores(theirs);
        let fits = tally.score(ours.score, sum.parse().unwrap());
        let verdict = match fits && tally.words(&ours.token_scores, &words) {
            true => Verdict::Same,
            false => Verdict::Different(format!("{ours:?} not {theirs}")),
        };
        tally.add(line, verdict);
    }
    tally.finish(1.0);
}

/// Translations begin as they are told to, and go on from there.
#[test]
fn forced_prefixes() {
    let translator = translator();
    let request = peregrine::Request::new("The black cat sleeps on a chair.");
    let request = request.with_prefix("Der Hund");
    for size in [1, 4] {
        let options = beam(&translator, size, 1.0);
        let translations = translator.translate_batch(&[request], &options).unwrap();
        for alternative in &translations[0].alternatives {
            assert!(alternative.text.starts_with("Der Hund"), "{}", alternative.text);
            assert!(alternative.tokens.len() > 2, "{}", alternative.text);
        }
    }
}

/// The fixtures stay small enough for a repository.
#[test]
fn fixtures_are_small() {
    let size = |path: &Path| path.metadata().unwrap().len();
    let files = std::fs::read_dir(fixture(FOLDER)).unwrap();
    for path in files.map(|entry| entry.unwrap().path()) {
        assert!(size(&path) < 1_000_000, "{}: {} bytes", path.display(), size(&path));
    }
}
