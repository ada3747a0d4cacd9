//! Catalogues of gettext. A message without a translation gets one: what is to be translated is copied to its place, where it is a
//! block, and the entry is marked as fuzzy, so that a person looks at it. Comments, references, contexts and obsolete entries are
//! copied.

use std::ops::Range;

use crate::Error;
use crate::body::Parsed;
use crate::encoding;
use crate::format::find;
use crate::options::Options;
use crate::placeholder::Marks;
use crate::quoting::{Quotes, Style};
use crate::strings::{Content, Strings, has_text};
use crate::text::refuse_utf16;

/// Forms of a plural that a header may ask for.
const MOST_FORMS: usize = 10;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let name = charset(&bytes).map(|range| String::from_utf8_lossy(&bytes[range]).into_owned());
    match name.filter(|name| !is_utf8(name)) {
        Some(name) => encoding::read_named(bytes, &name, |bytes| Ok(read_utf8(bytes, options))),
        None => Ok(read_utf8(bytes, options)),
    }
}

fn read_utf8(bytes: Vec<u8>, options: &Options) -> Parsed {
    let entries = entries(&bytes);
    let (filled, places) = Filling::new(&bytes, options).fill(&entries);
    let mut strings = Strings::new(&filled, options.wrapped);
    for (string, marks) in places {
        if let Some(content) = string.content(&filled) {
            let style = Style { quotes: Quotes::Po, ascii: false, icu: false };
            strings.add(&content, style, marks);
        }
    }
    let places = strings.places;
    places.finish(filled)
}

/// Where the header names the encoding.
fn charset(bytes: &[u8]) -> Option<Range<usize>> {
    let start = find(bytes, b"charset=")? + "charset=".len();
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte);
    let length = bytes[start..].iter().take_while(is_name).count();
    Some(start..start + length)
}

/// Names of UTF-8, and of what UTF-8 can take the place of: a template says `CHARSET`.
fn is_utf8(name: &str) -> bool {
    let names = ["utf-8", "utf8", "charset", "ascii", "us-ascii", ""];
    names.contains(&name.to_ascii_lowercase().as_str())
}

/// An entry of a catalogue.
#[derive(Debug, Default)]
struct Entry {
    /// The lines before the message, without their line ends.
    flags: Option<Range<usize>>,
    /// Where the message begins: behind the comments.
    start: Option<usize>,
    id: Text,
    plural: Option<Text>,
    /// The translations, each with the number of its form.
    forms: Vec<(Option<usize>, Text)>,
    /// Whether it has lines that an entry cannot have.
    is_broken: bool,
}

/// A string over one or more lines.
#[derive(Debug, Default, Clone)]
struct Text {
    /// From its first quote to its last.
    whole: Range<usize>,
    /// What is between the quotes of each line.
    lines: Vec<Range<usize>>,
}

impl Text {
    fn is_empty(&self) -> bool {
        self.lines.iter().all(Range::is_empty)
    }

    fn content(&self, bytes: &[u8]) -> Option<Content> {
        let mut content = Content::default();
        for line in &self.lines {
            let mut at = line.start;
            while at < line.end {
                let is_mark = |&byte: &u8| byte == b'\\';
                let rest = &bytes[at..line.end];
                let mark = rest.iter().position(is_mark).map_or(line.end, |found| at + found);
                content.plain(bytes, at..mark)?;
                at = mark;
                if mark < line.end {
                    let (c, length) = escape(&bytes[mark..line.end])?;
                    content.spelled(c, mark..mark + length);
                    at += length;
                }
            }
        }
        Some(content)
    }

    /// The same string at another place.
    fn moved(&self, to: usize) -> Text {
        let shift = |range: &Range<usize>| {
            range.start - self.whole.start + to..range.end - self.whole.start + to
        };
        Text { whole: shift(&self.whole), lines: self.lines.iter().map(shift).collect() }
    }
}

/// The character of an escape of C, and its length.
fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    let c = match bytes.get(1)? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'a' => '\x07',
        b'b' => '\x08',
        b'f' => '\x0c',
        b'v' => '\x0b',
        &byte @ (b'"' | b'\\' | b'\'' | b'?') => char::from(byte),
        b'0'..=b'7' => {
            let length = bytes[1..].iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let digits = bytes[1..=length].iter();
            let value = digits.fold(0, |value, digit| value * 8 + u32::from(digit - b'0'));
            // Bytes beyond ASCII are parts of characters.
            let c = char::from_u32(value).filter(char::is_ascii)?;
            return Some((c, 1 + length));
        }
        _ => return None,
    };
    Some((c, 2))
}

/// What a line begins.
enum Field {
    Context,
    Id,
    Plural,
    Form(Option<usize>),
}

/// The entries of a catalogue that have a message. Those that are broken are left out.
fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut entry = Entry::default();
    let mut field = None;
    let mut at = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let text = line.trim_ascii();
        let start = at + line.len() - line.trim_ascii_start().len();
        let keyword = keyword(text);
        let goes_on = text.starts_with(b"\"") || matches!(keyword, Some((Field::Form(_), _)));
        if text.is_empty() || !goes_on && !entry.forms.is_empty() {
            entries.push(std::mem::take(&mut entry));
            field = None;
        }
        if text.is_empty() || text.starts_with(b"#") {
            match text {
                [b'#', b',', ..] => entry.flags = Some(start..start + text.len()),
                [b'#', b'|', ..] => _ = entry.start.get_or_insert(at),
                _ => {}
            }
            field = None;
        } else {
            entry.start.get_or_insert(at);
            let quoted = keyword.as_ref().map_or(0, |(_, length)| *length);
            if let Some((new, _)) = keyword {
                entry.begin(&new);
                field = Some(new);
            }
            let inside = inside(&text[quoted.min(text.len())..]);
            let offset = start + quoted;
            entry.add(field.as_ref(), inside.map(|raw| offset + raw.start..offset + raw.end));
        }
        at += line.len();
    }
    entries.push(entry);
    entries.retain(|entry| {
        let mut all = entry.forms.iter().map(|(_, string)| string).chain(&entry.plural);
        let whole = !entry.id.lines.is_empty() && all.all(|string| !string.lines.is_empty());
        whole && !entry.forms.is_empty() && !entry.is_broken
    });
    entries
}

impl Entry {
    fn begin(&mut self, field: &Field) {
        match field {
            Field::Context => {}
            Field::Id => self.is_broken |= !self.id.lines.is_empty(),
            Field::Plural => self.is_broken |= self.plural.replace(Text::default()).is_some(),
            Field::Form(number) => self.forms.push((*number, Text::default())),
        }
    }

    /// Adds a line of a string.
    fn add(&mut self, field: Option<&Field>, raw: Option<Range<usize>>) {
        let mut other = Text::default();
        let string = match field {
            Some(Field::Id) => Some(&mut self.id),
            Some(Field::Plural) => self.plural.as_mut(),
            Some(Field::Form(_)) => self.forms.last_mut().map(|(_, string)| string),
            Some(Field::Context) => Some(&mut other),
            None => None,
        };
        match (string, raw) {
            (Some(string), Some(raw)) => {
                if string.lines.is_empty() {
                    string.whole.start = raw.start - 1;
                }
                string.whole.end = raw.end + 1;
                string.lines.push(raw);
            }
            _ => self.is_broken = true,
        }
    }
}

/// The field that a line begins, and the bytes before its string.
fn keyword(text: &[u8]) -> Option<(Field, usize)> {
    let rest = text.strip_prefix(b"msg")?;
    let name = rest.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_').count();
    let (field, behind) = match &rest[..name] {
        b"id" => (Field::Id, name),
        b"id_plural" => (Field::Plural, name),
        b"ctxt" => (Field::Context, name),
        b"str" => {
            let digits = rest[name..].strip_prefix(b"[").unwrap_or_default();
            let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = std::str::from_utf8(&digits[..length]).ok().and_then(|d| d.parse().ok());
            match digits.get(length) {
                Some(b']') if length > 0 => (Field::Form(number), name + length + 2),
                _ => (Field::Form(None), name),
            }
        }
        _ => return None,
    };
    let blanks = rest[behind..].len() - rest[behind..].trim_ascii_start().len();
    Some((field, 3 + behind + blanks))
}

/// What is between the quotes of a line that is nothing else.
fn inside(text: &[u8]) -> Option<Range<usize>> {
    let inner = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'"' if at + 1 == inner.len() => return Some(1..1 + at),
            b'"' => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Copies messages to where their translations are missing.
struct Filling<'a> {
    bytes: &'a [u8],
    options: &'a Options,
    newline: &'a [u8],
    /// The catalogue with what was filled in.
    out: Vec<u8>,
    /// How much of the catalogue is copied.
    copied: usize,
}

impl<'a> Filling<'a> {
    fn new(bytes: &'a [u8], options: &'a Options) -> Filling<'a> {
        let newline = if find(bytes, b"\r\n").is_some() { b"\r\n".as_slice() } else { b"\n" };
        Filling { bytes, options, newline, out: Vec::new(), copied: 0 }
    }

    /// The catalogue, and where the copies are.
    fn fill(mut self, entries: &[Entry]) -> (Vec<u8>, Vec<(Text, Marks)>) {
        let header = entries.iter().find(|entry| entry.id.is_empty());
        let forms = header.and_then(|header| self.forms(header));
        let charset = charset(self.bytes).filter(|name| {
            let name = String::from_utf8_lossy(&self.bytes[name.clone()]).to_ascii_lowercase();
            matches!(name.as_str(), "charset" | "ascii" | "us-ascii")
        });
        let mut places = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.id.is_empty()) {
            let marks = self.marks(entry);
            if !self.is_open(entry, forms) || !self.has_text(entry, marks) {
                continue;
            }
            // A template gets the encoding that its new text has.
            if let Some(name) = charset.clone().filter(|name| name.start >= self.copied) {
                self.copy_to(name.start);
                self.out.extend_from_slice(b"UTF-8");
                self.copied = name.end;
            }
            self.mark_fuzzy(entry);
            self.fill_entry(entry, forms, marks, &mut places);
        }
        self.copy_to(self.bytes.len());
        (self.out, places)
    }

    /// The number of forms that a plural has.
    fn forms(&self, header: &Entry) -> Option<usize> {
        let content = header.forms.first()?.1.content(self.bytes)?.text;
        let (_, rest) = content.split_once("nplurals=")?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest[..digits].parse().ok().filter(|&forms| forms <= MOST_FORMS)
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let flags = entry.flags.clone().map(|flags| &self.bytes[flags]).unwrap_or_default();
        let is = |name: &str| {
            let mut flags = flags[2.min(flags.len())..].split(|&byte| byte == b',');
            flags.any(|flag| flag.trim_ascii() == name.as_bytes())
        };
        let names = ["c-format", "python-format", "objc-format", "php-format", "perl-format"];
        let printf =
            names.iter().any(|name| is(name)) || is("sh-printf-format") || is("awk-format");
        Marks { printf, accelerators: true }
    }

    /// Whether a translation is missing, or is to be replaced.
    fn is_open(&self, entry: &Entry, forms: Option<usize>) -> bool {
        let wanted = if entry.plural.is_some() { forms.unwrap_or(1) } else { 1 };
        self.options.replace
            || entry.forms.len() < wanted
            || entry.forms.iter().any(|(_, string)| string.is_empty())
    }

    fn has_text(&self, entry: &Entry, marks: Marks) -> bool {
        let mut strings = std::iter::once(&entry.id).chain(&entry.plural);
        strings.any(|string| {
            let content = string.content(self.bytes);
            content.is_some_and(|content| has_text(self.bytes, &content, marks, self.options))
        })
    }

    fn copy_to(&mut self, end: usize) {
        self.out.extend_from_slice(&self.bytes[self.copied..end]);
        self.copied = end;
    }

    /// Marks an entry for review.
    fn mark_fuzzy(&mut self, entry: &Entry) {
        match &entry.flags {
            Some(flags) if find(&self.bytes[flags.clone()], b"fuzzy").is_some() => {}
            Some(flags) => {
                self.copy_to(flags.start + 2);
                self.out.extend_from_slice(b" fuzzy,");
            }
            None => {
                self.copy_to(entry.start.unwrap_or(entry.id.whole.start));
                self.out.extend_from_slice(b"#, fuzzy");
                self.out.extend_from_slice(self.newline);
            }
        }
    }

    fn fill_entry(
        &mut self,
        entry: &Entry,
        forms: Option<usize>,
        marks: Marks,
        places: &mut Vec<(Text, Marks)>,
    ) {
        for (number, string) in &entry.forms {
            if string.is_empty() || self.options.replace {
                self.copy_to(string.whole.start);
                // A single form is for all numbers.
                let number = if forms == Some(1) { 1 } else { number.unwrap_or(0) };
                places.push((self.copy_message(entry, number), marks));
                self.copied = string.whole.end;
            }
        }
        // Forms that are not written at all.
        let last = entry.forms.last();
        let (Some(_), Some((Some(last), string))) = (&entry.plural, last) else { return };
        for number in last + 1..forms.unwrap_or(0) {
            self.copy_to(string.whole.end);
            self.out.extend_from_slice(self.newline);
            self.out.extend_from_slice(format!("msgstr[{number}] ").as_bytes());
            places.push((self.copy_message(entry, number), marks));
        }
    }

    /// Copies the message that a form is the translation of. Gives the place of the copy.
    fn copy_message(&mut self, entry: &Entry, number: usize) -> Text {
        let source = entry.plural.as_ref().filter(|_| number > 0).unwrap_or(&entry.id);
        let copy = source.moved(self.out.len());
        self.out.extend_from_slice(&self.bytes[source.whole.clone()]);
        copy
    }
}
