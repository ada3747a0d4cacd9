//! Archives of parts, made and read by the `zip` crate.
use std::io::{Cursor, Read, Write};

use peregrine_document::{Block, Link, Translated};
use zip::write::SimpleFileOptions;

/// The types of the parts that the tests make.
pub(crate) const TYPES: &str = r#"<?xml version="1.0"?><Types xmlns="x"><Default Extension="xml" ContentType="application/xml"/>
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
pub(crate) fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
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

/// A Word document with this content.
pub(crate) fn docx(body: &str) -> Vec<u8> {
    archive(&[
        ("[Content_Types].xml", TYPES),
        ("word/styles.xml", "<x>not text</x>"),
        ("word/document.xml", &word("document", &format!("<w:body>{body}</w:body>"))),
        ("../evil.txt", "harmless"),
    ])
}

/// A part of a Word document.
pub(crate) fn word(root: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<w:{root} xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\">{content}</w:{root}>"
    )
}

/// The entries of an archive, in order.
pub(crate) fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
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

/// The text of an entry.
pub(crate) fn entry(bytes: &[u8], name: &str) -> String {
    let found = entries(bytes).into_iter().find(|(other, _)| other == name);
    String::from_utf8(found.expect("the entry").1).expect("text")
}

/// The words of a block in capitals and in the opposite order.
pub(crate) fn turned(block: &Block) -> Translated {
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

/// A document with most of what there is.
pub(crate) fn rich() -> Vec<u8> {
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
