//! Probabilities of given translations, and alignments, against Marian's scorer and decoder.

use std::path::PathBuf;

use peregrine::marian_format::{AlignmentStyle, Fields, best_line};
use peregrine::{OpenOptions, Options, Scored, Translator};
use peregrine_tests::marian::{hard, soft, split_word_scores};
use peregrine_tests::{Tally, Verdict, beam, lines, open, same_choices, shared, translate};

/// Every transformer, and where its source lines are.
const TRANSFORMERS: [(&str, &str); 6] = [
    ("transformer-post", "en"),
    ("transformer-pre", "bpe.en"),
    ("transformer-aan", "en"),
    ("transformer-aan-plain", "en"),
    ("transformer-ssru", "en"),
    ("transformer-options", "en"),
];

/// An attention weight may be off by this.
const WEIGHT_TOLERANCE: f32 = 1e-3;

fn golden() -> Option<PathBuf> {
    shared("models/golden")
}

/// Scores the references; the consistent rule of pre-norm models is the default here.
fn score_references(golden: &std::path::Path, model: &str, input: &str) -> Vec<Scored> {
    let translator = open(&golden.join(model), &OpenOptions::default());
    let sources = lines(&golden.join(format!("inputs/src300.{input}")));
    let targets = lines(&golden.join("inputs/ref300.de"));
    let pairs: Vec<(&str, &str)> =
        sources.iter().map(String::as_str).zip(targets.iter().map(String::as_str)).collect();
    let options = translator.options().with_alignments(true);
    let workers = translator.workers().with_threads(2);
    translator.score_with(&pairs, &options, &workers).unwrap()
}

#[test]
fn references() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let out = golden.join(model).join("out");
        let scored = score_references(&golden, model, input);

        let mut tally = Tally::new(format!("{model} scorer"));
        let sums = lines(&out.join("score.txt"));
        let words = lines(&out.join("score-words.txt"));
        assert_eq!((scored.len(), scored.len()), (sums.len(), words.len()));
        for (line, (ours, (sum, words))) in scored.iter().zip(sums.iter().zip(&words)).enumerate() {
            let sum_fits = tally.score(ours.score, sum.trim().parse().unwrap());
            let words = split_word_scores(words).1;
            let verdict = match sum_fits && tally.words(&ours.token_scores, &words) {
                true => Verdict::Same,
                false => Verdict::Different(format!("{} not {sum}", ours.score)),
            };
            tally.add(line, verdict);
        }
        tally.finish(1.0);

        let norm = out.join("score-norm.txt");
        if norm.exists() {
            let mut tally = Tally::new(format!("{model} scorer, normalised"));
            for (line, (ours, theirs)) in scored.iter().zip(lines(&norm)).enumerate() {
                let ours = ours.score / ours.token_scores.len() as f32;
                let verdict = match tally.score(ours, theirs.trim().parse().unwrap()) {
                    true => Verdict::Same,
                    false => Verdict::Different(format!("{ours} not {theirs}")),
                };
                tally.add(line, verdict);
            }
            tally.finish(1.0);
        }
    }
}

/// Compares rows of weights with a soft alignment; notes the largest difference.
fn same_weights(ours: &[Vec<f32>], theirs: &[Vec<f32>], worst: &mut f32) -> bool {
    let shape = |rows: &[Vec<f32>]| rows.iter().map(Vec::len).collect::<Vec<_>>();
    let weights = ours.iter().flatten().zip(theirs.iter().flatten());
    *worst = weights.map(|(a, b)| (a - b).abs()).fold(*worst, f32::max);
    shape(ours) == shape(theirs) && *worst <= WEIGHT_TOLERANCE
}

#[test]
fn alignments_of_references() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let out = golden.join(model).join("out");
        let scored = score_references(&golden, model, input);
        let alignment = |line: &str| line.split_once(" ||| ").map(|x| x.1.to_owned()).unwrap();

        let mut tally = Tally::new(format!("{model} scorer, hard alignments"));
        let choices = lines(&out.join("score-hard.txt"));
        assert_eq!(choices.len(), scored.len());
        for (line, (ours, theirs)) in scored.iter().zip(&choices).enumerate() {
            tally.add(line, same_choices(&ours.alignment, &hard(&alignment(theirs))));
        }
        tally.finish(0.99);

        let weights = lines(&out.join("score-soft.txt.gz"));
        let mut worst = 0.0;
        for (ours, theirs) in scored.iter().zip(&weights) {
            let theirs = soft(&alignment(theirs));
            assert!(same_weights(&ours.alignment, &theirs, &mut worst), "{model}: {worst}");
        }
        let count = weights.len();
        println!("{model} scorer, soft alignments: {count} lines within {worst:.1e}");
    }
}

#[test]
fn alignments_of_translations() {
    let Some(golden) = golden() else { return };
    for (model, input) in TRANSFORMERS {
        let out = golden.join(model).join("out");
        let mut options = OpenOptions::default();
        if model == "transformer-pre" {
            options.compat = vec!["marian-1.12-prenorm".parse().unwrap()];
        }
        let translator = open(&golden.join(model), &options);
        let input = lines(&golden.join(format!("inputs/test.{input}")));
        check_hard(model, &translator, &input, &lines(&out.join("beam4-norm1-hard.txt")));
        check_soft(model, &translator, &input, &lines(&out.join("beam4-norm1-soft.txt")));
    }
}

fn with_alignments(translator: &Translator) -> Options {
    beam(translator, 4, 1.0).with_n_best(1).with_alignments(true).with_scores(false)
}

fn check_hard(model: &str, translator: &Translator, input: &[String], reference: &[String]) {
    let mut tally = Tally::new(format!("{model} beam 4, hard alignments"));
    let fields =
        Fields { alignment: Some(AlignmentStyle::Hard), tokens: true, ..Fields::default() };
    let translations = translate(translator, input, &with_alignments(translator));
    assert_eq!(translations.len(), reference.len());
    for (line, (ours, theirs)) in translations.iter().zip(reference).enumerate() {
        let (words, pairs) = theirs.rsplit_once(" ||| ").unwrap();
        let best = &ours.alternatives[0];
        let verdict = if best_line(ours, &fields) == *theirs {
            Verdict::Same
        } else if words.is_empty() && best.tokens.is_empty() {
            Verdict::EmptyOnce // of nothing there is nothing to align; Marian aligns its end
        } else if best.tokens.join(" ") == words {
            same_choices(&ours.alignment(0), &hard(pairs))
        } else {
            Verdict::Different(format!("{}\nnot {words}", best.tokens.join(" ")))
        };
        tally.add(line, verdict);
    }
    tally.finish(0.99);
}

fn check_soft(model: &str, translator: &Translator, input: &[String], reference: &[String]) {
    let translations =
        translate(translator, &input[..reference.len()], &with_alignments(translator));
    let mut worst = 0.0;
    for (line, (ours, theirs)) in translations.iter().zip(reference).enumerate() {
        let (words, rows) = theirs.rsplit_once(" ||| ").unwrap();
        let best = &ours.alternatives[0];
        assert_eq!(best.tokens.join(" "), words, "{model} line {line}");
        let (alignment, rows) = (ours.alignment(0), soft(rows));
        assert!(same_weights(&alignment, &rows, &mut worst), "{model} line {line}: {worst}");
        let sums = alignment.iter().map(|row| row.iter().sum::<f32>());
        assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-4), "{model} line {line}");
    }
    println!("{model} beam 4, soft alignments: {} lines within {worst:.1e}", reference.len());
}
