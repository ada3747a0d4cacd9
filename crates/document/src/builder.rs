//! Makes a block out of what a reader finds one after the other: text, tags, comments.
//!
//! All of it is given with the bytes of the document it comes from. What need not be inside the block is left outside:
//! white space, comments and images at its ends, tags round the whole of it.

use std::collections::HashMap;
use std::mem::take;
use std::ops::Range;

use encoding_rs::WINDOWS_1252;

use crate::block::{Block, Kind, Span};

/// Stands in the text for something that has none.
pub(crate) const OBJECT: char = '\u{fffc}';

/// Pairs inside each other beyond this are single tags, each of which is placed on its own.
const DEEPEST: usize = 48;

/// Collects a block.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    events: Vec<Event>,
    /// The text of all events.
    text: String,
    /// Places of `text` whose bytes in the document are not the character itself.
    spellings: Vec<(usize, Range<usize>)>,
    pub(crate) preserve: bool,
    /// Whether bytes that are not ASCII are characters of Windows-1252.
    latin: bool,
}

#[derive(Debug, Clone)]
struct Event {
    what: What,
    /// Its bytes of the document.
    raw: Range<usize>,
    /// Its bytes of the builder's text.
    text: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Text,
    Open(String),
    Close(String),
    Point,
    Keep,
    Object,
}

impl Builder {
    /// White space is kept as it is (`preserve`), or any of it is one blank.
    pub(crate) fn new(preserve: bool) -> Builder {
        Builder { preserve, ..Builder::default() }
    }

    /// Bytes that are not ASCII are characters of Windows-1252 from here on.
    pub(crate) fn in_latin(mut self, latin: bool) -> Builder {
        self.latin = latin;
        self
    }

    /// Text that is the bytes of the document from `start` on. Bytes that are no text are points.
    pub(crate) fn bytes(&mut self, bytes: &[u8], mut start: usize) {
        if self.latin && !bytes.is_ascii() {
            return self.latin_bytes(bytes, start);
        }
        for chunk in bytes.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some(at) = rest.find(is_no_text) {
                self.plain(&rest[..at], start);
                let width = rest[at..].chars().next().map_or(1, char::len_utf8);
                self.point(start + at..start + at + width);
                start += at + width;
                rest = &rest[at + width..];
            }
            self.plain(rest, start);
            start += rest.len();
            if !chunk.invalid().is_empty() {
                self.point(start..start + chunk.invalid().len());
                start += chunk.invalid().len();
            }
        }
    }

    fn latin_bytes(&mut self, bytes: &[u8], mut start: usize) {
        for part in bytes.chunk_by(|a, b| a.is_ascii() && b.is_ascii()) {
            match part {
                [byte] if !byte.is_ascii() => {
                    let (text, _) = WINDOWS_1252.decode_without_bom_handling(part);
                    self.spelled(&text, start..start + 1);
                }
                part => self.bytes(part, start),
            }
            start += part.len();
        }
    }

    /// A character that is spelled in another way than as itself. Several of them are kept together.
    pub(crate) fn spelled(&mut self, text: &str, raw: Range<usize>) {
        if text.contains(is_no_text) {
            return self.point(raw);
        }
        if text.chars().count() != 1 {
            return self.keep(text, raw);
        }
        let at = self.text.len();
        self.text.push_str(text);
        self.spellings.push((at, raw.clone()));
        self.add(What::Text, raw, at);
    }

    /// A start tag. Its end tag has the same name.
    pub(crate) fn open(&mut self, name: &str, raw: Range<usize>) {
        self.add(What::Open(name.to_owned()), raw, self.text.len());
    }

    /// An end tag.
    pub(crate) fn close(&mut self, name: &str, raw: Range<usize>) {
        self.add(What::Close(name.to_owned()), raw, self.text.len());
    }

    /// Something between two characters.
    pub(crate) fn point(&mut self, raw: Range<usize>) {
        self.add(What::Point, raw, self.text.len());
    }

    /// Text that must come back as it is. White space in it is folded.
    pub(crate) fn keep(&mut self, text: &str, raw: Range<usize>) {
        let clean: String = text.chars().filter(|&c| !is_no_text(c)).collect();
        let text = match self.preserve {
            true => clean,
            false => clean.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        };
        if text.trim().is_empty() {
            return self.object(raw);
        }
        let at = self.text.len();
        self.text.push_str(&text);
        self.add(What::Keep, raw, at);
    }

    /// Something that stands as a word and has no text. Where it touches a word it is a point.
    pub(crate) fn object(&mut self, raw: Range<usize>) {
        self.add(What::Object, raw, self.text.len());
    }

    /// Whether there is no text yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim_ascii().is_empty()
    }

    /// The last character so far.
    pub(crate) fn last_char(&self) -> Option<char> {
        self.text.chars().next_back()
    }

    fn plain(&mut self, text: &str, start: usize) {
        if !text.is_empty() {
            let at = self.text.len();
            self.text.push_str(text);
            self.add(What::Text, start..start + text.len(), at);
        }
    }

    fn add(&mut self, what: What, raw: Range<usize>, text_start: usize) {
        self.events.push(Event { what, raw, text: text_start..self.text.len() });
    }

    /// The block, and the bytes of the document that it takes the place of. Nothing if there is nothing to translate.
    /// The builder is empty again.
    pub(crate) fn finish(&mut self) -> Option<(Block, Range<usize>)> {
        let (events, text, spellings) =
            (take(&mut self.events), take(&mut self.text), take(&mut self.spellings));
        if !text.contains(char::is_alphabetic) {
            return None;
        }
        let events = trim(collapse(pair(events), &text), &text);
        Assembly::new(&text, &spellings, self.preserve).assemble(events)
    }
}

/// Whether a character cannot be translated or would be taken for an object.
pub(crate) fn is_no_text(c: char) -> bool {
    c == OBJECT || c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c')
}

/// Makes points of tags without a partner and of pairs that are nested too deeply.
fn pair(mut events: Vec<Event>) -> Vec<Event> {
    let mut open: Vec<usize> = Vec::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut single: Vec<usize> = Vec::new();
    for number in 0..events.len() {
        match &events[number].what {
            What::Open(name) => {
                *counts.entry(name.clone()).or_default() += 1;
                open.push(number);
            }
            What::Close(name) => match counts.get(name).is_some_and(|&count| count > 0) {
                false => single.push(number),
                true => {
                    let name = name.clone();
                    while let Some(start) = open.pop() {
                        let What::Open(other) = &events[start].what else { continue };
                        counts.entry(other.clone()).and_modify(|count| *count -= 1);
                        if *other == name {
                            if open.len() >= DEEPEST {
                                single.extend([start, number]);
                            }
                            break;
                        }
                        single.push(start);
                    }
                }
            },
            _ => {}
        }
    }
    for number in single.into_iter().chain(open) {
        events[number].what = What::Point;
    }
    events
}

/// For each event the number of the one that belongs to it: an end tag to its start tag.
fn mates(events: &[Event]) -> Vec<usize> {
    let mut mates: Vec<usize> = (0..events.len()).collect();
    let mut open = Vec::new();
    for (number, event) in events.iter().enumerate() {
        match event.what {
            What::Open(_) => open.push(number),
            What::Close(_) => {
                if let Some(start) = open.pop() {
                    mates[start] = number;
                    mates[number] = start;
                }
            }
            _ => {}
        }
    }
    mates
}

/// Replaces pairs without text of their own: by what is kept inside, by an object, by a point.
fn collapse(events: Vec<Event>, text: &str) -> Vec<Event> {
    let mates = mates(&events);
    // How many there are before each event: text, things kept, objects.
    let mut before = Vec::with_capacity(events.len() + 1);
    let mut counts = [0; 3];
    for event in &events {
        before.push(counts);
        match event.what {
            What::Text if !is_blank(event, text) => counts[0] += 1,
            What::Keep => counts[1] += 1,
            What::Object => counts[2] += 1,
            _ => {}
        }
    }
    let mut list = Vec::with_capacity(events.len());
    let mut number = 0;
    while number < events.len() {
        let (event, end) = (&events[number], mates[number]);
        let counts = |place: usize| before[end][place] - before[number][place];
        let inside = &events[number..=end.max(number)];
        let blank = inside.iter().find(|event| event.what == What::Text);
        let alone = counts(1) == 0 && (counts(2) == 0 || blank.is_none());
        let keeps = counts(1) == 1 && counts(2) == 0 && blank.is_none();
        if end <= number || counts(0) > 0 || !(alone || keeps) {
            list.push(event.clone());
            number += 1;
            continue;
        }
        let nothing = event.text.end..event.text.end;
        let (what, range) = match inside.iter().find(|event| event.what == What::Keep) {
            Some(keep) => (What::Keep, keep.text.clone()),
            None if counts(2) > 0 => (What::Object, nothing),
            None => (What::Point, nothing),
        };
        // White space inside separates words, wherever the tags go.
        if let Some(blank) = blank {
            let raw = event.raw.start..event.raw.start;
            list.push(Event { what: What::Text, raw, text: blank.text.clone() });
        }
        list.push(Event { what, raw: event.raw.start..events[end].raw.end, text: range });
        number = end + 1;
    }
    list
}

/// Leaves out what may stay where it is, at both ends.
fn trim(mut events: Vec<Event>, text: &str) -> Vec<Event> {
    let mates = mates(&events);
    let (mut first, mut last) = (0, events.len());
    let outside = |event: &Event| match event.what {
        What::Text => is_blank(event, text),
        What::Point | What::Object => true,
        _ => false,
    };
    while first < last {
        if outside(&events[first]) {
            first += 1;
        } else if outside(&events[last - 1]) {
            last -= 1;
        } else if mates[first] != first && mates[first] == last - 1 {
            first += 1;
            last -= 1;
        } else {
            break;
        }
    }
    events.truncate(last);
    events.drain(..first.min(last));
    events
}

fn is_blank(event: &Event, text: &str) -> bool {
    text[event.text.clone()].bytes().all(|byte| byte.is_ascii_whitespace())
}

/// Puts events together.
struct Assembly<'a> {
    text: &'a str,
    spellings: &'a [(usize, Range<usize>)],
    preserve: bool,
    block: Block,
    /// The bytes of the document from the first event to the end of the last that is more than white space.
    slot: Range<usize>,
    /// The pairs that are open.
    open: Vec<usize>,
    last: Last,
    /// The white space that came last, if only tags and points came behind it.
    trailing: Option<Range<usize>>,
}

/// What came last, for white space that is folded away.
enum Last {
    /// The start tag of a pair, or a point.
    Open(usize),
    /// The end tag of a pair.
    Close(usize),
    /// A blank, from these bytes of the document.
    Blank(Range<usize>),
    Other,
}

impl<'a> Assembly<'a> {
    fn new(text: &'a str, spellings: &'a [(usize, Range<usize>)], preserve: bool) -> Self {
        let (block, open) = (Block::default(), Vec::new());
        Assembly {
            text,
            spellings,
            preserve,
            block,
            slot: 0..0,
            open,
            last: Last::Other,
            trailing: None,
        }
    }

    fn assemble(mut self, events: Vec<Event>) -> Option<(Block, Range<usize>)> {
        self.slot = events.first()?.raw.start..0;
        for (number, event) in events.iter().enumerate() {
            if event.what != What::Text {
                self.slot.end = event.raw.end;
            }
            match &event.what {
                What::Text => self.add_text(event),
                What::Open(_) => {
                    self.add_span(Kind::Pair, event);
                    self.open.push(self.block.spans.len() - 1);
                }
                What::Close(_) => {
                    let Some(span) = self.open.pop() else { continue };
                    self.block.spans[span].text.end = self.block.text.len();
                    self.block.spans[span].close = event.raw.clone();
                    self.last = Last::Close(span);
                }
                What::Object if !self.touches_word(&events[number + 1..]) => {
                    self.add_span(Kind::Keep, event);
                    self.block.text.push(OBJECT);
                    self.end_keep();
                }
                What::Point | What::Object => self.add_point(event),
                What::Keep => {
                    if !self.lengthen_keep(event) {
                        self.add_span(Kind::Keep, event);
                    }
                    self.block.text.push_str(&self.text[event.text.clone()]);
                    self.end_keep();
                }
            }
        }
        match self.last {
            Last::Open(span) => self.slot.end = self.block.spans[span].open.end,
            Last::Close(span) => self.slot.end = self.block.spans[span].close.end,
            _ => {}
        }
        self.trim_end();
        self.has_letters().then_some((self.block, self.slot))
    }

    fn add_text(&mut self, event: &Event) {
        let text = &self.text[event.text.clone()];
        if event.raw.is_empty() {
            // White space of a pair that became a point.
            if !self.block.text.is_empty()
                && !self.block.text.ends_with(|c: char| c.is_whitespace())
            {
                self.block.text.push(' ');
                self.last = Last::Other;
            }
            return;
        }
        let first = self.spellings.partition_point(|(at, _)| *at < event.text.start);
        let mut spellings = self.spellings[first..].iter().peekable();
        let mut raw = event.raw.start;
        for (at, c) in text.char_indices() {
            let at = event.text.start + at;
            let spelling = spellings.next_if(|(place, _)| *place == at).map(|(_, raw)| raw.clone());
            let is_spelled = spelling.is_some();
            let source = spelling.unwrap_or(raw..(raw + c.len_utf8()).min(event.raw.end));
            raw = source.end;
            self.add_char(c, source, is_spelled);
        }
    }

    fn add_char(&mut self, c: char, source: Range<usize>, is_spelled: bool) {
        let white = c.is_ascii_whitespace();
        let text = &mut self.block.text;
        if white && (text.is_empty() || !self.preserve && text.ends_with(' ')) {
            return self.fold_away(source);
        }
        if text.is_empty() && self.block.spans.is_empty() {
            self.slot.start = source.start;
        }
        let folded = if white && !self.preserve { ' ' } else { c };
        if is_spelled || folded != c {
            self.block.spellings.push((text.len(), source.clone()));
        }
        text.push(folded);
        if !white {
            self.slot.end = source.end;
        }
        self.trailing = match self.trailing.take() {
            _ if !white => None,
            Some(range) if range.end == source.start => Some(range.start..source.end),
            _ => Some(source.clone()),
        };
        self.last = if white { Last::Blank(source) } else { Last::Other };
    }

    /// White space behind white space: it belongs to the tag before it, or to the blank.
    fn fold_away(&mut self, source: Range<usize>) {
        let range = match &mut self.last {
            Last::Open(span) => &mut self.block.spans[*span].open,
            Last::Close(span) => &mut self.block.spans[*span].close,
            Last::Blank(range) => range,
            Last::Other => return,
        };
        if range.end != source.start {
            return;
        }
        range.end = source.end;
        if let Some(trailing) = self.trailing.as_mut().filter(|range| range.end == source.start) {
            trailing.end = source.end;
        }
        if let Last::Blank(range) = &self.last {
            let at = self.block.text.len() - 1;
            self.block.spellings.pop_if(|(place, _)| *place == at);
            self.block.spellings.push((at, range.clone()));
        }
    }

    fn add_span(&mut self, kind: Kind, event: &Event) {
        let at = self.block.text.len();
        let (parent, open) = (self.open.last().copied(), event.raw.clone());
        self.block.spans.push(Span { kind, text: at..at, parent, open, close: 0..0 });
        self.last = Last::Open(self.block.spans.len() - 1);
    }

    /// Points that follow each other are one.
    fn add_point(&mut self, event: &Event) {
        if let Last::Open(span) = self.last {
            let last = &mut self.block.spans[span];
            if last.kind == Kind::Point && last.open.end == event.raw.start {
                last.open.end = event.raw.end;
                return;
            }
        }
        self.add_span(Kind::Point, event);
    }

    /// Whether an object stands next to a letter or digit.
    fn touches_word(&self, behind: &[Event]) -> bool {
        let next = behind.iter().find(|event| !event.text.is_empty());
        let next = next.and_then(|event| self.text[event.text.clone()].chars().next());
        let last = self.block.text.chars().next_back();
        last.is_some_and(char::is_alphanumeric) || next.is_some_and(char::is_alphanumeric)
    }

    /// Things that are kept are one if nothing but signs are between them, as in Ctrl+C.
    fn lengthen_keep(&mut self, event: &Event) -> bool {
        let parent = self.open.last().copied();
        let Some(last) = self.block.spans.last_mut() else { return false };
        let between = self.block.text.get(last.text.end..).unwrap_or_default();
        let joins = last.kind == Kind::Keep
            && last.parent == parent
            && !between.contains(|c: char| c.is_whitespace() || c.is_alphanumeric());
        if joins {
            last.open.end = event.raw.end;
        }
        joins
    }

    fn end_keep(&mut self) {
        self.trailing = None;
        if let Some(last) = self.block.spans.last_mut() {
            last.text.end = self.block.text.len();
        }
        self.last = Last::Other;
    }

    /// Takes off white space at the end. What stands before a tag in the document belongs to that tag.
    fn trim_end(&mut self) {
        let length = self.block.text.trim_ascii_end().len();
        self.block.text.truncate(length);
        self.block.spellings.retain(|(at, _)| *at < length);
        for span in &mut self.block.spans {
            span.text = span.text.start.min(length)..span.text.end.min(length);
        }
        let Some(white) = self.trailing.take() else { return };
        for span in &mut self.block.spans {
            if span.open.start == white.end {
                span.open.start = white.start;
            } else if span.close.start == white.end {
                span.close.start = white.start;
            }
        }
    }

    /// Whether there are letters outside of what is kept.
    fn has_letters(&self) -> bool {
        let mut start = 0;
        for keep in self.block.keep() {
            if self.block.text[start..keep.start].contains(char::is_alphabetic) {
                return true;
            }
            start = keep.end;
        }
        self.block.text[start..].contains(char::is_alphabetic)
    }
}
