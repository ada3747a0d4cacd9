//! Making, showing and checking word lists.

use crate::common::{complaint, run, scratch, scratch_with, stdout};
use serde_json::Value;

const ENGLISH: &str =
    "the dog\nthe cat\na dog\na cat\nthe red dog\nthe red cat\na red house\nthe house\n";
const PORTUGUESE: &str =
    "o cão\no gato\num cão\num gato\no cão vermelho\no gato vermelho\numa casa vermelha\na casa\n";

/// Builds a table under each of these names.
fn build(test: &str, names: &[&str], more: &[&str]) -> Vec<String> {
    let source = scratch_with(&format!("{test}.en"), ENGLISH.as_bytes());
    let target = scratch_with(&format!("{test}.pt"), PORTUGUESE.as_bytes());
    let files: Vec<String> = names.iter().map(|n| scratch(n).display().to_string()).collect();
    let mut arguments = vec!["shortlist", "build", &source, &target, "--first", "8"];
    files.iter().for_each(|file| arguments.extend(["-o", file]));
    arguments.extend(more);
    let output = run(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("8 pairs of lines") && errors.contains("round 5 of 5"), "{errors}");
    files
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(run(arguments))).unwrap()
}

#[test]
fn every_form_holds_the_same_words() {
    let names = ["lists.txt", "lists.bin", "vmap-lists.txt"];
    let files = build("forms", &names, &["--threads", "2"]);
    let lists: Vec<String> = files
        .iter()
        .map(|file| {
            let shown = stdout(run(&["shortlist", "inspect", file, "--all"]));
            let sorted = |line: &str| {
                let (word, list) = line.split_once('\t').unwrap();
                let mut list: Vec<&str> = list.split(' ').collect();
                list.sort_unstable();
                format!("{word}\t{}", list.join(" "))
            };
            // The end symbol has a list in some forms only: CTranslate2 does not match it.
            let lines = shown.lines().filter(|line| !line.starts_with("</s>"));
            lines.map(sorted).collect::<Vec<_>>().join("\n")
        })
        .collect();
    assert!(lists[0].contains("\u{2581}dog\t") && lists[0].contains("cão"), "{}", lists[0]);
    assert_eq!(lists[0], lists[1]);
    assert_eq!(lists[0], lists[2]);
}

#[test]
fn a_table_covers_what_it_was_made_from() {
    let file = &build("cover", &["cover.bin"], &[])[0];
    let (source, target) = (scratch("cover.en"), scratch("cover.pt"));
    let arguments =
        ["shortlist", "check", file, source.to_str().unwrap(), target.to_str().unwrap(), "--json"];
    let report = json(&arguments);
    assert_eq!(report["lines"], 8);
    assert_eq!(report["share_of_tokens"], 1.0);
    assert_eq!(report["share_of_lines"], 1.0);
    assert!(report["mean_words_allowed"].as_f64().unwrap() < 64.0);
    let shown = stdout(run(&arguments[..5]));
    assert!(shown.contains("share_of_tokens      1.0000"), "{shown}");
    // Its words are all that a translation may use.
    let translation = stdout(run(&["translate", "the dog", "--shortlist", file]));
    assert!(translation.to_lowercase().contains("cão"), "{translation}");
}

#[test]
fn a_table_that_does_not_know_the_text_gets_a_note() {
    let file = &build("foreign", &["foreign.bin"], &[])[0];
    let translate = |line: &str| {
        let output = run(&["translate", "--shortlist", file, line]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = translate(&"Scientists discovered several unusual fossils yesterday. ".repeat(12));
    assert!(said.contains("the shortlist has no words for"), "{said}");
    let said = translate(&"the red dog and the cat ".repeat(20));
    assert!(!said.contains("the shortlist has no words"), "{said}");
}

#[test]
fn a_word_and_its_candidates() {
    let file = &build("word", &["word.bin"], &["--best", "2"])[0];
    let report = json(&["shortlist", "inspect", file, "dog", "--json"]);
    assert_eq!(report["longest_list"], 2);
    assert_eq!(report["first"], 8);
    let words = report["words"].as_array().unwrap();
    assert_eq!(words[0]["word"], "\u{2581}dog");
    assert_eq!(words[0]["candidates"].as_array().unwrap().len(), 2);
    let text = stdout(run(&["shortlist", "inspect", file, "dog"]));
    assert!(text.contains("longest_list") && text.contains("\u{2581}dog\t"), "{text}");
}

#[test]
fn what_cannot_be_used_is_named() {
    let two = scratch_with("two.en", b"a\nb\n");
    let one = scratch_with("one.pt", b"a\n");
    let message = complaint(run(&["shortlist", "build", &two, &one, "-o", "/dev/null"]));
    assert!(message.contains("one.pt has 1 lines"), "{message}");
    let bad = scratch_with("vmap-bad.txt", b"a\tb\nno tab\n");
    let message = complaint(run(&["shortlist", "check", &bad, &two, &two]));
    assert!(message.contains("vmap-bad.txt: line 2"), "{message}");
    let message = complaint(run(&["translate", "hello", "--shortlist", &bad]));
    assert!(message.contains("vmap-bad.txt: line 2"), "{message}");
    let message = complaint(run(&["translate", "hello", "--shortlist", "vmap"]));
    assert!(message.contains("vmap.txt"), "{message}");
}
