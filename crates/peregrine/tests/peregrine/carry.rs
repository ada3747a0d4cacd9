//! Carry-through with models: what they cannot spell survives, however a text comes to them.

use std::ops::Range;

use crate::common::nonsense;
use peregrine::model::Autoregression;
use peregrine::{
    Carry, Line, Options, Request, Service, ServiceOptions, StreamOptions, Translation, Translator,
};

/// Lines with what must survive.
const LINES: &[(&str, &[&str])] = &[
    ("Hello {name}, you have {count} new messages.", &["{name}", "{count}"]),
    (
        "See https://example.org/a.html?id=12#top for details.",
        &["https://example.org/a.html?id=12#top"],
    ),
    ("I love pizza 🍕 and ice cream 🍦!", &["🍕", "🍦"]),
    ("WARNING: DO NOT OPEN THIS DOOR.", &["AVISO", "PORTA."]),
    ("Name:\tTwo  dogs ", &["\t", "  "]),
    (
        "{count, plural, one {# file} other {# files}} selected",
        &["{count, plural, one {", "} other {", "}}"],
    ),
    ("The word Schadenfreude is German, and 東京 is a city.", &["東京"]),
    ("- [ ] Buy milk", &["- [ ] "]),
    ("42", &["42"]),
    ("   ", &["   "]),
    ("", &[]),
    ("The Old Man Who Lived Under The Bridge", &["velho"]),
    (
        "%1$s %2$d <b>{a}</b> `x` {b} @c #d %s {e} https://f.example/g {h} and {i} or {j}?",
        &["%1$s %2$d", "`x`", "{j}"],
    ),
    ("Two dogs play in the snow.", &["Dois cães brincam na neve."]),
];

fn translate(translator: &Translator, texts: &[&str], options: &Options) -> Vec<Translation> {
    let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
    translator.translate_batch(&requests, options).expect("translations")
}

/// What must hold for the translation of any text.
fn check(translation: &Translation, source: &str) {
    assert_eq!(translation.source_bytes, source.len());
    let mut at = 0;
    for sentence in &translation.sentences {
        assert!(sentence.source.start >= at && source.get(sentence.source.clone()).is_some());
        at = sentence.source.end;
        let inside = |r: &Range<usize>| sentence.source.start <= r.start && r.end <= at;
        assert!(sentence.source_tokens.iter().chain(&sentence.source_words).all(inside));
        assert!(sentence.source_tokens.iter().all(|range| source.get(range.clone()).is_some()));
    }
    for (rank, alternative) in translation.alternatives.iter().enumerate() {
        let mut at = 0;
        for sentence in &translation.sentences {
            let target = &sentence.targets[rank];
            assert!(target.text.start >= at && alternative.text.get(target.text.clone()).is_some());
            at = target.text.end;
            let ranges = &alternative.token_ranges[target.tokens.clone()];
            let inside = |r: &Range<usize>| target.text.start <= r.start && r.end <= at;
            assert!(ranges.iter().all(inside), "{ranges:?} in {:?}", target.text);
            assert!(ranges.is_sorted_by_key(|range| range.end));
        }
        assert!(at <= alternative.text.len());
    }
}

#[cfg(feature = "builtin")]
mod builtin {
    use super::*;

    fn builtin() -> Translator {
        Translator::builtin().expect("the built-in model")
    }

    #[test]
    fn what_must_survive_does() {
        let translator = builtin();
        let options = translator.options().with_carry(Carry::On);
        let texts: Vec<&str> = LINES.iter().map(|(text, _)| *text).collect();
        for (translation, (text, kept)) in
            translate(&translator, &texts, &options).iter().zip(LINES)
        {
            for kept in *kept {
                assert!(translation.text().contains(kept), "{text:?}: {:?}", translation.text());
            }
            assert_eq!(translation.lost, 0, "{text:?}: {:?}", translation.text());
        }
    }

    /// A batch, a stream and a service give the same, in any company and order.
    #[test]
    fn all_ways_give_the_same() {
        let translator = builtin();
        let options =
            translator.options().with_carry(Carry::On).with_scores(true).with_alignments(true);
        let mut texts: Vec<&str> = LINES.iter().map(|(text, _)| *text).collect();
        let workers = translator.workers().with_threads(2);
        let alone: Vec<Translation> =
            texts.iter().map(|text| translate(&translator, &[text], &options).remove(0)).collect();
        let view = |t: &Translation| {
            let best = &t.alternatives[0];
            let scores = (best.score, best.token_ranges.clone());
            (best.text.clone(), t.carried, t.lost, t.sentences.clone(), scores)
        };
        let expected: Vec<_> = alone.iter().map(view).collect();
        let mut streamed = Vec::new();
        let stream = StreamOptions::new(options.clone(), workers.clone());
        let lines = texts.iter().map(|text| Ok(Line::new(*text)));
        let done = translator.stream(lines, &stream, |answer| {
            streamed.push(view(&answer.translation));
            Ok::<(), peregrine::Error>(())
        });
        done.expect("a stream");
        assert_eq!(streamed, expected);
        let service = Service::new(&translator, &ServiceOptions::new(workers));
        let requests: Vec<_> =
            texts.iter().map(|t| Request::new(t).with_options(&options)).collect();
        let served = service.translate_batch(&requests).expect("translations");
        assert_eq!(served.iter().map(view).collect::<Vec<_>>(), expected);
        texts.reverse();
        let mut together = translate(&translator, &texts, &options);
        together.reverse();
        assert_eq!(together.iter().map(view).collect::<Vec<_>>(), expected);
    }

    /// Offsets are those of the texts that people see.
    #[test]
    fn ranges_are_of_the_real_texts() {
        let translator = builtin();
        let options =
            translator.options().with_carry(Carry::On).with_scores(true).with_alignments(true);
        for (text, _) in LINES {
            check(&translate(&translator, &[text], &options)[0], text);
        }
        let text = "Send it to {first_name} today, please.";
        let translation = &translate(&translator, &[text], &options)[0];
        let links = translation.word_alignments(0);
        let word = |range: &Range<usize>| &translation.text()[range.clone()];
        let link = links.iter().find(|link| word(&link.target).contains("{first_name}"));
        assert_eq!(&text[link.expect("a link").source.clone()], "{first_name}");
    }

    /// What a request keeps comes back as it is, whatever a model would make of it, and it is known where.
    #[test]
    fn what_is_kept_comes_back() {
        let translator = builtin();
        let options = translator.text_options().with_alignments(true);
        for (text, kept) in [
            ("Open the Big Red Door now.", &["Big Red Door"][..]),
            ("Two dogs play in the snow. Say Yes. No. to the cat.", &["Yes. No."]),
            ("Good morning, dear dogs!", &["Good morning", "dogs"]),
            ("dogs", &["dogs"]),
            ("a house \u{fffc} and a dog", &["\u{fffc}"]),
        ] {
            let place = |word: &&str| {
                let at = text.find(word).expect("the word");
                at..at + word.len()
            };
            let ranges: Vec<Range<usize>> = kept.iter().map(place).collect();
            let request = Request::new(text).with_kept(&ranges);
            let translation =
                translator.translate_batch(&[request], &options).expect("a translation").remove(0);
            check(&translation, text);
            for (range, word) in ranges.iter().zip(kept) {
                let term = translation.terms.iter().find(|term| term.source == *range);
                let target = term.and_then(|term| term.target.clone()).expect("a place");
                assert_eq!(&translation.text()[target], *word);
                assert_eq!(translation.text().matches(word).count(), 1, "{}", translation.text());
            }
        }
    }

    /// A service reports sentences as people will see them.
    #[test]
    fn progress_is_of_the_real_text() {
        let translator = builtin();
        let options = translator.options().with_carry(Carry::On);
        let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
        let request =
            Request::new("Hello {name}, how are you?").with_options(&options).with_tokens();
        let mut pending = service.submit(&request).expect("a request");
        let mut last = String::new();
        while let Some(progress) = pending.next_progress() {
            let (peregrine::Progress::Token { text, .. }
            | peregrine::Progress::Sentence { text, .. }) = progress
            else {
                continue;
            };
            assert!(!text.contains("X1"), "{text}");
            last = text;
        }
        let translation = pending.wait().expect("a translation");
        assert_eq!(last, translation.text());
        assert!(last.contains("{name}"));
    }
}

/// A model whose vocabulary has no mask: text is translated in parts around what is carried.
#[test]
fn without_masks_text_is_translated_in_parts() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options().with_carry(Carry::On).with_scores(true);
    options.alignments = true;
    let long = "w3 w5 w8 {x} ".repeat(600);
    for text in
        ["w3 {name} w5, %s", "  w1 w2\thttps://a.example/b w3 ", "{a} {b}", &long, "W1 W2 🦀!"]
    {
        let translation = &translate(&translator, &[text], &options)[0];
        check(translation, text);
        assert_eq!(translation.lost, 0);
        for kept in ["{name}", "%s", "https://a.example/b", "🦀", "{a} {b}", "\t"] {
            assert!(
                !text.contains(kept) || translation.text().contains(kept),
                "{:?}",
                translation.text()
            );
        }
        assert_eq!(translation.text().matches("{x}").count(), text.matches("{x}").count());
    }
}

/// Text that has nothing to carry is translated as without carry-through, to the bit.
#[test]
fn plain_text_is_translated_as_ever() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = translator.options().with_beam(3).with_n_best(3).with_scores(true);
    let carry = options.clone().with_carry(Carry::On);
    for text in ["w3 w5 w8 w13", "w1 w2. W3", "w9"] {
        let (off, on) = (
            &translate(&translator, &[text], &options)[0],
            &translate(&translator, &[text], &carry)[0],
        );
        assert_eq!(off.sentences, on.sentences);
        for (a, b) in off.alternatives.iter().zip(&on.alternatives) {
            assert_eq!(
                (&a.text, &a.tokens, &a.token_scores, a.score),
                (&b.text, &b.tokens, &b.token_scores, b.score)
            );
        }
        assert_eq!((on.carried, on.lost), (0, 0));
    }
}
