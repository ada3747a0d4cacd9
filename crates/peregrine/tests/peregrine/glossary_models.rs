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
    let lines =
        include_str!("../data/glossary-sentences.tsv").lines().filter(|l| !l.starts_with('#'));
    let fields = lines.map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let own = fields.filter(|fields| fields[0] == pair);
    own.map(|f| Sentence { term: f[1].clone(), wanted: f[2].clone(), text: f[3].clone() }).collect()
}

fn open(folder: &Path) -> Translator {
    Translator::open(&[folder.to_owned()], &OpenOptions::default()).expect("a model")
}

/// The Firefox model, if it is there.
fn enpt() -> Option<Translator> {
    crate::reference::shared("models/enpt/config.intgemm8bitalpha.yml").map(|path| open(&path))
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
fn tally(
    pair: &str,
    translator: &Translator,
    mode: GlossaryMode,
) -> ([usize; How::ALL.len()], usize) {
    let (mut counts, mut good) = ([0; How::ALL.len()], 0);
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

/// Checks the sentences of a pair: nothing is missing, and so many score above -1.0 a token.
fn check(pair: &str, translator: &Translator, least: usize) {
    let (counts, good) = tally(pair, translator, GlossaryMode::Constrain);
    println!(
        "{pair}: already, constrained, masked, replaced, missing, kept: {counts:?}; {good} above -1.0"
    );
    assert_eq!(counts[4], 0, "no term is missing");
    assert!(good >= least, "{good} above -1.0 a token");
    let all: usize = counts.iter().sum();
    let (masked, _) = tally(pair, translator, GlossaryMode::Mask);
    assert_eq!(masked[2], all);
    let (replaced, _) = tally(pair, translator, GlossaryMode::Replace);
    assert!(replaced[0] == counts[0] && replaced[4] <= 1, "{replaced:?}");
    // A glossary of other terms changes nothing.
    let others = Glossary::new([Entry::new("zebra", "x"), Entry::new("斑马", "")]);
    let without = translator.options().with_scores(true).with_alignments(true);
    let with = without.clone().with_glossary(Some(others.expect("a glossary")));
    for Sentence { text, .. } in sentences(pair) {
        let (a, b) = (translate(translator, &text, &without), translate(translator, &text, &with));
        assert_eq!(a.sentences, b.sentences);
        assert_eq!(
            (a.text(), &a.alternatives[0].token_scores),
            (b.text(), &b.alternatives[0].token_scores)
        );
    }
}

/// All sentences in one batch, each with its own glossary, are what they are alone.
fn check_company(pair: &str, translator: &Translator) {
    let sentences = sentences(pair);
    let options: Vec<Options> = sentences.iter().map(|s| options(translator, s)).collect();
    let requests: Vec<Request<'_>> = sentences
        .iter()
        .zip(&options)
        .map(|(s, o)| Request::new(&s.text).with_options(o))
        .collect();
    let together = translator.translate_batch(&requests, &translator.options());
    for ((sentence, options), together) in
        sentences.iter().zip(&options).zip(together.expect("translations"))
    {
        let alone = translate(translator, &sentence.text, options);
        assert_eq!((alone.text(), &alone.terms), (together.text(), &together.terms));
        assert_eq!(alone.alternatives[0].token_scores, together.alternatives[0].token_scores);
    }
}

#[test]
fn terms_of_the_firefox_model() {
    let Some(translator) = enpt() else { return };
    check("en-pt", &translator, 36);
    check_company("en-pt", &translator);
}

#[test]
fn terms_of_the_opus_model() {
    let Some(translator) = zhen() else { return };
    check("zh-en", &translator, 12);
    check_company("zh-en", &translator);
}
