//! String tables in YAML.

use super::{fixture, scrambler, text, texts, with, written};
use crate::engines::{installed, read, scrambled, write};
use peregrine_document::{Document, Format, Options, Translated};
use proptest::prelude::*;

#[test]
fn yaml_texts() {
    let bytes = fixture("app.yml");
    let plain = Options::default();
    assert_eq!(
        texts(&bytes, Format::Yaml, &plain),
        [
            "The garden",
            "Hello, ⟨%{name}⟩!",
            "You have café \"points\".",
            "It's late, so goodbye",
            "Sunday",
            "Monday",
            "Tuesday",
            "This text goes over several lines that are one paragraph.",
            "And this is another one.",
            "First line of the text.",
            "An indented line.",
            "- not a list",
            "a text without quotes that goes on in the next line",
            "One tree",
            "Two trees",
            "large",
            "Three",
            "four trees",
            "Some shared text",
            "The last text",
        ]
    );
    let keys =
        with(|options| options.keys = vec!["en.items.*.name".to_owned(), "*.title".to_owned()]);
    assert_eq!(texts(&bytes, Format::Yaml, &keys), ["The garden", "Two trees"]);
}

#[test]
fn yaml_is_quoted_where_it_must_be() {
    for (new, expected) in [
        ("Olá", "Olá"),
        ("a: b", "'a: b'"),
        ("it's: so", "'it''s: so'"),
        ("não", "não"),
        ("no", "'no'"),
        ("- x", "'- x'"),
        ("x #y", "'x #y'"),
        ("x\ny", "x y"),
        ("12", "'12'"),
    ] {
        let after = written(b"a: Some text # why\n", Format::Yaml, &Options::default(), new);
        assert_eq!(after, format!("a: {expected} # why\n"));
        let after = written(b"a: [Sunday]", Format::Yaml, &Options::default(), new);
        let read: serde_norway::Value = serde_norway::from_str(&after).expect("YAML");
        assert_eq!(read["a"][0].as_str(), Some(new.replace('\n', " ").as_str()), "{after}");
        for quoted in [
            "a: 'Some text'\n",
            "a: \"Some text\"\n",
            "a:\n- |\n  Some text\n",
            "a: >\n  Some\n  text\n",
        ] {
            let after = written(quoted.as_bytes(), Format::Yaml, &Options::default(), new);
            let value: serde_norway::Value = serde_norway::from_str(&after).expect("YAML");
            let value =
                value["a"].as_str().or(value["a"][0].as_str()).expect("a string").trim_end();
            assert!(value == new || value == new.replace('\n', " "), "{after}");
        }
    }
}

/// The strings of a table, each with its keys; everything else as it is.
fn leaves(value: &serde_norway::Value, path: &str, list: &mut Vec<(String, String)>) {
    use serde_norway::Value;
    match value {
        Value::Mapping(map) => {
            for (key, value) in map {
                leaves(value, &format!("{path}.{key:?}"), list);
            }
        }
        Value::Sequence(values) => {
            for (number, value) in values.iter().enumerate() {
                leaves(value, &format!("{path}.{number}"), list);
            }
        }
        Value::String(text) => list.push((path.to_owned(), text.clone())),
        Value::Tagged(tagged) => leaves(&tagged.value, &format!("{path} {}", tagged.tag), list),
        other => list.push((format!("{path} {other:?}"), String::new())),
    }
}

/// Checks that two documents have the same keys and other values, and that strings are strings. Gives the number of strings that differ.
fn same_yaml(name: &str, before: &str, after: &str) -> Option<usize> {
    let before = serde_norway::from_str::<serde_norway::Value>(before);
    let before = before.inspect_err(|error| println!("{name}: {error}")).ok()?;
    let after_value: serde_norway::Value =
        serde_norway::from_str(after).unwrap_or_else(|error| panic!("{name}: {error}\n{after}"));
    let (mut old, mut new) = (Vec::new(), Vec::new());
    leaves(&before, "", &mut old);
    leaves(&after_value, "", &mut new);
    let paths = |list: &[(String, String)]| -> Vec<String> {
        list.iter().map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(paths(&old), paths(&new), "{name}");
    Some(old.iter().zip(&new).filter(|(old, new)| old.1 != new.1).count())
}

#[test]
fn yaml_keeps_its_shape_whatever_the_engine_does() {
    let bytes = fixture("app.yml");
    let before = text(bytes.clone());
    // Tags and complex keys are beyond what is read as plain values.
    let sound: String = before
        .lines()
        .filter(|line| !line.contains("? complex") && !line.contains(": complex"))
        .map(|l| format!("{l}\n"))
        .collect();
    let document = read(sound.as_bytes(), Format::Yaml, &Options::default());
    assert_eq!(write(&document, Translated::copy).bytes, sound.as_bytes());
    for seed in 0..200 {
        let mut rules = scrambler(seed);
        let after = text(write(&document, |block| scrambled(block, &mut rules)).bytes);
        let changed = same_yaml("fixture", &sound, &after).expect("YAML");
        assert!(changed > 8, "{changed}");
    }
}

#[test]
fn installed_yaml_is_copied_and_stays_yaml() {
    let (mut count, mut blocks) = (0, 0);
    for path in installed(&["yml", "yaml"], 300) {
        let bytes = std::fs::read(&path).expect("a file");
        if bytes.len() > 500_000 {
            continue;
        }
        let Ok(document) = Document::read(bytes.clone(), Format::Yaml, &Options::default()) else {
            continue;
        };
        assert!(write(&document, Translated::copy).bytes == bytes, "{}", path.display());
        blocks += document.blocks().len();
        let Ok(before) = String::from_utf8(bytes) else { continue };
        for seed in 0..3 {
            let mut rules = scrambler(seed);
            let after = text(write(&document, |block| scrambled(block, &mut rules)).bytes);
            count += usize::from(
                same_yaml(&path.display().to_string(), &before, &after).is_some() && seed == 0,
            );
        }
    }
    println!("{count} files, {blocks} blocks");
}

/// Pieces of tables in YAML, broken and sound.
fn yaml_soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,6}",
        4 => prop::sample::select(vec![
            " ", "\n", "\n  ", "\n    ", ": ", ":\n", "- ", "\n- ", "'", "\"", "|\n", ">\n", ">-\n", "#", " #", "[", "]", "{", "}", ", ", "&a ", "*a",
            "!t ", "? ", "---\n", "...", "%", "\\", "\\n", "''", "yes", "12", "é", "\t", "\r\n", "{n, plural, one {a b} other {c}}",
        ]).prop_map(str::to_owned),
        2 => "\n {0,4}[a-z]{1,3}: ",
    ];
    prop::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn yaml_soup_is_copied_and_never_broken(before in yaml_soup(), seed in 0_u64..100) {
        let document = read(before.as_bytes(), Format::Yaml, &Options::default());
        prop_assert_eq!(text(write(&document, Translated::copy).bytes), before.clone());
        let mut rules = scrambler(seed);
        let after = text(write(&document, |block| scrambled(block, &mut rules)).bytes);
        same_yaml(&format!("{before:?}"), &before, &after);
    }
}
