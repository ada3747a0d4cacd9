//! Small transformers of every kind against what Marian gave for them: greedy and beam search, n-best
//! lists, word scores, ensembles, shortlists, binary files.
//!
//! Each file compared here is described in the README of the golden models.

use std::path::{Path, PathBuf};

use peregrine::marian_format::{Fields, best_line};
use peregrine::{Compute, OpenOptions, ShortlistChoice, ShortlistFile, Translation, Translator};
use peregrine_tests::marian::{n_best, split_word_scores};
use peregrine_tests::{
    Tally, Verdict, beam, compare_greedy, compare_lists, lines, open, open_as, shared, translate,
};

/// Sentences that must be the same: greedy, and lists.
const GREEDY: f64 = 0.995;
const LISTS: f64 = 0.99;

/// Every transformer, and the input it was given.
const TRANSFORMERS: [(&str, &str); 6] = [
    ("transformer-post", "test.en"),
    ("transformer-pre", "test.bpe.en"),
    ("transformer-aan", "test.en"),
    ("transformer-aan-plain", "test.en"),
    ("transformer-ssru", "test.en"),
    ("transformer-options", "test.en"),
];

fn golden() -> Option<PathBuf> {
    shared("models/golden")
}

/// Options under which a model is decoded as Marian decodes it.
fn as_marian(model: &str) -> OpenOptions {
    let mut options = OpenOptions::default();
    if model == "transformer-pre" {
        options.compat = vec!["marian-1.12-prenorm".parse().unwrap()];
    }
    options
}

fn check_greedy(what: &str, translations: &[Translation], reference: &Path) {
    let lists = n_best(reference);
    assert_eq!(translations.len(), lists.len());
    let mut tally = Tally::new(what);
    for (line, (ours, theirs)) in translations.iter().zip(&lists).enumerate() {
        let verdict = compare_greedy(&mut tally, ours, &theirs[0]);
        tally.add(line, verdict);
    }
    tally.finish(GREEDY);
}

fn check_lists(what: &str, translations: &[Translation], reference: &Path) {
    let lists = n_best(reference);
    assert_eq!(translations.len(), lists.len());
    let mut tally = Tally::new(what);
    for (line, (ours, theirs)) in translations.iter().zip(&lists).enumerate() {
        let verdict = compare_lists(&mut tally, ours, theirs);
        tally.add(line, verdict);
    }
    tally.finish(LISTS);
}

/// The file, if this model has it: not all were kept for every model.
fn kept(path: PathBuf) -> Option<PathBuf> {
    path.exists().then_some(path)
}

#[test]
fn greedy() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let folder = golden.join(model);
        let translator = open(&folder, &as_marian(model));
        let input = lines(&golden.join("inputs").join(input));
        let translations = translate(&translator, &input, &beam(&translator, 1, 0.0));
        check_greedy(
            &format!("{model} greedy"),
            &translations,
            &folder.join("out/greedy.nbest.gz"),
        );
        let texts = lines(&folder.join("out/greedy.txt"));
        let same = translations.iter().zip(&texts).filter(|(a, b)| a.text() == b.as_str()).count();
        println!("{model} greedy text: {same} of {} the same", texts.len());
        assert!(same as f64 >= GREEDY * texts.len() as f64);
    }
}

/// By default pre-norm models are decoded as they were trained; Marian 1.12 does that in its scorer
/// only, so the reference is a numpy implementation that agrees with the scorer.
#[test]
fn greedy_of_pre_norm_is_consistent() {
    let Some(golden) = golden() else { return };
    let folder = golden.join("transformer-pre");
    let translator = open(&folder, &OpenOptions::default());
    let input = lines(&golden.join("inputs/test.bpe.en"));
    let translations = translate(&translator, &input, &beam(&translator, 1, 0.0));
    let reference = folder.join("out/numpy-greedy.nbest.gz");
    check_greedy("transformer-pre numpy-greedy", &translations, &reference);
}

/// Greedy search without scores takes the largest logit, with no softmax: the same words.
#[test]
fn greedy_without_scores() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let translator = open(&golden.join(model), &OpenOptions::default());
        let input = lines(&golden.join("inputs").join(input));
        let with = beam(&translator, 1, 0.0);
        let without = with.clone().with_scores(false);
        let texts = |options| {
            let translations = translate(&translator, &input, options);
            translations.iter().map(|t| t.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(&with), texts(&without), "{model}");
    }
}

#[test]
fn beam_4() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let out = golden.join(model).join("out");
        let translator = open(&golden.join(model), &as_marian(model));
        let input = lines(&golden.join("inputs").join(input));
        for (name, power) in [("norm0", 0.0), ("norm1", 1.0), ("norm06", 0.6)] {
            let Some(file) = kept(out.join(format!("beam4-{name}.nbest.gz"))) else { continue };
            let translations = translate(&translator, &input, &beam(&translator, 4, power));
            check_lists(&format!("{model} beam 4 {name}"), &translations, &file);
        }
        if let Some(file) = kept(out.join("beam4-norm06-penalty.nbest.gz")) {
            let mut options = beam(&translator, 4, 0.6);
            options.search.word_penalty = 0.2;
            options.search.max_length_factor = Some(1.5);
            let translations = translate(&translator, &input, &options);
            check_lists(&format!("{model} beam 4 penalty"), &translations, &file);
        }
    }
}

/// Text, and tokens with word scores, of the best hypothesis alone.
#[test]
fn best_lines() {
    let Some(golden) = golden() else { return };
    for model in ["transformer-post", "transformer-options"] {
        let out = golden.join(model).join("out");
        let translator = open(&golden.join(model), &OpenOptions::default());
        let input = lines(&golden.join("inputs/test.en"));
        let options = beam(&translator, 4, 1.0).with_n_best(1);
        let translations = translate(&translator, &input, &options);
        let texts = lines(&out.join("beam4-norm1.txt"));
        let same = translations.iter().zip(&texts).filter(|(a, b)| a.text() == b.as_str()).count();
        println!("{model} beam 4 text: {same} of {} the same", texts.len());
        assert!(same as f64 >= LISTS * texts.len() as f64);

        let mut tally = Tally::new(format!("{model} beam 4 words"));
        let fields = Fields { word_scores: true, tokens: true, ..Fields::default() };
        let words = lines(&out.join("beam4-norm1-words.txt"));
        assert_eq!(words.len(), translations.len());
        for (line, (ours, theirs)) in translations.iter().zip(&words).enumerate() {
            let printed = best_line(ours, &fields);
            let ((a, our_scores), (b, their_scores)) =
                (split_word_scores(&printed), split_word_scores(theirs));
            let verdict = match a == b && tally.words(&our_scores, &their_scores) {
                true => Verdict::Same,
                false => Verdict::Different(format!("{printed}\nnot {theirs}")),
            };
            tally.add(line, verdict);
        }
        tally.finish(LISTS);
    }
}

#[test]
fn ensemble() {
    let Some(golden) = golden() else { return };
    let folder = golden.join("ensemble");
    let out = folder.join("out");
    let input = lines(&golden.join("inputs/test.en"));
    let translator = open(&folder, &OpenOptions::default());
    assert_eq!(translator.model().members.len(), 2);
    let greedy = translate(&translator, &input, &beam(&translator, 1, 0.0));
    check_greedy("ensemble greedy", &greedy, &out.join("greedy.nbest.gz"));
    for (name, power) in [("norm0", 0.0), ("norm1", 1.0)] {
        let lists = translate(&translator, &input, &beam(&translator, 4, power));
        let file = out.join(format!("beam4-{name}.nbest.gz"));
        check_lists(&format!("ensemble beam 4 {name}"), &lists, &file);
    }
    let options = OpenOptions { member_weights: vec![0.6, 0.4], ..OpenOptions::default() };
    // The same networks, named one by one.
    let members = ["transformer-post", "transformer-aan"].map(|name| golden.join(name));
    let model = peregrine::model::open(&members, &options).unwrap();
    let weighted = Translator::prepare(model, &Compute::float32()).unwrap();
    let lists = translate(&weighted, &input, &beam(&weighted, 4, 1.0));
    check_lists("ensemble weights", &lists, &out.join("weights-beam4-norm1.nbest.gz"));
}

#[test]
fn shortlist() {
    let Some(golden) = golden() else { return };
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("lex.en-de.txt");
    let text = peregrine_tests::read(&golden.join("inputs/lex.en-de.txt.gz"));
    std::fs::write(&table, text).unwrap();
    let file = ShortlistFile { first: 50, best: 20, prune: 0.0, ..ShortlistFile::new(&table) };
    let options = OpenOptions { shortlist: ShortlistChoice::File(file), ..OpenOptions::default() };
    for model in ["transformer-post", "transformer-ssru"] {
        let out = golden.join(model).join("out");
        let translator = open(&golden.join(model), &options);
        let input = lines(&golden.join("inputs/test.en"));
        let greedy = translate(&translator, &input, &beam(&translator, 1, 0.0));
        let what = format!("{model} shortlist greedy");
        check_greedy(&what, &greedy, &out.join("shortlist-greedy.nbest.gz"));
        let lists = translate(&translator, &input, &beam(&translator, 4, 1.0));
        let what = format!("{model} shortlist beam 4");
        check_lists(&what, &lists, &out.join("shortlist-beam4-norm1.nbest.gz"));
    }
}

/// The same numbers in Marian's binary format: the same to the bit.
#[test]
fn binary_file() {
    let Some(golden) = golden() else { return };
    let input = lines(&golden.join("inputs/test.en"));
    let folder = golden.join("transformer-post");
    let lists = |file: &str| {
        let translator = open(&folder.join(file), &with_vocabulary(&golden));
        let translations = translate(&translator, &input, &beam(&translator, 4, 1.0));
        let fields = |t: &Translation| {
            t.alternatives.iter().map(|a| (a.tokens.clone(), a.score.to_bits())).collect::<Vec<_>>()
        };
        translations.iter().map(fields).collect::<Vec<_>>()
    };
    assert_eq!(lists("model.bin"), lists("model.npz"));
}

fn with_vocabulary(golden: &Path) -> OpenOptions {
    let vocabulary = golden.join("vocab/vocab.joint.spm");
    OpenOptions { vocabularies: Some((vocabulary.clone(), vocabulary)), ..OpenOptions::default() }
}

/// The least share of lines whose best translation has Marian's words, and the least share of common bigrams, for
/// models that Marian computes in int8 with activations scaled by batch, so that it cannot be followed exactly. The
/// least measured are 0.755 and 0.907.
const INT8_SAME: f64 = 0.7;
const INT8_OVERLAP: f64 = 0.88;

#[test]
fn int8_files_translate() {
    let Some(golden) = golden() else { return };
    let input = lines(&golden.join("inputs/test.en"));
    for model in ["transformer-post", "transformer-ssru"] {
        let folder = golden.join(model);
        let file = folder.join("model.intgemm8.bin");
        let float32 = open_as(&file, &with_vocabulary(&golden), &Compute::float32());
        let int8 = open_as(&file, &with_vocabulary(&golden), &Compute::int8());
        for (search, size, power) in [("greedy", 1, 0.0), ("beam4-norm1", 4, 1.0)] {
            let best = |translator: &Translator| -> Vec<String> {
                let translations = translate(translator, &input, &beam(translator, size, power));
                translations.iter().map(|t| t.alternatives[0].tokens.join(" ")).collect()
            };
            let reference = folder.join(format!("out/bin-intgemm8-{search}.nbest.gz"));
            let marian: Vec<String> =
                n_best(&reference).into_iter().map(|list| list[0].words.clone()).collect();
            let (float32, int8) = (best(&float32), best(&int8));
            check_overlap(&format!("{model} {search}, float32 and Marian"), &float32, &marian);
            check_overlap(&format!("{model} {search}, int8 and Marian"), &int8, &marian);
            check_overlap(&format!("{model} {search}, int8 and float32"), &int8, &float32);
        }
    }
}

fn check_overlap(what: &str, ours: &[String], theirs: &[String]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let same = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
    let (share, overlap) = (same as f64 / ours.len() as f64, bigram_overlap(ours, theirs));
    println!("{what}: {same} of {} the same, {overlap:.3} of bigrams in common", ours.len());
    assert!(share >= INT8_SAME && overlap >= INT8_OVERLAP, "{what}: {share} {overlap}");
}

/// The share of bigrams that translations have in common, clipped line by line as in BLEU.
fn bigram_overlap(ours: &[String], theirs: &[String]) -> f64 {
    let bigrams = |line: &str| -> Vec<(String, String)> {
        let words: Vec<&str> = line.split_whitespace().chain(["</s>"]).collect();
        words.windows(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
    };
    let (mut common, mut total) = (0, 0);
    for (ours, theirs) in ours.iter().zip(theirs) {
        let (ours, mut theirs) = (bigrams(ours), bigrams(theirs));
        total += ours.len() + theirs.len();
        for bigram in ours {
            if let Some(found) = theirs.iter().position(|other| *other == bigram) {
                theirs.swap_remove(found);
                common += 2;
            }
        }
    }
    common as f64 / total as f64
}
