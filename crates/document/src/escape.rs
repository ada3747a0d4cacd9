//! How text is written in a document.

use std::collections::HashMap;
use std::ops::Range;

use crate::block::Block;
use crate::markup::reference::References;
use crate::quoting::Style;

/// The rules by which a stretch of a document spells characters that have a meaning in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Every character is itself.
    Plain,
    /// The text of HTML.
    Html,
    /// The text of XML.
    Xml,
    /// The value of an attribute, in these quotes. A value without quotes gets some.
    Attribute(Option<char>),
    /// Inside of `<![CDATA[` and `]]>`.
    Cdata,
    /// The text of Markdown.
    Markdown,
    /// A string of a table.
    String(Style),
}

impl Escape {
    /// The characters that have a meaning.
    fn special(self) -> &'static str {
        match self {
            Escape::Markdown => "\\`*_[]<&|~",
            _ => "<>&",
        }
    }

    /// Writes the character that `rest` begins with. The document's author wrote such a one as itself (`bare`), or it is new.
    fn push(self, c: char, rest: &str, bare: bool, out: &mut Vec<u8>) {
        if let Escape::String(style) = self {
            return style.push(c, rest, out);
        }
        let escaped = match (self, c) {
            (Escape::Plain, _) => None,
            (Escape::Html, '&') if bare && !References::Html.begin(rest) => None,
            (Escape::Html, '<') if bare && !begins_tag(rest) => None,
            (Escape::Html, '>') if bare => None,
            (Escape::Cdata, '>') => (out.ends_with(b"]]")).then_some("]]><![CDATA[>"),
            (Escape::Cdata, _) => None,
            (Escape::Markdown, '&') => References::Html.begin(rest).then_some("&amp;"),
            (Escape::Markdown, '<') if !begins_tag(rest) => None,
            (Escape::Markdown, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '|' | '~') if !bare => {
                out.push(b'\\');
                None
            }
            (Escape::Markdown, _) => None,
            (Escape::Attribute(quote), '"') if quote != Some('\'') => Some("&quot;"),
            (Escape::Attribute(Some('\'')), '\'') => Some("&#39;"),
            (_, '&') => Some("&amp;"),
            (_, '<') => Some("&lt;"),
            (_, '>') => Some("&gt;"),
            _ => None,
        };
        match escaped {
            Some(escaped) => out.extend_from_slice(escaped.as_bytes()),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether a browser would see a tag or comment.
pub(crate) fn begins_tag(rest: &str) -> bool {
    matches!(rest.as_bytes().get(1), Some(b'/' | b'!' | b'?' | b'a'..=b'z' | b'A'..=b'Z'))
}

/// Writes the text of a block. A character for which the block has a spelling of its own keeps it: a non-breaking blank
/// stays `&nbsp;` where the author wrote that, and the line ends of a paragraph stay, each at the blank of the same number.
pub(crate) struct Encoder<'a> {
    document: &'a [u8],
    escape: Escape,
    /// Whether characters beyond ASCII are written as references.
    ascii: bool,
    /// How the block writes a character, at its first place, its second, and so on.
    spellings: HashMap<char, Spellings>,
    /// Whether what comes next begins the block, and must not look like more than text.
    at_start: bool,
}

#[derive(Default)]
struct Spellings {
    /// Nothing means as itself.
    list: Vec<Option<Range<usize>>>,
    used: usize,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(
        document: &'a [u8],
        block: &Block,
        escape: Escape,
        ascii: bool,
    ) -> Encoder<'a> {
        let mut spellings: HashMap<char, Spellings> = HashMap::new();
        for (at, _) in &block.spellings {
            if let Some(c) = block.text[*at..].chars().next() {
                spellings.entry(c).or_default();
            }
        }
        for c in escape.special().chars() {
            spellings.entry(c).or_default();
        }
        let mut known = block.spellings.iter().peekable();
        let mut kept = block.keep().into_iter().peekable();
        for (at, c) in block.text.char_indices() {
            while kept.next_if(|range| range.end <= at).is_some() {}
            if kept.peek().is_some_and(|range| range.start <= at) {
                continue;
            }
            let spelling = known.next_if(|(place, _)| *place == at);
            if let Some(spellings) = spellings.get_mut(&c) {
                spellings.list.push(spelling.map(|(_, raw)| raw.clone()));
            }
        }
        let at_start = !begins_like_mark(&block.text);
        Encoder { document, escape, ascii, spellings, at_start }
    }

    /// Something else than text was written.
    pub(crate) fn pass(&mut self) {
        self.at_start = false;
    }

    /// Writes a part of the new text.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<u8>) {
        for (at, c) in text.char_indices() {
            let spelling = self.spellings.get_mut(&c).and_then(|spellings| spellings.next(c));
            let spelling = match self.escape {
                Escape::Markdown => self.keep_off_marks(&text[at..], spelling, out),
                _ => spelling,
            };
            match spelling {
                Some(Some(raw)) => out.extend_from_slice(&self.document[raw]),
                _ if self.ascii && !c.is_ascii() => {
                    out.extend_from_slice(format!("&#{};", u32::from(c)).as_bytes());
                }
                spelling => self.escape.push(c, &text[at..], spelling.is_some(), out),
            }
        }
    }
}

impl Encoder<'_> {
    /// Text that begins like a list or a title: at the beginning of a block it is escaped, and no line ends before it.
    fn keep_off_marks(
        &mut self,
        rest: &str,
        spelling: Option<Option<Range<usize>>>,
        out: &mut Vec<u8>,
    ) -> Option<Option<Range<usize>>> {
        let first = std::mem::take(&mut self.at_start);
        let ends_line = match &spelling {
            Some(Some(raw)) => self.document[raw.clone()].contains(&b'\n'),
            _ => false,
        };
        if ends_line && begins_like_mark(&rest[1..]) {
            return None;
        }
        if first
            && spelling.is_none()
            && begins_like_mark(rest)
            && !rest.starts_with(|c: char| c.is_ascii_digit())
        {
            out.push(b'\\');
        }
        spelling
    }
}

/// Whether a line that begins so is a list, a title, a quotation, a rule or a table.
fn begins_like_mark(rest: &str) -> bool {
    let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.len() < rest.len() && number.starts_with(['.', ')']);
    let ends = |rest: &str| rest.chars().next().is_none_or(char::is_whitespace);
    match rest.as_bytes() {
        [b'>' | b'|' | b'=' | b' ' | b'\t', ..] => true,
        [b'#', ..] => ends(rest.trim_start_matches('#')),
        [b'-' | b'+' | b'*' | b':', ..] => ends(&rest[1..]) || rest.starts_with("--"),
        [b'~' | b'`', ..] => rest.starts_with("~~~") || rest.starts_with("```"),
        _ => numbered && ends(&number[1..]),
    }
}

impl Spellings {
    /// The spelling at the next place. Places that the block does not have are spelled as its last one was, but a
    /// blank is a blank.
    fn next(&mut self, c: char) -> Option<Option<Range<usize>>> {
        let place = self.used;
        self.used += 1;
        match self.list.get(place) {
            None if c == ' ' => None,
            None => self.list.last().cloned(),
            known => known.cloned(),
        }
    }
}
