//! Catalogues of gettext.

use super::{check_with, fixture, scrambler, text, texts, with, written};
use crate::engines::{installed, read, scrambled, write};
use peregrine_document::{Document, Format, Options, Translated};

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
