//! With an engine that copies, a document is written as it was read, byte for byte. With one that adds a word to each block,
//! nothing but that word is new: no tag moves, no blank changes sides, no reference is spelled differently.

mod engines;

use engines::{ADDED, appended, installed, read, snippets, write};
use peregrine_document::{Format, Options, Translated};

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

#[test]
fn installed_pages_are_copied() {
    for path in installed(&["html", "htm"], 200) {
        let bytes = std::fs::read(&path).expect("a page");
        check_copy(&path.display().to_string(), &bytes, Format::Html);
    }
}

#[test]
fn nothing_but_an_added_word_is_new_in_installed_pages() {
    let pages = installed(&["html", "htm"], 200);
    let mut faults = 0;
    for path in &pages {
        let bytes = std::fs::read(path).expect("a page");
        if let Err(fault) = added_alone(&bytes, Format::Html) {
            println!("{} {fault}", path.display());
            faults += 1;
        }
    }
    println!("{faults} of {} pages", pages.len());
    assert!(faults * 10 <= pages.len());
}
