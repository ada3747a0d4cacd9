//! Documents that are zip archives. Archives are made and read here by the `zip` crate, parts by `quick-xml`.
//!
//! Real files are taken from the folder that `PEREGRINE_OFFICE_FILES` names, if it does: the unpacked sources of python-docx,
//! python-pptx, odfpy, openpyxl and docx2python have many.

mod engines;

use std::collections::HashMap;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

use engines::{Numbers, Scrambler, read, scrambled, shown, write};
use peregrine_document::{Block, Document, Format, Link, Options, Translated};
use quick_xml::events::Event;
use zip::write::SimpleFileOptions;

const TYPES: &str = r#"<?xml version="1.0"?><Types xmlns="x"><Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>
<Override PartName="/word/header1.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.header+xml"/>
<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"/>
<Override PartName="/ppt/presentation.xml" ContentType="application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"/>
<Override PartName="/ppt/slides/slide1.xml" ContentType="application/vnd.openxmlformats-officedocument.presentationml.slide+xml"/>
<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/>
<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>
<Override PartName="/xl/tables/table1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.table+xml"/>
</Types>"#;

/// An archive with these entries. Every second one is stored without being packed.
fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let methods = [zip::CompressionMethod::Deflated, zip::CompressionMethod::Stored];
    for (number, (name, content)) in entries.iter().enumerate() {
        let options = SimpleFileOptions::default().compression_method(methods[number % 2]);
        writer.start_file(*name, options.unix_permissions(0o640)).expect("an entry");
        writer.write_all(content.as_bytes()).expect("its content");
    }
    writer.set_comment("made for a test").expect("a comment");
    writer.finish().expect("an archive").into_inner()
}

fn docx(body: &str) -> Vec<u8> {
    archive(&[
        ("[Content_Types].xml", TYPES),
        ("word/styles.xml", "<x>not text</x>"),
        ("word/document.xml", &word("document", &format!("<w:body>{body}</w:body>"))),
        ("../evil.txt", "harmless"),
    ])
}

fn word(root: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<w:{root} xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\">{content}</w:{root}>"
    )
}

/// The entries of an archive, in order.
fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
    let mut entries = Vec::new();
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).expect("an entry");
        let mut content = Vec::new();
        // An entry may be of a method that is not built in: what counts is that it is there.
        let _ = entry.read_to_end(&mut content);
        let name = entry.name().expect("a name").into_owned();
        entries.push((name, content));
    }
    entries
}

fn entry(bytes: &[u8], name: &str) -> String {
    let found = entries(bytes).into_iter().find(|(other, _)| other == name);
    String::from_utf8(found.expect("the entry").1).expect("text")
}

fn blocks(bytes: &[u8], format: Format) -> Vec<String> {
    read(bytes, format, &Options::default()).blocks().iter().map(shown).collect()
}

/// The words of a block in capitals and in the opposite order.
fn turned(block: &Block) -> Translated {
    let mut words: Vec<_> = Translated::copy(block).links.into_iter().map(|l| l.source).collect();
    words.reverse();
    let mut new = Translated::default();
    for word in words {
        if !new.text.is_empty() {
            new.text.push(' ');
        }
        let start = new.text.len();
        let kept = block.keep().iter().any(|keep| keep.start < word.end && word.start < keep.end);
        let text = &block.text[word.clone()];
        new.text.push_str(&if kept { text.to_owned() } else { text.to_uppercase() });
        new.links.push(Link::new(word, start..new.text.len(), 1.0));
    }
    new
}

/// What a paragraph of Word is for the model, and what its content is when its words are turned round.
#[test]
fn paragraphs_of_word() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("<w:r><w:t>One two.</w:t></w:r>", &["One two."], "<w:r><w:t>TWO. ONE</w:t></w:r>"),
        // Noise does not cut words.
        (
            r#"<w:r w:rsidR="1"><w:t>wo</w:t></w:r><w:proofErr w:type="spellStart"/><w:r><w:rPr><w:lang w:val="de"/></w:rPr><w:t>rd</w:t><w:lastRenderedPageBreak/><w:t>s fly</w:t></w:r>"#,
            &["words fly"],
            r#"<w:r><w:rPr><w:lang w:val="de"/></w:rPr><w:t>FLY WORDS</w:t></w:r>"#,
        ),
        // A word in bold.
        (
            r#"<w:r><w:t xml:space="preserve">The </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>red</w:t></w:r><w:r><w:t xml:space="preserve"> house</w:t></w:r>"#,
            &["The ⟨red⟩ house"],
            r#"<w:r><w:t xml:space="preserve">HOUSE </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>RED</w:t></w:r><w:r><w:t xml:space="preserve"> THE</w:t></w:r>"#,
        ),
        // Most of it is bold; white space that does not count is not text.
        (
            r#"<w:r><w:rPr><w:b/></w:rPr><w:t> All of it </w:t></w:r><w:r><w:t>but</w:t></w:r>"#,
            &["All of it⟨but⟩"],
            r#"<w:r><w:t>ITBUT</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> OF ALL</w:t></w:r>"#,
        ),
        // White space at the ends stays where it is.
        (
            r#"<w:r><w:rPr><w:i/></w:rPr><w:t xml:space="preserve">  One</w:t></w:r><w:r><w:t xml:space="preserve"> two three </w:t></w:r>"#,
            &["⟨·One⟩ two three"],
            r#"<w:r><w:t xml:space="preserve">THREE TWO </w:t></w:r><w:r><w:rPr><w:i/></w:rPr><w:t xml:space="preserve">  ONE</w:t></w:r><w:r><w:t xml:space="preserve"> </w:t></w:r>"#,
        ),
        // Tabs and breaks end blocks.
        (
            "<w:r><w:t>One two</w:t><w:tab/><w:t>three</w:t></w:r><w:r><w:br/></w:r><w:r><w:t>4</w:t></w:r>",
            &["One two", "three"],
            "<w:r><w:t>TWO ONE</w:t><w:tab/><w:t>THREE</w:t><w:br/><w:t>4</w:t></w:r>",
        ),
        // A link, whose text has its own formatting.
        (
            r#"<w:r><w:t xml:space="preserve">See </w:t></w:r><w:hyperlink r:id="1"><w:r><w:rPr><w:u/></w:rPr><w:t>this link</w:t></w:r></w:hyperlink>"#,
            &["See ⟨this link⟩"],
            r#"<w:hyperlink r:id="1"><w:r><w:rPr><w:u/></w:rPr><w:t>LINK THIS</w:t></w:r></w:hyperlink><w:r><w:t xml:space="preserve"> SEE</w:t></w:r>"#,
        ),
        // A link as a field, and a field whose result stays.
        (
            r#"<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> HYPERLINK "x" </w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>go there</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t xml:space="preserve"> on page </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/><w:instrText>PAGE</w:instrText><w:fldChar w:fldCharType="separate"/><w:t>7</w:t><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t>.</w:t></w:r>"#,
            &["⟨go there⟩ on page {7}."],
            r#"<w:r><w:fldChar w:fldCharType="begin"/><w:instrText>PAGE</w:instrText><w:fldChar w:fldCharType="separate"/><w:t>7</w:t><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t xml:space="preserve">. PAGE ON </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> HYPERLINK "x" </w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>THERE GO</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>"#,
        ),
        // Notes and bookmarks stay with their words, pictures are words.
        (
            r#"<w:bookmarkStart w:id="0"/><w:r><w:t>A fact</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r><w:bookmarkEnd w:id="0"/><w:r><w:t xml:space="preserve"> and </w:t></w:r><w:r><w:drawing/></w:r><w:r><w:t xml:space="preserve"> more</w:t></w:r>"#,
            &["A fact· and {\u{fffc}} more"],
            r#"<w:bookmarkStart w:id="0"/><w:r><w:t xml:space="preserve">MORE </w:t></w:r><w:r><w:drawing/></w:r><w:r><w:t xml:space="preserve"> AND FACT</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r><w:bookmarkEnd w:id="0"/><w:r><w:t xml:space="preserve"> A</w:t></w:r>"#,
        ),
        // A hyphen that is an element, one that is not seen, references, a content control.
        (
            r#"<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent><w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mail &amp; co-op</w:t></w:r></w:sdtContent></w:sdt><w:r><w:t xml:space="preserve"> wo</w:t><w:softHyphen/><w:t>rd</w:t></w:r>"#,
            &["⟨e\u{2011}mail & co-op⟩ word"],
            r#"<w:r><w:t xml:space="preserve">WORD </w:t></w:r><w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent><w:r><w:t>CO-OP &amp; E‑MAIL</w:t></w:r></w:sdtContent></w:sdt>"#,
        ),
        // A line to write on is kept, a blank in bold is only a blank.
        (
            r#"<w:r><w:t>Sign:</w:t></w:r><w:r><w:rPr><w:u/></w:rPr><w:t xml:space="preserve">    </w:t></w:r><w:r><w:t>(here</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> </w:t></w:r><w:r><w:t>please)</w:t></w:r>"#,
            &["Sign:{\u{fffc}}(here please)"],
            r#"<w:r><w:t>PLEASE) Sign:</w:t></w:r><w:r><w:rPr><w:u/></w:rPr><w:t xml:space="preserve">    </w:t></w:r><w:r><w:t>(here</w:t></w:r>"#,
        ),
    ];
    for (content, texts, expected) in cases {
        let before = docx(&format!("<w:p><w:pPr><w:b/></w:pPr>{content}</w:p><w:sectPr/>"));
        assert_eq!(blocks(&before, Format::Docx), *texts, "{content}");
        let document = read(&before, Format::Docx, &Options::default());
        let written = write(&document, turned);
        let part = entry(&written.bytes, "word/document.xml");
        let start = part.find("</w:pPr>").expect("a paragraph") + 8;
        let end = part.find("</w:p><w:sectPr/>").expect("its end");
        assert_eq!(&part[start..end], *expected, "{content}");
    }
}

/// What must be true of a part whatever the words became.
#[derive(Debug, PartialEq)]
struct Facts {
    /// The paragraphs, by what they are in.
    paragraphs: Vec<String>,
    /// Elements that are there once: how often each tag is there, byte for byte.
    once: HashMap<Vec<u8>, usize>,
}

/// Elements that may be there more or less often than before, or have other attributes.
const FREE: [&str; 9] = [
    "w:r",
    "w:t",
    "w:rPr",
    "w:proofErr",
    "w:lastRenderedPageBreak",
    "w:softHyphen",
    "a:r",
    "a:t",
    "a:rPr",
];

/// Reads a part, and checks that every text is in a run and no run in another.
fn facts(name: &str, part: &[u8]) -> Facts {
    let mut facts = Facts { paragraphs: Vec::new(), once: HashMap::new() };
    let mut reader = quick_xml::Reader::from_reader(part);
    reader.config_mut().check_end_names = true;
    let mut open: Vec<String> = Vec::new();
    loop {
        let from = reader.buffer_position() as usize;
        let event = reader.read_event().unwrap_or_else(|error| {
            panic!(
                "{name}: {error} at {from}: {}",
                String::from_utf8_lossy(
                    &part[from.saturating_sub(200)..part.len().min(from + 200)]
                )
            )
        });
        let raw = &part[from..reader.buffer_position() as usize];
        let parent = open.last().cloned().unwrap_or_default();
        match event {
            Event::Start(tag) | Event::Empty(tag) => {
                let tag = tag.name().as_ref().to_owned();
                let in_style = open.iter().any(|name| name.ends_with("rPr"));
                let local = tag.rsplit(':').next().unwrap_or_default();
                if tag == "w:p" || tag == "a:p" || tag == "si" {
                    facts.paragraphs.push(open.join("/"));
                }
                if ["w:r", "w:t"].contains(&tag.as_str())
                    && !open.iter().any(|name| name == "w:txbxContent")
                {
                    let runs = open.iter().filter(|name| *name == "w:r").count();
                    assert_eq!(runs, usize::from(tag == "w:t"), "{name}: {open:?} {tag}");
                }
                if tag == "a:t" {
                    assert!(["a:r", "a:fld"].contains(&parent.as_str()), "{name}: {open:?}");
                }
                let is_free = FREE.contains(&tag.as_str())
                    || in_style
                    || !tag.contains(':')
                        && ["r", "t", "rPr", "rPh", "phoneticPr"].contains(&local);
                if !is_free {
                    *facts.once.entry(raw.to_vec()).or_default() += 1;
                }
                if !raw.ends_with(b"/>") {
                    open.push(tag);
                }
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Text(text) if parent == "w:p" || parent == "w:r" || parent == "a:p" => {
                assert!(text.trim().is_empty(), "{name}: {text:?} in {open:?}");
            }
            Event::Eof => return facts,
            _ => {}
        }
    }
}

fn check(name: &str, bytes: &[u8], format: Format) -> usize {
    let document = match Document::read(bytes.to_vec(), format, &Options::default()) {
        Ok(document) => document,
        Err(error) => {
            println!("{name}: {error}");
            assert!(!error.to_string().contains('\n'));
            return 0;
        }
    };
    let copy = write(&document, Translated::copy);
    assert!(copy.bytes == bytes, "{name}: a copy differs");
    for block in document.blocks() {
        assert_eq!(block.text, block.text.trim_ascii(), "{name}");
    }
    let before = entries(bytes);
    for seed in 0..3 {
        let mut rules = Scrambler { numbers: Numbers(seed), dropped: 15, doubled: 10, lost: 10 };
        let written = write(&document, |block| scrambled(block, &mut rules));
        let after = entries(&written.bytes);
        assert_eq!(before.len(), after.len(), "{name}");
        for ((old_name, old), (new_name, new)) in before.iter().zip(&after) {
            assert_eq!(old_name, new_name, "{name}");
            if old != new {
                let name = format!("{name}: {old_name}");
                let (old, new) = (facts(&name, old), facts(&name, new));
                assert_eq!(old.paragraphs, new.paragraphs, "{name}");
                for (tag, count) in &old.once {
                    assert_eq!(
                        new.once.get(tag),
                        Some(count),
                        "{name}: {}",
                        String::from_utf8_lossy(tag)
                    );
                }
                assert_eq!(old.once.len(), new.once.len(), "{name}");
            }
        }
        // What is read again has the same blocks, unless one lost all of its letters.
        let again = read(&written.bytes, format, &Options::default());
        assert!(again.blocks().len() <= document.blocks().len(), "{name}");
    }
    document.blocks().len()
}

/// Files with these endings in the folder that the environment names.
fn real_files(endings: &[&str]) -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("PEREGRINE_OFFICE_FILES") else {
        println!("skipped: PEREGRINE_OFFICE_FILES names no folder");
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let fits = path.extension().is_some_and(|e| endings.iter().any(|wanted| e == *wanted));
            match path.is_dir() {
                true => folders.push(path),
                false if fits => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn check_real(endings: &[&str], format: Format) {
    let mut counts = (0, 0);
    for path in real_files(endings) {
        let bytes = std::fs::read(&path).expect("a file");
        let blocks = check(&path.display().to_string(), &bytes, format);
        counts = (counts.0 + 1, counts.1 + blocks);
    }
    println!("{} files, {} blocks", counts.0, counts.1);
}

#[test]
fn real_word_documents() {
    check_real(&["docx", "docm"], Format::Docx);
}

#[test]
fn real_presentations() {
    check_real(&["pptx"], Format::Pptx);
}

#[test]
fn real_workbooks() {
    check_real(&["xlsx", "xlsm"], Format::Xlsx);
}

/// A document with most of what there is.
fn rich() -> Vec<u8> {
    let text_box = "<w:pict><v:textbox xmlns:v=\"v\"><w:txbxContent><w:p><w:r><w:t>Inside a box</w:t></w:r></w:p></w:txbxContent></v:textbox></w:pict>";
    let choice = "<mc:AlternateContent xmlns:mc=\"m\"><mc:Choice><w:txbxContent><w:p><w:r><w:t>A choice of words</w:t></w:r></w:p></w:txbxContent></mc:Choice><mc:Fallback><w:pict><w:txbxContent><w:p><w:r><w:t>A choice of words</w:t></w:r></w:p></w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent>";
    let body = format!(
        "<w:p><w:r><w:t>Before the box</w:t></w:r><w:r>{text_box}</w:r><w:r><w:t xml:space=\"preserve\"> and behind</w:t>{choice}</w:r></w:p>\
         <w:tbl><w:tr><w:tc><w:p><w:hyperlink w:anchor=\"a\"><w:r><w:rPr><w:b/></w:rPr><w:t>A link</w:t></w:r><w:r><w:tab/></w:r><w:r><w:t>and more</w:t></w:r></w:hyperlink><w:r><w:t xml:space=\"preserve\"> in a cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p/>"
    );
    let note = "<w:footnote w:id=\"2\"><w:p><w:r><w:footnoteRef/></w:r><w:r><w:t xml:space=\"preserve\"> A note of old.</w:t></w:r></w:p></w:footnote>";
    archive(&[
        ("[Content_Types].xml", TYPES),
        ("word/document.xml", &word("document", &format!("<w:body>{body}</w:body>"))),
        ("word/header1.xml", &word("hdr", "<w:p><w:r><w:t>The title</w:t></w:r></w:p>")),
        ("word/footnotes.xml", &word("footnotes", note)),
        ("word/media/image1.png", "\u{1}not an image"),
    ])
}

#[test]
fn a_rich_document() {
    let bytes = rich();
    assert_eq!(
        blocks(&bytes, Format::Docx),
        [
            "Inside a box",
            "A choice of words",
            "A choice of words",
            "Before the box· and behind",
            "A link",
            "and more· in a cell",
            "The title",
            "A note of old."
        ]
    );
    assert_eq!(check("rich", &bytes, Format::Docx), 8);
    let document = read(&bytes, Format::Docx, &Options::default());
    let part = entry(&write(&document, turned).bytes, "word/document.xml");
    assert!(part.contains("<w:t>BOX A INSIDE</w:t>"), "{part}");
    assert_eq!(part.matches("WORDS OF CHOICE A").count(), 2, "{part}");
    // Nothing else than the changed parts is touched: bytes, dates and attributes.
    let one = |block: &Block| match block.text.as_str() {
        "The title" => turned(block),
        _ => Translated::copy(block),
    };
    let written = write(&document, one).bytes;
    let mut old = zip::ZipArchive::new(Cursor::new(&bytes)).expect("an archive");
    let mut new = zip::ZipArchive::new(Cursor::new(&written)).expect("an archive");
    assert_eq!(old.comment(), new.comment());
    for number in 0..old.len() {
        let (mut a, mut b) =
            (old.by_index_raw(number).expect("raw"), new.by_index_raw(number).expect("raw"));
        assert_eq!(a.last_modified(), b.last_modified());
        assert_eq!((a.unix_mode(), a.compression()), (b.unix_mode(), b.compression()));
        let (mut x, mut y) = (Vec::new(), Vec::new());
        a.read_to_end(&mut x).expect("bytes");
        b.read_to_end(&mut y).expect("bytes");
        let is_header = a.name().expect("a name") == "word/header1.xml";
        assert_eq!(x != y, is_header, "{:?}", a.name());
    }
}

fn refusal(bytes: &[u8], format: Format) -> String {
    let error = Document::read(bytes.to_vec(), format, &Options::default()).map(|_| ());
    error.expect_err("a refusal").to_string()
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let tracked = docx("\n<w:p><w:ins w:id=\"1\"><w:r><w:t>new</w:t></w:r></w:ins></w:p>");
    assert_eq!(
        refusal(&tracked, Format::Docx),
        "word/document.xml, line 3, column 6: tracked changes; accept or reject them first"
    );
    let broken = docx("<w:p></w:q>");
    assert!(
        refusal(&broken, Format::Docx).starts_with("word/document.xml, line 2, column"),
        "{}",
        refusal(&broken, Format::Docx)
    );
    let entity = docx("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>");
    assert!(refusal(&entity, Format::Docx).ends_with("not defined"));
    let part = "<!DOCTYPE x [<!ENTITY a 'b'>]><w:p xmlns:w='w'/>";
    let with_dtd = archive(&[("[Content_Types].xml", TYPES), ("word/document.xml", part)]);
    assert!(refusal(&with_dtd, Format::Docx).contains("document type"));
    assert_eq!(refusal(&docx(""), Format::Pptx), "a zip archive, but no pptx file");
    assert!(refusal(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Format::Docx).contains("encrypted"));
    assert!(refusal(b"no archive", Format::Docx).contains("no zip archive"));
    let deep = "<w:p>".repeat(2000) + &"</w:p>".repeat(2000);
    assert!(refusal(&docx(&deep), Format::Docx).contains("1000 deep"));
    // Encrypted: the flag is set in both headers.
    let mut encrypted = docx("");
    let places: Vec<usize> = (0..encrypted.len() - 4)
        .filter_map(|at| match &encrypted[at..at + 4] {
            b"PK\x03\x04" => Some(at + 6),
            b"PK\x01\x02" => Some(at + 8),
            _ => None,
        })
        .collect();
    places.into_iter().for_each(|at| encrypted[at] |= 1);
    assert!(refusal(&encrypted, Format::Docx).contains("encrypted"));
}

#[test]
fn bombs_are_refused() {
    let bomb = "<w:p/>".repeat(10 << 20);
    assert!(refusal(&docx(&bomb), Format::Docx).contains("when unpacked"));
    let mut options = Options::default();
    options.largest = 100_000;
    let bytes = docx(&"<w:p/>".repeat(20_000));
    let error = Document::read(bytes, Format::Docx, &options).map(|_| ()).expect_err("a limit");
    assert!(error.to_string().contains("when unpacked"), "{error}");
}

/// Bytes that are wrong end in a line or in a document, never in a fault.
#[test]
fn damaged_archives() {
    let bytes = rich();
    let try_it =
        |bytes: &[u8]| match Document::read(bytes.to_vec(), Format::Docx, &Options::default()) {
            Ok(document) => {
                write(&document, turned);
                assert!(write(&document, Translated::copy).bytes == bytes);
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        };
    for length in 0..bytes.len() {
        try_it(&bytes[..length]);
    }
    let mut numbers = Numbers(1);
    for _ in 0..4000 {
        let mut other = bytes.clone();
        for _ in 0..=numbers.next(3) {
            let place = numbers.next(other.len());
            other[place] ^= 1 << numbers.next(8);
        }
        try_it(&other);
    }
    // The same record twice: two entries share their bytes, or two have a name.
    let mut twice = archive(&[
        ("[Content_Types].xml", TYPES),
        ("word/document.xml", "<a/>"),
        ("word/documenx.xml", "<b/>"),
    ]);
    let name = b"word/documenx.xml";
    let places: Vec<usize> =
        (0..twice.len() - name.len()).filter(|&at| twice[at..].starts_with(name)).collect();
    places.into_iter().for_each(|at| twice[at + 12] = b't');
    assert!(refusal(&twice, Format::Docx).contains("two entries"));
}
