//! What HTML and XML have in common: tokens with their bytes, and the blocks they make.

pub(crate) mod attributes;
mod names;
pub(crate) mod reference;

use std::collections::HashMap;
use std::ops::{Deref, Range};

use crate::builder::Builder;
use crate::escape::Escape;
use crate::options::{Elements, Options};
use crate::splice::Places;
use attributes::Attributes;
use reference::References;

use names::is_void;
pub(crate) use names::role_in_html;

/// A tag, a text, or something else, with its bytes of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) what: What,
    pub(crate) raw: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A start tag. `closed` says that it is also the end.
    Start { name: String, closed: bool },
    /// An end tag.
    End { name: String },
    /// Text with references in it.
    Text,
    /// Text without references, with `<![CDATA[` and `]]>` round it.
    Cdata,
    /// A comment, a processing instruction.
    Comment,
    /// A document type or declaration, between blocks.
    Prologue,
}

/// What an element means for the text round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It ends the block before it.
    Block,
    /// It is a block in which white space counts.
    Preserved,
    /// It is part of a text.
    Inline,
    /// It stands as a word. What is in it is not looked at.
    Object,
    /// It is part of a text, and what is in it must not be changed.
    Keep,
    /// It is between two characters, with all that is in it.
    Point,
    /// It is between two characters and has blocks of its own, as a footnote has.
    Aside,
}

/// A document of tags and text.
pub(crate) struct Markup<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) tokens: &'a [Token],
    /// For each start tag the number of the token with which the element ends: its end tag, or what ends it
    /// implicitly; for other tokens their own number.
    pub(crate) ends: &'a [usize],
    /// What each start or end tag is about.
    pub(crate) roles: &'a [Role],
    pub(crate) references: References,
    pub(crate) escape: Escape,
    /// Whether bytes that are not ASCII are characters of Windows-1252.
    pub(crate) latin: bool,
}

/// Finds the blocks of a document.
struct Reader<'a> {
    markup: Markup<'a>,
    options: &'a Options,
    /// The number of tags before each token that end a block.
    blocks_before: Vec<usize>,
}

impl<'a> Markup<'a> {
    /// The blocks of the document.
    pub(crate) fn read(self, options: &'a Options) -> Places {
        let mut count = 0;
        let mut blocks_before = vec![0];
        for (token, role) in self.tokens.iter().zip(self.roles) {
            let is_tag = matches!(token.what, What::Start { .. } | What::End { .. });
            count += usize::from(is_tag && matches!(role, Role::Block | Role::Preserved));
            blocks_before.push(count);
        }
        Reader { markup: self, options, blocks_before }.read()
    }
}

impl<'a> Deref for Reader<'a> {
    type Target = Markup<'a>;

    fn deref(&self) -> &Markup<'a> {
        &self.markup
    }
}

impl Elements {
    /// What the element of this name is, if it is listed.
    pub(crate) fn role(&self, name: &str) -> Option<Role> {
        let is_in = |list: &[String]| list.iter().any(|listed| listed.eq_ignore_ascii_case(name));
        match () {
            () if is_in(&self.keep) => Some(Role::Keep),
            () if is_in(&self.block) => Some(Role::Block),
            () if is_in(&self.inline) => Some(Role::Inline),
            () => None,
        }
    }
}

impl Reader<'_> {
    fn read(&self) -> Places {
        let mut places = Places::default();
        self.read_tokens(0..self.tokens.len(), &mut places);
        places
    }

    fn read_tokens(&self, tokens: Range<usize>, places: &mut Places) {
        let mut builder = self.builder();
        let mut preserved = 0;
        let mut number = tokens.start;
        while number < tokens.end {
            builder.preserve = number < preserved;
            let token = &self.tokens[number];
            match &token.what {
                What::Text if builder.preserve => self.add_lines(token, &mut builder, places),
                What::Text => self.references.add(self.bytes, token.raw.clone(), &mut builder),
                What::Cdata => self.add_cdata(token, &mut builder, places),
                What::Comment => builder.point(token.raw.clone()),
                What::Prologue => self.flush(&mut builder, places),
                What::Start { .. } => {
                    let end = self.ends[number];
                    if self.roles[number] == Role::Preserved {
                        preserved = preserved.max(end);
                    }
                    number = self.start(number, &mut builder, places);
                    continue;
                }
                What::End { name } => match self.roles[number] {
                    Role::Block | Role::Preserved => self.flush(&mut builder, places),
                    Role::Inline => builder.close(name, token.raw.clone()),
                    _ => builder.point(token.raw.clone()),
                },
            }
            number += 1;
        }
        self.flush(&mut builder, places);
    }

    /// Reads a start tag, and all of the element if nothing in it is to be translated. Gives the number of the next token.
    fn start(&self, number: usize, builder: &mut Builder, places: &mut Places) -> usize {
        let token = &self.tokens[number];
        let What::Start { name, closed } = &token.what else { return number + 1 };
        let end = self.ends[number];
        let has_end = end > number
            && matches!(&self.tokens.get(end), Some(Token { what: What::End { name: other }, .. }) if other == name);
        let next = if has_end { end + 1 } else { end.max(number + 1) };
        let all = token.raw.start..self.tokens[next - 1].raw.end;
        let attributes = Attributes::new(&self.bytes[token.raw.clone()], token.raw.start);
        let role = self.roles[number];
        let is_block = matches!(role, Role::Block | Role::Preserved);
        let must_stay = attributes.forbid_translation(self.bytes);
        if must_stay && (is_block || has_end && self.has_blocks(number + 1..next)) {
            self.flush(builder, places);
            return next;
        }
        if self.options.attributes && !must_stay && role != Role::Keep {
            self.add_attributes(name, &attributes, places);
        }
        match role {
            Role::Block | Role::Preserved => self.flush(builder, places),
            Role::Keep | Role::Inline if *closed => builder.object(all),
            Role::Inline if must_stay && has_end => {
                builder.keep(&self.text_of(number + 1..end), all)
            }
            Role::Inline if self.is_note_mark(number, builder) => builder.point(all),
            Role::Inline => {
                builder.open(name, token.raw.clone());
                return number + 1;
            }
            // Without an end it would hold all of the rest.
            Role::Keep if !has_end => builder.point(token.raw.clone()),
            Role::Keep if self.has_blocks(number + 1..end) => self.flush(builder, places),
            Role::Keep => builder.keep(&self.text_of(number + 1..end), all),
            Role::Object if !has_end => builder.object(token.raw.clone()),
            Role::Object => builder.object(all),
            Role::Point => builder.point(all),
            Role::Aside => {
                builder.point(all);
                // Blocks that move with others are not inside each other.
                if !places.inside {
                    places.inside = true;
                    self.read_tokens(number + 1..next, places);
                    places.inside = false;
                }
            }
        }
        match role {
            Role::Block | Role::Preserved => number + 1,
            Role::Keep | Role::Object if !has_end && !closed => number + 1,
            _ => next,
        }
    }

    fn builder(&self) -> Builder {
        Builder::new(false).in_latin(self.latin)
    }

    fn flush(&self, builder: &mut Builder, places: &mut Places) {
        if let Some(block) = builder.finish() {
            places.add(block, self.escape);
        }
    }

    /// Text in which white space counts: a line is a block, and so is what stands between tabs or several blanks.
    fn add_lines(&self, token: &Token, builder: &mut Builder, places: &mut Places) {
        let text = &self.bytes[token.raw.clone()];
        let is_blank = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
        let mut start = 0;
        for (at, byte) in text.iter().enumerate() {
            if is_blank(Some(byte)) && (*byte != b' ' || is_blank(text.get(at + 1))) {
                let raw = token.raw.start + start..token.raw.start + at;
                self.references.add(self.bytes, raw, builder);
                self.flush(builder, places);
                start = at;
            }
        }
        self.references.add(self.bytes, token.raw.start + start..token.raw.end, builder);
    }

    /// A section of characters is a block of its own if no text is before it, else it is kept as it is. One with markup in it
    /// is not for people to read.
    fn add_cdata(&self, token: &Token, builder: &mut Builder, places: &mut Places) {
        let inside = token.raw.start + "<![CDATA[".len()..token.raw.end - "]]>".len();
        let text = &self.bytes[inside.clone()];
        if !builder.is_empty() {
            builder.keep(&String::from_utf8_lossy(text), token.raw.clone());
        } else if has_tags(text) {
            builder.object(token.raw.clone());
        } else {
            self.flush(builder, places);
            let mut alone = self.builder();
            alone.bytes(text, inside.start);
            if let Some(block) = alone.finish() {
                places.add(block, Escape::Cdata);
            }
        }
    }

    fn add_attributes(&self, element: &str, attributes: &Attributes, places: &mut Places) {
        for value in attributes.readable(element, self.bytes) {
            let mut builder = self.builder();
            self.references.in_attribute().add(self.bytes, value.range.clone(), &mut builder);
            let Some((block, slot)) = builder.finish() else { continue };
            // Quotes go round the whole of a value that has none.
            if block.spans.is_empty() && (value.quote.is_some() || slot == value.range) {
                places.add_in_tag((block, slot), Escape::Attribute(value.quote));
            }
        }
    }

    /// Whether there are tags among these that end a block.
    fn has_blocks(&self, tokens: Range<usize>) -> bool {
        self.blocks_before[tokens.end] > self.blocks_before[tokens.start]
    }

    /// The text of some tokens.
    fn text_of(&self, tokens: Range<usize>) -> String {
        let mut text = String::new();
        for token in &self.tokens[tokens] {
            match token.what {
                What::Text => self.references.decode(&self.bytes[token.raw.clone()], &mut text),
                What::Cdata => {
                    let inside = token.raw.start + 9..token.raw.end - 3;
                    text.push_str(&String::from_utf8_lossy(&self.bytes[inside]));
                }
                _ => {}
            }
        }
        text
    }

    /// Whether an element is the mark of a footnote or an exponent: raised, without letters, at the end of a word.
    fn is_note_mark(&self, number: usize, builder: &Builder) -> bool {
        let What::Start { name, .. } = &self.tokens[number].what else { return false };
        let end = self.ends[number];
        // The element holds little: it is looked at from every such tag inside of it.
        if name != "sup"
            || !(2..8).contains(&(end - number))
            || builder.last_char().is_none_or(char::is_whitespace)
        {
            return false;
        }
        let next = self.tokens.get(end + 1).filter(|token| token.what == What::Text);
        let next = next.and_then(|token| self.bytes[token.raw.clone()].first());
        let text = self.text_of(number + 1..end);
        !text.contains(char::is_alphabetic)
            && !text.trim().is_empty()
            && !next.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80)
            && !self.has_blocks(number + 1..end)
    }
}

/// Changes the roles of elements that are listed.
pub(crate) fn set_roles(roles: &mut [Role], tokens: &[Token], elements: &Elements) {
    if *elements == Elements::default() {
        return;
    }
    for (role, token) in roles.iter_mut().zip(tokens) {
        if let What::Start { name, .. } | What::End { name } = &token.what {
            *role = elements.role(name).unwrap_or(*role);
        }
    }
}

/// For each start tag of HTML the number of the token with which its element ends, as far as that can be told without a
/// browser's tree; for other tokens their own number. An element without an end tag ends with what it is in.
pub(crate) fn ends_of_html(tokens: &[Token]) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..tokens.len()).collect();
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (number, token) in tokens.iter().enumerate() {
        match &token.what {
            What::Start { name, closed } => {
                while open.last().is_some_and(|(last, _)| names::ends_before(last, name)) {
                    pop(&mut open, &mut counts, &mut ends, number);
                }
                if !is_void(name) && !closed {
                    open.push((name, number));
                    *counts.entry(name).or_default() += 1;
                }
            }
            What::End { name } if counts.get(name.as_str()).is_some_and(|&count| count > 0) => {
                while open.last().is_some_and(|(last, _)| last != name) {
                    pop(&mut open, &mut counts, &mut ends, number);
                }
                pop(&mut open, &mut counts, &mut ends, number);
            }
            _ => {}
        }
    }
    while !open.is_empty() {
        pop(&mut open, &mut counts, &mut ends, tokens.len());
    }
    ends
}

/// Ends the element that was opened last.
fn pop<'t>(
    open: &mut Vec<(&'t str, usize)>,
    counts: &mut HashMap<&'t str, usize>,
    ends: &mut [usize],
    at: usize,
) {
    if let Some((name, start)) = open.pop() {
        ends[start] = at;
        counts.entry(name).and_modify(|count| *count -= 1);
    }
}

/// Whether there are tags in a text that is none of this document's markup.
pub(crate) fn has_tags(text: &[u8]) -> bool {
    text.windows(3).any(|part| match part {
        [b'<', b'!' | b'?', ..] => true,
        [b'<', b'/', next] | [b'<', next, _] => next.is_ascii_alphabetic(),
        _ => false,
    })
}
