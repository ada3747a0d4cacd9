//! Texts of several lines: lines and the white space around them are kept.

use std::sync::LazyLock;

use crate::common::nonsense;
use peregrine::model::Autoregression;
use peregrine::{Options, Request, Split, Translation, Translator};
use proptest::prelude::*;

static TRANSLATOR: LazyLock<Translator> = LazyLock::new(|| nonsense(Autoregression::SelfAttention));

fn options() -> Options {
    TRANSLATOR.options().with_beam(1).with_scores(true).with_split(Split::Sentence)
}

fn translate(text: &str, options: &Options) -> Translation {
    TRANSLATOR.translate_batch(&[Request::new(text)], options).expect("a translation").remove(0)
}

/// The text with its sentences' translations in place of the sentences: what a translation must be.
fn expected(text: &str) -> String {
    let one_line = options().with_split(Split::None);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let inside = line.trim();
        let start = line.find(inside).unwrap_or_default();
        let translation = translate(inside, &one_line);
        let text = if inside.is_empty() { "" } else { translation.text() };
        lines.push(format!("{}{text}{}", &line[..start], &line[start + inside.len()..]));
    }
    lines.join("\n")
}

#[test]
fn lines_and_white_space_stay() {
    for text in [
        "w3 w5\n\n  w7 w9\n",
        "\n\n\tw3\r\n\r\n w4 \n",
        "w3\nw5",
        "\n",
        " \n \r\n\t",
        "w3 w5 \n",
        "\u{3000}w3\n\u{a0}w5\u{2003}\n\n",
    ] {
        let translation = translate(text, &options());
        assert_eq!(translation.text(), expected(text), "{text:?}");
        let best = &translation.alternatives[0];
        for sentence in &translation.sentences {
            let alone =
                translate(&text[sentence.source.clone()], &options().with_split(Split::None));
            assert_eq!(&best.text[sentence.targets[0].text.clone()], alone.text());
            let tokens = &best.token_ranges[sentence.targets[0].tokens.clone()];
            let words: Vec<&str> = tokens.iter().map(|range| &best.text[range.clone()]).collect();
            assert_eq!(words.join(" "), alone.text());
        }
    }
}

/// What the command translates has no line ends: white space around it is dropped, as ever.
#[test]
fn a_single_line_is_trimmed() {
    let plain = translate("w3 w5.", &options());
    for text in [" w3 w5.", "w3 w5.  ", "\tw3 w5.\r", "\u{2028}w3 w5.\u{85}"] {
        assert_eq!(translate(text, &options()).text(), plain.text(), "{text:?}");
    }
    assert_eq!(translate("  ", &options()).text(), "");
}

#[test]
fn a_paragraph_keeps_its_ends_and_not_its_lines() {
    let options = options().with_split(Split::Paragraph);
    let translation = translate("\nw3 w5\nw7 w9.\n\nw2\n", &options);
    assert_eq!(translation.sentences.len(), 2);
    let text = translation.text();
    assert!(text.starts_with('\n') && text.ends_with('\n') && text.contains("\n\n"), "{text:?}");
    assert_eq!(text.matches('\n').count(), 4);
    assert_eq!(translation.sentences[0].source, 1..13);
}

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[wW][0-9]{1,2}[.!?]?",
        3 => "[ \t]{1,2}",
        3 => "(\r?\n){1,3}",
        1 => any::<String>(),
        1 => Just("\u{200b}".to_owned()),
    ];
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn as_many_lines_as_before(text in text()) {
        let translation = translate(&text, &options());
        let lines: Vec<&str> = translation.text().split('\n').collect();
        let source: Vec<&str> = text.split('\n').collect();
        prop_assert_eq!(lines.len(), source.len(), "{:?}: {:?}", text, translation.text());
        if source.len() > 1 {
            for (line, source) in lines.iter().zip(&source) {
                if source.trim().is_empty() {
                    prop_assert_eq!(line, source);
                } else {
                    let start = source.len() - source.trim_start().len();
                    prop_assert!(line.starts_with(&source[..start]), "{:?} {:?}", line, source);
                }
            }
        }
        for sentence in &translation.sentences {
            prop_assert!(!text[sentence.source.clone()].contains('\n'));
            let target = &sentence.targets[0];
            prop_assert!(translation.text().get(target.text.clone()).is_some());
        }
    }
}
