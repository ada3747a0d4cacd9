//! A paragraph whose text stands in runs, each with its formatting, and the blocks it makes.
//!
//! A paragraph is read as a sequence of *atoms*: texts, marks such as pictures and references, and the tags of what goes round
//! runs. Runs with the same formatting count as one. The formatting that most of the text has is that of the block; a
//! stretch with another one is a pair of spans. Runs cannot be nested, so when a block has new text the whole paragraph is
//! written anew from its atoms, with a run for every stretch of one formatting.

use std::collections::HashMap;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::atom::{Atom, FieldPart, What};
use super::dialect::{Class, Dialect};
use super::fields::{join_fields, text_inside};
use crate::block::Block;
use crate::builder::{Builder, is_no_text};
use crate::markup::reference::References;

/// The formatting of text that stands in no run.
pub(crate) const BARE: usize = 0;
/// The formatting of a run without any.
const PLAIN: usize = 1;

/// A paragraph with text to translate.
#[derive(Debug)]
pub(crate) struct Paragraph {
    /// The bytes that its atoms come from.
    pub(crate) bytes: Range<usize>,
    pub(crate) atoms: Vec<Atom>,
    /// The bytes of the properties of each formatting.
    pub(crate) styles: Vec<Range<usize>>,
    pub(crate) segments: Vec<Segment>,
    /// Paragraphs inside of its atoms: those of text boxes.
    pub(crate) inner: Vec<Paragraph>,
}

impl Paragraph {
    /// The atom at a place.
    pub(crate) fn atom_at(&self, place: usize) -> Option<&Atom> {
        let behind = self.atoms.partition_point(|atom| atom.raw.start <= place);
        self.atoms.get(behind.checked_sub(1)?)
    }
}

/// What stands between two breaks and is a block.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) block: usize,
    /// The bytes that the block takes the place of.
    pub(crate) slot: Range<usize>,
    /// The formatting of text that is in no pair.
    pub(crate) style: usize,
}

/// A paragraph that is being read.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    document: &'a [u8],
    dialect: Dialect,
    atoms: Vec<Atom>,
    styles: Vec<Range<usize>>,
    known_styles: HashMap<Vec<u8>, usize>,
    bytes: Option<Range<usize>>,
    run: Option<OpenRun>,
    pub(crate) inner: Vec<Paragraph>,
}

#[derive(Debug)]
struct OpenRun {
    style: usize,
    first_atom: usize,
    field: Option<FieldPart>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(document: &'a [u8], dialect: Dialect) -> Collector<'a> {
        Collector {
            document,
            dialect,
            atoms: Vec::new(),
            styles: vec![0..0, 0..0],
            known_styles: HashMap::from([(Vec::new(), PLAIN)]),
            bytes: None,
            run: None,
            inner: Vec::new(),
        }
    }

    /// These bytes are left out when the paragraph is written anew, unless they are part of an atom.
    pub(crate) fn cover(&mut self, raw: &Range<usize>) {
        let bytes = self.bytes.get_or_insert(raw.clone());
        *bytes = bytes.start.min(raw.start)..bytes.end.max(raw.end);
    }

    pub(crate) fn add(&mut self, what: What, raw: Range<usize>) {
        self.cover(&raw);
        let bare = (what == What::Text).then_some(BARE);
        let style = self.run.as_ref().map(|run| run.style).or(bare);
        self.atoms.push(Atom { what, raw, style });
    }

    pub(crate) fn open_run(&mut self) {
        self.run = Some(OpenRun { style: PLAIN, first_atom: self.atoms.len(), field: None });
    }

    /// The properties of the open run.
    pub(crate) fn set_style(&mut self, raw: Range<usize>) {
        let key = style_key(&self.document[raw.clone()], self.dialect);
        let next = self.styles.len();
        let style = *self.known_styles.entry(key).or_insert(next);
        if style == next {
            self.styles.push(raw);
        } else if self.styles[style].is_empty() {
            self.styles[style] = raw;
        }
        if let Some(run) = &mut self.run {
            run.style = style;
        }
    }

    /// A part of a field in the open run.
    pub(crate) fn add_field(&mut self, class: Class, text: &str) {
        let Some(run) = &mut self.run else { return };
        let field = run.field.get_or_insert_default();
        match (class, text) {
            (Class::FieldCode, _) => field.code.push_str(text),
            (_, "begin") if !field.begins && !field.separates && !field.ends => field.begins = true,
            (_, "separate") if !field.separates && !field.ends => field.separates = true,
            (_, "end") if !field.ends => field.ends = true,
            _ => field.is_odd = true,
        }
    }

    /// A run without text, or with a part of a field, is one atom.
    pub(crate) fn close_run(&mut self, raw: Range<usize>) {
        let Some(run) = self.run.take() else { return };
        self.cover(&raw);
        let atoms = &self.atoms[run.first_atom..];
        let is_text = |atom: &Atom| !matches!(atom.what, What::Mark(Class::Object | Class::Point));
        let what = match run.field {
            Some(field) => What::Field(field),
            None if atoms.is_empty() || atoms.iter().any(is_text) => return,
            None if atoms.iter().any(|atom| atom.what == What::Mark(Class::Object)) => {
                What::Mark(Class::Object)
            }
            None => What::Mark(Class::Point),
        };
        self.atoms.truncate(run.first_atom);
        self.add(what, raw);
    }

    /// Puts the properties of a container to its start tag, if that came just before.
    pub(crate) fn lengthen_open(&mut self, end: usize) {
        if let Some(Atom { what: What::Open, raw, .. }) = self.atoms.last_mut() {
            raw.end = end;
            let raw = raw.clone();
            self.cover(&raw);
        }
    }

    /// The texts of the element that was opened behind this many atoms have ended. Where white space at its ends does not
    /// count it is left out.
    pub(crate) fn close_text(&mut self, first: usize, strip: bool) {
        let texts = self.atoms.split_off(first);
        let style = texts.first().and_then(|atom| atom.style);
        let (Some(start), Some(end)) =
            (texts.first().map(|atom| atom.raw.start), texts.last().map(|atom| atom.raw.end))
        else {
            return;
        };
        let text = &self.document[start..end];
        let (mut from, mut to) = (start, end);
        if strip {
            from = end - text.trim_ascii_start().len();
            to = (start + text.trim_ascii_end().len()).max(from);
        }
        for (what, raw) in pieces(self.document, from..to, self.dialect) {
            self.atoms.push(Atom { what, raw, style });
        }
    }

    /// How many atoms there are.
    pub(crate) fn count(&self) -> usize {
        self.atoms.len()
    }

    /// Drops atoms.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.atoms.truncate(count);
    }

    /// All of its text, as it is shown.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for atom in &self.atoms {
            if matches!(atom.what, What::Text | What::Gap) {
                References::Xml.decode(&self.document[atom.raw.clone()], &mut text);
            }
        }
        text
    }

    /// The paragraph, if there is something to translate in it. Its blocks are added to a list.
    pub(crate) fn finish(mut self, blocks: &mut Vec<Block>) -> Result<Paragraph, Vec<Paragraph>> {
        join_fields(&mut self.atoms, self.document);
        let mut segments = Vec::new();
        let mut start = 0;
        for end in 0..=self.atoms.len() {
            let breaks = |atom: &Atom| matches!(atom.what, What::Gap | What::Mark(Class::Break));
            if self.atoms.get(end).is_none_or(breaks) {
                let segment = read_segment(self.document, &mut self.atoms[start..end]);
                if let Some((block, slot, style)) = segment {
                    segments.push(Segment { block: blocks.len(), slot, style });
                    blocks.push(block);
                }
                start = end + 1;
            }
        }
        match self.bytes {
            Some(bytes) if !segments.is_empty() => Ok(Paragraph {
                bytes,
                atoms: self.atoms,
                styles: self.styles,
                segments,
                inner: self.inner,
            }),
            _ => Err(self.inner),
        }
    }
}

/// A text, cut at line ends where these end a block.
fn pieces(document: &[u8], raw: Range<usize>, dialect: Dialect) -> Vec<(What, Range<usize>)> {
    let mut pieces = Vec::new();
    let mut from = raw.start;
    let mut add = |what, range: Range<usize>| {
        if !range.is_empty() {
            pieces.push((what, range));
        }
    };
    let mut at = raw.start;
    while dialect == Dialect::Sheet && at < raw.end {
        let rest = &document[at..raw.end];
        let ends = ["\r\n", "\n", "&#10;", "&#xA;", "&#xa;", "&#13;", "&#xD;", "&#xd;"];
        let length = ends.iter().find(|end| rest.starts_with(end.as_bytes())).map(|end| end.len());
        if let Some(length) = length {
            add(What::Text, from..at);
            add(What::Gap, at..at + length);
            from = at + length;
        }
        at += length.unwrap_or(1);
    }
    add(What::Text, from..raw.end);
    pieces
}

/// What of a run's properties says how its words look.
fn style_key(properties: &[u8], dialect: Dialect) -> Vec<u8> {
    let mut key = Vec::new();
    let mut reader = Reader::from_reader(properties);
    let mut depth = 0;
    let mut noise = usize::MAX;
    loop {
        let from = reader.buffer_position() as usize;
        let Ok(event) = reader.read_event() else { return properties.to_vec() };
        let raw = &properties[from..reader.buffer_position() as usize];
        let is_noise =
            |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| dialect.is_noise(name));
        match event {
            Event::Start(tag) | Event::Empty(tag) if depth == 0 => {
                for attribute in tag.attributes().flatten() {
                    if !is_noise(attribute.key.as_ref().as_bytes()) {
                        key.extend_from_slice(attribute.key.as_ref().as_bytes());
                        key.extend_from_slice(attribute.value.as_bytes());
                    }
                }
                depth += usize::from(!raw.ends_with(b"/>"));
            }
            Event::Start(tag) => {
                depth += 1;
                if depth < noise
                    && dialect == Dialect::Word
                    && is_noise(tag.local_name().as_ref().as_bytes())
                {
                    noise = depth;
                }
                if depth < noise {
                    key.extend_from_slice(raw);
                }
            }
            Event::Empty(tag) => {
                let is_noise =
                    dialect == Dialect::Word && is_noise(tag.local_name().as_ref().as_bytes());
                if depth < noise && !is_noise {
                    key.extend_from_slice(raw);
                }
            }
            Event::End(_) => {
                if depth < noise && depth > 1 {
                    key.extend_from_slice(raw);
                }
                if depth == noise {
                    noise = usize::MAX;
                }
                depth = usize::saturating_sub(depth, 1);
            }
            Event::Eof => return key,
            _ => {}
        }
    }
}

/// The block of what stands between two breaks, its place, and the formatting of text that is in no pair. Sets the formatting of
/// what goes round runs.
fn read_segment(document: &[u8], atoms: &mut [Atom]) -> Option<(Block, Range<usize>, usize)> {
    let visible: Vec<usize> = atoms.iter().map(|atom| visible_length(document, atom)).collect();
    let first = visible.iter().position(|&length| length > 0)?;
    let last = visible.iter().rposition(|&length| length > 0)?;
    let owners = Owners::new(atoms, &visible);
    let mut feeder = Feeder { document, builder: Builder::new(true), pair: None, last_style: BARE };
    for (number, atom) in atoms.iter().enumerate() {
        let base = owners.style(owners.of[number]);
        match &atom.what {
            What::Text if visible[number] == 0 => {
                feeder.blank(atom, (first..last).contains(&number))
            }
            What::Text | What::Mark(Class::Hyphen) => {
                feeder.text(atom, base, number == first, number == last);
                if !goes_on(atoms, &visible, number) {
                    feeder.close_pair(atom.raw.end);
                }
            }
            What::Mark(Class::Keep) => {
                let text = text_inside(&document[atom.raw.clone()]);
                feeder.builder.keep(text.trim(), atom.raw.clone());
            }
            What::Mark(Class::Object) => feeder.builder.object(atom.raw.clone()),
            What::Open => feeder.builder.open("container", atom.raw.clone()),
            What::Close => feeder.builder.close("container", atom.raw.clone()),
            _ => feeder.builder.point(atom.raw.clone()),
        }
    }
    let (mut block, slot) = feeder.builder.finish()?;
    // A hyphen that is an element is written as a character.
    block.spellings.retain(|(_, raw)| document[raw.start] != b'<');
    let style = owners.style(owners.round(atoms, &slot));
    for (number, atom) in atoms.iter_mut().enumerate() {
        if atom.what == What::Open {
            atom.style = Some(owners.style(Some(number)));
        }
    }
    Some((block, slot, style))
}

/// Whether the next words behind a text have its formatting, and no container begins or ends before them.
fn goes_on(atoms: &[Atom], visible: &[usize], number: usize) -> bool {
    let is_next = |next: &usize| match atoms[*next].is_text() {
        true => visible[*next] > 0,
        false => matches!(atoms[*next].what, What::Open | What::Close),
    };
    let next = (number + 1..atoms.len()).find(is_next);
    next.is_some_and(|next| atoms[next].is_text() && atoms[next].style == atoms[number].style)
}

/// The bytes of an atom that people see as words.
fn visible_length(document: &[u8], atom: &Atom) -> usize {
    if atom.what != What::Text {
        return usize::from(matches!(atom.what, What::Mark(Class::Keep | Class::Hyphen)));
    }
    let mut text = String::new();
    References::Xml.decode(&document[atom.raw.clone()], &mut text);
    text.chars().filter(|c| !c.is_ascii_whitespace() && !is_no_text(*c)).count()
}

/// Which containers begin and end in a segment, and the formatting of most of their text.
struct Owners {
    /// For each atom the container it is in, by the number of its start tag.
    of: Vec<Option<usize>>,
    /// The containers with the numbers of their end tags, the outer before the inner.
    ends: Vec<(usize, usize)>,
    styles: HashMap<Option<usize>, usize>,
}

impl Owners {
    fn new(atoms: &[Atom], visible: &[usize]) -> Owners {
        let mut open = Vec::new();
        let mut ends = Vec::new();
        for (number, atom) in atoms.iter().enumerate() {
            match atom.what {
                What::Open => open.push(number),
                What::Close => ends.extend(open.pop().map(|start| (start, number))),
                _ => {}
            }
        }
        ends.sort_unstable();
        let mut of = vec![None; atoms.len()];
        let mut counts: HashMap<(Option<usize>, usize), usize> = HashMap::new();
        let mut all: HashMap<usize, usize> = HashMap::new();
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let mut starts = ends.iter().peekable();
        for (number, atom) in atoms.iter().enumerate() {
            while stack.pop_if(|(_, end)| *end <= number).is_some() {}
            of[number] = stack.last().map(|(start, _)| *start);
            stack.extend(starts.next_if(|(start, _)| *start == number));
            if let Some(style) = atom.style.filter(|_| atom.is_text()) {
                *counts.entry((of[number], style)).or_default() += visible[number];
                *all.entry(style).or_default() += visible[number];
            }
        }
        let mut best: HashMap<Option<usize>, (usize, usize)> = HashMap::new();
        let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        counts.sort_unstable();
        for ((owner, style), count) in counts {
            let best = best.entry(owner).or_insert((style, 0));
            if count > best.1 {
                *best = (style, count);
            }
        }
        let mut styles: HashMap<_, _> =
            best.into_iter().map(|(owner, (style, _))| (owner, style)).collect();
        // A paragraph all of whose text is in containers.
        let most = all.into_iter().max_by_key(|&(style, count)| (count, usize::MAX - style));
        styles.entry(None).or_insert(most.map_or(PLAIN, |(style, _)| style));
        Owners { of, ends, styles }
    }

    fn style(&self, owner: Option<usize>) -> usize {
        let style = self.styles.get(&owner).or(self.styles.get(&None));
        style.copied().unwrap_or(PLAIN)
    }

    /// The innermost container round a whole block.
    fn round(&self, atoms: &[Atom], slot: &Range<usize>) -> Option<usize> {
        let is_round = |&&(start, end): &&(usize, usize)| {
            atoms[start].raw.end <= slot.start && slot.end <= atoms[end].raw.start
        };
        self.ends.iter().rfind(is_round).map(|(start, _)| *start)
    }
}

/// Hands atoms to a builder. White space at the ends of a segment is a point: it stays, and is no part of the block's text.
struct Feeder<'a> {
    document: &'a [u8],
    builder: Builder,
    /// The formatting of the open pair.
    pair: Option<usize>,
    /// That of the last text.
    last_style: usize,
}

impl Feeder<'_> {
    fn text(&mut self, atom: &Atom, base: usize, is_first: bool, is_last: bool) {
        let style = atom.style.unwrap_or(PLAIN);
        let wanted = (style != base).then_some(style);
        if wanted != self.pair {
            self.builder.open("run", atom.raw.start..atom.raw.start);
            self.pair = wanted;
        }
        self.last_style = style;
        if atom.what != What::Text {
            return self.builder.spelled("\u{2011}", atom.raw.clone());
        }
        let text = &self.document[atom.raw.clone()];
        let mut inside = atom.raw.clone();
        if is_first {
            inside.start += text.len() - text.trim_ascii_start().len();
        }
        if is_last {
            inside.end -= text.len() - text.trim_ascii_end().len();
        }
        self.point(atom.raw.start..inside.start);
        self.words(inside.clone());
        self.point(inside.end..atom.raw.end);
    }

    /// White space between words. That of another formatting may be a line to write on.
    fn blank(&mut self, atom: &Atom, is_inside: bool) {
        if !is_inside {
            self.point(atom.raw.clone());
        } else if atom.raw.len() > 1 && atom.style != Some(self.last_style) {
            self.builder.object(atom.raw.clone());
        } else {
            self.words(atom.raw.clone());
        }
    }

    /// Adds text in which any white space is a blank.
    fn words(&mut self, raw: Range<usize>) {
        let mut from = raw.start;
        for at in raw.clone() {
            if matches!(self.document[at], b'\n' | b'\r' | b'\t') {
                References::Xml.add(self.document, from..at, &mut self.builder);
                self.builder.spelled(" ", at..at + 1);
                from = at + 1;
            }
        }
        References::Xml.add(self.document, from..raw.end, &mut self.builder);
    }

    fn point(&mut self, raw: Range<usize>) {
        if !raw.is_empty() {
            self.builder.point(raw);
        }
    }

    fn close_pair(&mut self, end: usize) {
        if self.pair.take().is_some() {
            self.builder.close("run", end..end);
        }
    }
}
