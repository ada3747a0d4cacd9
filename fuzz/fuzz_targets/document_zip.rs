//! Bytes as a document that is an archive, and as the part of one that has the text. A copy is the same bytes, and an answer of
//! any kind is written without a fault and can be read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_document::Format;
use peregrine_fuzz::{check_document, check_readable, stored_archive};

const TYPES: &[u8] = br#"<Types><Override PartName="/a.xml" ContentType="wordprocessingml.main+xml"/><Override PartName="/b.xml" ContentType="presentationml.main+xml"/><Override PartName="/c.xml" ContentType="presentationml.slide+xml"/><Override PartName="/d.xml" ContentType="spreadsheetml.main+xml"/><Override PartName="/e.xml" ContentType="spreadsheetml.sharedStrings+xml"/></Types>"#;

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Docx, Format::Pptx, Format::Xlsx, Format::Odt, Format::Epub] {
        check_document(bytes, format);
        let entries: &[(&str, &[u8])] = match format {
            Format::Docx => &[("[Content_Types].xml", TYPES), ("a.xml", bytes)],
            Format::Pptx => &[("[Content_Types].xml", TYPES), ("b.xml", b"<x/>"), ("c.xml", bytes)],
            Format::Xlsx => &[("[Content_Types].xml", TYPES), ("d.xml", b"<x/>"), ("e.xml", bytes)],
            Format::Odt => &[("content.xml", bytes)],
            _ => &[("META-INF/container.xml", b"<x/>"), ("a.xhtml", bytes), ("a.ncx", bytes)],
        };
        let archive = stored_archive(entries);
        check_document(&archive, format);
        check_readable(&archive, format);
    }
});
