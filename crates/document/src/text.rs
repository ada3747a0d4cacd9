//! Plain text. A line is a block, or a paragraph if lines are wrapped. Indentation, list markers, tabs, form feeds and line
//! ends stay as they are.

use std::ops::Range;

use crate::Error;
use crate::block::Block;
use crate::body::Parsed;
use crate::builder::Builder;
use crate::encoding;
use crate::escape::Escape;
use crate::options::Options;
use crate::splice::Places;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    encoding::read(bytes, |bytes| Ok(read_utf8(bytes, options)))
}

pub(crate) fn read_utf8(bytes: Vec<u8>, options: &Options) -> Parsed {
    let mut places = Places::default();
    let mut builder = Builder::new(!options.wrapped);
    let mut at = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let content = line.trim_ascii();
        let mark = if at == 0 { bom(line) } else { 0 };
        let indent = line.len() - line[mark..].trim_ascii_start().len();
        let marker = marker(&line[indent..]);
        if !options.wrapped || content.is_empty() || marker > 0 {
            places.list(builder.finish());
        }
        let start = at + indent + marker;
        for cell in cells(&bytes[start.min(at + line.len())..at + line.len()]) {
            if cell.start > 0 {
                places.list(builder.finish());
            }
            builder.bytes(&bytes[start + cell.start..start + cell.end], start + cell.start);
        }
        at += line.len();
    }
    places.list(builder.finish());
    places.finish(bytes)
}

/// The end of the last whole line.
pub(crate) fn last_line_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}

impl Places {
    fn list(&mut self, block: Option<(Block, Range<usize>)>) {
        if let Some(block) = block {
            self.add(block, Escape::Plain);
        }
    }
}

/// Text in UTF-16 has a zero byte in every other place, and is no text for us.
pub(crate) fn refuse_utf16(bytes: &[u8]) -> Result<(), Error> {
    match bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        true => Err(Error::whole("text in UTF-16; UTF-8 was expected")),
        false => Ok(()),
    }
}

/// The bytes of a byte order mark.
pub(crate) fn bom(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }
}

/// What stands between tabs and form feeds.
fn cells(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    line.split_inclusive(|byte| matches!(byte, b'\t' | b'\x0c')).map(move |cell| {
        end += cell.len();
        end - cell.len()..end
    })
}

/// The bytes of a list's marker or of the marks of a quoted mail, with the white space behind them: `- `, `* `, `1. `, `a) `, `> `.
fn marker(line: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let rest = &line[length..];
        let sign = match rest {
            [b'-' | b'*' | b'+' | b'>' | b'#', ..] => {
                rest.iter().take_while(|&&byte| byte == rest[0]).count()
            }
            [0xe2, 0x80, 0xa2 | 0xa3, ..] | [0xe2, 0x97, 0x8f | 0xa6, ..] => 3,
            [b'(', ..] => 1 + numbered(&rest[1..]),
            _ => numbered(rest),
        };
        let blanks = rest[sign..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if sign == 0 || blanks == 0 {
            return length;
        }
        length += sign + blanks;
    }
}

/// The bytes of a number or a single letter with a stop or bracket behind it.
fn numbered(rest: &[u8]) -> usize {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let letter = usize::from(rest.first().is_some_and(u8::is_ascii_lowercase));
    let length = if digits > 0 { digits } else { letter };
    match rest.get(length) {
        Some(b'.' | b')') if (1..=3).contains(&length) => length + 1,
        _ => 0,
    }
}
