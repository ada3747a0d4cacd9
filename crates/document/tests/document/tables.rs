//! String tables: what is a text in them, what survives any engine, and that other programs can still read them.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::engines::{Numbers, Scrambler, appended, counted, installed, read, scrambled, write};
use peregrine_document::{Block, Document, Format, Options, Translated};
use proptest::prelude::*;
use serde_json::Value;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).expect("a fixture")
}

fn with(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

/// The texts of a document, what is kept in braces of another kind.
fn texts(bytes: &[u8], format: Format, options: &Options) -> Vec<String> {
    let shown = |block: &Block| {
        let mut text = block.text.clone();
        for keep in block.keep().into_iter().rev() {
            text.insert(keep.end, '⟩');
            text.insert(keep.start, '⟨');
        }
        text
    };
    read(bytes, format, options).blocks().iter().map(shown).collect()
}

fn scrambler(seed: u64) -> Scrambler {
    Scrambler { numbers: Numbers(seed), dropped: 15, doubled: 10, lost: 10 }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

/// Writes a document with one text in all of its blocks.
fn written(bytes: &[u8], format: Format, options: &Options, new: &str) -> String {
    let document = read(bytes, format, options);
    text(write(&document, |_| Translated { text: new.to_owned(), ..Translated::default() }).bytes)
}

/// Runs a program on a document, if it is installed.
fn check_with(program: &str, arguments: &[&str], bytes: &[u8]) {
    if Command::new(program).arg("--version").output().is_err() {
        println!("skipped: no {program}");
        return;
    }
    let name = format!("peregrine-{}-{:p}", std::process::id(), bytes);
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).expect("a file");
    let output = Command::new(program).args(arguments).arg(&path).output().expect("a program");
    std::fs::remove_file(&path).expect("a file");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(bytes));
}

const MSGFMT: [&str; 3] = ["--check", "-o", "/dev/null"];

#[test]
fn po_texts() {
    let bytes = fixture("app.po");
    assert_eq!(
        texts(&bytes, Format::Po, &Options::default()),
        [
            "Cannot open the file ⟨%s⟩: ⟨%d⟩ errors",
            "File",
            "Exit",
            "Welcome back, ⟨{name}⟩. You were away for ⟨{days}⟩ days.",
            "One flower is in the garden.",
            "⟨%d⟩ flowers are in the garden.",
            "⟨%d⟩ flowers are in the garden.",
            "This is a long message that goes over several lines and says that the garden is \"open\".",
            "Please close the gate.",
        ]
    );
    let replace = with(|options| options.replace = true);
    assert_eq!(texts(&bytes, Format::Po, &replace).len(), 11);
}

#[test]
fn po_is_filled_and_marked() {
    let bytes = fixture("app.po");
    let document = read(&bytes, Format::Po, &Options::default());
    let after = text(write(&document, Translated::copy).bytes);
    for part in [
        "#: src/main.c:20\n#, fuzzy, c-format\nmsgid",
        "msgstr \"Cannot open the file %s: %d errors\\n\"\n",
        "#, fuzzy\nmsgctxt \"menu\"\nmsgid \"&File\"\nmsgstr \"&File\"\n",
        "msgstr[1] \"%d flowers are in the garden.\"\nmsgstr[2] \"%d flowers are in the garden.\"\n\n",
        "\n#, fuzzy\n#| msgid \"Old text\"\n",
        "msgid \"%d%%\"\nmsgstr \"\"\n",
        "\n#, fuzzy\nmsgid \"Water the plants\"\nmsgstr \"Regar\"\n",
        "#~ msgid \"Obsolete\"\n#~ msgstr \"\"\n",
        "msgid \"Hello, %s!\"\nmsgstr \"Olá, %s!\"\n",
    ] {
        assert!(after.contains(part), "{part:?} in {after}");
    }
    // What is filled is not filled again.
    let again = read(after.as_bytes(), Format::Po, &Options::default());
    assert_eq!(again.blocks().len(), 0);
    assert_eq!(text(write(&again, Translated::copy).bytes), after);
    check_with("msgfmt", &MSGFMT, after.as_bytes());
    for seed in 0..30 {
        let mut rules = scrambler(seed);
        let after = write(&document, |block| scrambled(block, &mut rules)).bytes;
        check_with("msgfmt", &MSGFMT, &after);
    }
}

#[test]
fn po_in_other_encodings_and_templates() {
    let header = |charset: &str| {
        format!("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset={charset}\\n\"\n\n")
    };
    let entry = "msgid \"Garden\"\nmsgstr \"\"\n";
    let filled = |new: &str| format!("#, fuzzy\nmsgid \"Garden\"\nmsgstr \"{new}\"\n");
    let plain = Options::default();
    let latin = header("ISO-8859-1") + "# \u{e9}\n\n" + entry;
    let latin: Vec<u8> = latin.chars().map(|c| c as u8).collect();
    let document = read(&latin, Format::Po, &plain);
    let new = |text: &str| [Translated { text: text.to_owned(), ..Translated::default() }];
    let bytes = document.write(&new("Jardín")).bytes;
    assert!(bytes.ends_with(b"msgstr \"Jard\xedn\"\n"), "{}", String::from_utf8_lossy(&bytes));
    // Windows-1252 has this, Latin-1 has not.
    let bytes = document.write(&new("“Garten”")).bytes;
    assert_eq!(text(bytes), header("UTF-8") + "# é\n\n" + &filled("“Garten”"));
    let template = header("CHARSET") + entry;
    let after = written(template.as_bytes(), Format::Po, &plain, "Сад");
    assert_eq!(after, header("UTF-8") + &filled("Сад"));
    let broken = header("EUC-JP") + "# \u{e9}";
    let broken: Vec<u8> = broken.chars().map(|c| c as u8).collect();
    assert!(Document::read(broken, Format::Po, &plain).is_err());
    let unknown = header("x-nothing");
    assert!(Document::read(unknown.into_bytes(), Format::Po, &plain).is_err());
}

#[test]
fn po_escapes() {
    let source = b"msgid \"a b\"\nmsgstr \"\"\n";
    let after = written(source, Format::Po, &Options::default(), "x \"y\" \\ \n\tz");
    assert_eq!(after, "#, fuzzy\nmsgid \"a b\"\nmsgstr \"x \\\"y\\\" \\\\ \\n\\tz\"\n");
}

#[test]
fn installed_catalogues_are_filled() {
    let mut count = 0;
    for path in installed(&["po", "pot"], 60) {
        let bytes = std::fs::read(&path).expect("a file");
        let document = match Document::read(bytes.clone(), Format::Po, &Options::default()) {
            Ok(document) => document,
            Err(error) => {
                println!("{}: {error}", path.display());
                continue;
            }
        };
        let after = write(&document, Translated::copy).bytes;
        if document.blocks().is_empty() {
            assert!(after == bytes, "{}", path.display());
        }
        // Without the flags and translations that are new, nothing has changed.
        let frame = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let kept = |line: &&str| !line.starts_with(['"', '#']) && !line.starts_with("msgstr");
            text.lines().filter(kept).map(str::to_owned).collect()
        };
        assert_eq!(frame(&bytes), frame(&after), "{}", path.display());
        count += 1;
    }
    println!("{count} catalogues");
}

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

#[test]
fn xliff_texts() {
    let plain = Options::default();
    assert_eq!(
        texts(&fixture("app.xlf"), Format::Xliff, &plain),
        [
            "The old garden & the house",
            "Press ⟨\u{fffc}⟩ to open ⟨{0}⟩ gatesnow.",
            "First sentence.",
            "Second ⟨sentence⟩.",
            "Slanted text with ⟨\u{fffc}⟩ in it",
        ]
    );
    assert_eq!(
        texts(&fixture("app2.xlf"), Format::Xliff, &plain),
        ["Open the green door slowly.", "It is very ⟨old⟩."]
    );
    let replace = with(|options| options.replace = true);
    assert_eq!(texts(&fixture("app.xlf"), Format::Xliff, &replace).len(), 6);
    for text in ["<xliff version='1.2'><file>", "<a/>", "", "no"] {
        assert!(Document::read(text.into(), Format::Xliff, &plain).is_err(), "{text}");
    }
}

#[test]
fn xliff_is_filled_and_marked() {
    let options = with(|options| options.target_language = Some("pt".to_owned()));
    let document = read(&fixture("app.xlf"), Format::Xliff, &options);
    let after = text(write(&document, Translated::copy).bytes);
    for part in [
        "original=\"garden.html\" target-language=\"pt\">",
        "house</source>\n        <target state=\"needs-review-translation\">The <g id=\"b1\">old</g> garden &amp; the house</target>\n      </trans-unit>",
        "<target state=\"needs-review-translation\">Press <x id=\"x1\"/> to open",
        "<alt-trans><source>Press it</source><target>Aperte</target></alt-trans>",
        "<source>Approved</source>\n        <target></target>",
        "<source>Peregrine</source>\n      </trans-unit>",
        "<target state=\"needs-review-translation\"><mrk mtype=\"seg\" mid=\"1\">First sentence.</mrk> <mrk",
        "<target state=\"final\">Feito</target>",
        "<target state=\"needs-review-translation\"><bpt id=\"1\">&lt;i></bpt>Slanted",
        "<trans-unit id=\"8\"><source>42</source></trans-unit>",
    ] {
        assert!(after.contains(part), "{part:?} in {after}");
    }
    let second = read(&fixture("app2.xlf"), Format::Xliff, &options);
    let after2 = text(write(&second, Translated::copy).bytes);
    for part in [
        "srcLang=\"en\" trgLang=\"pt\">",
        "<segment id=\"s1\" state=\"translated\" subState=\"peregrine:unreviewed\">\n        <source>Open",
        "slowly.</source>\n        <target>Open the <pc id=\"1\">green</pc>",
        "<segment id=\"s2\" state=\"translated\" subState=\"peregrine:unreviewed\">",
        "<segment id=\"s3\" state=\"final\">",
    ] {
        assert!(after2.contains(part), "{part:?} in {after2}");
    }
    for (document, after) in [(document, after), (second, after2)] {
        // What is filled is not filled again.
        let again = read(after.as_bytes(), Format::Xliff, &options);
        assert_eq!(again.blocks().len(), 0);
        assert_eq!(text(write(&again, Translated::copy).bytes), after);
        check_with("xmllint", &["--noout"], after.as_bytes());
        let tags = |text: &str| {
            counted(
                text.split('<')
                    .skip(1)
                    .filter_map(|part| part.split('>').next())
                    .map(str::to_owned),
            )
        };
        for seed in 0..100 {
            let mut rules = scrambler(seed);
            let scrambled = text(write(&document, |block| scrambled(block, &mut rules)).bytes);
            assert_eq!(tags(&after), tags(&scrambled), "{scrambled}");
            // Sources are the same.
            let sources = |text: &str| -> Vec<String> {
                let sources = text.split("<source>").skip(1);
                sources
                    .map(|part| part.split("</source>").next().unwrap_or_default().to_owned())
                    .collect()
            };
            assert_eq!(sources(&after), sources(&scrambled));
            let again = Document::read(scrambled.into(), Format::Xml, &Options::default());
            assert!(again.is_ok(), "{again:?}");
        }
    }
}

#[test]
fn hostile_tables_take_little_time() {
    let many = 50_000;
    let cases = [
        "[".repeat(many),
        "\"".repeat(many),
        "{\"a\":".repeat(900),
        format!("[\"{}\"]", "{a, plural, b {".repeat(many)),
        format!("[\"{}{}\"]", "{a, plural, b {x ".repeat(400), "}}".repeat(400)),
        format!("[\"{}\"]", "{a} <b> %s ".repeat(many)),
        format!("[\"{}\"]", "<a ".repeat(many)),
        format!("[\"{}{}\"]", "<b>x ".repeat(many), "</b>".repeat(many)),
        format!("[\"{}\"]", "'{".repeat(many)),
        format!("[\"{}\"]", "\\n".repeat(many)),
        format!("[{}]", "\"a b\",".repeat(many)),
        format!("xyz\n0:1 --> 0:2\n{}", "<i>x ".repeat(many)),
        format!("0:1 --> 0:2\n{}", "{\\a".repeat(many)),
        format!("0:1 --> 0:2\n{}", "- x\n".repeat(many)),
        format!("0:1 --> 0:2\n{}", "word ".repeat(many)),
        "0:1 --> 0:2\nx\n".repeat(many / 4),
        format!("0:1 --> 0:2\n{}", "我".repeat(many)),
        format!("0:1 --> 0:2\n{}{}", "<i>".repeat(many), "</i>".repeat(many)),
        format!("msgid \"x y\"\nmsgstr{}", "\n\"\"".repeat(many)),
        "msgid \"x y\"\nmsgstr \"\"\n".repeat(many / 4),
        format!("msgid \"{}\"\nmsgstr \"\"", "&x ".repeat(many)),
        format!("{}{}", "<xliff><file>", "<trans-unit><source>x".repeat(many / 8)),
        format!(
            "<xliff>{}{}</xliff>",
            "<trans-unit><source>x".repeat(many / 8),
            "</source></trans-unit>".repeat(many / 8)
        ),
        format!(
            "<xliff>{}</xliff>",
            "<trans-unit><source>x y</source></trans-unit>".repeat(many / 8)
        ),
        format!(
            "<xliff><trans-unit><source>{}</source></trans-unit></xliff>",
            "<mrk mtype='seg'>x</mrk>".repeat(many / 8)
        ),
        "a:\n ".repeat(many),
        "- ".repeat(many),
        format!("a: {}", "[".repeat(many)),
        format!("a: \"{}", "x\n".repeat(many)),
        "a: |\n".repeat(many),
        "a: x\n".repeat(many),
        (0..2000).map(|indent| format!("{}a:\n", " ".repeat(indent))).collect(),
        "\0".repeat(many),
        "x".repeat(1 << 20),
    ];
    for case in cases {
        for format in
            [Format::Srt, Format::Vtt, Format::Po, Format::Xliff, Format::Json, Format::Yaml]
        {
            let start = std::time::Instant::now();
            let bytes = case.clone().into_bytes();
            if let Ok(document) = Document::read(bytes, format, &Options::default()) {
                write(&document, appended);
                write(&document, Translated::copy);
            }
            let seconds = start.elapsed().as_secs_f32();
            let name: String = case.chars().take(30).collect();
            if seconds > 0.5 {
                println!("{seconds:5.1} s {format} {name:?}");
            }
            assert!(seconds < 20.0, "{format} {name:?}");
        }
    }
}

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

    #[test]
    fn bytes_are_copied(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Json, Format::Yaml] {
            if let Ok(document) = Document::read(bytes.clone(), format, &Options::default()) {
                prop_assert_eq!(&write(&document, Translated::copy).bytes, &bytes);
            }
        }
        for format in [Format::Po, Format::Xliff] {
            if let Ok(document) = Document::read(bytes.clone(), format, &Options::default()) {
                write(&document, appended);
            }
        }
    }
}
