//! Lines in several parts: what each part says is about its own words.

use std::sync::Arc;

use crate::common::nonsense;
use peregrine::model::Autoregression;
use peregrine::text::LONGEST;
use peregrine::{Dictionary, Options, Request, Split, Translation, Translator};

fn translator() -> Translator {
    nonsense(Autoregression::SelfAttention)
}

fn translate(translator: &Translator, text: &str, options: &Options) -> Translation {
    translator.translate_batch(&[Request::new(text)], options).expect("a translation").remove(0)
}

/// Greedy search that knows no words, and replaces the unknown one by the source word it attends
/// to.
fn replacing(translator: &Translator) -> Options {
    let mut options = translator.options().with_beam(1);
    options.search.allow_unk = true;
    options.search.min_length = 5;
    let (end, unknown) = (translator.model().target.eos(), translator.model().target.unk());
    let kept = |word: &u32| *word == end || Some(*word) == unknown;
    options.search.suppress = (0..60).filter(|word| !kept(word)).collect();
    options.replace_unknown = Some(Arc::new(Dictionary::default()));
    options
}

#[test]
fn unknown_words_of_any_sentence_are_those_it_attends_to() {
    let translator = translator();
    let options = replacing(&translator);
    let split = options.clone().with_split(Split::Sentence);
    let mut replaced = 0;
    for i in 0..60 {
        let first = format!("w{} Berta w{} Anton.", i % 50, i * 7 % 50);
        let second = format!("Cäsar w{} w{} Dora.", i * 3 % 50, i * 11 % 50);
        let alone = [&first, &second].map(|text| translate(&translator, text, &options));
        let together = translate(&translator, &format!("{first} {second}"), &split);
        assert_eq!(together.segments, 2);
        let tokens = alone.each_ref().map(|t| t.alternatives[0].tokens.clone()).concat();
        assert_eq!(together.alternatives[0].tokens, tokens);
        let mut plain = options.clone();
        plain.replace_unknown = None;
        let plain = translate(&translator, &second, &plain);
        replaced += plain.alternatives[0].tokens.iter().filter(|word| *word == "<unk>").count();
    }
    assert!(replaced > 10, "{replaced} unknown words in second sentences");
}

/// A line of any size has a translation, and memory of working it out does not grow with it.
#[test]
fn a_line_above_the_longest_is_cut_before_it_is_tokenised() {
    let translator = translator();
    let options = translator.options().with_beam(1).with_scores(true);
    let text = "w3 w5 w8 ".repeat(2 * LONGEST / 9);
    let translation = translate(&translator, &text, &options);
    assert!(translation.cut && !translation.copied);
    let best = &translation.alternatives[0];
    assert_eq!(best.tokens.len() + usize::from(best.ended), best.token_scores.len());
    // Nothing of it is lost: every part has the frame's one token besides its own.
    assert_eq!(translation.source_tokens - translation.segments, text.split(' ').count() - 1);
}

#[test]
fn alternatives_of_parts_go_together_with_copies() {
    let translator = translator();
    let options = translator.options().with_beam(3).with_n_best(3);
    let (long, word) = ("w3 w5 w8 ".repeat(600), "x".repeat(3000));
    let translation = translate(&translator, &format!("{long} {word} {long}"), &options);
    assert!(translation.copied);
    assert_eq!(translation.alternatives.len(), 3);
    for alternative in &translation.alternatives {
        assert_eq!(alternative.text.matches(&word).count(), 1);
        assert_eq!(alternative.tokens.iter().filter(|token| **token == word).count(), 1);
    }
}

/// The tokens of a text, given one by one, are translated and scored as the text is.
#[test]
fn given_tokens_are_those_of_the_text() {
    let translator = translator();
    let listed = |text: &str| {
        let source = &translator.model().source;
        let ids = source.encode(text).ids;
        ids.iter().map(|&id| source.token(id)).collect::<Vec<_>>().join(" ")
    };
    let mut options = translator.options().with_beam(3).with_n_best(3).with_alignments(true);
    for text in ["w3 w5 w8", "w40", "", "w1 w2 w3 w4 w5 w6 w7 w8 w9"] {
        let expected = translate(&translator, text, &options);
        let given = translate(&translator, &listed(text), &options.clone().of_tokens());
        assert_eq!(given.alternatives.len(), expected.alternatives.len());
        for (one, other) in given.alternatives.iter().zip(&expected.alternatives) {
            assert_eq!((&one.tokens, one.score), (&other.tokens, other.score));
        }
        assert_eq!(given.alignment(0), expected.alignment(0));
        let (as_text, tokens) = (options.clone(), options.clone().of_tokens());
        let score = |pair, options| translator.score(&[pair], options).expect("scores").remove(0);
        let pair = (listed(text), listed("w7 w9"));
        assert_eq!(score((&*pair.0, &*pair.1), &tokens), score((text, "w7 w9"), &as_text));
    }
    // What no vocabulary has is the unknown word, and a sentence that is too long is cut.
    let unknown = translate(&translator, "nonsense", &options.clone().of_tokens());
    assert_eq!(unknown.source_tokens, translate(&translator, "w3", &options).source_tokens);
    options.search.max_source = 5;
    let cut = translate(&translator, &listed("w1 w2 w3 w4 w5 w6 w7 w8 w9"), &options.of_tokens());
    assert!(cut.cut && cut.segments == 3, "{} parts", cut.segments);
}

#[test]
fn a_prefix_of_tokens_begins_the_translation() {
    let translator = translator();
    let options = translator.options().with_beam(2).of_tokens();
    let request = Request::new("w3 w5").with_prefix("w9 w8");
    let translation = translator.translate_batch(&[request], &options).expect("a translation");
    assert_eq!(translation[0].alternatives[0].tokens[..2], ["w9", "w8"]);
}
