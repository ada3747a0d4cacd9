//! String tables in JSON, and lines of JSON. Only strings are looked at: values are texts, keys are not. Everything else is copied,
//! so that comments and commas that JSON does not allow do no harm.

use crate::Error;
use crate::body::Parsed;
use crate::encoding;
use crate::format::find;
use crate::options::Options;
use crate::placeholder::{Marks, is_prose};
use crate::quoting::{Quotes, Style};
use crate::strings::{Content, Strings, is_wanted};

/// Objects and lists inside of each other.
const DEEPEST: usize = 1000;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    encoding::read(bytes, |bytes| read_utf8(bytes, options))
}

pub(crate) fn read_utf8(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    let mut reader = Reader::new(&bytes, options);
    reader.read()?;
    let places = reader.strings.places;
    Ok(places.finish(bytes))
}

/// The end of the last line that ends outside of all brackets: what is behind it can be read by itself.
pub(crate) fn last_line_end(bytes: &[u8]) -> usize {
    let (mut at, mut depth, mut end) = (0, 0_usize, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        at = match byte {
            b'"' => string_end(bytes, at).unwrap_or(bytes.len()),
            b'/' => comment_end(bytes, at),
            _ => at + 1,
        };
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'\n' if depth == 0 => end = at,
            _ => {}
        }
    }
    end
}

struct Reader<'a> {
    bytes: &'a [u8],
    options: &'a Options,
    strings: Strings<'a>,
    style: Style,
    open: Vec<Level>,
    /// The keys of the value that comes next, with stops between them. Kept only if keys are to be chosen.
    path: String,
    /// Whether the value that comes next describes another one.
    is_note: bool,
}

/// An object or a list that is open.
struct Level {
    close: u8,
    /// Where it begins.
    start: usize,
    /// The values of a list so far.
    count: usize,
    /// The length of its path.
    path: usize,
    is_note: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], options: &'a Options) -> Reader<'a> {
        let ascii = bytes.is_ascii() && find(bytes, b"\\u").is_some();
        Reader {
            bytes,
            options,
            strings: Strings::new(bytes, options.wrapped),
            style: Style { quotes: Quotes::Json, ascii, icu: false },
            open: Vec::new(),
            path: String::new(),
            is_note: false,
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        let mut at = 0;
        while at < self.bytes.len() {
            at = match self.bytes[at] {
                b'{' => self.begin(at, b'}')?,
                b'[' => self.begin(at, b']')?,
                byte @ (b'}' | b']') => match self.open.pop() {
                    Some(level) if level.close == byte => {
                        self.path.truncate(level.path);
                        self.is_note = level.is_note;
                        at + 1
                    }
                    _ => return Err(self.error(at, "a bracket that closes nothing")),
                },
                b',' => {
                    self.next_value();
                    at + 1
                }
                b'"' => self.string(at)?,
                b'/' => comment_end(self.bytes, at),
                _ => at + 1,
            };
        }
        match self.open.last() {
            Some(level) => Err(self.error(level.start, "a bracket that is never closed")),
            None => Ok(()),
        }
    }

    fn error(&self, at: usize, problem: &str) -> Error {
        Error::at(self.bytes, at, problem)
    }

    fn begin(&mut self, at: usize, close: u8) -> Result<usize, Error> {
        if self.open.len() == DEEPEST {
            return Err(self.error(at, &format!("more than {DEEPEST} brackets inside each other")));
        }
        let (path, is_note) = (self.path.len(), self.is_note);
        self.open.push(Level { close, start: at, count: 0, path, is_note });
        if close == b']' {
            self.add_key("0");
        }
        Ok(at + 1)
    }

    /// What comes behind a comma.
    fn next_value(&mut self) {
        let Some(level) = self.open.last_mut() else { return };
        level.count += 1;
        let count = level.count;
        self.path.truncate(level.path);
        self.is_note = level.is_note;
        if level.close == b']' {
            self.add_key(&count.to_string());
        }
    }

    fn add_key(&mut self, key: &str) {
        if !self.options.keys.is_empty() {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(key);
        }
    }

    /// Reads a key or a value.
    fn string(&mut self, at: usize) -> Result<usize, Error> {
        let Some(end) = string_end(self.bytes, at) else {
            return Err(self.error(at, "a string that is never closed"));
        };
        let content = content(self.bytes, at + 1, end - 1);
        let behind = self.bytes[end..].trim_ascii_start();
        let in_object = self.open.last().is_some_and(|level| level.close == b'}');
        if in_object && behind.starts_with(b":") {
            let key = content.map(|content| content.text).unwrap_or_default();
            // Descriptions in ARB, contexts in JSON-LD.
            self.is_note |= key.starts_with('@');
            self.add_key(&key);
        } else if let Some(content) = content.filter(|content| {
            !self.is_note && is_prose(&content.text) && is_wanted(&self.options.keys, &self.path)
        }) {
            self.strings.add(&content, self.style, Marks::default());
        }
        Ok(end)
    }
}

/// The place behind a string.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at + 1;
    loop {
        match bytes.get(end)? {
            b'"' => return Some(end + 1),
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
}

/// The place behind a comment, which JSON does not have but files do.
fn comment_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest.get(1) {
        Some(b'/') => rest.iter().position(|&byte| byte == b'\n'),
        Some(b'*') => find(&rest[2..], b"*/").map(|end| end + 4),
        _ => Some(1),
    };
    at + length.unwrap_or(rest.len())
}

/// What a string says. Nothing if its escapes make no text.
fn content(bytes: &[u8], start: usize, end: usize) -> Option<Content> {
    let mut content = Content::default();
    let mut at = start;
    while at < end {
        let is_mark = |&byte: &u8| byte == b'\\';
        let mark = bytes[at..end].iter().position(is_mark).map_or(end, |found| at + found);
        content.plain(bytes, at..mark)?;
        if mark == end {
            break;
        }
        let (c, length) = escape(&bytes[mark..end])?;
        content.spelled(c, mark..mark + length);
        at = mark + length;
    }
    Some(content)
}

/// The character of an escape, and its length.
fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    let c = match bytes.get(1)? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\x08',
        b'f' => '\x0c',
        &byte @ (b'"' | b'\\' | b'/') => char::from(byte),
        b'u' => {
            let first = unit(bytes)?;
            let second = bytes.get(6..).filter(|rest| rest.starts_with(b"\\u")).and_then(unit);
            let pair = [first, second.unwrap_or(0)];
            return match char::decode_utf16(pair).next()? {
                Ok(c) => Some((c, if c > '\u{ffff}' { 12 } else { 6 })),
                Err(_) => None,
            };
        }
        _ => return None,
    };
    Some((c, 2))
}

fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(bytes.get(2..6)?).ok()?;
    let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u16::from_str_radix(digits, 16).ok())?
}
