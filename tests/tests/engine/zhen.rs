//! A real CTranslate2 model, Chinese to English, against CTranslate2 in float32, on FLORES.
//!
//! The model (83 MB) is not kept with the others: `PEREGRINE_ZHEN` names the package directory
//! `translate-zh_en-1_9`, if it is not among the reference models. The first 100 lines are translated
//! (40 with a beam), all 1,012 with `PEREGRINE_FULL=1`.

use std::path::PathBuf;

use peregrine::{OpenOptions, Translator};
use peregrine_tests::marian::Entry;
use peregrine_tests::{
    Tally, beam, compare_greedy, compare_lists, first, lines, open, optional, shared, translate,
};

/// Sentences that must be the same.
const LEAST: f64 = 0.99;

fn model() -> Option<(Translator, PathBuf)> {
    let flores = shared("data/flores")?;
    let folder = match std::env::var_os("PEREGRINE_ZHEN") {
        Some(folder) => PathBuf::from(folder),
        None => optional("models/zhen/translate-zh_en-1_9")?,
    };
    Some((open(&folder, &OpenOptions::default()), flores))
}

/// What CTranslate2 answered, as entries of an n-best list.
///
/// The scores of tokens there come from its scorer. Its search forbids the end symbol at the first step,
/// before the softmax, which makes the first token a little more probable: that token's score is taken
/// from the score of the whole, which is the search's.
fn reference(path: &std::path::Path) -> Vec<Vec<Entry>> {
    let entry = |hypothesis: &serde_json::Value| {
        let strings = hypothesis["tokens"].as_array().unwrap().iter();
        let words: Vec<&str> = strings.map(|token| token.as_str().unwrap()).collect();
        let scores = hypothesis["token_scores"].as_array().into_iter().flatten();
        let mut word_scores: Vec<f32> = scores.map(|s| s.as_f64().unwrap() as f32).collect();
        let score = hypothesis["score"].as_f64().unwrap() as f32;
        let sum = score * word_scores.len() as f32;
        let first = sum - word_scores[1..].iter().sum::<f32>();
        assert!(first >= word_scores[0] - 1e-3, "more probable, not less");
        word_scores[0] = first;
        Entry { words: words.join(" "), features: vec![sum], word_scores, score }
    };
    let list = |line: &String| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["hyps"].as_array().unwrap().iter().map(entry).collect()
    };
    lines(path).iter().map(list).collect()
}

#[test]
fn greedy() {
    let Some((translator, flores)) = model() else { return };
    let input = lines(&flores.join("devtest.zh"));
    let translations = translate(&translator, first(&input, 100), &beam(&translator, 1, 1.0));
    let lists = reference(&flores.join("devtest.zh-en.ct2-float32.greedy.jsonl.gz"));
    let texts = lines(&flores.join("devtest.zh-en.ct2-float32.greedy.txt"));
    let mut tally = Tally::new("zh-en greedy");
    for (line, ours) in translations.iter().enumerate() {
        let verdict = compare_greedy(&mut tally, ours, &lists[line][0]);
        if ours.text() != texts[line] {
            println!("line {line}: text {:?}, not {:?}", ours.text(), texts[line]);
        }
        tally.add(line, verdict);
    }
    tally.finish(LEAST);
}

/// The best of four hypotheses on the devtest set.
#[test]
fn beam_4() {
    let Some((translator, flores)) = model() else { return };
    let input = lines(&flores.join("devtest.zh"));
    let options = beam(&translator, 4, 1.0).with_n_best(1);
    let translations = translate(&translator, first(&input, 40), &options);
    let lists = reference(&flores.join("devtest.zh-en.ct2-float32.beam4.jsonl.gz"));
    let mut tally = Tally::new("zh-en beam 4");
    for (line, ours) in translations.iter().enumerate() {
        let verdict = compare_lists(&mut tally, ours, &lists[line]);
        tally.add(line, verdict);
    }
    tally.finish(LEAST);
}

/// All four hypotheses of the first lines.
#[test]
fn beam_4_lists() {
    let Some((translator, flores)) = model() else { return };
    let input = lines(&flores.join("first100.zh"));
    let input = first(&input, 10);
    let translations = translate(&translator, input, &beam(&translator, 4, 1.0));
    let lists = reference(&flores.join("first100.zh-en.ct2-float32.beam4.jsonl.gz"));
    let mut tally = Tally::new("zh-en beam 4 lists");
    for (line, ours) in translations.iter().enumerate() {
        let verdict = compare_lists(&mut tally, ours, &lists[line]);
        tally.add(line, verdict);
    }
    tally.finish(LEAST);
}
