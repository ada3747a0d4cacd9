//! The strings of tables: gettext, JSON, YAML. Each of their lines is a block, in which placeholders are kept and tags are spans.

use std::ops::Range;

use crate::builder::Builder;
use crate::escape::Escape;
use crate::icu;
use crate::markup::reference::References;
use crate::options::Options;
use crate::placeholder::{self, Marks, What};
use crate::quoting::Style;
use crate::splice::Places;

/// What a string says, and how it is written.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) text: String,
    /// Stretches of the text: where each begins, its bytes of the document, and whether these are not the text itself.
    pieces: Vec<(usize, Range<usize>, bool)>,
}

impl Content {
    /// Text that is written as itself. Nothing if it is none.
    pub(crate) fn plain(&mut self, document: &[u8], raw: Range<usize>) -> Option<()> {
        let text = std::str::from_utf8(&document[raw.clone()]).ok()?;
        if !text.is_empty() {
            self.pieces.push((self.text.len(), raw, false));
            self.text.push_str(text);
        }
        Some(())
    }

    /// A character that is written as something else.
    pub(crate) fn spelled(&mut self, c: char, raw: Range<usize>) {
        self.pieces.push((self.text.len(), raw, true));
        self.text.push(c);
    }

    /// The bytes of the document from the first to the last of a stretch.
    fn raw(&self, range: &Range<usize>) -> Range<usize> {
        let mut pieces = self.pieces(range);
        let first = pieces.next().map_or(0..0, |(raw, ..)| raw);
        let last = pieces.last().map_or(first.end, |(raw, ..)| raw.end);
        first.start..last
    }

    /// The pieces of a stretch: the bytes, the text, and whether it is spelled.
    fn pieces(&self, range: &Range<usize>) -> impl Iterator<Item = (Range<usize>, &str, bool)> {
        let first = self.pieces.partition_point(|piece| piece.0 <= range.start).saturating_sub(1);
        let range = range.clone();
        (first..self.pieces.len()).map_while(move |number| {
            let (start, raw, is_spelled) = &self.pieces[number];
            let next = self.pieces.get(number + 1).map_or(self.text.len(), |piece| piece.0);
            let (from, to) = (range.start.max(*start), range.end.min(next));
            let text = self.text.get(from..to)?;
            let raw = match is_spelled {
                true => raw.clone(),
                false => raw.start + from - start..raw.start + to - start,
            };
            (from < to).then_some((raw, text, *is_spelled))
        })
    }
}

/// The strings of a document.
pub(crate) struct Strings<'a> {
    pub(crate) document: &'a [u8],
    pub(crate) wrapped: bool,
    pub(crate) places: Places,
    /// Whether the text is a leaf of a message, which is an object of another block.
    in_message: bool,
}

impl<'a> Strings<'a> {
    pub(crate) fn new(document: &'a [u8], wrapped: bool) -> Strings<'a> {
        Strings { document, wrapped, places: Places::default(), in_message: false }
    }

    /// Adds the blocks of a string.
    pub(crate) fn add(&mut self, content: &Content, style: Style, marks: Marks) {
        let messages = icu::messages(&content.text);
        let style = Style { icu: !messages.is_empty(), ..style };
        let mut builder = Builder::new(!self.wrapped);
        let mut at = 0;
        for message in messages {
            self.add_part(content, at..message.range.start, &mut builder, style, marks);
            builder.object(content.raw(&message.range));
            at = message.range.end;
            self.in_message = true;
            for leaf in message.leaves {
                let mut inner = Builder::new(!self.wrapped);
                self.add_part(content, leaf, &mut inner, style, marks);
                self.flush(&mut inner, style);
            }
            self.in_message = false;
        }
        self.add_part(content, at..content.text.len(), &mut builder, style, marks);
        self.flush(&mut builder, style);
    }

    fn flush(&mut self, builder: &mut Builder, style: Style) {
        match builder.finish() {
            Some(block) if self.in_message => {
                self.places.add_in_tag(block, Escape::String(style));
            }
            Some(block) => self.places.add(block, Escape::String(style)),
            None => {}
        }
    }

    /// Adds text with placeholders and tags in it.
    fn add_part(
        &mut self,
        content: &Content,
        part: Range<usize>,
        builder: &mut Builder,
        style: Style,
        marks: Marks,
    ) {
        let mut at = part.start;
        for (range, what) in placeholder::find(&content.text[part.clone()], marks) {
            let range = part.start + range.start..part.start + range.end;
            self.add_text(content, at..range.start, builder, style);
            let raw = content.raw(&range);
            match what {
                What::Keep => builder.keep(&content.text[range.clone()], raw),
                What::Open(name) => builder.open(&name, raw),
                What::Close(name) => builder.close(&name, raw),
                What::Object => builder.object(raw),
                What::Accelerator => {
                    // Inside of a word there is no place for it in another word: it is left out of a new text.
                    let before = content.text[..range.start].chars().next_back();
                    if !before.is_some_and(char::is_alphanumeric) {
                        builder.point(raw);
                    }
                }
            }
            at = range.end;
        }
        self.add_text(content, at..part.end, builder, style);
    }

    /// Adds text. The end of a line or a tab ends a block; the lines of a paragraph are one block if they are wrapped.
    fn add_text(
        &mut self,
        content: &Content,
        range: Range<usize>,
        builder: &mut Builder,
        style: Style,
    ) {
        let mut start = range.start;
        let text = &content.text;
        for (at, c) in text[range.clone()].char_indices() {
            let at = range.start + at;
            let next = text[at + c.len_utf8()..].chars().next();
            let ends = match c {
                // A quoted mark of a message, or an apostrophe.
                '\'' if style.icu && at >= start => {
                    let end = icu::quoted(text, at..range.end);
                    if end > at + 1 {
                        self.add_run(content, start..at, builder);
                        let raw = content.raw(&(at..end));
                        match &text[at..end] {
                            "''" => builder.spelled("'", raw),
                            other => builder.keep(other, raw),
                        }
                        start = end;
                    }
                    false
                }
                '#' if style.icu && at >= start => {
                    self.add_run(content, start..at, builder);
                    builder.keep("#", content.raw(&(at..at + 1)));
                    start = at + 1;
                    false
                }
                '\n' if self.wrapped => {
                    next.is_none_or(|c| c.is_whitespace() || matches!(c, '-' | '*' | '•'))
                }
                '\n' | '\r' | '\t' | '\x0c' | '\x0b' => true,
                _ => false,
            };
            if ends && at >= start {
                self.add_run(content, start..at, builder);
                self.flush(builder, style);
                start = at;
            }
        }
        self.add_run(content, start.min(range.end)..range.end, builder);
    }

    fn add_run(&self, content: &Content, range: Range<usize>, builder: &mut Builder) {
        for (raw, text, is_spelled) in content.pieces(&range) {
            match is_spelled {
                true => builder.spelled(text, raw),
                false => References::HtmlAttribute.add(self.document, raw, builder),
            }
        }
    }
}

/// Whether a string would have a block.
pub(crate) fn has_text(
    document: &[u8],
    content: &Content,
    marks: Marks,
    options: &Options,
) -> bool {
    let mut strings = Strings::new(document, options.wrapped);
    strings.add(content, Style::default(), marks);
    !strings.places.is_empty()
}

/// Whether a path of keys is among those that are wanted: a pattern fits it or something that holds it. In a pattern `*` stands for any
/// characters but the stop between two keys.
pub(crate) fn is_wanted(patterns: &[String], path: &str) -> bool {
    let fits = |pattern: &String| {
        let mut keys = path.split('.');
        pattern.split('.').all(|part| keys.next().is_some_and(|key| glob(part, key)))
    };
    patterns.is_empty() || patterns.iter().any(fits)
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_keys() {
        let wanted = |pattern: &str, path: &str| is_wanted(&[pattern.to_owned()], path);
        assert!(is_wanted(&[], "a.b"));
        assert!(
            wanted("a", "a.b.c")
                && wanted("a.*.c", "a.b.c")
                && wanted("*", "x")
                && wanted("a.t*e", "a.title")
        );
        assert!(
            !wanted("a.b", "a")
                && !wanted("a.*.d", "a.b.c")
                && !wanted("a", "ab")
                && !wanted("a*b*c", "acb")
        );
    }
}
