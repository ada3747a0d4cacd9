//! With an engine that copies, a document is written as it was read, byte for byte. With one that adds a word to each block,
//! nothing but that word is new: no tag moves, no blank changes sides, no reference is spelled differently.

use crate::engines::{ADDED, appended, installed, read, snippets, write};
use peregrine_document::{Document, Format, Options, Translated};

fn options(attributes: bool) -> Options {
    let mut options = Options::default();
    options.attributes = attributes;
    options
}

/// The first place where two byte strings differ, for a message that can be read.
fn difference(a: &[u8], b: &[u8]) -> String {
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let near = |bytes: &[u8]| {
        let range = at.saturating_sub(60)..(at + 60).min(bytes.len());
        String::from_utf8_lossy(&bytes[range]).into_owned()
    };
    format!("at byte {at}:\n  {:?}\n  {:?}", near(a), near(b))
}

fn check_copy(name: &str, bytes: &[u8], format: Format) {
    for options in [options(false), options(true)] {
        let document = read(bytes, format, &options);
        let written = write(&document, Translated::copy);
        assert!(written.bytes == bytes, "{name}: {}", difference(bytes, &written.bytes));
        assert_eq!(written.report, [], "{name}");
        for block in document.blocks() {
            assert_eq!(block.text, block.text.trim_ascii(), "{name}");
            assert!(block.text.contains(char::is_alphabetic), "{name}: {:?}", block.text);
        }
    }
}

/// Whether nothing but the added word is new.
fn added_alone(bytes: &[u8], format: Format) -> Result<(), String> {
    let document = read(bytes, format, &options(false));
    let written = write(&document, appended);
    let text = String::from_utf8_lossy(&written.bytes).into_owned();
    let count = text.matches(ADDED).count();
    if count != document.blocks().len() {
        return Err(format!("{count} additions to {} blocks", document.blocks().len()));
    }
    let without = text.replace(ADDED, "");
    if without == String::from_utf8_lossy(bytes) {
        return Ok(());
    }
    Err(difference(bytes, without.as_bytes()))
}

#[test]
fn snippets_are_copied() {
    for (name, text) in snippets() {
        check_copy(&name, text.as_bytes(), Format::Html);
        check_copy(&name, text.as_bytes(), Format::Text);
    }
}

#[test]
fn nothing_but_an_added_word_is_new_in_snippets() {
    let faults: Vec<_> = snippets()
        .into_iter()
        .filter_map(|(name, text)| Some((name, added_alone(text.as_bytes(), Format::Html).err()?)))
        .collect();
    for (name, fault) in faults.iter().take(10) {
        println!("{name} {fault}");
    }
    assert!(faults.is_empty());
}

/// Pages, books and papers that others wrote: each is copied, and of most nothing but the added words is new.
fn check_installed(endings: &[&str], format: Format, most: usize) {
    let mut faults = 0;
    let mut checked = 0;
    for path in installed(endings, most) {
        let bytes = std::fs::read(&path).expect("a file");
        if bytes.len() > 2_000_000 {
            continue;
        }
        let name = path.display().to_string();
        // Files of packages may be broken on purpose.
        if let Err(error) = Document::read(bytes.clone(), format, &options(false)) {
            println!("{name}: {error}");
            continue;
        }
        checked += 1;
        check_copy(&name, &bytes, format);
        if let Err(fault) = added_alone(&bytes, format) {
            println!("{name} {fault}");
            faults += 1;
        }
    }
    println!("{faults} of {checked}");
    assert!(faults * 10 <= checked, "{faults} of {checked}");
}

#[test]
#[ignore = "slow: .ci/run runs it"]
fn installed_html() {
    check_installed(&["html", "htm"], Format::Html, 200);
}

#[test]
#[ignore = "slow: .ci/run runs it"]
fn installed_markdown() {
    check_installed(&["md"], Format::Markdown, 200);
}

#[test]
fn installed_xml() {
    check_installed(&["xml", "svg", "ui", "xhtml"], Format::Xml, 100);
}

#[test]
fn installed_text() {
    check_installed(&["txt", "rst", "md"], Format::Text, 100);
}
