//! Writes paragraphs whose text stands in runs. One without new text is copied. Of another one the atoms are written one after the
//! other, with the new texts in the places of the old ones, and with a run for every stretch of one formatting.

use std::ops::Range;

use super::atom::{Atom, What};
use super::dialect::Dialect;
use super::paragraph::{BARE, Paragraph, Segment};
use crate::block::{Block, Kind, Translated};
use crate::body::{Body, Note, Written};
use crate::escape::{Encoder, Escape};
use crate::project::{Item, project};

/// A part with text in runs.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) document: Vec<u8>,
    pub(crate) dialect: Dialect,
    /// What stands before the names of elements.
    pub(crate) prefix: String,
    pub(crate) paragraphs: Vec<Paragraph>,
}

impl Body for Runs {
    fn ready(&self, count: usize) -> bool {
        count == 0
    }

    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written) {
        let mut writer = Writer { part: self, blocks, first: range.start, new, to };
        writer.copy(0..self.document.len(), &self.paragraphs);
    }
}

struct Writer<'a> {
    part: &'a Runs,
    blocks: &'a [Block],
    first: usize,
    new: &'a [Translated],
    to: &'a mut Written,
}

impl Writer<'_> {
    /// Copies a stretch of the document, with what is new in the paragraphs inside of it.
    fn copy(&mut self, range: Range<usize>, paragraphs: &[Paragraph]) {
        let part = self.part;
        let mut from = range.start;
        let first = paragraphs.partition_point(|paragraph| paragraph.bytes.start < range.start);
        for paragraph in &paragraphs[first..] {
            if paragraph.bytes.end > range.end {
                break;
            }
            self.to.bytes.extend_from_slice(&part.document[from..paragraph.bytes.start]);
            from = paragraph.bytes.end;
            match paragraph.segments.iter().any(|segment| self.new_text(segment).is_some()) {
                true => {
                    let (run, text) = (None, Vec::new());
                    ParagraphWriter { writer: self, paragraph, run, text }.write();
                }
                false => self.copy(paragraph.bytes.clone(), &paragraph.inner),
            }
        }
        self.to.bytes.extend_from_slice(&part.document[from..range.end]);
    }

    /// The new text of a block that has one.
    fn new_text(&self, segment: &Segment) -> Option<(&Block, &Translated)> {
        let new = self.new.get(segment.block.checked_sub(self.first)?)?;
        let block = &self.blocks[segment.block];
        (new.text != block.text).then_some((block, new))
    }
}

struct ParagraphWriter<'w, 'a> {
    writer: &'w mut Writer<'a>,
    paragraph: &'w Paragraph,
    /// The formatting of the run that is open.
    run: Option<usize>,
    /// Its text so far, escaped.
    text: Vec<u8>,
}

impl ParagraphWriter<'_, '_> {
    fn write(mut self) {
        let paragraph = self.paragraph;
        let mut from = paragraph.bytes.start;
        for segment in &paragraph.segments {
            if self.writer.new_text(segment).is_some() {
                self.atoms(from..segment.slot.start);
                self.segment(segment);
                from = segment.slot.end;
            }
        }
        self.atoms(from..paragraph.bytes.end);
        self.close_run();
    }

    /// Writes the atoms of a stretch as they were. Its ends may be inside of texts.
    fn atoms(&mut self, range: Range<usize>) {
        let atoms = &self.paragraph.atoms;
        let first = atoms.partition_point(|atom| atom.raw.end <= range.start);
        for atom in atoms[first..].iter().take_while(|atom| atom.raw.start < range.end) {
            self.atom(atom, atom.raw.start.max(range.start)..atom.raw.end.min(range.end));
        }
    }

    /// Writes some bytes of an atom.
    fn atom(&mut self, atom: &Atom, raw: Range<usize>) {
        let part = self.writer.part;
        match (&atom.what, atom.style) {
            _ if raw.is_empty() => {}
            (What::Text | What::Gap, style) => {
                self.text(style.unwrap_or(BARE), &part.document[raw]);
            }
            (What::Open | What::Close, _) | (_, None) => {
                self.close_run();
                self.copy(raw);
            }
            (_, Some(style)) => {
                self.open_run(style);
                self.flush();
                self.copy(raw);
            }
        }
    }

    /// Writes a block with its new text.
    fn segment(&mut self, segment: &Segment) {
        let part = self.writer.part;
        let (blocks, new) = (self.writer.blocks, self.writer.new);
        let (block, new) = (&blocks[segment.block], &new[segment.block - self.writer.first]);
        let layout = project(block, new);
        let mut encoder = Encoder::new(&part.document, block, Escape::Xml, false);
        let mut styles = vec![segment.style];
        for item in layout.items {
            let style = styles.last().copied().unwrap_or(segment.style);
            match item {
                Item::Text(range) => {
                    let text: String = new.text[range].chars().filter(|&c| is_allowed(c)).collect();
                    let mut escaped = Vec::with_capacity(text.len());
                    encoder.push(&text, &mut escaped);
                    self.text(style, &escaped);
                }
                Item::Blank => self.text(style, b" "),
                Item::Open(span) | Item::Point(span) => {
                    let span = &block.spans[span];
                    let atom = self.paragraph.atom_at(span.open.start);
                    if span.kind == Kind::Pair {
                        styles.push(atom.and_then(|atom| atom.style).unwrap_or(style));
                    }
                    if let Some(atom) = atom {
                        self.atom(atom, span.open.clone());
                    }
                }
                Item::Close(span) => {
                    styles.pop();
                    let close = block.spans[span].close.clone();
                    if !close.is_empty() {
                        self.close_run();
                        self.copy(close);
                    }
                }
            }
        }
        let notes = layout.notes.into_iter();
        let note = |(span, kind)| Note { block: segment.block, span, kind };
        self.writer.to.report.extend(notes.map(note));
    }

    fn text(&mut self, style: usize, text: &[u8]) {
        if !text.is_empty() {
            self.open_run(style);
            self.text.extend_from_slice(text);
        }
    }

    fn open_run(&mut self, style: usize) {
        if self.run == Some(style) {
            return;
        }
        self.close_run();
        self.run = Some(style);
        if style != BARE {
            self.tag("<", "r", ">");
            let properties = self.paragraph.styles.get(style).cloned().unwrap_or_default();
            let part = self.writer.part;
            self.writer.to.bytes.extend_from_slice(&part.document[properties]);
        }
    }

    fn close_run(&mut self) {
        self.flush();
        if self.run.take().is_some_and(|style| style != BARE) {
            self.tag("</", "r", ">");
        }
    }

    /// Writes the text of the open run.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return;
        }
        let has_blank = text.trim_ascii().len() < text.len();
        match has_blank && self.writer.part.dialect.strips_text() {
            true => self.tag("<", "t", " xml:space=\"preserve\">"),
            false => self.tag("<", "t", ">"),
        }
        self.writer.to.bytes.extend_from_slice(&text);
        self.tag("</", "t", ">");
    }

    fn tag(&mut self, start: &str, name: &str, end: &str) {
        for part in [start, &self.writer.part.prefix, name, end] {
            self.writer.to.bytes.extend_from_slice(part.as_bytes());
        }
    }

    fn copy(&mut self, raw: Range<usize>) {
        self.writer.copy(raw, &self.paragraph.inner);
    }
}

/// Whether XML may hold a character.
fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
}
