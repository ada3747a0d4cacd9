//! A real Firefox (Bergamot) model, English to Portuguese, computed in float32, against Marian in
//! float32 with the same weights, on FLORES.
//!
//! Greedy search runs on all 1,012 lines; beam search and scoring on the first 200, and on all of them
//! with `PEREGRINE_FULL=1`.

use std::path::PathBuf;

use peregrine::{OpenOptions, ShortlistChoice, Translator};
use peregrine_tests::marian::{n_best, split_word_scores};
use peregrine_tests::{
    Tally, Verdict, beam, compare_greedy, compare_lists, first, lines, open, shared, translate,
};

/// Sentences that must be the same.
const LEAST: f64 = 0.99;

/// The model, and where its reference outputs begin.
fn model(shortlist: ShortlistChoice) -> Option<(Translator, PathBuf)> {
    let folder = shared("models/enpt")?;
    let flores = shared("data/flores")?;
    let options = OpenOptions { shortlist, ..OpenOptions::default() };
    Some((open(&folder, &options), flores))
}

fn check_greedy(what: &str, translator: &Translator, flores: &std::path::Path) {
    let input = lines(&flores.join("devtest.en"));
    let translations = translate(translator, &input, &beam(translator, 1, 1.0));
    let reference = flores.join(format!("devtest.en-pt.{what}"));
    let texts = lines(&reference);
    let lists = n_best(&PathBuf::from(format!("{}.wordscores.gz", reference.display())));
    assert_eq!((texts.len(), lists.len()), (translations.len(), translations.len()));
    let mut tally = Tally::new(format!("en-pt {what}"));
    for (line, (ours, theirs)) in translations.iter().zip(&lists).enumerate() {
        let verdict = compare_greedy(&mut tally, ours, &theirs[0]);
        if verdict == Verdict::Same {
            assert_eq!(ours.text(), texts[line], "line {line}: text of the same tokens");
        }
        tally.add(line, verdict);
    }
    tally.finish(LEAST);
}

#[test]
#[ignore = "slow: .ci/run runs it"]
fn greedy() {
    let Some((translator, flores)) = model(ShortlistChoice::Off) else { return };
    check_greedy("marian-float32.greedy", &translator, &flores);
}

/// The shortlist that the model's own configuration names.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn greedy_with_shortlist() {
    let Some((translator, flores)) = model(ShortlistChoice::Auto) else { return };
    assert!(translator.model().shortlist.is_some());
    check_greedy("marian-float32-shortlist.greedy", &translator, &flores);
}

/// All four hypotheses with their word scores, and the text of each.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn beam_4() {
    let Some((translator, flores)) = model(ShortlistChoice::Off) else { return };
    let input = lines(&flores.join("devtest.en"));
    let input = first(&input, 200);
    let translations = translate(&translator, input, &beam(&translator, 4, 1.0));
    let file = |ending: &str| flores.join(format!("devtest.en-pt.marian-float32.beam4{ending}"));
    let lists = n_best(&file(".wordscores.gz"));
    let texts = n_best(&file(".nbest.gz"));
    let best = lines(&file(""));
    let mut tally = Tally::new("en-pt beam 4");
    for (line, ours) in translations.iter().enumerate() {
        let verdict = compare_lists(&mut tally, ours, &lists[line]);
        if verdict == Verdict::Same {
            assert_eq!(ours.text(), best[line], "line {line}");
            let ours = ours.alternatives.iter().map(|a| a.text.as_str());
            assert!(ours.eq(texts[line].iter().map(|entry| entry.words.as_str())), "line {line}");
        }
        tally.add(line, verdict);
    }
    tally.finish(LEAST);
}

#[test]
fn scores_of_references() {
    let Some((translator, flores)) = model(ShortlistChoice::Off) else { return };
    let (sources, targets) = (lines(&flores.join("devtest.en")), lines(&flores.join("devtest.pt")));
    let pairs: Vec<(&str, &str)> =
        sources.iter().map(String::as_str).zip(targets.iter().map(String::as_str)).collect();
    let workers = translator.workers().with_threads(2);
    let scored = translator.score_with(first(&pairs, 200), &translator.options(), &workers);
    let scored = scored.unwrap();
    let reference = lines(&flores.join("devtest.en-pt.marian-float32.reference-scores"));
    assert_eq!(pairs.len(), reference.len());
    let mut tally = Tally::new("en-pt references");
    for (line, (ours, theirs)) in scored.iter().zip(&reference).enumerate() {
        let (sum, words) = split_word_scores(theirs);
        let fits = tally.score(ours.score, sum.parse().unwrap());
        let verdict = match fits && tally.words(&ours.token_scores, &words) {
            true => Verdict::Same,
            false => Verdict::Different(format!("{} not {sum}", ours.score)),
        };
        tally.add(line, verdict);
    }
    tally.finish(1.0);
}
