//! String tables in YAML: mappings and lists by indentation, with scalars of all five kinds. Only values are texts. What goes beyond that
//! (flow collections over lines, complex keys, tags) is copied.

mod scalar;

use std::ops::Range;

use crate::Error;
use crate::body::Parsed;
use crate::encoding;
use crate::format::find;
use crate::options::Options;
use crate::placeholder::{Marks, is_prose};
use crate::quoting::{Quotes, Style, is_plain};
use crate::strings::{Content, Strings, is_wanted};
use crate::text::bom;

/// Mappings and lists inside of each other. What is deeper is copied.
const DEEPEST: usize = 200;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    encoding::read(bytes, |bytes| {
        let mut reader = Reader::new(&bytes, options);
        reader.read();
        let places = reader.strings.places;
        Ok(places.finish(bytes))
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    options: &'a Options,
    strings: Strings<'a>,
    /// The lines, without their ends.
    lines: Vec<Range<usize>>,
    levels: Vec<Level>,
    ascii: bool,
}

/// A key or an item of a list that holds what is indented more.
struct Level {
    column: usize,
    key: String,
    /// The number of an item.
    item: Option<usize>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], options: &'a Options) -> Reader<'a> {
        let mut lines = Vec::new();
        let mut start = bom(bytes);
        for line in bytes[start..].split_inclusive(|&byte| byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            lines.push(start..start + text.len());
            start += line.len();
        }
        let ascii = bytes.is_ascii() && find(bytes, b"\\u").is_some();
        let strings = Strings::new(bytes, options.wrapped);
        Reader { bytes, options, strings, lines, levels: Vec::new(), ascii }
    }

    fn read(&mut self) {
        let mut number = 0;
        while number < self.lines.len() {
            number = self.line(number).max(number + 1);
        }
    }

    fn text(&self, range: Range<usize>) -> &'a [u8] {
        &self.bytes[range]
    }

    /// Reads the line of a key, of an item, or of nothing. Gives the number of the next line.
    fn line(&mut self, number: usize) -> usize {
        let line = self.lines[number].clone();
        let text = self.text(line.clone());
        let indent = indent(text);
        if is_empty(text) {
            return number + 1;
        }
        // What stands behind the mark of a document may go on in any line.
        if text.starts_with(b"---") && !is_empty(&text[3..]) {
            return self.lines.len();
        }
        if indent == 0
            && [b"---".as_slice(), b"...", b"%"].iter().any(|mark| text.starts_with(mark))
        {
            self.levels.clear();
            return number + 1;
        }
        let (mut at, mut parent) = (line.start + indent, None);
        while begins_item(self.text(at..line.end)) {
            let column = at - line.start;
            self.enter(column, None);
            parent = Some(column);
            at += 1;
            at += indent_of(self.text(at..line.end));
            if self.levels.len() > DEEPEST {
                return self.skip_deeper(number + 1, indent);
            }
        }
        let rest = self.text(at..line.end);
        let column = at - line.start;
        // A complex key, and its value.
        if matches!(rest, b"?" | b":" | [b'?' | b':', b' ' | b'\t', ..]) {
            return self.skip_complex(number + 1, column);
        }
        if let Some((key, length)) = scalar::key(rest) {
            self.enter(column, Some(key));
            return self.value(number, at + length, column);
        }
        // The value of a key may stand in a line of its own. A document that is one scalar is copied, and so is what cannot be told.
        let parent =
            parent.or(self.levels.last().map(|level| level.column).filter(|&p| p < column));
        match (parent, rest.first()) {
            (Some(parent), _) => self.value(number, at, parent),
            (None, Some(b'[' | b'{')) => self.skip_flow(number, at),
            _ => self.lines.len(),
        }
    }

    /// Begins a key or the next item of a list.
    fn enter(&mut self, column: usize, key: Option<String>) {
        let mut item = 0;
        while let Some(level) = self.levels.last() {
            // The items of a list may stand below their key.
            let ends = level.column > column
                || level.column == column && (level.item.is_some() || key.is_some());
            if !ends {
                break;
            }
            if level.column == column {
                item = level.item.map_or(0, |item| item + 1);
            }
            self.levels.pop();
        }
        let level = match key {
            Some(key) => Level { column, key, item: None },
            None => Level { column, key: item.to_string(), item: Some(item) },
        };
        self.levels.push(level);
    }

    /// Reads the value that begins at a byte of a line. What it has in other lines is indented more than its parent.
    fn value(&mut self, number: usize, at: usize, parent: usize) -> usize {
        let end = self.lines[number].end;
        let at = at + indent_of(self.text(at..end));
        let rest = self.text(at..end);
        match rest.first() {
            None | Some(b'#' | b'*') => number + 1,
            Some(b'&') => {
                let name = rest.iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
                self.value(number, at + name, parent)
            }
            Some(b'|' | b'>') => self.block_scalar(number, at, parent),
            Some(b'"' | b'\'') => self.quoted(number, at, parent),
            Some(b'[') => match self.flow_list(at..end) {
                true => number + 1,
                false => self.skip_flow(number, at),
            },
            Some(b'{') => self.skip_flow(number, at),
            Some(b'!' | b'@' | b'`' | b'%' | b']' | b'}' | b',') => {
                self.skip_deeper(number + 1, parent)
            }
            Some(_) => self.plain(number, at, parent),
        }
    }

    /// The number of the first line behind those that are indented more.
    fn skip_deeper(&self, mut number: usize, column: usize) -> usize {
        while number < self.lines.len() {
            let text = self.text(self.lines[number].clone());
            if !text.trim_ascii().is_empty() && indent(text) <= column {
                break;
            }
            number += 1;
        }
        number
    }

    /// The same behind a complex key, which may be a list that is not indented more.
    fn skip_complex(&self, number: usize, column: usize) -> usize {
        let mut next = self.skip_deeper(number, column);
        while let Some(line) = self.lines.get(next) {
            let text = self.text(line.clone());
            if indent(text) != column || !begins_item(&text[column..]) {
                break;
            }
            next = self.skip_deeper(next + 1, column);
        }
        next
    }

    /// The number of the line behind a collection in brackets.
    fn skip_flow(&self, number: usize, at: usize) -> usize {
        let (mut depth, mut quote, mut last) = (0_usize, None, b' ');
        let mut from = at;
        for (number, line) in self.lines.iter().enumerate().skip(number) {
            let mut bytes = self.text(from.max(line.start)..line.end).iter();
            from = 0;
            while let Some(&byte) = bytes.next() {
                match (quote, byte) {
                    (Some(b'"'), b'\\') => {
                        bytes.next();
                    }
                    (Some(mark), _) if mark == byte => quote = None,
                    (Some(_), _) => {}
                    (None, b'"' | b'\'') if !last.is_ascii_alphanumeric() => quote = Some(byte),
                    (None, b'#') if last.is_ascii_whitespace() => break,
                    (None, b'[' | b'{') => depth += 1,
                    (None, b']' | b'}') => depth = depth.saturating_sub(1),
                    _ => {}
                }
                last = byte;
            }
            last = b'\n';
            if depth == 0 && quote.is_none() {
                return number + 1;
            }
        }
        self.lines.len()
    }

    /// Whether a value is to be translated.
    fn is_wanted(&self, content: &Content) -> bool {
        if !is_prose(&content.text) {
            return false;
        }
        let keys = &self.options.keys;
        keys.is_empty() || {
            let path: Vec<&str> = self.levels.iter().map(|level| level.key.as_str()).collect();
            is_wanted(keys, &path.join("."))
        }
    }

    fn style(&self, quotes: Quotes) -> Style {
        Style { quotes, ascii: self.ascii, icu: false }
    }

    fn quoted(&mut self, number: usize, at: usize, parent: usize) -> usize {
        let Some(end) = scalar::closing(self.bytes, at) else { return self.lines.len() };
        let last = self.lines.partition_point(|line| line.start <= end).saturating_sub(1);
        let behind = self.text(end + 1..self.lines[last].end.max(end + 1));
        let is_deeper = |line: &Range<usize>| {
            let text = self.text(line.clone());
            text.trim_ascii().is_empty()
                || indent(text) > parent
                || parent == 0 && text.starts_with(b" ")
        };
        let sound = is_empty(behind) && self.lines[number + 1..=last].iter().all(is_deeper);
        let content = match self.bytes[at] {
            b'"' => scalar::double(self.bytes, at + 1..end),
            _ => scalar::single(self.bytes, at + 1..end),
        };
        if let Some(content) = content.filter(|content| sound && self.is_wanted(content)) {
            let is_double = self.bytes[at] == b'"';
            let quotes = if is_double { Quotes::YamlDouble } else { Quotes::YamlSingle };
            self.strings.add(&content, self.style(quotes), Marks::default());
        }
        last + 1
    }

    /// A scalar without quotes. New text may need some, which can only be put round the whole of it.
    fn plain(&mut self, number: usize, at: usize, parent: usize) -> usize {
        let mut next = number + 1;
        let mut lines = vec![scalar::without_comment(self.bytes, at..self.lines[number].end)];
        let mut sound = lines[0].end
            == self.lines[number].start
                + self.text(self.lines[number].clone()).trim_ascii_end().len();
        let has_comment = !sound;
        while !has_comment && next < self.lines.len() {
            let behind = self.skip_blank(next);
            let text = |number: usize| self.text(self.lines[number].clone());
            let goes_on = behind < self.lines.len() && indent(text(behind)) > parent;
            if !goes_on {
                break;
            }
            // Paragraphs in such a scalar are left alone.
            sound &= behind == next;
            let is_comment = text(behind).trim_ascii().starts_with(b"#");
            let end = if is_comment { behind } else { behind + 1 };
            lines.extend((next..end).map(|number| {
                let line = self.lines[number].clone();
                let start = line.start + indent(text(number));
                scalar::without_comment(self.bytes, start..line.end)
            }));
            next = end;
            if is_comment {
                break;
            }
        }
        let range = lines[0].start..lines[lines.len() - 1].end;
        if let Some(content) = scalar::folded(self.bytes, &lines).filter(|_| sound || has_comment) {
            self.add_whole(&content, range, Quotes::YamlPlain);
        }
        next
    }

    fn skip_blank(&self, mut number: usize) -> usize {
        while number < self.lines.len()
            && self.text(self.lines[number].clone()).trim_ascii().is_empty()
        {
            number += 1;
        }
        number
    }

    /// Adds a scalar without quotes, if it is one block.
    fn add_whole(&mut self, content: &Content, range: Range<usize>, quotes: Quotes) {
        if !is_plain(&content.text, quotes == Quotes::YamlFlow) || !self.is_wanted(content) {
            return;
        }
        let mut alone = Strings::new(self.bytes, false);
        alone.add(content, self.style(quotes), Marks::default());
        self.strings.places.add_if_whole(alone.places, &range);
    }

    /// A list in brackets on one line. Gives false if it is more than a list of strings.
    fn flow_list(&mut self, range: Range<usize>) -> bool {
        let Some(items) = scalar::flow_items(self.bytes, range) else { return false };
        for item in items {
            let content = match self.bytes[item.start] {
                b'"' => scalar::double(self.bytes, item.start + 1..item.end - 1),
                b'\'' => scalar::single(self.bytes, item.start + 1..item.end - 1),
                _ => scalar::folded(self.bytes, std::slice::from_ref(&item)),
            };
            let Some(content) = content else { continue };
            match self.bytes[item.start] {
                b'"' | b'\'' if !self.is_wanted(&content) => {}
                b'"' => {
                    self.strings.add(&content, self.style(Quotes::YamlDouble), Marks::default())
                }
                b'\'' => {
                    self.strings.add(&content, self.style(Quotes::YamlSingle), Marks::default())
                }
                _ => self.add_whole(&content, item, Quotes::YamlFlow),
            }
        }
        true
    }

    /// A literal or folded scalar.
    fn block_scalar(&mut self, number: usize, at: usize, parent: usize) -> usize {
        let header = self.text(at..self.lines[number].end);
        let end = self.skip_deeper(number + 1, parent);
        let marks = header[1..].iter().take_while(|byte| b"+-123456789".contains(byte)).count();
        if marks > 2 || !is_empty(&header[1 + marks..]) {
            return end;
        }
        let given = header[1..=marks].iter().find(|byte| byte.is_ascii_digit());
        let lines = &self.lines[number + 1..end];
        let text = |line: &Range<usize>| self.text(line.clone());
        let first = lines.iter().find(|line| !text(line).trim_ascii().is_empty());
        let indent = match given {
            Some(digit) => parent + usize::from(digit - b'0'),
            None => first.map_or(0, |line| indent(text(line))),
        };
        if let Some(content) = scalar::block(self.bytes, lines, indent, header[0] == b'>')
            && self.is_wanted(&content)
        {
            self.strings.add(&content, self.style(Quotes::YamlBlock), Marks::default());
        }
        end
    }
}

/// The blanks that a line begins with.
fn indent(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| byte == b' ').count()
}

/// The blanks and tabs that a text begins with.
fn indent_of(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count()
}

/// Whether there is nothing but white space or a comment.
fn is_empty(text: &[u8]) -> bool {
    let rest = text.trim_ascii_start();
    rest.is_empty() || rest[0] == b'#' && (rest.len() < text.len() || text[0] == b'#')
}

fn begins_item(text: &[u8]) -> bool {
    text == b"-" || text.starts_with(b"- ")
}
