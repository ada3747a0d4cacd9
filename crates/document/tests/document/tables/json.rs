//! String tables in JSON, and lines of JSON.

use std::collections::HashMap;

use super::{fixture, scrambler, texts, with, written};
use crate::engines::{appended, counted, installed, read, scrambled, write};
use peregrine_document::{Document, Format, Options, Translated};
use proptest::prelude::*;
use serde_json::Value;

#[test]
fn json_texts() {
    let bytes = fixture("app.json");
    let expected = [
        "The garden",
        "Open the gate",
        "Close the \"old\" gate/door",
        "Hello, ⟨{name}⟩! You have ⟨%d⟩ new ⟨{{things}}⟩ & two old ones.",
        "No flowers",
        "⟨#⟩ flower in ⟨{place}⟩",
        "⟨#⟩ flowers in ⟨{place}⟩",
        "one message",
        "⟨#⟩ messages",
        "You have ⟨\u{fffc}⟩ from ⟨{sender}⟩.",
        "First line.",
        "Second line, with a tab:",
        "there.",
        "One tree",
        "Two trees",
        "A café in the garden 🌷",
        "⟨$t(title)⟩ is open on ⟨%{day}⟩",
    ];
    assert_eq!(texts(&bytes, Format::Json, &Options::default()), expected);
    let keys = with(|options| options.keys = vec!["menu".to_owned(), "l*.1".to_owned()]);
    assert_eq!(
        texts(&bytes, Format::Json, &keys),
        ["Open the gate", "Close the \"old\" gate/door", "Two trees"]
    );
    let lines = b"{\"text\": \"One day\", \"id\": 1}\n{\"text\": \"Two days\"}\n";
    assert_eq!(texts(lines, Format::Json, &Options::default()), ["One day", "Two days"]);
}

#[test]
fn json_is_written_as_it_was() {
    let bytes = b"{\"a\": \"A caf\\u00e9 \\/ bar\", \"b\": \"x\"}";
    let after = written(bytes, Format::Json, &Options::default(), "é / ã \"\\\n\u{1}🌷");
    assert_eq!(
        after,
        "{\"a\": \"\\u00e9 \\/ \\u00e3 \\\"\\\\\\n\\u0001\\ud83c\\udf37\", \
         \"b\": \"\\u00e9 / \\u00e3 \\\"\\\\\\n\\u0001\\ud83c\\udf37\"}"
    );
    let after = written("{\"é\": \"x\"}".as_bytes(), Format::Json, &Options::default(), "ã\"");
    assert_eq!(after, "{\"é\": \"ã\\\"\"}");
    // Apostrophes and braces must not change a message.
    let bytes = b"[\"{n, plural, one {the {x}} other {b}}\"]";
    let after = written(bytes, Format::Json, &Options::default(), "l'a d' {");
    assert_eq!(after, "[\"{n, plural, one {l'a {x} d' '{'} other {l'a d' '{'}}\"]");
    let after = written(bytes, Format::Json, &Options::default(), "d'{x}");
    assert!(after.contains("one {d''{x}}"), "{after}");
}

/// A note at the end of a line says nothing of the lines behind it.
#[test]
fn lines_are_apart() {
    let lines = b"{\"@type\": \"A thing\"}\n{\"title\": \"One day\"}\n";
    assert_eq!(texts(lines, Format::Json, &Options::default()), ["One day"]);
}

/// The lines of a message's leaf are blocks of their own inside of it.
#[test]
fn a_message_may_have_several_lines() {
    for text in
        ["[\"Z{n, plural, other {one line\\nanother}} end\"]", "{\"\"\"Z{,plural,{p\t}}}\"\"\"}"]
    {
        let document = Document::read(text.into(), Format::Json, &Options::default()).unwrap();
        let copy: Vec<Translated> = document.blocks().iter().map(Translated::copy).collect();
        assert_eq!(String::from_utf8(document.write(&copy).bytes).unwrap(), text);
    }
    let bytes = b"[\"Z{n, plural, other {one line\\nanother}} end\"]";
    let after = written(bytes, Format::Json, &Options::default(), "new");
    assert!(after.contains("other {new\\nnew}}"), "{after}");
}

#[test]
fn json_that_is_broken_is_refused_with_its_place() {
    let plain = Options::default();
    for (text, message) in [
        ("{\"a\": \"b", "line 1, column 7: a string that is never closed"),
        ("[\n1}", "line 2, column 2: a bracket that closes nothing"),
        ("{\"a\": [", "line 1, column 7: a bracket that is never closed"),
    ] {
        let error =
            Document::read(text.into(), Format::Json, &plain).map(|_| ()).expect_err("text");
        assert_eq!(error.to_string(), message);
    }
    let deep = "[".repeat(100_000);
    assert!(Document::read(deep.into(), Format::Json, &plain).is_err());
    // Comments and commas too many are not ours to judge.
    let loose = "// \"a b\n{\"a\": \"One day\", /* \"x y\" */ \"b\": \"\\ud800 broken\", 'c': 1,}";
    assert_eq!(texts(loose.as_bytes(), Format::Json, &plain), ["One day"]);
}

/// The placeholders of a string, as a plain search finds them.
fn placeholders(text: &str) -> HashMap<String, usize> {
    let mut found = Vec::new();
    for mark in [
        "{name}",
        "%d",
        "{{things}}",
        "<b>",
        "</b>",
        "{place}",
        "{sender}",
        "$t(title)",
        "%{day}",
        "#",
    ] {
        found.extend(text.matches(mark).map(str::to_owned));
    }
    counted(found)
}

/// Checks that two values have the same shape and the same placeholders; gives the number of strings that differ.
fn same_shape(path: &str, old: &Value, new: &Value) -> usize {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>(), "{path}");
            old.iter()
                .map(|(key, value)| same_shape(&format!("{path}.{key}"), value, &new[key]))
                .sum()
        }
        (Value::Array(old), Value::Array(new)) => {
            assert_eq!(old.len(), new.len(), "{path}");
            old.iter().zip(new).map(|(old, new)| same_shape(path, old, new)).sum()
        }
        (Value::String(old), Value::String(new)) => {
            assert_eq!(placeholders(old), placeholders(new), "{path}: {new}");
            usize::from(old != new)
        }
        (old, new) => {
            assert_eq!(old, new, "{path}");
            0
        }
    }
}

#[test]
fn json_keeps_its_shape_whatever_the_engine_does() {
    let bytes = fixture("app.json");
    let old: Value = serde_json::from_slice(&bytes).expect("JSON");
    let document = read(&bytes, Format::Json, &Options::default());
    for seed in 0..200 {
        let mut rules = scrambler(seed);
        let after = write(&document, |block| scrambled(block, &mut rules)).bytes;
        let new: Value = serde_json::from_slice(&after).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&after));
        });
        assert!(same_shape("", &old, &new) > 5);
        for key in ["@@locale", "@title", "url", "id"] {
            assert_eq!(old[key], new[key]);
        }
    }
}

#[test]
fn installed_json_is_copied_and_stays_json() {
    let (mut count, mut blocks) = (0, 0);
    for path in installed(&["json", "arb", "jsonl"], 200) {
        let bytes = std::fs::read(&path).expect("a file");
        if bytes.len() > 2_000_000 {
            continue;
        }
        let Ok(document) = Document::read(bytes.clone(), Format::Json, &Options::default()) else {
            println!("{}: refused", path.display());
            continue;
        };
        assert!(write(&document, Translated::copy).bytes == bytes, "{}", path.display());
        if let Ok(old) = serde_json::from_slice::<Value>(&bytes) {
            let after = write(&document, appended).bytes;
            let new: Value = serde_json::from_slice(&after).expect("JSON");
            assert_eq!(document.blocks().is_empty(), same_shape("", &old, &new) == 0);
        }
        count += 1;
        blocks += document.blocks().len();
    }
    println!("{count} files, {blocks} blocks");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_copied_and_stays_json(value in json(), seed in 0_u64..1000) {
        for bytes in [serde_json::to_vec(&value).expect("JSON"), serde_json::to_vec_pretty(&value).expect("JSON")] {
            let document = read(&bytes, Format::Json, &Options::default());
            prop_assert_eq!(&write(&document, Translated::copy).bytes, &bytes);
            let mut rules = scrambler(seed);
            let after = write(&document, |block| scrambled(block, &mut rules)).bytes;
            prop_assert!(serde_json::from_slice::<Value>(&after).is_ok(), "{}", String::from_utf8_lossy(&after));
        }
    }
}

fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z {}#'\"\\\\\n<>%&]{0,30}",
        ".*",
        "\\{a, plural, one \\{[a-z ']{1,9}\\} other \\{[a-z #]{1,9}\\}\\}"
    ];
    let leaf = prop_oneof![4 => text.prop_map(Value::from), 1 => any::<i32>().prop_map(Value::from), 1 => Just(Value::Null)];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a-z@. \"]{0,5}", inner, 0..5)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}
