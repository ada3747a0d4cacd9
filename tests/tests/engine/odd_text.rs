//! Lines as people write them: what must survive a translation does, with real models.
//!
//! `odd-text.jsonl` of the reference data has 98 things that must survive; our own lines in `fixtures/` have others. `keep` must stand in
//! the translation as it is, `keep_digits` with separators left out.

use std::ops::Range;
use std::path::{Path, PathBuf};

use peregrine::{Carry, OpenOptions, Pivot, Request, Translation, Translator};
use peregrine_tests::{fixture, lines, open, optional, shared, translate};
use serde_json::Value;

/// The lines of a file: their texts and what must survive.
fn cases(path: &Path) -> Vec<Value> {
    lines(path).iter().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

fn strings<'v>(case: &'v Value, field: &str) -> Vec<&'v str> {
    case[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The text without separators between digits.
fn digits(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let digit =
        |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
    let separates = |at: usize| {
        matches!(chars[at], '.' | ',' | '\'' | ' ')
            && digit(at.checked_sub(1))
            && digit(Some(at + 1))
    };
    (0..chars.len()).filter(|&at| !separates(at)).map(|at| chars[at]).collect()
}

/// What of the cases is lost, as lines for people.
fn lost(cases: &[Value], translations: &[Translation]) -> Vec<String> {
    let mut lost = Vec::new();
    for (case, translation) in cases.iter().zip(translations) {
        let text = translation.text();
        let kept = strings(case, "keep").into_iter().filter(|kept| !text.contains(kept));
        let numbers = strings(case, "keep_digits").into_iter();
        let numbers = numbers.filter(|kept| !digits(text).contains(kept));
        lost.extend(
            kept.chain(numbers).map(|kept| format!("{kept:?} of {} in {text:?}", case["text"])),
        );
    }
    lost
}

/// Translates cases and counts what is lost; at most `most` may be.
fn check(translator: &Translator, path: &Path, most: usize) {
    let cases = cases(path);
    let texts: Vec<String> =
        cases.iter().map(|case| case["text"].as_str().expect("a text").to_owned()).collect();
    let options = translator.options().with_carry(Carry::On);
    let lost = lost(&cases, &translate(translator, &texts, &options));
    assert!(lost.len() <= most, "{} lost:\n{}", lost.len(), lost.join("\n"));
}

fn zhen() -> Option<Translator> {
    let folder = match std::env::var_os("PEREGRINE_ZHEN") {
        Some(folder) => PathBuf::from(folder),
        None => optional("models/zhen/translate-zh_en-1_9")?,
    };
    Some(open(&folder, &OpenOptions::default()))
}

#[test]
fn the_builtin_model() {
    let translator = Translator::builtin().expect("the built-in model");
    check(&translator, &fixture("odd-en.jsonl"), 2);
    let Some(folder) = shared("data/text-features") else { return };
    check(&translator, &folder.join("odd-text.jsonl"), 5);
}

#[test]
fn a_firefox_model() {
    let Some(folder) = shared("models/enpt") else { return };
    let Some(data) = shared("data/text-features") else { return };
    let translator = Translator::open(&[folder], &OpenOptions::default()).expect("a model");
    check(&translator, &fixture("odd-en.jsonl"), 2);
    check(&translator, &data.join("odd-text.jsonl"), 3);
}

#[test]
fn chinese() {
    let Some(translator) = zhen() else { return };
    check(&translator, &fixture("odd-zh.jsonl"), 2);
}

/// From Chinese through English to Portuguese: what neither model can spell survives both, and words lead back to the source.
#[test]
fn through_a_third_language() {
    let Some(first) = zhen() else { return };
    let Some(folder) = shared("models/enpt") else { return };
    let second = Translator::open(&[folder], &OpenOptions::default()).expect("a model");
    let pivot = Pivot::new(&first, &second);
    let options = second.options().with_carry(Carry::On).with_alignments(true);
    let options = pivot.options(&options.with_split(peregrine::Split::Sentence));
    let cases = cases(&fixture("odd-zh.jsonl"));
    let texts: Vec<&str> = cases.iter().filter_map(|case| case["text"].as_str()).collect();
    let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
    let translations = pivot.translate_batch(&requests, &options).expect("translations");
    let lost = lost(&cases, &translations);
    assert!(lost.len() <= 4, "{} lost:\n{}", lost.len(), lost.join("\n"));
    for (translation, text) in translations.iter().zip(&texts) {
        assert_eq!(translation.source_bytes, text.len());
        for link in translation.word_alignments(0) {
            assert!(text.get(link.source.clone()).is_some());
            assert!(translation.text().get(link.target.clone()).is_some());
        }
    }
    let (found, right) = anchors(&cases, &translations);
    assert!(
        found >= 15 && 4 * right >= 3 * found,
        "{right} of {found} lead back to where they came from"
    );
}

/// Of what survived, how much has a word of its own in the translation, and how much of that leads back to its place in the source.
fn anchors(cases: &[Value], translations: &[Translation]) -> (usize, usize) {
    let (mut found, mut right) = (0, 0);
    for (case, translation) in cases.iter().zip(translations) {
        let text = case["text"].as_str().expect("a text");
        let links = translation.word_alignments(0);
        for kept in strings(case, "keep") {
            let (Some(from), Some(to)) = (text.find(kept), translation.text().find(kept)) else {
                continue;
            };
            let touches =
                |range: &Range<usize>, at: usize| range.start < at + kept.len() && at < range.end;
            // The strongest link of a word is its first.
            if let Some(link) = links.iter().find(|link| touches(&link.target, to)) {
                found += 1;
                right += usize::from(touches(&link.source, from));
            }
        }
    }
    (found, right)
}
