//! String tables: what is a text in them, what survives any engine, and that other programs can still read them.

mod json;
mod po;
mod xliff;
mod yaml;

use std::path::Path;
use std::process::Command;

use crate::engines::{Numbers, Scrambler, appended, read, write};
use peregrine_document::{Block, Document, Format, Options, Translated};
use proptest::prelude::*;

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
        format!("a: x{} y", "\n".repeat(8 * many)),
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

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
