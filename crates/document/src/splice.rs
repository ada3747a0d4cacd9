//! Documents whose blocks are stretches of their bytes: new texts are put in, all else is copied.

use std::ops::Range;

use crate::block::{Block, Kind, Translated};
use crate::body::{Body, Note, Parsed, Written};
use crate::escape::{Encoder, Escape};
use crate::project::{Item, project};

/// Collects blocks and their places.
#[derive(Debug, Default)]
pub(crate) struct Places {
    list: Vec<(Block, Slot)>,
    /// Whether new characters beyond ASCII are written as references, because the document is not in UTF-8.
    pub(crate) ascii: bool,
    /// Whether blocks are inside of something that may move with another block, such as a footnote.
    pub(crate) inside: bool,
}

/// Where a block is.
#[derive(Debug, Clone)]
struct Slot {
    bytes: Range<usize>,
    escape: Escape,
    /// Whether it is inside of a tag or of something else that is copied: it may then be inside of another block, and moves
    /// with the tag. Such blocks are not inside each other.
    in_tag: bool,
}

impl Places {
    /// Adds a block. Places of blocks may not overlap.
    pub(crate) fn add(&mut self, (block, bytes): (Block, Range<usize>), escape: Escape) {
        self.list.push((block, Slot { bytes, escape, in_tag: self.inside }));
    }

    /// Adds a block that is inside a tag.
    pub(crate) fn add_in_tag(&mut self, (block, bytes): (Block, Range<usize>), escape: Escape) {
        self.list.push((block, Slot { bytes, escape, in_tag: true }));
    }

    /// Adds the block of other places if it is their only one and takes all of these bytes.
    pub(crate) fn add_if_whole(&mut self, mut other: Places, bytes: &Range<usize>) {
        if other.list.len() == 1 && other.list[0].1.bytes == *bytes {
            self.list.append(&mut other.list);
        }
    }

    /// Whether there is no block.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The blocks, in an order in which they can be written: what is inside of another one comes first.
    pub(crate) fn finish(mut self, document: Vec<u8>) -> Parsed {
        self.list.sort_by_key(|(_, slot)| slot.bytes.end);
        let (blocks, slots): (_, Vec<Slot>) = self.list.into_iter().unzip();
        let in_tags = (0..slots.len()).filter(|&number| slots[number].in_tag).collect();
        (blocks, Box::new(Splice { document, slots, in_tags, ascii: self.ascii }))
    }
}

/// A document and the places of its blocks, in the order of their ends.
#[derive(Debug)]
struct Splice {
    document: Vec<u8>,
    slots: Vec<Slot>,
    /// The numbers of the blocks inside of tags.
    in_tags: Vec<usize>,
    ascii: bool,
}

/// What is being written.
struct Writing<'a> {
    splice: &'a Splice,
    blocks: &'a [Block],
    first: usize,
    new: &'a [Translated],
    to: &'a mut Written,
}

impl Body for Splice {
    fn ready(&self, count: usize) -> bool {
        // Behind what is inside of a tag comes the tag.
        count == 0 || self.slots.get(count - 1).is_none_or(|slot| !slot.in_tag)
    }

    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written) {
        let before = self.slots[..range.start].iter().rfind(|slot| !slot.in_tag);
        let mut from = before.map_or(0, |slot| slot.bytes.end);
        let mut writing = Writing { splice: self, blocks, first: range.start, new, to };
        for number in range.clone().filter(|&number| !self.slots[number].in_tag) {
            let slot = &self.slots[number].bytes;
            writing.copy(from..slot.start);
            writing.block(number);
            from = slot.end;
        }
        if range.end == self.slots.len() {
            writing.copy(from..self.document.len());
        }
    }
}

impl Writing<'_> {
    /// Copies a stretch of the document that is no block, with the blocks inside of its tags.
    fn copy(&mut self, range: Range<usize>) {
        let mut from = range.start;
        let splice = self.splice;
        let in_tags = &splice.in_tags;
        let first =
            in_tags.partition_point(|&number| splice.slots[number].bytes.start < range.start);
        for &number in &in_tags[first..] {
            let slot = &splice.slots[number].bytes;
            if slot.end > range.end {
                break;
            }
            self.to.bytes.extend_from_slice(&splice.document[from..slot.start]);
            self.block(number);
            from = slot.end;
        }
        self.to.bytes.extend_from_slice(&splice.document[from..range.end.max(from)]);
    }

    fn block(&mut self, number: usize) {
        let slot = &self.splice.slots[number];
        let block = &self.blocks[number];
        let new = number.checked_sub(self.first).and_then(|place| self.new.get(place));
        match new.filter(|new| new.text != block.text) {
            Some(new) => self.content(number, block, new),
            None if slot.in_tag => {
                self.to.bytes.extend_from_slice(&self.splice.document[slot.bytes.clone()]);
            }
            None => self.copy(slot.bytes.clone()),
        }
    }

    /// Writes the new text of a block with its spans.
    fn content(&mut self, number: usize, block: &Block, new: &Translated) {
        let slot = &self.splice.slots[number];
        let layout = project(block, new);
        let quotes = slot.escape == Escape::Attribute(None);
        let start = self.to.bytes.len();
        let mut encoder =
            Encoder::new(&self.splice.document, block, slot.escape, self.splice.ascii);
        if quotes {
            self.to.bytes.push(b'"');
        }
        // Whether white space that was folded away may follow, because there is some already.
        let mut blank = true;
        for item in layout.items {
            if !matches!(item, Item::Text(_)) {
                encoder.pass();
            }
            match item {
                Item::Text(range) => {
                    let text = &new.text[range];
                    encoder.push(text, &mut self.to.bytes);
                    blank = text.ends_with(char::is_whitespace);
                }
                Item::Blank => {
                    self.to.bytes.push(b' ');
                    blank = true;
                }
                Item::Open(span) | Item::Point(span) => {
                    let span = &block.spans[span];
                    self.tag(span.open.clone(), blank || span.kind == Kind::Keep);
                    blank &= span.kind != Kind::Keep;
                }
                Item::Close(span) => self.tag(block.spans[span].close.clone(), blank),
            }
        }
        if quotes {
            self.to.bytes.push(b'"');
        }
        if let Escape::String(style) = slot.escape {
            style.finish(&mut self.to.bytes, start);
        }
        let notes = layout.notes.into_iter();
        self.to.report.extend(notes.map(|(span, kind)| Note { block: number, span, kind }));
    }

    fn tag(&mut self, range: Range<usize>, with_blank: bool) {
        let bytes = &self.splice.document[range.clone()];
        let end = if with_blank { bytes.len() } else { bytes.trim_ascii_end().len() };
        self.copy(range.start..range.start + end);
    }
}
