//! Documents that are zip archives: what each format takes for text, by small examples, and what is refused.

use std::io::{Cursor, Read};

use crate::engines::{Numbers, read, shown, write};
use crate::packed::{TYPES, archive, docx, entry, rich, turned};
use peregrine_document::{Block, Document, Format, Options, Translated};

fn blocks(bytes: &[u8], format: Format) -> Vec<String> {
    read(bytes, format, &Options::default()).blocks().iter().map(shown).collect()
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
    let part = "<!DOCTYPE x SYSTEM 'y'><w:p xmlns:w='w'/>";
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

#[test]
fn slides() {
    let slide = r#"<p:sld xmlns:p="p" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><a:p><a:pPr/><a:r><a:rPr lang="en" dirty="0"/><a:t>The </a:t></a:r><a:r><a:rPr lang="en-US" b="1"/><a:t>red</a:t></a:r><a:r><a:rPr lang="de"/><a:t> house</a:t></a:r><a:br/><a:r><a:t>page </a:t></a:r><a:fld id="1"><a:t>7</a:t></a:fld><a:endParaRPr/></a:p></p:sld>"#;
    let entries = [
        ("[Content_Types].xml", TYPES),
        ("ppt/presentation.xml", "<x/>"),
        ("ppt/slides/slide1.xml", slide),
    ];
    let bytes = archive(&entries);
    assert_eq!(blocks(&bytes, Format::Pptx), ["The ⟨red⟩ house", "page {7}"]);
    let document = read(&bytes, Format::Pptx, &Options::default());
    let part = entry(&write(&document, turned).bytes, "ppt/slides/slide1.xml");
    let expected = r#"<a:p><a:pPr/><a:r><a:rPr lang="en" dirty="0"/><a:t>HOUSE </a:t></a:r><a:r><a:rPr lang="en-US" b="1"/><a:t>RED</a:t></a:r><a:r><a:rPr lang="en" dirty="0"/><a:t> THE</a:t></a:r><a:br/><a:fld id="1"><a:t>7</a:t></a:fld><a:r><a:rPr lang="en" dirty="0"/><a:t> PAGE</a:t></a:r><a:endParaRPr/></a:p>"#;
    assert!(part.contains(expected), "{part}");
}

#[test]
fn workbooks() {
    let main = "xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\"";
    let strings = format!(
        "<sst {main}><si><t>Some words</t></si><si><r><t>The </t></r><r><rPr><b/></rPr><t>red</t></r><r><t xml:space=\"preserve\"> house</t></r></si>\
         <si><t xml:space=\"preserve\"> one line\ntwo lines </t><rPh sb=\"0\" eb=\"1\"><t>x y</t></rPh></si><si><t>Head</t></si><si><t>42</t></si></sst>"
    );
    let sheet = format!(
        "<worksheet {main}><c t=\"inlineStr\"><is><t>In a cell</t></is></c><c t=\"str\"><f>A1&amp;\"x y\"</f><v>a result</v></c></worksheet>"
    );
    let table = format!("<table {main}><tableColumn id=\"1\" name=\"Head\"/></table>");
    let bytes = archive(&[
        ("[Content_Types].xml", TYPES),
        ("xl/workbook.xml", "<x/>"),
        ("xl/sharedStrings.xml", &strings),
        ("xl/worksheets/sheet1.xml", &sheet),
        ("xl/tables/table1.xml", &table),
    ]);
    let expected = ["Some words", "The⟨red⟩ house", "one line", "two lines", "In a cell"];
    assert_eq!(blocks(&bytes, Format::Xlsx), expected);
    let document = read(&bytes, Format::Xlsx, &Options::default());
    let written = write(&document, turned).bytes;
    let part = entry(&written, "xl/sharedStrings.xml");
    for expected in [
        "<si><t>WORDS SOME</t></si>",
        "<si><t xml:space=\"preserve\"> LINE ONE\nLINES TWO </t></si>",
        "<si><t>Head</t></si><si><t>42</t></si>",
    ] {
        assert!(part.contains(expected), "{part}");
    }
    let part = entry(&written, "xl/worksheets/sheet1.xml");
    assert_eq!(part, sheet.replace("In a cell", "CELL A IN"));
}

#[test]
fn open_documents() {
    let content = "<office:document-content xmlns:text=\"t\" xmlns:office=\"o\" xmlns:draw=\"d\"><number:text xmlns:number=\"n\">not this</number:text>\
         <text:h>A <text:span text:style-name=\"T1\">red</text:span> house</text:h>\
         <text:p>A fact<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>The old note.</text:p></text:note-body></text:note> is<text:s text:c=\"2\"/> here<text:tab/>and <text:a href=\"x\">there</text:a><text:line-break/>on page <text:page-number>7</text:page-number>.</text:p>\
         <text:p>See <draw:frame><draw:image/></draw:frame> and <draw:frame><draw:text-box><text:p>a box</text:p></draw:text-box></draw:frame>too</text:p></office:document-content>";
    let bytes = archive(&[
        ("mimetype", "application/vnd.oasis.opendocument.text"),
        ("content.xml", content),
    ]);
    let expected = [
        "A ⟨red⟩ house",
        "The old note.",
        "A fact· is· here",
        "and ⟨there⟩",
        "on page {7}.",
        "a box",
        "See {\u{fffc}} and ·too",
    ];
    assert_eq!(blocks(&bytes, Format::Odt), expected);
    let document = read(&bytes, Format::Odt, &Options::default());
    let part = entry(&write(&document, turned).bytes, "content.xml");
    for expected in [
        "<text:h>HOUSE <text:span text:style-name=\"T1\">RED</text:span> A</text:h>",
        "FACT<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>NOTE. OLD THE</text:p></text:note-body></text:note>",
        "<text:tab/><text:a href=\"x\">THERE</text:a> AND<text:line-break/>",
        "<text:p>BOX A</text:p>",
        "not this",
    ] {
        assert!(part.contains(expected), "{expected} in {part}");
    }
    let tracked = content.replace(
        "<text:h>",
        "<text:tracked-changes><text:changed-region/></text:tracked-changes><text:h>",
    );
    let bytes = archive(&[("content.xml", &tracked)]);
    assert!(refusal(&bytes, Format::Odt).contains("tracked changes"));
    assert!(refusal(&archive(&[("x", "y")]), Format::Odt).contains("no odt file"));
}

#[test]
fn books() {
    let bytes = archive(&[
        ("mimetype", "application/epub+zip"),
        ("META-INF/container.xml", "<container/>"),
        (
            "OEBPS/content.opf",
            "<package><dc:title xmlns:dc=\"d\">The old book</dc:title><dc:creator>A. Name</dc:creator></package>",
        ),
        (
            "OEBPS/toc.ncx",
            "<ncx><docTitle><text>The old book</text></docTitle><x>not this</x></ncx>",
        ),
        (
            "OEBPS/c1.xhtml",
            "<html><head><title>One</title></head><body><p>It was a <i>dark</i> night.</p></body></html>",
        ),
        ("OEBPS/c2.html", "<html><body><p>Not<br>well-formed</body></html>"),
    ]);
    let expected =
        ["The old book", "The old book", "One", "It was a ⟨dark⟩ night.", "Not", "well-formed"];
    assert_eq!(blocks(&bytes, Format::Epub), expected);
    let document = read(&bytes, Format::Epub, &Options::default());
    let written = write(&document, turned).bytes;
    let part = entry(&written, "OEBPS/content.opf");
    assert!(part.contains(">BOOK OLD THE<") && part.contains("A. Name"), "{part}");
    assert!(entry(&written, "OEBPS/c1.xhtml").contains("<p>NIGHT. <i>DARK</i> A WAS IT</p>"));
    assert_eq!(written[..60], bytes[..60]);
    let secret = "<encryption><CipherReference URI=\"OEBPS/c1.xhtml\"/></encryption>";
    let bytes = archive(&[("META-INF/container.xml", "<x/>"), ("META-INF/encryption.xml", secret)]);
    assert!(refusal(&bytes, Format::Epub).contains("encrypted"));
    let entity = "<!DOCTYPE html [<!ENTITY a \"b\">]><html><p>&a;</p></html>";
    let bytes = archive(&[("META-INF/container.xml", "<x/>"), ("a.xhtml", entity)]);
    assert_eq!(
        refusal(&bytes, Format::Epub),
        "a.xhtml, line 1, column 17: an entity is declared, which is not allowed in an archive"
    );
}
