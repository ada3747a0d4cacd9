//! Where the parts of a translation are, in the source and in the target.

use std::ops::Range;
use std::sync::Arc;

use crate::common::nonsense;
use peregrine::model::Autoregression;
use peregrine::{
    Dictionary, Line, Options, Request, Split, StreamOptions, Translation, Translator, WordLink,
};

fn translate(translator: &Translator, text: &str, options: &Options) -> Translation {
    translator.translate_batch(&[Request::new(text)], options).expect("a translation").remove(0)
}

fn parts<'t>(text: &'t str, ranges: &[Range<usize>]) -> Vec<&'t str> {
    ranges.iter().map(|range| &text[range.clone()]).collect()
}

/// What must hold for the translation of any text.
fn check(translation: &Translation, source: &str, options: &Options) {
    assert_eq!(translation.source_bytes, source.len());
    assert_eq!(translation.segments, translation.sentences.len());
    let tokens: usize = translation.sentences.iter().map(|s| s.source_length).sum();
    assert_eq!(translation.source_tokens, tokens);
    let mut at = 0;
    for sentence in &translation.sentences {
        assert!(sentence.source.start >= at, "{:?}", sentence.source);
        assert!(source[at..sentence.source.start].trim().is_empty());
        at = sentence.source.end;
        assert_eq!(sentence.targets.len(), translation.alternatives.len());
        if options.alignments && !sentence.copied {
            assert_eq!(sentence.source_tokens.len(), sentence.source_length);
            let inside = |r: &Range<usize>| sentence.source.start <= r.start && r.end <= at;
            assert!(sentence.source_tokens.iter().chain(&sentence.source_words).all(inside));
        }
    }
    assert!(source[at..].trim().is_empty(), "{:?} is in no sentence", &source[at..]);
    for (rank, alternative) in translation.alternatives.iter().enumerate() {
        let (mut at, mut token) = (0, 0);
        for sentence in &translation.sentences {
            let target = &sentence.targets[rank];
            assert!(alternative.text[at..target.text.start].trim().is_empty());
            assert_eq!(target.tokens.start, token);
            (at, token) = (target.text.end, target.tokens.end);
            if options.alignments {
                let rows = target.tokens.len() + usize::from(target.ended && !sentence.copied);
                assert_eq!(target.alignment.len(), rows);
            }
            if let Some(ranges) = alternative.token_ranges.get(target.tokens.clone()) {
                let inside = |r: &Range<usize>| target.text.start <= r.start && r.end <= at;
                assert!(ranges.iter().all(inside), "{ranges:?} in {:?}", target.text);
            }
        }
        assert_eq!((at, token), (alternative.text.len(), alternative.tokens.len()));
        if options.alignments && !translation.sentences.is_empty() {
            let rows = translation.alignment(rank);
            assert_eq!(rows.len(), alternative.token_scores.len());
            assert!(rows.iter().all(|row| row.len() == translation.source_tokens));
        }
    }
}

#[cfg(feature = "builtin")]
mod builtin {
    use super::*;

    const SENTENCES: [&str; 3] =
        ["Good morning!", "Two dogs play in the snow.", "Where is the station?"];

    /// A sentence in a text says of itself what it says alone, at its own place.
    #[test]
    fn sentences_are_at_their_places() {
        let translator = Translator::builtin().expect("the built-in model");
        let options = translator.options().with_scores(true).with_alignments(true);
        let split = options.clone().with_split(Split::Sentence);
        let text = format!("  {}   {} {} ", SENTENCES[0], SENTENCES[1], SENTENCES[2]);
        let whole = translate(&translator, &text, &split);
        check(&whole, &text, &split);
        let best = &whole.alternatives[0];
        assert_eq!(whole.sentences.len(), 3);
        let mut links: Vec<WordLink> = Vec::new();
        let mut words = Vec::new();
        for (sentence, expected) in whole.sentences.iter().zip(SENTENCES) {
            let alone = translate(&translator, expected, &options);
            check(&alone, expected, &options);
            let (target, own) = (&sentence.targets[0], &alone.alternatives[0]);
            assert_eq!(&text[sentence.source.clone()], expected);
            assert_eq!(&best.text[target.text.clone()], own.text);
            assert_eq!(best.tokens[target.tokens.clone()], own.tokens);
            let scores = &own.token_scores[..own.tokens.len()];
            assert_eq!(&best.token_scores[target.tokens.clone()], scores);
            assert_eq!((target.score, target.path_score), (own.score, own.path_score));
            assert_eq!(target.alignment, alone.sentences[0].targets[0].alignment);
            assert_eq!(
                parts(&best.text, &best.token_ranges[target.tokens.clone()]),
                parts(&own.text, &own.token_ranges),
            );
            assert_eq!(
                parts(&text, &sentence.source_tokens),
                parts(expected, &alone.sentences[0].source_tokens),
            );
            let (source, target) = (sentence.source.start, target.text.start);
            let moved = |range: &Range<usize>, by| range.start + by..range.end + by;
            for mut link in alone.word_alignments(0) {
                link.source = moved(&link.source, source);
                link.target = moved(&link.target, target);
                links.push(link);
            }
            words.extend(alone.words(0).iter().map(|word| moved(&word.range, target)));
        }
        assert_eq!(whole.word_alignments(0), links);
        assert_eq!(whole.words(0).into_iter().map(|word| word.range).collect::<Vec<_>>(), words);
    }

    #[test]
    fn words_are_linked_to_the_words_they_translate() {
        let translator = Translator::builtin().expect("the built-in model");
        let options = translator.options().with_alignments(true).with_split(Split::Sentence);
        let text = "Good morning! Two dogs play in the snow.";
        let whole = translate(&translator, text, &options);
        let links = whole.word_alignments(0);
        let strongest = |word: &str| {
            let of_word = |link: &&WordLink| &whole.text()[link.target.clone()] == word;
            links.iter().find(of_word).map(|link| &text[link.source.clone()])
        };
        assert_eq!(strongest("Dois"), Some("Two"));
        assert_eq!(strongest("cães"), Some("dogs"));
        assert_eq!(strongest("neve."), Some("snow."));
        for word in whole.words(0) {
            let of_word: Vec<&WordLink> =
                links.iter().filter(|link| link.target == word.range).collect();
            assert!((1..=5).contains(&of_word.len()));
            let sum: f32 = of_word.iter().map(|link| link.weight).sum();
            assert!(sum <= 1.0 + 1e-5);
            assert!(of_word[1..].iter().all(|link| link.weight >= WordLink::LEAST_WEIGHT));
        }
    }

    /// Word scores are those of tokens, and nothing of them is lost.
    #[test]
    fn word_scores_add_up() {
        let translator = Translator::builtin().expect("the built-in model");
        let options = translator.options().with_scores(true);
        for text in SENTENCES.iter().chain(&["I ❤️ Rust 🦀 — naïvely!", "日本語 text"])
        {
            let translation = translate(&translator, text, &options);
            check(&translation, text, &options);
            let best = &translation.alternatives[0];
            let words = translation.words(0);
            let sum: f32 = words.iter().map(|word| word.score).sum();
            let expected: f32 = best.token_scores[..best.tokens.len()].iter().sum();
            assert!((sum - expected).abs() < 1e-3, "{text}: {sum}, not {expected}");
            let texts: Vec<&str> = words.iter().map(|w| &best.text[w.range.clone()]).collect();
            assert_eq!(texts, best.text.split_whitespace().collect::<Vec<_>>());
        }
    }
}

#[test]
fn parts_that_are_cut_or_copied_have_their_places() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options().with_beam(3).with_n_best(3).with_scores(true);
    options.alignments = true;
    let (long, word) = ("w3 w5 w8 ".repeat(600), "é".repeat(2100));
    let text = format!(" {long} {word} {long}");
    let translation = translate(&translator, &text, &options);
    check(&translation, &text, &options);
    assert_eq!(translation.alternatives.len(), 3);
    let copied: Vec<_> = translation.sentences.iter().filter(|s| s.copied).collect();
    assert_eq!(copied.len(), 1);
    assert_eq!(&text[copied[0].source.clone()], word);
    for (rank, alternative) in translation.alternatives.iter().enumerate() {
        let target = &copied[0].targets[rank];
        assert_eq!(&alternative.text[target.text.clone()], word);
        assert_eq!(alternative.tokens[target.tokens.clone()], [word.as_str()]);
        // Its token has a row too, or the rows behind it would be those of other tokens.
        let row = &translation.alignment(rank)[target.tokens.start];
        assert!(row.iter().all(|&weight| weight == 0.0));
    }
    // Source tokens are words of this vocabulary.
    for sentence in translation.sentences.iter().filter(|s| !s.copied) {
        let words: Vec<&str> = text[sentence.source.clone()].split_whitespace().collect();
        let mut tokens = parts(&text, &sentence.source_tokens);
        assert_eq!(tokens.pop(), Some(""), "the end symbol");
        assert_eq!(tokens, words);
        assert_eq!(parts(&text, &sentence.source_words), words);
    }
}

/// A model so short that text is cut without regard to words' ends.
#[test]
fn text_that_is_cut_blindly_has_its_places() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options().with_beam(1).with_alignments(true);
    for most in [2, 3, 4] {
        options.search.max_source = most;
        let text = "w3 w5 unknown w8 w9 w10";
        let translation = translate(&translator, text, &options);
        check(&translation, text, &options);
        let words: Vec<&str> =
            translation.sentences.iter().flat_map(|s| parts(text, &s.source_words)).collect();
        assert_eq!(words.join(" "), text);
    }
}

#[test]
fn replaced_words_have_their_places() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options().with_beam(1).with_scores(true);
    options.search.allow_unk = true;
    options.search.min_length = 5;
    let (end, unknown) = (translator.model().target.eos(), translator.model().target.unk());
    let kept = |word: &u32| *word == end || Some(*word) == unknown || *word == 7;
    options.search.suppress = (0..60).filter(|word| !kept(word)).collect();
    options.replace_unknown = Some(Arc::new(Dictionary::default()));
    options.split = Split::Sentence;
    let mut replaced = 0;
    for i in 0..40 {
        let text = format!("w{} Béla w{}. Äpfel w{} Dora.", i % 50, i * 7 % 50, i * 3 % 50);
        let translation = translate(&translator, &text, &options);
        check(&translation, &text, &options);
        let best = &translation.alternatives[0];
        assert_eq!(parts(&best.text, &best.token_ranges), best.tokens);
        replaced +=
            best.tokens.iter().filter(|token| ["Béla", "Äpfel"].contains(&&***token)).count();
    }
    assert!(replaced > 5, "{replaced} replaced words that are longer in bytes");
}

/// Nobody pays for what nobody asked for.
#[test]
fn tokens_have_no_ranges_unless_asked_for() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = translator.options();
    let translation = translate(&translator, "w3 w5. W8 w9.", &options);
    check(&translation, "w3 w5. W8 w9.", &options);
    assert!(translation.alternatives[0].token_ranges.is_empty());
    let sentence = &translation.sentences[0];
    assert!(sentence.source_tokens.is_empty() && sentence.source_words.is_empty());
    assert!(translation.alignment(0).is_empty() && translation.words(0).is_empty());
    let empty = translate(&translator, "", &options.with_alignments(true));
    assert!(empty.sentences.is_empty() && empty.word_alignments(0).is_empty());
}

/// What is appended is behind the text before.
#[test]
fn appended_translations_are_moved() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = translator.options().with_beam(2).with_n_best(2).with_scores(true);
    (options.alignments, options.split) = (true, Split::Sentence);
    let (first, second) = ("w3 w5. W8 w9.  ", " W7 w2 w4. W1 w6.");
    let mut joined = translate(&translator, first, &options);
    joined.append(translate(&translator, second, &options), "   ", &options.search);
    let text = format!("{first}{second}");
    check(&joined, &text, &options);
    let whole = translate(&translator, &text, &options);
    assert_eq!(joined.sentences, whole.sentences);
    for rank in 0..2 {
        assert_eq!(joined.alternatives[rank].text, whole.alternatives[rank].text);
        assert_eq!(joined.alignment(rank), whole.alignment(rank));
        assert_eq!(joined.word_alignments(rank), whole.word_alignments(rank));
    }
}

/// In a paragraph a sentence stands in the line in which it begins, and is counted from there.
#[test]
fn sentences_over_lines_are_counted_from_the_line_they_begin_in() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = translator.options().with_split(Split::Paragraph).with_alignments(true);
    let lines = ["w3 w5. W8", "w9 w10. W7.", "W1.", ""];
    let mut sources = Vec::new();
    let stream = StreamOptions::new(options, translator.workers());
    let given = lines.map(|line| Ok(Line::new(line)));
    let result = translator.stream(given.into_iter(), &stream, |answer| {
        let sentences = answer.translation.sentences.iter();
        sources.extend(sentences.map(|sentence| (answer.number, sentence.source.clone())));
        Ok::<(), peregrine::Error>(())
    });
    result.expect("a stream");
    assert_eq!(sources, [(0, 0..6), (0, 7..17), (1, 8..11), (2, 0..3)]);
}
