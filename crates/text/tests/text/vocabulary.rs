//! Vocabulary files: every oddity Marian is known to write or read.

use peregrine_text::Vocabulary;

fn yaml(text: &str) -> Vocabulary {
    Vocabulary::from_yaml("vocab.yml", text.as_bytes()).unwrap()
}

/// Each line with the token it means, as seen in files that Marian wrote.
const ODD_LINES: &[(&str, &str)] = &[
    ("---: 2", "---"),
    ("...: 2", "..."),
    ("<<: 2", "<<"),
    ("=: 2", "="),
    (";: 2", ";"),
    (".: 2", "."),
    ("<: 2", "<"),
    ("\\: 2", "\\"),
    ("a\\tb: 2", "a\\tb"),
    ("1: 2", "1"),
    ("1.5: 2", "1.5"),
    ("0x10: 2", "0x10"),
    ("1e5: 2", "1e5"),
    (".5: 2", ".5"),
    ("+1: 2", "+1"),
    ("-x: 2", "-x"),
    ("No: 2", "No"),
    ("yes: 2", "yes"),
    ("true: 2", "true"),
    ("True: 2", "True"),
    ("~x: 2", "~x"),
    ("?x: 2", "?x"),
    ("???: 2", "???"),
    (":bar: 2", ":bar"),
    ("foo:bar: 2", "foo:bar"),
    ("a#b: 2", "a#b"),
    ("x#: 2", "x#"),
    ("a: b: 2", "a: b"),
    ("\u{A0}: 2", "\u{A0}"),
    ("a\u{85}b: 2", "a\u{85}b"),
    ("a\u{2028}b: 2", "a\u{2028}b"),
    ("▁den: 2", "▁den"),
    ("\"-\": 2", "-"),
    ("\"!\": 2", "!"),
    ("\"#\": 2", "#"),
    ("\"%\": 2", "%"),
    ("\"&\": 2", "&"),
    ("\"*\": 2", "*"),
    ("\",\": 2", ","),
    ("\":\": 2", ":"),
    ("\"::\": 2", "::"),
    ("\">\": 2", ">"),
    ("\"?\": 2", "?"),
    ("\"@\": 2", "@"),
    ("\"@@\": 2", "@@"),
    ("@@: 2", "@@"),
    ("\"[\": 2", "["),
    ("\"]\": 2", "]"),
    ("\"{\": 2", "{"),
    ("\"}\": 2", "}"),
    ("\"|\": 2", "|"),
    ("\"`\": 2", "`"),
    ("\"'\": 2", "'"),
    ("\"\\\"\": 2", "\""),
    ("\"~\": 2", "~"),
    ("\"null\": 2", "null"),
    ("null: 2", "null"),
    ("\"foo:\": 2", "foo:"),
    ("\"&quot;\": 2", "&quot;"),
    ("\"\\x01z\": 2", "\u{1}z"),
    ("\"x\\ty\": 2", "x\ty"),
    ("\"\\ufeffbom\": 2", "\u{FEFF}bom"),
    ("\"\\U0001F600\": 2", "😀"),
    ("\"\\ud83d\\ude00\": 2", "😀"),
    ("\"\\a\\b\\e\\f\\n\\r\\t\\v\\0\\/\\\\\": 2", "\u{7}\u{8}\u{1B}\u{C}\n\r\t\u{B}\0/\\"),
    ("\"\\_\\N\\L\\P\": 2", "\u{A0}\u{85}\u{2028}\u{2029}"),
    ("'it''s': 2", "it's"),
    ("'\\': 2", "\\"),
    ("\"a: 1\": 2", "a: 1"),
    ("\"tight\":2", "tight"),
    ("spaced:   2  ", "spaced"),
    ("word: 2 # a comment", "word"),
    ("  indented: 2", "indented"),
];

#[test]
fn odd_yaml_keys_are_strings() {
    for (line, token) in ODD_LINES {
        for end in ["", "\n", "\r\n"] {
            let text = format!("</s>: 0\n<unk>: 1\n{line}{end}");
            let vocabulary = yaml(&text);
            assert_eq!(vocabulary.id(token), Some(2), "{line:?}");
            assert_eq!(vocabulary.token(2), Some(*token), "{line:?}");
            assert_eq!(vocabulary.len(), 3, "{line:?}");
        }
    }
}

#[test]
fn yaml_with_marks_comments_and_a_byte_order_mark() {
    let vocabulary = yaml("\u{FEFF}---\n# tokens\n\n</s>: 0\n<unk>: 1\n...\n");
    assert_eq!((vocabulary.len(), vocabulary.eos_id(), vocabulary.unk_id()), (2, Some(0), Some(1)));
}

#[test]
fn a_key_that_is_not_utf8_prints_but_is_never_found() {
    // U+007F as Marian writes it.
    let bytes = b"</s>: 0\n<unk>: 1\n\"\xC1\xBF\": 2\nx: 3\n";
    let vocabulary = Vocabulary::from_yaml("vocab.yml", bytes).unwrap();
    assert_eq!(vocabulary.token(2), Some("\u{FFFD}\u{FFFD}"));
    assert_eq!(vocabulary.id("\u{FFFD}\u{FFFD}"), None);
    assert_eq!(vocabulary.id("\u{7F}"), None);
    assert_eq!(vocabulary.id("x"), Some(3));
}

#[test]
fn the_first_of_duplicate_keys_counts() {
    let vocabulary = yaml("</s>: 0\n<unk>: 1\nx: 2\nx: 3\n");
    assert_eq!(vocabulary.id("x"), Some(2));
    assert_eq!((vocabulary.token(3), vocabulary.len()), (Some("x"), 4));
    let json = Vocabulary::from_json("v.json", br#"{"</s>":0,"<unk>":1,"x":2,"x":3}"#).unwrap();
    assert_eq!(json.id("x"), Some(2));
}

#[test]
fn holes_are_empty() {
    let vocabulary = yaml("</s>: 0\n<unk>: 1\nx: 5\n");
    assert_eq!(vocabulary.len(), 6);
    assert_eq!((vocabulary.token(3), vocabulary.token(6)), (Some(""), None));
    assert_eq!(vocabulary.id(""), None);
}

#[test]
fn end_and_unknown_by_name_or_by_place() {
    let ids = |text: &str| {
        let vocabulary = yaml(text);
        (vocabulary.eos_id(), vocabulary.unk_id())
    };
    assert_eq!(ids("</s>: 0\n<unk>: 1\nx: 2"), (Some(0), Some(1)));
    assert_eq!(ids("x: 0\ny: 1\n<unk>: 2\n</s>: 3"), (Some(3), Some(2)));
    assert_eq!(ids("eos: 0\nUNK: 1\nx: 2"), (Some(0), Some(1)));
    assert_eq!(ids("x: 2"), (Some(0), Some(1)));
    assert_eq!(ids("eos: 0\nUNK: 1\n</s>: 2\n<unk>: 3"), (Some(0), Some(1)));
    assert_eq!(ids("x: 0\ny: 1"), (None, None));
    // Lists go by name alone.
    let list = Vocabulary::from_text("v.txt", b"eos\nUNK\nx\n").unwrap();
    assert_eq!((list.eos_id(), list.unk_id()), (None, None));
    let list = Vocabulary::from_text("v.txt", b"x\n<unk>\n</s>").unwrap();
    assert_eq!((list.eos_id(), list.unk_id()), (Some(2), Some(1)));
}

#[test]
fn json_maps_and_lists() {
    let map = br#"{ "eos": 0, "UNK": 1, "\u2581caf\u00e9": 2, "\ud83d\ude00":3, "\"": 4 }"#;
    for vocabulary in [
        Vocabulary::from_json("v.json", map).unwrap(),
        Vocabulary::from_yaml("v.yml", map).unwrap(),
    ] {
        assert_eq!((vocabulary.eos_id(), vocabulary.unk_id()), (Some(0), Some(1)));
        assert_eq!(vocabulary.id("▁café"), Some(2));
        assert_eq!(vocabulary.id("😀"), Some(3));
        assert_eq!(vocabulary.id("\""), Some(4));
    }
    let list = Vocabulary::from_json("v.json", br#"["<unk>","</s>","a","a","b"]"#).unwrap();
    assert_eq!((list.id("a"), list.id("b"), list.token(3)), (Some(2), Some(4), Some("a")));
    assert_eq!((list.eos_id(), list.unk_id()), (Some(1), Some(0)));
}

#[test]
fn text_lists() {
    let windows = Vocabulary::from_text("v.txt", b"</s>\r\n<unk>\r\nx\ty\r\n").unwrap();
    assert_eq!((windows.id("x\ty"), windows.len()), (Some(2), 3));
    // CTranslate2 strips CR only if every line has one, and allows repeats and empty lines.
    let mixed = Vocabulary::from_list("v.txt", b"a\r\n\nb\na\r\n").unwrap();
    assert_eq!((mixed.id("a\r"), mixed.id("b"), mixed.len()), (Some(0), Some(2), 4));
    assert_eq!(Vocabulary::from_list("v.txt", b"a\r\nb\r\n").unwrap().id("b"), Some(1));
}

#[test]
fn the_source_limit_hides_tokens() {
    let mut vocabulary = yaml("</s>: 0\n<unk>: 1\nx: 2\ny: 3");
    vocabulary.limit(3);
    assert_eq!((vocabulary.id("x"), vocabulary.id("y"), vocabulary.len()), (Some(2), None, 3));
}

#[test]
fn names_choose_the_format() {
    let by_name = |name: &str, text: &str| Vocabulary::from_named(name, text.as_bytes());
    assert_eq!(by_name("a/b.YML", "x: 7").unwrap().id("x"), Some(7));
    assert_eq!(by_name("b.yaml", "x: 7").unwrap().id("x"), Some(7));
    assert_eq!(by_name("b.json", "{\"x\":7}").unwrap().id("x"), Some(7));
    assert_eq!(by_name("b.vocab", "x: 7\ny").unwrap().id("x: 7"), Some(0));
    assert_eq!(by_name("vocab", "x\ny").unwrap().id("y"), Some(1));
    let error = by_name("b.fsv", "").unwrap_err();
    assert_eq!(error.to_string(), "b.fsv: file name: factored vocabularies are not supported");
}

#[test]
fn faults_are_named_with_their_place() {
    let cases = [
        ("v.yml", "</s>: 0\nno id here\n", "line 2"),
        ("v.yml", "</s>: 0\nx: -1\n", "line 2"),
        ("v.yml", "</s>: 0\nx: one\n", "line 2"),
        ("v.yml", "\"open: 0\n", "line 1"),
        ("v.yml", "'open: 0\n", "line 1"),
        ("v.yml", "\"\\q\": 0\n", "line 1"),
        ("v.yml", "\"\\u12\": 0\n", "line 1"),
        ("v.yml", "\"\\u+123\": 0\n", "line 1"),
        ("v.yml", "\"\\ud83d\": 0\n", "line 1"),
        ("v.yml", "\"x\" 0\n", "line 1"),
        ("v.yml", "x: 99999999999999999999\n", "line 1"),
        ("v.yml", "x: 4000000000\n", "token \"x\""),
        ("v.yml", "", "file"),
        ("v.json", "{\"x\": 4000000000}", "token \"x\""),
        ("v.json", "{}", "file"),
        ("v.json", "{\"x\": \"y\"}", "line 1, column 9"),
        ("v.json", "[1]", "line 1, column 2"),
        ("v.json", "7", "line 1, column 1"),
        ("v.json", "{\"x\": 1", "line 1, column 7"),
        ("v.txt", "a\n\nb\n", "line 2"),
        ("v.txt", "a\nb\na\n", "line 3"),
        ("v.txt", "", "file"),
    ];
    for (name, text, place) in cases {
        let error = Vocabulary::from_named(name, text.as_bytes()).unwrap_err();
        assert_eq!((error.file.as_str(), error.place.as_str()), (name, place), "{text:?}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
