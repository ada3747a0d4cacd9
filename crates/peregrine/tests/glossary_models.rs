//! Sixty sentences with terms, with models of others: every term is there or reported, at a price that is told.

use std::path::{Path, PathBuf};

use peregrine::{
    Carry, Entry, Glossary, GlossaryMode, How, OpenOptions, Options, Request, Translation,
    Translator,
};

/// A sentence, its term and the forms that are wanted.
struct Sentence {
    term: String,
    wanted: String,
    text: String,
}

fn sentences(pair: &str) -> Vec<Sentence> {
    let lines = include_str!("data/glossary-sentences.tsv").lines().filter(|l| !l.starts_with('#'));
    let fields = lines.map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let own = fields.filter(|fields| fields[0] == pair);
    own.map(|f| Sentence { term: f[1].clone(), wanted: f[2].clone(), text: f[3].clone() }).collect()
}

fn open(folder: &Path) -> Translator {
    Translator::open(&[folder.to_owned()], &OpenOptions::default()).expect("a model")
}

/// The Firefox model, if it is there.
fn enpt() -> Option<Translator> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/enpt");
    if !folder.exists() {
        eprintln!("skipped: no reference models");
        return None;
    }
    let model = folder.join("config.intgemm8bitalpha.yml");
    Some(open(&model))
}

/// The OPUS model, if it is there.
fn zhen() -> Option<Translator> {
    let Some(folder) = std::env::var_os("PEREGRINE_ZHEN").map(PathBuf::from) else {
        eprintln!("skipped: PEREGRINE_ZHEN is not set");
        return None;
    };
    Some(open(&folder))
}

fn options(translator: &Translator, sentence: &Sentence) -> Options {
    let glossary = Glossary::new([Entry::new(&sentence.term, &sentence.wanted)]);
    let options = translator.options().with_scores(true).with_alignments(true);
    options.with_carry(Carry::On).with_glossary(Some(glossary.expect("a glossary")))
}

fn translate(translator: &Translator, text: &str, options: &Options) -> Translation {
    translator.translate_batch(&[Request::new(text)], options).expect("a translation").remove(0)
}

/// The mean log-probability of a token of the best translation.
fn mean_score(translation: &Translation) -> f32 {
    let best = &translation.alternatives[0];
    best.path_score / best.scored as f32
}

/// What came of the sentences of a pair: how many were found by each way, and how many score above -1.0 a token.
fn tally(pair: &str, translator: &Translator, mode: GlossaryMode) -> ([usize; 5], usize) {
    let (mut counts, mut good) = ([0; 5], 0);
    for sentence in sentences(pair) {
        let options = options(translator, &sentence).with_glossary_mode(mode);
        let translation = translate(translator, &sentence.text, &options);
        let [term] = &translation.terms[..] else { panic!("one term: {}", sentence.text) };
        assert_eq!(sentence.text[term.source.clone()].to_lowercase(), sentence.term.to_lowercase());
        let place = How::ALL.iter().position(|how| *how == term.how).expect("one of them");
        counts[place] += 1;
        let is_searched = matches!(term.how, How::Already | How::Constrained);
        good += usize::from(is_searched && mean_score(&translation) > -1.0);
        println!(
            "{:11} {:6.2} {:5.2} {:20} {} | {}",
            term.how.name(),
            mean_score(&translation),
            term.cost,
            sentence.term,
            sentence.text,
            translation.text()
        );
        match &term.target {
            Some(range) => {
                let found = translation.text()[range.clone()].to_lowercase();
                assert!(
                    sentence.wanted.split('|').any(|form| form.to_lowercase() == found),
                    "{found}"
                );
            }
            None => assert_eq!(term.how, How::Missing),
        }
    }
    (counts, good)
}

#[test]
fn terms_of_the_firefox_model() {
    let Some(translator) = enpt() else { return };
    let (counts, good) = tally("en-pt", &translator, GlossaryMode::Constrain);
    println!("already, constrained, masked, replaced, missing: {counts:?}; {good} above -1.0");
}

#[test]
fn terms_of_the_opus_model() {
    let Some(translator) = zhen() else { return };
    let (counts, good) = tally("zh-en", &translator, GlossaryMode::Constrain);
    println!("already, constrained, masked, replaced, missing: {counts:?}; {good} above -1.0");
}
