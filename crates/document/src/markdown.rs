//! Markdown. A parser tells where text is; nothing is printed anew, so that every mark, fence and address stays as it was.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options as Extensions, Parser, Tag, TagEnd};

use crate::Error;
use crate::body::Parsed;
use crate::builder::Builder;
use crate::escape::Escape;
use crate::markup::attributes::Attributes;
use crate::markup::{Role, role_in_html};
use crate::options::Options;
use crate::splice::Places;
use crate::text::{bom, refuse_utf16};

type Events<'a> = Vec<(Event<'a>, Range<usize>)>;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let text = same_length(&bytes);
    let start = bom(&bytes);
    let extensions = Extensions::ENABLE_TABLES
        | Extensions::ENABLE_FOOTNOTES
        | Extensions::ENABLE_STRIKETHROUGH
        | Extensions::ENABLE_TASKLISTS
        | Extensions::ENABLE_HEADING_ATTRIBUTES
        | Extensions::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Extensions::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS
        | Extensions::ENABLE_DEFINITION_LIST
        | Extensions::ENABLE_MATH
        | Extensions::ENABLE_GFM;
    let events = Parser::new_ext(&text[start..], extensions).into_offset_iter();
    let events: Events =
        events.map(|(event, at)| (event, at.start + start..at.end + start)).collect();
    let reader = Reader { bytes: &bytes, text: &text, events: &events, options };
    let places = reader.read();
    Ok(places.finish(bytes))
}

/// The document as text of the same length: bytes that are no text are control characters.
fn same_length(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\x1a'));
    }
    text
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    events: &'a Events<'a>,
    options: &'a Options,
}

/// What is being read.
#[derive(Default)]
struct State {
    builder: Builder,
    places: Places,
    /// The end of the last thing inside the block, if there is one.
    end: Option<usize>,
    /// Pairs that are open.
    depth: usize,
}

impl State {
    fn flush(&mut self) {
        if let Some(block) = self.builder.finish() {
            self.places.add(block, Escape::Markdown);
        }
        self.depth = 0;
        self.end = None;
    }

    /// Bytes that the parser says nothing about stay where they are. A backslash belongs to the character behind it.
    fn skip_to(&mut self, start: usize) {
        if let Some(end) = self.end.filter(|&end| end < start) {
            self.builder.point(end..start);
        }
    }
}

impl Reader<'_> {
    fn read(&self) -> Places {
        let mut state = State::default();
        let mut number = 0;
        while let Some((event, at)) = self.events.get(number) {
            let mut next = number + 1;
            match event {
                Event::Start(tag) => next = self.start(number, tag, &mut state),
                Event::End(tag) => self.end(*tag, at, &mut state),
                Event::Text(text) => self.add_text(text, at, &mut state),
                Event::SoftBreak => self.add_line_end(number, &mut state),
                Event::HardBreak if state.depth > 0 => self.add_line_end(number, &mut state),
                Event::HardBreak | Event::Rule | Event::Html(_) => state.flush(),
                Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                    state.skip_to(at.start);
                    state.builder.keep(text, at.clone());
                    state.end = Some(at.end);
                }
                Event::FootnoteReference(_) | Event::TaskListMarker(_) => {
                    state.skip_to(at.start);
                    state.builder.point(at.clone());
                    state.end = Some(at.end);
                }
                Event::InlineHtml(_) => {
                    state.skip_to(at.start);
                    next = self.inline_html(number, &mut state);
                }
            }
            number = next;
        }
        state.flush();
        state.places
    }

    /// Reads a start, and all of what it starts if nothing in it is to be translated. Gives the number of the next event.
    fn start(&self, number: usize, tag: &Tag, state: &mut State) -> usize {
        let at = self.events[number].1.clone();
        let end = || self.end_of(number);
        match tag {
            Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Superscript
            | Tag::Subscript => {
                self.open(at.start..at.start + self.marks(&at, tag), state);
            }
            // The text is the address, or the name of a reference.
            Tag::Link {
                link_type:
                    LinkType::Autolink | LinkType::Email | LinkType::Shortcut | LinkType::Collapsed,
                ..
            } => {
                let end = end();
                state.skip_to(at.start);
                let brackets = self.bytes[at.end..].starts_with(b"[]");
                let all = at.start..at.end + if brackets { 2 } else { 0 };
                state.end = Some(all.end);
                state.builder.keep(&self.text_of(number + 1..end), all);
                return end + 1;
            }
            Tag::Link { .. } => self.open(at.start..at.start + 1, state),
            Tag::Image { .. } => {
                let end = end();
                if self.options.attributes {
                    self.add_alternative(number + 1..end, state);
                }
                state.skip_to(at.start);
                state.end = Some(at.end);
                state.builder.object(at);
                return end + 1;
            }
            Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::MetadataBlock(_) => {
                state.flush();
                return end() + 1;
            }
            _ => state.flush(),
        }
        number + 1
    }

    fn open(&self, marks: Range<usize>, state: &mut State) {
        state.skip_to(marks.start);
        state.end = Some(marks.end);
        state.depth += 1;
        state.builder.open("", marks);
    }

    fn end(&self, tag: TagEnd, at: &Range<usize>, state: &mut State) {
        let marks = match tag {
            TagEnd::Emphasis | TagEnd::Superscript | TagEnd::Subscript => 1,
            TagEnd::Strong => 2,
            TagEnd::Strikethrough => self.marks(at, &Tag::Strikethrough),
            TagEnd::Link => 0,
            _ => return state.flush(),
        };
        // All from the end of the text on: the address of a link.
        let start = state.end.unwrap_or(at.end).min(at.end - marks);
        state.builder.close("", start..at.end);
        state.end = Some(at.end);
        state.depth = state.depth.saturating_sub(1);
    }

    /// The number of marks that emphasis begins and ends with.
    fn marks(&self, at: &Range<usize>, tag: &Tag) -> usize {
        match tag {
            Tag::Strong => 2,
            Tag::Strikethrough => 1 + usize::from(self.bytes[at.start + 1] == b'~'),
            _ => 1,
        }
    }

    /// Text, with the backslash before it if its first character is escaped.
    fn add_text(&self, text: &str, at: &Range<usize>, state: &mut State) {
        let backslash = at.start.checked_sub(1).filter(|&before| {
            let is_new = state.end.is_none_or(|end| end <= before);
            self.bytes[before] == b'\\' && is_new && self.bytes[at.start].is_ascii_punctuation()
        });
        state.skip_to(backslash.unwrap_or(at.start));
        state.end = Some(at.end);
        if text != &self.text[at.clone()] {
            return state.builder.spelled(text, at.clone());
        }
        let mut start = at.start;
        if let Some(backslash) = backslash {
            start += 1;
            state.builder.spelled(&text[..1], backslash..start);
        }
        state.builder.bytes(&self.bytes[start..at.end], start);
    }

    /// The end of a line is a blank, with the marks of a quotation and the indentation of the next line.
    fn add_line_end(&self, number: usize, state: &mut State) {
        let at = &self.events[number].1;
        let next = self.events.get(number + 1).map_or(at.end, |(_, next)| next.start).max(at.end);
        let next = if next > at.end && self.bytes[next - 1] == b'\\' { next - 1 } else { next };
        let start = state.end.unwrap_or(at.start).min(at.start);
        state.builder.spelled(" ", start..next);
        state.end = Some(next);
    }

    /// Tags inside a paragraph.
    fn inline_html(&self, number: usize, state: &mut State) -> usize {
        let at = self.events[number].1.clone();
        let raw = &self.bytes[at.clone()];
        let is_end = raw.starts_with(b"</");
        let name = tag_name(raw);
        let role = role_in_html(&name);
        let attributes = Attributes::new(raw, at.start);
        state.end = Some(at.end);
        match role {
            _ if name.is_empty() => state.builder.point(at),
            Role::Block | Role::Preserved if state.depth == 0 => state.flush(),
            Role::Object => state.builder.object(at),
            Role::Inline | Role::Keep if is_end => state.builder.close(&name, at),
            Role::Inline | Role::Keep if raw.ends_with(b"/>") => state.builder.point(at),
            Role::Inline if !attributes.forbid_translation(self.bytes) => {
                state.builder.open(&name, at)
            }
            Role::Inline | Role::Keep => match self.end_of_html(number, &name) {
                Some(end) => {
                    let all = at.start..self.events[end].1.end;
                    state.end = Some(all.end);
                    state.builder.keep(&self.text_of(number + 1..end), all);
                    return end + 1;
                }
                None => state.builder.point(at),
            },
            _ => state.builder.point(at),
        }
        number + 1
    }

    /// The end tag that belongs to a tag inside a paragraph, not far from it.
    fn end_of_html(&self, number: usize, name: &str) -> Option<usize> {
        let near = self.events.iter().enumerate().skip(number + 1).take(64);
        let inside = |event: &Event| {
            let html = matches!(
                event,
                Event::InlineHtml(_) | Event::Text(_) | Event::Code(_) | Event::SoftBreak
            );
            html || matches!(event, Event::InlineMath(_))
        };
        let mut near = near.take_while(|(_, (event, _))| inside(event));
        let is_end = |(_, (event, at)): &(usize, &(Event, Range<usize>))| {
            let raw = &self.bytes[at.clone()];
            matches!(event, Event::InlineHtml(_)) && raw.starts_with(b"</") && tag_name(raw) == name
        };
        near.find(is_end).map(|(end, _)| end)
    }

    /// The number of the event that ends what an event starts.
    fn end_of(&self, number: usize) -> usize {
        let mut depth = 0;
        for (end, (event, _)) in self.events.iter().enumerate().skip(number) {
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return end;
            }
        }
        self.events.len() - 1
    }

    fn text_of(&self, events: Range<usize>) -> String {
        let text = |(event, _): &(Event, Range<usize>)| match event {
            Event::Text(text) | Event::Code(text) | Event::InlineMath(text) => text.to_string(),
            Event::SoftBreak | Event::HardBreak => " ".to_owned(),
            _ => String::new(),
        };
        self.events[events].iter().map(text).collect()
    }

    /// The text that stands for an image.
    fn add_alternative(&self, events: Range<usize>, state: &mut State) {
        let [(Event::Text(text), at)] = &self.events[events] else { return };
        if **text != self.text[at.clone()] {
            return;
        }
        let mut builder = Builder::new(false);
        builder.bytes(&self.bytes[at.clone()], at.start);
        if let Some(block) = builder.finish() {
            state.places.add_in_tag(block, Escape::Markdown);
        }
    }
}

/// The name of a tag, in small letters.
fn tag_name(tag: &[u8]) -> String {
    let name = tag.strip_prefix(b"</").or(tag.strip_prefix(b"<")).unwrap_or_default();
    let length =
        name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
    String::from_utf8_lossy(&name[..length]).to_ascii_lowercase()
}
