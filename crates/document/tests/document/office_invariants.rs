//! What is true of an archive whatever the engine did. Parts are read here by `quick-xml`, archives by the `zip` crate.
//!
//! Real files are taken from the folder that `PEREGRINE_OFFICE_FILES` names, if it does: the unpacked sources of python-docx,
//! python-pptx, odfpy and openpyxl, and of the crates calamine and docx-rust, have many.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use crate::engines::{ADDED, Numbers, Scrambler, appended, read, scrambled, write};
use crate::packed::{docx, entries, rich};
use peregrine_document::{Document, Format, Options, Translated};
use proptest::prelude::*;
use quick_xml::events::Event;

/// What must be true of a part whatever the words became.
#[derive(Debug, PartialEq)]
struct Facts {
    /// The paragraphs, by what they are in.
    paragraphs: Vec<String>,
    /// Elements that are there once: how often each tag is there, byte for byte.
    once: HashMap<Vec<u8>, usize>,
}

/// Elements that may be there more or less often than before, or have other attributes.
const FREE: [&str; 10] = [
    "w:noBreakHyphen",
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
                // Those of text boxes move with the words round them.
                let is_inside = open.iter().any(|name| name == "w:p");
                if !is_inside && (tag == "w:p" || tag == "a:p" || tag == "si") {
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
    check_paint(name, &document, &before);
    document.blocks().len()
}

/// With a word added to each block every other letter keeps its place in its paragraph and its formatting.
fn check_paint(name: &str, document: &Document, before: &[(String, Vec<u8>)]) {
    if !matches!(document.format(), Format::Docx | Format::Pptx | Format::Xlsx) {
        return;
    }
    let after = entries(&write(document, appended).bytes);
    let mut added = 0;
    for ((part, old), (_, new)) in
        before.iter().zip(&after).filter(|((_, old), (_, new))| old != new)
    {
        for (old, new) in paint(old).into_iter().zip(paint(new)) {
            let text: String = new.iter().map(|(c, _)| c).collect();
            let mark = ADDED.trim();
            let places: Vec<usize> =
                text.match_indices(mark).map(|(at, _)| text[..at].chars().count()).collect();
            let is_added =
                |place: usize| places.iter().any(|at| (*at..at + mark.len()).contains(&place));
            added += places.len();
            let kept = new.into_iter().enumerate().filter(|(place, _)| !is_added(*place));
            let kept: Vec<_> = kept.map(|(_, painted)| painted).collect();
            assert_eq!(kept, old, "{name}: {part}: {text}");
        }
    }
    // Some are added inside of others, where they are counted twice.
    assert!(added >= document.blocks().len(), "{name}: {added} of {}", document.blocks().len());
}

/// For each paragraph its letters, each with what its run says about how it looks.
fn paint(part: &[u8]) -> Vec<Vec<(char, Vec<String>)>> {
    const NOISE: [&str; 9] = [
        "lang",
        "altLang",
        "dirty",
        "err",
        "smtClean",
        "noProof",
        "w:lang",
        "w:noProof",
        "xml:space",
    ];
    let mut paragraphs = vec![Vec::new()];
    let mut open: Vec<String> = Vec::new();
    // Of the runs that are open: text boxes are inside of runs.
    let mut styles: Vec<Vec<String>> = vec![Vec::new()];
    let mut reader = quick_xml::Reader::from_reader(part);
    loop {
        match reader.read_event().expect("well-formed") {
            event @ (Event::Start(_) | Event::Empty(_)) => {
                let is_empty = matches!(event, Event::Empty(_));
                let (Event::Start(tag) | Event::Empty(tag)) = event else { continue };
                let name = tag.name().as_ref().to_owned();
                match name.rsplit(':').next().unwrap_or_default() {
                    "p" | "si" | "is" if !is_empty => paragraphs.push(Vec::new()),
                    "r" if !is_empty => styles.push(Vec::new()),
                    "noBreakHyphen" => paragraphs
                        .last_mut()
                        .expect("one")
                        .push(('\u{2011}', styles.last().cloned().unwrap_or_default())),
                    _ => {}
                }
                if (name.ends_with("rPr") || open.iter().any(|name| name.ends_with("rPr")))
                    && !NOISE.contains(&name.as_str())
                {
                    let attributes = tag.attributes().flatten();
                    let attributes =
                        attributes.filter(|attribute| !NOISE.contains(&attribute.key.as_ref()));
                    let attributes: Vec<String> = attributes
                        .map(|attribute| format!("{}={}", attribute.key.as_ref(), attribute.value))
                        .collect();
                    if !name.ends_with("rPr") || !attributes.is_empty() {
                        styles
                            .last_mut()
                            .expect("one")
                            .push(format!("{name} {}", attributes.join(" ")));
                    }
                }
                if !is_empty {
                    open.push(name);
                }
            }
            Event::End(_) => {
                let name = open.pop().unwrap_or_default();
                if name.rsplit(':').next() == Some("r") {
                    styles.pop();
                }
            }
            Event::Text(text) if is_shown(&open) => {
                let letters = text.chars().filter(|c| !c.is_whitespace());
                paragraphs
                    .last_mut()
                    .expect("one")
                    .extend(letters.map(|c| (c, styles.last().cloned().unwrap_or_default())));
            }
            Event::GeneralRef(name) if is_shown(&open) => {
                paragraphs
                    .last_mut()
                    .expect("one")
                    .extend(name.chars().map(|c| (c, styles.last().cloned().unwrap_or_default())));
            }
            Event::Eof => return paragraphs,
            _ => {}
        }
    }
}

/// Whether text in this element is in a run or cell, and is no reading aid.
fn is_shown(open: &[String]) -> bool {
    let is_text = open.last().is_some_and(|name| name.rsplit(':').next() == Some("t"));
    is_text && !open.iter().any(|name| name == "rPh")
}

#[test]
fn a_rich_document() {
    assert_eq!(check("rich", &rich(), Format::Docx), 8);
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

#[test]
fn real_open_documents() {
    check_real(&["odt"], Format::Odt);
}

#[test]
fn real_books() {
    check_real(&["epub"], Format::Epub);
}

/// Pieces that paragraphs are made of: what stands between runs, and what stands in them.
fn paragraph_soup() -> impl Strategy<Value = String> {
    let field = |kind: &str| format!("<w:r><w:fldChar w:fldCharType=\"{kind}\"/></w:r>");
    let inside = prop_oneof![
        6 => "[a-m]{1,5}[.,]?".prop_map(|word| format!("<w:t>{word}</w:t>")),
        6 => "[a-m ]{0,9}".prop_map(|text| format!("<w:t xml:space=\"preserve\">{text}</w:t>")),
        1 => prop::sample::select(vec![
            "<w:tab/>", "<w:br/>", "<w:drawing/>", "<w:noBreakHyphen/>", "<w:lastRenderedPageBreak/>", "<w:t> </w:t>", "<w:t/>", "<!--c-->",
            "<w:footnoteReference w:id=\"1\"/>", "<w:t>&amp; &#233;\n\u{fffc}</w:t>", "<w:t>a<![CDATA[b]]></w:t>", "<w:t>&#1;</w:t>",
            "<w:pict><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent></w:pict>",
        ]).prop_map(str::to_owned),
    ];
    let style = prop::sample::select(vec![
        "",
        "",
        "<w:rPr><w:b/></w:rPr>",
        "<w:rPr><w:i/><w:lang w:val=\"en\"/></w:rPr>",
        "<w:rPr/>",
    ]);
    let run = (style, prop::collection::vec(inside, 0..3))
        .prop_map(|(style, content)| format!("<w:r>{style}{}</w:r>", content.concat()));
    let other = prop::sample::select(vec![
        "<w:bookmarkStart w:id=\"0\"/>".to_owned(),
        "<w:proofErr/>".to_owned(),
        "<m:oMath xmlns:m=\"m\"/>".to_owned(),
        "<w:fldSimple><w:r><w:t>a field</w:t></w:r></w:fldSimple>".to_owned(),
        field("begin"),
        field("begin"),
        field("separate"),
        field("end"),
        field("end"),
        "<w:r><w:instrText>HYPERLINK x</w:instrText></w:r>".to_owned(),
        "<w:r><w:instrText>REF x</w:instrText></w:r>".to_owned(),
    ]);
    let leaf = prop_oneof![4 => run, 1 => other];
    let tree = leaf.prop_recursive(4, 40, 6, |inner| {
        (prop::sample::select(vec![0, 1, 2]), prop::collection::vec(inner, 0..6)).prop_map(
            |(kind, content)| {
                let content = content.concat();
                match kind {
                    0 => format!("<w:hyperlink r:id=\"1\" xmlns:r=\"r\">{content}</w:hyperlink>"),
                    1 => format!("<w:smartTag><w:smartTagPr/>{content}</w:smartTag>"),
                    _ => format!("<w:sdt><w:sdtPr/><w:sdtContent>{content}</w:sdtContent></w:sdt>"),
                }
            },
        )
    });
    prop::collection::vec(tree, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn soup_of_runs(content in paragraph_soup()) {
        let bytes = docx(&format!("<w:p><w:pPr/>{content}</w:p>"));
        check(&content, &bytes, Format::Docx);
    }
}

#[test]
fn hostile_paragraphs_take_little_time() {
    let many = 50_000;
    let pages = [
        "<w:r><w:t>a </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>b</w:t></w:r>".repeat(many),
        "<w:r><w:t>a</w:t></w:r><w:bookmarkStart/>".repeat(many),
        "<w:hyperlink><w:r><w:t>a b</w:t></w:r></w:hyperlink>".repeat(many),
        "<w:r><w:fldChar w:fldCharType=\"begin\"/></w:r><w:r><w:t>a</w:t></w:r>".repeat(many),
        "<w:r><w:t>a</w:t><w:tab/></w:r>".repeat(many),
        "<w:fldSimple><w:r><w:t>a b</w:t></w:r></w:fldSimple><w:r><w:t>+ c</w:t></w:r>"
            .repeat(many),
        (0..many)
            .map(|n| format!("<w:r><w:rPr><w:sz w:val=\"{n}\"/></w:rPr><w:t>a</w:t></w:r>"))
            .collect(),
        format!(
            "{}<w:r><w:t>a b</w:t></w:r>{}",
            "<w:hyperlink>".repeat(900),
            "</w:hyperlink>".repeat(900)
        ),
        format!("<w:r><w:t>{}</w:t></w:r>", "&amp;x &#1;".repeat(many)),
    ];
    for page in pages {
        let start = Instant::now();
        let bytes = docx(&format!("<w:p>{page}</w:p>"));
        let document = read(&bytes, Format::Docx, &Options::default());
        let mut rules = Scrambler { numbers: Numbers(1), dropped: 15, doubled: 10, lost: 10 };
        let written = write(&document, |block| scrambled(block, &mut rules));
        facts("hostile", &entries(&written.bytes)[2].1);
        let seconds = start.elapsed().as_secs_f32();
        println!("{seconds:5.1} s {}", &page[..40]);
        assert!(seconds < 20.0, "{}", &page[..40]);
    }
}
