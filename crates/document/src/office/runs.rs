//! Parts whose text stands in runs: finding their paragraphs, and writing them with new text.

use std::collections::HashSet;
use std::ops::Range;

use super::atom::What;
use super::dialect::{Class, Dialect, Element};
use super::paragraph::{Collector, Paragraph};
use super::write::Runs;
use crate::Error;
use crate::block::Block;
use crate::body::Parsed;
use crate::format::find;
use crate::markup::attributes::Attributes;
use crate::markup::reference::References;
use crate::text::refuse_utf16;
use crate::{markup, xml};

/// Elements may be inside each other this deep, and so may paragraphs.
const DEEPEST: usize = 1000;
const MOST_PARAGRAPHS: usize = 16;

/// The blocks of a part. Paragraphs whose whole text is one of `names` stay as they are.
pub(crate) fn read(
    bytes: Vec<u8>,
    dialect: Dialect,
    names: &HashSet<String>,
) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let mut reader = Reader {
        bytes: &bytes,
        dialect,
        names,
        prefix: None,
        frames: Vec::new(),
        open: Vec::new(),
        paragraphs: Vec::new(),
        blocks: Vec::new(),
    };
    xml::scan(&bytes, |what, raw| reader.token(what, raw))?;
    let Reader { paragraphs, blocks, prefix, .. } = reader;
    let prefix = prefix.unwrap_or_default();
    let body = Runs { document: bytes, dialect, prefix, paragraphs };
    Ok((blocks, Box::new(body)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    dialect: Dialect,
    names: &'a HashSet<String>,
    /// What stands before the names of the vocabulary, with the colon; known when the vocabulary was declared.
    prefix: Option<String>,
    /// The elements that are open.
    frames: Vec<Frame>,
    /// The paragraphs that are open.
    open: Vec<Collector<'a>>,
    paragraphs: Vec<Paragraph>,
    blocks: Vec<Block>,
}

struct Frame {
    element: Element,
    start: usize,
    /// The atoms of the paragraph when it began.
    first_atom: usize,
    /// Of a text: whether white space at its ends counts, and whether there is more in it than text.
    preserve: bool,
    is_mixed: bool,
    /// Of a content control: where the end of its body begins.
    body_end: Option<usize>,
}

impl Reader<'_> {
    fn token(&mut self, what: markup::What, raw: Range<usize>) -> Result<(), Error> {
        match what {
            markup::What::Start { name, closed } => {
                self.start(&name, raw.clone(), closed)?;
                if closed {
                    self.end(raw.end..raw.end);
                }
            }
            markup::What::End { .. } => self.end(raw),
            markup::What::Text => self.text(raw)?,
            markup::What::Cdata | markup::What::Comment => self.other(raw),
            markup::What::Prologue if self.bytes[raw.start..].starts_with(b"<!") => {
                let problem = "a document type definition, which Office files do not have";
                return Err(Error::at(self.bytes, raw.start, problem));
            }
            markup::What::Prologue => {}
        }
        Ok(())
    }

    fn start(&mut self, name: &str, raw: Range<usize>, closed: bool) -> Result<(), Error> {
        if self.frames.len() >= DEEPEST {
            let problem = format!("elements inside each other more than {DEEPEST} deep");
            return Err(Error::at(self.bytes, raw.start, problem));
        }
        let tag = &self.bytes[raw.clone()];
        if self.prefix.is_none() {
            self.prefix = declared_prefix(tag, self.dialect);
        }
        let local = self.prefix.as_ref().and_then(|prefix| name.strip_prefix(prefix.as_str()));
        let local = local.filter(|name| !name.contains(':'));
        if local.is_some_and(|name| self.dialect.is_tracked_change(name)) {
            let problem = "tracked changes; accept or reject them first";
            return Err(Error::at(self.bytes, raw.start, problem));
        }
        let element = self.element(local, closed);
        let mut frame = Frame {
            element,
            start: raw.start,
            first_atom: self.open.last().map_or(0, Collector::count),
            preserve: false,
            is_mixed: false,
            body_end: None,
        };
        let parent = self.frames.last_mut();
        match (element, self.open.last_mut()) {
            (Element::Paragraph, _) => self.open.push(Collector::new(self.bytes, self.dialect)),
            (Element::Container | Element::Control, Some(paragraph)) => {
                paragraph.add(What::Open, raw);
            }
            (Element::ControlBody, Some(paragraph)) => paragraph.lengthen_open(raw.end),
            (Element::Run, Some(paragraph)) => paragraph.open_run(),
            (Element::Text, _) => {
                let attributes = Attributes::new(tag, raw.start);
                frame.preserve = attributes.preserve_space(self.bytes);
            }
            (Element::Whole(Class::FieldMark), Some(paragraph)) => {
                let prefix = self.prefix.as_deref().unwrap_or_default();
                let name = format!("{prefix}fldCharType").to_ascii_lowercase();
                let attributes = Attributes::new(tag, raw.start);
                let kind = attributes.get(&name, self.bytes).unwrap_or_default();
                let kind = String::from_utf8_lossy(kind);
                paragraph.add_field(Class::FieldMark, &kind);
            }
            _ => {
                if let Some(parent) = parent.filter(|parent| parent.element == Element::Text) {
                    parent.is_mixed = true;
                }
            }
        }
        self.frames.push(frame);
        Ok(())
    }

    /// What an element is that begins now.
    fn element(&self, name: Option<&str>, closed: bool) -> Element {
        let parent = self.frames.last().map_or(Element::Outside, |frame| frame.element);
        match parent {
            Element::Outside | Element::Whole(_) => {
                let begins = name.is_some_and(|name| self.dialect.is_paragraph(name));
                match begins && self.open.len() < MOST_PARAGRAPHS {
                    true => Element::Paragraph,
                    false => Element::Outside,
                }
            }
            Element::Paragraph | Element::Container | Element::ControlBody => {
                match self.dialect.in_paragraph(name) {
                    Element::Container | Element::Control if closed => Element::Whole(Class::Point),
                    element => element,
                }
            }
            Element::Control if name == Some("sdtContent") => Element::ControlBody,
            Element::Control => Element::Header,
            Element::Run => self.dialect.in_run(name),
            _ => Element::Closed,
        }
    }

    /// An element ends with these bytes.
    fn end(&mut self, tag: Range<usize>) {
        let Some(frame) = self.frames.pop() else { return };
        let all = frame.start..tag.end;
        let Some(paragraph) = self.open.last_mut() else { return };
        match frame.element {
            Element::Paragraph => self.end_paragraph(),
            Element::Container => paragraph.add(What::Close, tag),
            Element::Control => {
                paragraph.add(What::Close, frame.body_end.unwrap_or(tag.start)..tag.end);
            }
            Element::ControlBody => {
                if let Some(control) = self.frames.last_mut() {
                    control.body_end = Some(tag.start);
                }
            }
            Element::Header => paragraph.lengthen_open(all.end),
            Element::Run => paragraph.close_run(all),
            Element::Style => paragraph.set_style(all),
            Element::Text if frame.is_mixed => {
                paragraph.truncate(frame.first_atom);
                paragraph.add(What::Mark(Class::Object), all);
            }
            Element::Text => {
                paragraph.cover(&all);
                let strip = self.dialect.strips_text() && !frame.preserve;
                paragraph.close_text(frame.first_atom, strip);
            }
            Element::Whole(Class::FieldMark) => {}
            Element::Whole(Class::FieldCode) => {
                let mut code = String::new();
                let inside = &self.bytes[all];
                let start = inside.iter().position(|&byte| byte == b'>').map_or(0, |at| at + 1);
                let end = inside.iter().rposition(|&byte| byte == b'<').unwrap_or(0);
                References::Xml.decode(inside.get(start..end).unwrap_or_default(), &mut code);
                paragraph.add_field(Class::FieldCode, &code);
            }
            Element::Whole(class) => paragraph.add(What::Mark(class), all),
            Element::Noise => paragraph.cover(&all),
            Element::Outside | Element::Closed => {}
        }
    }

    fn end_paragraph(&mut self) {
        let Some(paragraph) = self.open.pop() else { return };
        let stays = !self.names.is_empty() && self.names.contains(&paragraph.text());
        let found = match stays {
            true => Err(paragraph.inner),
            false => paragraph.finish(&mut self.blocks),
        };
        let list = match self.open.last_mut() {
            Some(outer) => &mut outer.inner,
            None => &mut self.paragraphs,
        };
        match found {
            Ok(paragraph) => list.push(paragraph),
            Err(inner) => list.extend(inner),
        }
    }

    fn text(&mut self, raw: Range<usize>) -> Result<(), Error> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        if frame.element != Element::Text {
            return Ok(());
        }
        let text = &self.bytes[raw.clone()];
        let known = [b"&#".as_slice(), b"&amp;", b"&lt;", b"&gt;", b"&quot;", b"&apos;"];
        if text.starts_with(b"&") && !known.iter().any(|known| text.starts_with(known)) {
            let problem = "a reference to something that is not defined";
            return Err(Error::at(self.bytes, raw.start, problem));
        }
        if let Some(paragraph) = self.open.last_mut() {
            paragraph.add(What::Text, raw);
        }
        Ok(())
    }

    /// A comment, an instruction, or a section of characters.
    fn other(&mut self, raw: Range<usize>) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(paragraph) = self.open.last_mut() else { return };
        match frame.element {
            Element::Text => frame.is_mixed = true,
            Element::Paragraph | Element::Container | Element::ControlBody | Element::Run => {
                paragraph.add(What::Mark(Class::Point), raw);
            }
            _ => {}
        }
    }
}

/// The prefix that a start tag declares for a vocabulary.
fn declared_prefix(tag: &[u8], dialect: Dialect) -> Option<String> {
    for namespace in dialect.namespaces() {
        for quote in ["\"", "'"] {
            let value = format!("{quote}{namespace}{quote}");
            let Some(at) = find(tag, value.as_bytes()) else { continue };
            let before = tag[..at].trim_ascii_end().strip_suffix(b"=")?.trim_ascii_end();
            let start = before.iter().rposition(u8::is_ascii_whitespace)? + 1;
            let name = String::from_utf8_lossy(&before[start..]).into_owned();
            match name.strip_prefix("xmlns") {
                Some("") => return Some(String::new()),
                Some(prefix) => return prefix.strip_prefix(':').map(|prefix| format!("{prefix}:")),
                None => continue,
            }
        }
    }
    None
}
