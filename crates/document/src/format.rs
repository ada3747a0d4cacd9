//! The kinds of documents, and how they are told apart.

use std::fmt;
use std::str::FromStr;

/// The kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Plain text.
    Text,
    /// HTML, as it is found on the web.
    Html,
    /// HTML written as XML.
    Xhtml,
    /// XML of any kind.
    Xml,
    /// Markdown.
    Markdown,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// Word documents.
    Docx,
    /// PowerPoint presentations.
    Pptx,
    /// Excel workbooks.
    Xlsx,
    /// OpenDocument texts.
    Odt,
    /// Electronic books.
    Epub,
    /// gettext catalogues.
    Po,
    /// XLIFF 1.2 and 2.
    Xliff,
    /// String tables in JSON.
    Json,
    /// String tables in YAML.
    Yaml,
    /// PDF. It is known only to be refused.
    Pdf,
    /// Office files of before 2007, and encrypted ones of today. They are known only to be refused.
    OldOffice,
}

/// Each format, its name, and the endings of its files.
const FORMATS: [(Format, &str, &[&str]); 18] = [
    (Format::Text, "text", &["txt", "text"]),
    (Format::Html, "html", &["html", "htm"]),
    (Format::Xhtml, "xhtml", &["xhtml", "xht"]),
    (Format::Xml, "xml", &["xml"]),
    (Format::Markdown, "md", &["md", "markdown", "mdown", "mkd"]),
    (Format::Srt, "srt", &["srt"]),
    (Format::Vtt, "vtt", &["vtt"]),
    (Format::Docx, "docx", &["docx", "docm"]),
    (Format::Pptx, "pptx", &["pptx", "pptm"]),
    (Format::Xlsx, "xlsx", &["xlsx", "xlsm"]),
    (Format::Odt, "odt", &["odt"]),
    (Format::Epub, "epub", &["epub"]),
    (Format::Po, "po", &["po", "pot"]),
    (Format::Xliff, "xliff", &["xliff", "xlf"]),
    (Format::Json, "json", &["json", "arb", "jsonl", "ndjson"]),
    (Format::Yaml, "yaml", &["yaml", "yml"]),
    (Format::Pdf, "pdf", &["pdf"]),
    (Format::OldOffice, "old office", &["doc", "ppt", "xls"]),
];

impl Format {
    /// The format of a document, from the name of its file and its first bytes (some hundreds are enough).
    ///
    /// First bytes that are unmistakable count more than the name, the name more than what the bytes look like. What
    /// is nothing else is text.
    ///
    /// ```
    /// use peregrine_document::Format;
    ///
    /// assert_eq!(Format::detect(Some("notes.md"), b""), Format::Markdown);
    /// assert_eq!(Format::detect(None, b"<!DOCTYPE html><title>x</title>"), Format::Html);
    /// assert_eq!(Format::detect(Some("report.txt"), b"%PDF-1.7"), Format::Pdf);
    /// ```
    pub fn detect(name: Option<&str>, first_bytes: &[u8]) -> Format {
        let named = name.and_then(Format::from_name);
        if first_bytes.starts_with(b"%PDF-") {
            return Format::Pdf;
        }
        if first_bytes.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") {
            return Format::OldOffice;
        }
        if first_bytes.starts_with(b"PK\x03\x04") {
            return zipped(first_bytes).or(named).unwrap_or(Format::Text);
        }
        named.or_else(|| looks_like(first_bytes)).unwrap_or(Format::Text)
    }

    /// The format that the ending of a file's name stands for.
    pub fn from_name(name: &str) -> Option<Format> {
        let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let (_, ending) = file.rsplit_once('.')?;
        let ending = ending.to_ascii_lowercase();
        let found = FORMATS.iter().find(|(_, _, endings)| endings.contains(&ending.as_str()));
        found.map(|&(format, ..)| format)
    }

    /// The formats that can be read.
    pub fn readable() -> impl Iterator<Item = Format> {
        let refused = [Format::Pdf, Format::OldOffice];
        FORMATS.iter().map(|&(format, ..)| format).filter(move |format| !refused.contains(format))
    }

    /// The endings of its files' names, without a dot.
    pub fn endings(self) -> &'static [&'static str] {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or(&[], |&(_, _, endings)| endings)
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Text | Format::Srt => "text/plain; charset=utf-8",
            Format::Html => "text/html; charset=utf-8",
            Format::Xhtml => "application/xhtml+xml",
            Format::Xml => "application/xml",
            Format::Markdown => "text/markdown; charset=utf-8",
            Format::Vtt => "text/vtt; charset=utf-8",
            Format::Docx => {
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
            }
            Format::Pptx => {
                "application/vnd.openxmlformats-officedocument.presentationml.presentation"
            }
            Format::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            Format::Odt => "application/vnd.oasis.opendocument.text",
            Format::Epub => "application/epub+zip",
            Format::Po => "text/x-gettext-translation",
            Format::Xliff => "application/xliff+xml",
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Pdf => "application/pdf",
            Format::OldOffice => "application/octet-stream",
        }
    }

    /// Its name, as it is written in options.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("text", |&(_, name, _)| name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// A format by its name or by an ending of its files.
    fn from_str(name: &str) -> Result<Format, String> {
        let lower = name.to_ascii_lowercase();
        let fits = |(_, known, endings): &&(Format, &str, &[&str])| {
            *known == lower || endings.contains(&lower.as_str())
        };
        FORMATS.iter().find(fits).map(|&(format, ..)| format).ok_or_else(|| {
            let names: Vec<&str> = FORMATS.iter().map(|&(_, name, _)| name).collect();
            format!("{name:?} is no format; there are {}", names.join(", "))
        })
    }
}

/// The format of a zip file, from the names of its first entries or from the media type that some begin with.
fn zipped(bytes: &[u8]) -> Option<Format> {
    let has = |text: &str| find(bytes, text.as_bytes()).is_some();
    if has("mimetypeapplication/epub+zip") {
        Some(Format::Epub)
    } else if has("mimetypeapplication/vnd.oasis.opendocument.text") {
        Some(Format::Odt)
    } else if has("word/") {
        Some(Format::Docx)
    } else if has("ppt/") {
        Some(Format::Pptx)
    } else if has("xl/") {
        Some(Format::Xlsx)
    } else {
        None
    }
}

/// What bytes without a name look like.
fn looks_like(bytes: &[u8]) -> Option<Format> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let start = bytes.trim_ascii_start();
    let lower = start[..start.len().min(1024)].to_ascii_lowercase();
    let has = |text: &str| find(&lower, text.as_bytes()).is_some();
    if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        return Some(if has("//dtd xhtml") { Format::Xhtml } else { Format::Html });
    }
    if lower.starts_with(b"<?xml") || lower.starts_with(b"<xliff") {
        return Some(match () {
            () if has("<xliff") => Format::Xliff,
            () if has("<html") || has("<!doctype html") => Format::Xhtml,
            () => Format::Xml,
        });
    }
    if bytes.starts_with(b"WEBVTT") {
        return Some(Format::Vtt);
    }
    let mut lines = start.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    if number && find(second, b" --> ").is_some() {
        return Some(Format::Srt);
    }
    if lower.starts_with(b"msgid ") || has("\nmsgid \"") {
        return Some(Format::Po);
    }
    // A tag that pages begin with, or that a snippet of one consists of.
    let tags = [
        b"<body".as_slice(),
        b"<head",
        b"<p>",
        b"<p ",
        b"<div",
        b"<h1",
        b"<ul",
        b"<table",
        b"<!--",
    ];
    tags.iter().any(|tag| lower.starts_with(tag)).then_some(Format::Html)
}

/// Where a sequence of bytes begins in another.
pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_known_by_its_endings_and_name() {
        for (format, name, endings) in FORMATS {
            assert_eq!(name.parse(), Ok(format));
            assert_eq!(format.to_string(), name);
            for ending in endings {
                assert_eq!(Format::detect(Some(&format!("a.b/c.{ending}")), b"x"), format);
                assert_eq!(
                    Format::from_name(&format!("C.{}", ending.to_uppercase())),
                    Some(format)
                );
            }
        }
        assert_eq!("odf".parse::<Format>().map_err(|e| e.contains("odt")), Err(true));
    }

    #[test]
    fn first_bytes_tell_what_has_no_name() {
        let cases: [(&[u8], Format); 14] = [
            (b"\xef\xbb\xbf\n <!doctype HTML>", Format::Html),
            (b"<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0\">", Format::Xhtml),
            (b"<?xml version=\"1.0\"?>\n<html xmlns=\"x\">", Format::Xhtml),
            (b"<?xml version=\"1.0\"?><note>", Format::Xml),
            (b"<?xml version=\"1.0\"?><xliff version=\"1.2\">", Format::Xliff),
            (b"WEBVTT\n\n", Format::Vtt),
            (b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHi", Format::Srt),
            (b"# x\nmsgid \"\"\n", Format::Po),
            (b"PK\x03\x04....mimetypeapplication/epub+zip", Format::Epub),
            (b"PK\x03\x04....[Content_Types].xml....word/document.xml", Format::Docx),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Format::OldOffice),
            (b"<div class=x>", Format::Html),
            (b"", Format::Text),
            (b"Dear <b>", Format::Text),
        ];
        for (bytes, format) in cases {
            assert_eq!(Format::detect(None, bytes), format, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(Format::detect(Some("README"), b"Hello"), Format::Text);
        assert_eq!(Format::detect(Some("x.docx"), b"PK\x03\x04"), Format::Docx);
    }
}
