//! Documents that are zip archives of XML parts: those of Word, PowerPoint, Excel and OpenDocument, and electronic books.
//!
//! Every part with text is a document of its own, with blocks and a body. The archive is written with the parts that have
//! new text; all else in it is copied as the bytes it was.

mod archive;
mod atom;
mod book;
mod dialect;
mod fields;
mod open_document;
mod paragraph;
mod runs;
mod write;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::block::{Block, Translated};
use crate::body::{Body, Note, Parsed, Written};
use crate::format::find;
use crate::markup::What;
use crate::markup::attributes::Attributes;
use crate::markup::reference::References;
use crate::options::Options;
use crate::{Error, Format, xml};
use archive::Archive;
use dialect::Dialect;

pub(crate) use book::read as read_book;
pub(crate) use open_document::read as read_open_document;

/// Reads Word documents, presentations and workbooks.
pub(crate) fn read(bytes: Vec<u8>, format: Format, options: &Options) -> Result<Parsed, Error> {
    let mut package = Package::open(bytes, format, options)?;
    let types = package.unpack("[Content_Types].xml", content_types)?.unwrap_or_default();
    let names: Vec<String> = package.archive.names().map(str::to_owned).collect();
    if !names.iter().any(|name| is_main(types.of(name), format)) {
        return Err(Error::whole(format!("a zip archive, but no {format} file")));
    }
    let mut columns = HashSet::new();
    for name in &names {
        if types.of(name).ends_with("spreadsheetml.table+xml") {
            columns.extend(package.unpack(name, column_names)?.unwrap_or_default());
        }
    }
    for name in &names {
        if let Some(dialect) = dialect_of(types.of(name)) {
            package.add(name, |bytes| runs::read(bytes, dialect, &columns))?;
        }
    }
    Ok(package.finish())
}

/// The vocabulary of the text in a part, from the part's type. Layouts and masters have no text of their own.
fn dialect_of(kind: &str) -> Option<Dialect> {
    let kind = kind.strip_suffix("+xml")?;
    let last = kind.rsplit('.').next()?;
    match last {
        "main" | "header" | "footer" | "footnotes" | "endnotes" | "comments"
            if kind.contains("word") =>
        {
            Some(Dialect::Word)
        }
        "slide" | "notesSlide" | "chart" | "chartshapes" | "diagramData" | "diagramDrawing" => {
            Some(Dialect::Drawing)
        }
        _ if kind.ends_with("officedocument.drawing") => Some(Dialect::Drawing),
        "sharedStrings" | "worksheet" | "comments" if kind.contains("spreadsheetml") => {
            Some(Dialect::Sheet)
        }
        _ => None,
    }
}

/// The types of an archive's parts, by their names and by the endings of these, in small letters.
#[derive(Default)]
struct Types {
    names: HashMap<String, String>,
    endings: HashMap<String, String>,
}

impl Types {
    fn of(&self, name: &str) -> &str {
        let name = name.to_ascii_lowercase();
        let ending = name.rsplit_once('.').and_then(|(_, ending)| self.endings.get(ending));
        self.names.get(&name).or(ending).map_or("", String::as_str)
    }
}

/// Whether a part is the one that a format's files are about.
fn is_main(kind: &str, format: Format) -> bool {
    let makers = match format {
        Format::Pptx => ["presentationml", "ms-powerpoint"],
        Format::Xlsx => ["spreadsheetml", "ms-excel"],
        _ => ["wordprocessingml", "ms-word"],
    };
    kind.ends_with("main+xml") && makers.iter().any(|maker| kind.contains(maker))
}

fn content_types(bytes: Vec<u8>) -> Result<Types, Error> {
    let mut types = Types::default();
    xml::scan(&bytes, |what, raw| {
        let What::Start { name, .. } = what else { return Ok(()) };
        let attributes = Attributes::new(&bytes[raw.clone()], raw.start);
        let value = |name: &str| {
            let value = attributes.get(name, &bytes).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        let kind = value("contenttype");
        match name.rsplit(':').next() {
            Some("Default") => types.endings.insert(value("extension").to_ascii_lowercase(), kind),
            Some("Override") => {
                let part = value("partname").to_ascii_lowercase();
                types.names.insert(part.trim_start_matches('/').to_owned(), kind)
            }
            _ => None,
        };
        Ok(())
    })?;
    Ok(types)
}

/// The names of a table's columns. The cells at its head must have the same text, and formulas use it.
fn column_names(bytes: Vec<u8>) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    xml::scan(&bytes, |what, raw| {
        if matches!(&what, What::Start { name, .. } if name.ends_with("tableColumn")) {
            let attributes = Attributes::new(&bytes[raw.clone()], raw.start);
            let mut name = String::new();
            References::Xml.decode(attributes.get("name", &bytes).unwrap_or_default(), &mut name);
            names.push(name);
        }
        Ok(())
    })?;
    Ok(names)
}

/// An archive, and the parts of it that have blocks.
#[derive(Debug)]
struct Package {
    archive: Archive,
    parts: Vec<Part>,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Part {
    entry: usize,
    /// Its blocks among those of the document.
    blocks: Range<usize>,
    body: Box<dyn Body>,
}

impl Package {
    fn open(bytes: Vec<u8>, format: Format, options: &Options) -> Result<Package, Error> {
        if bytes.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") {
            let problem = format!("an encrypted {format} file; save it without a password");
            return Err(Error::whole(problem));
        }
        let archive = Archive::new(bytes, options.largest)?;
        Ok(Package { archive, parts: Vec::new(), blocks: Vec::new() })
    }

    /// Reads an entry, if it is there. Errors name it.
    fn unpack<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Vec<u8>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(entry) = self.archive.find(name)? else { return Ok(None) };
        let bytes = self.archive.unpack(entry)?;
        if let Some(at) = find(&bytes, b"<!ENTITY") {
            let problem = "an entity is declared, which is not allowed in an archive";
            return Err(Error::at(&bytes, at, problem).in_part(name));
        }
        read(bytes).map(Some).map_err(|error| error.in_part(name))
    }

    /// Whether an entry says something.
    fn says(&mut self, name: &str, text: &str) -> Result<bool, Error> {
        let said = self.unpack(name, |bytes| Ok(find(&bytes, text.as_bytes()).is_some()))?;
        Ok(said.unwrap_or(false))
    }

    /// Reads a part and adds its blocks.
    fn add(
        &mut self,
        name: &str,
        read: impl FnOnce(Vec<u8>) -> Result<Parsed, Error>,
    ) -> Result<(), Error> {
        let Some(entry) = self.archive.find(name)? else { return Ok(()) };
        let Some((blocks, body)) = self.unpack(name, read)? else { return Ok(()) };
        if !blocks.is_empty() {
            let first = self.blocks.len();
            self.blocks.extend(blocks);
            self.parts.push(Part { entry, blocks: first..self.blocks.len(), body });
        }
        Ok(())
    }

    fn finish(mut self) -> Parsed {
        let blocks = std::mem::take(&mut self.blocks);
        self.parts.sort_by_key(|part| part.entry);
        (blocks, Box::new(self))
    }
}

impl Body for Package {
    fn ready(&self, count: usize) -> bool {
        count == 0
    }

    /// An archive is written when the last of its blocks is known.
    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written) {
        if range.end < blocks.len() || range.is_empty() && !blocks.is_empty() {
            return;
        }
        let mut contents = Vec::new();
        for part in &self.parts {
            let all = part.blocks.clone();
            let known = all.start.max(range.start)..all.end;
            let changed =
                known.clone().any(|block| new[block - range.start].text != blocks[block].text);
            if !changed {
                continue;
            }
            let new = &new[known.start - range.start..known.end - range.start];
            let local = known.start - all.start..known.end - all.start;
            let mut written = Written::default();
            part.body.write(&blocks[all.clone()], local, new, &mut written);
            contents.push((part.entry, written.bytes));
            let notes = written.report.into_iter();
            to.report.extend(notes.map(|note| Note { block: note.block + all.start, ..note }));
        }
        to.bytes.extend(self.archive.with(&contents));
    }
}
