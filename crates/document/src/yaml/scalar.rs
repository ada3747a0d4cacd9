//! The scalars of YAML: what they say, and which bytes say it.

use std::ops::Range;

use crate::strings::Content;

/// The key that a text begins with, and the bytes up to its value.
pub(super) fn key(text: &[u8]) -> Option<(String, usize)> {
    let end = match text.first()? {
        b'"' | b'\'' => {
            let end = closing(text, 0)? + 1;
            let blanks = text[end..].iter().take_while(|&&byte| byte == b' ').count();
            end + blanks
        }
        b'[' | b'{' | b']' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'%' | b'@' | b'`'
        | b'#' | b',' => return None,
        _ => {
            let mut at = 0;
            loop {
                match text.get(at)? {
                    b':' if matches!(text.get(at + 1), None | Some(b' ' | b'\t')) => break at,
                    b'#' if at > 0 && text[at - 1].is_ascii_whitespace() => return None,
                    _ => at += 1,
                }
            }
        }
    };
    let is_key =
        text.get(end) == Some(&b':') && matches!(text.get(end + 1), None | Some(b' ' | b'\t'));
    let name = String::from_utf8_lossy(text[..end].trim_ascii());
    is_key.then(|| (name.trim_matches(['"', '\'']).to_owned(), end + 1))
}

/// The place of the quote that closes the one at a byte.
pub(super) fn closing(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = bytes[at];
    let mut end = at + 1;
    loop {
        match *bytes.get(end)? {
            b'\\' if quote == b'"' => end += 2,
            byte if byte == quote => match bytes.get(end + 1) {
                Some(b'\'') if quote == b'\'' => end += 2,
                _ => return Some(end),
            },
            _ => end += 1,
        }
    }
}

/// A part of a line without the comment behind it and without white space at its ends.
pub(super) fn without_comment(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &bytes[range.clone()];
    let is_comment = |pair: &[u8]| pair[0].is_ascii_whitespace() && pair[1] == b'#';
    let end = text.windows(2).position(is_comment).unwrap_or(text.len());
    range.start..range.start + text[..end].trim_ascii_end().len()
}

/// Lines that are one text. Their ends are blanks.
pub(super) fn folded(bytes: &[u8], lines: &[Range<usize>]) -> Option<Content> {
    let mut content = Content::default();
    let mut end = None;
    for line in lines {
        if let Some(end) = end {
            content.spelled(' ', end..line.start);
        }
        content.plain(bytes, line.clone())?;
        end = Some(line.end);
    }
    Some(content)
}

/// `'…'`, without the quotes.
pub(super) fn single(bytes: &[u8], range: Range<usize>) -> Option<Content> {
    quoted(bytes, range, |rest| rest.starts_with(b"''").then_some(Some(('\'', 2))))
}

/// `"…"`, without the quotes.
pub(super) fn double(bytes: &[u8], range: Range<usize>) -> Option<Content> {
    quoted(bytes, range, |rest| (rest[0] == b'\\').then(|| escape(rest)))
}

/// Text in quotes. `special` tells what something that is not text stands for, or that it is broken.
fn quoted(
    bytes: &[u8],
    range: Range<usize>,
    special: impl Fn(&[u8]) -> Option<Option<(char, usize)>>,
) -> Option<Content> {
    let mut content = Content::default();
    let (mut plain, mut at) = (range.start, range.start);
    while at < range.end {
        let rest = &bytes[at..range.end];
        if let Some(found) = special(rest) {
            content.plain(bytes, plain..at)?;
            if rest.starts_with(b"\\\n") || rest.starts_with(b"\\\r\n") {
                // The line goes on without a blank.
                at += 1 + rest[1..].len() - rest[1..].trim_ascii_start().len();
            } else {
                let (c, length) = found?;
                content.spelled(c, at..at + length);
                at += length;
            }
            plain = at;
        } else if rest[0] == b'\n' || rest[0] == b'\r' {
            // White space on both sides belongs to the end of the line.
            let text = &bytes[plain..at];
            let start = plain + text.trim_ascii_end().len();
            let length = rest.len() - rest.trim_ascii_start().len();
            let ends = rest[..length].iter().filter(|&&byte| byte == b'\n').count();
            content.plain(bytes, plain..start)?;
            content.spelled(if ends > 1 { '\n' } else { ' ' }, start..at + length);
            at += length;
            plain = at;
        } else {
            at += 1;
        }
    }
    content.plain(bytes, plain..range.end)?;
    Some(content)
}

/// The character of an escape, and its length.
fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    let c = match bytes.get(1)? {
        b'0' => '\0',
        b'a' => '\x07',
        b'b' => '\x08',
        b't' | b'\t' => '\t',
        b'n' => '\n',
        b'v' => '\x0b',
        b'f' => '\x0c',
        b'r' => '\r',
        b'e' => '\x1b',
        &byte @ (b' ' | b'"' | b'/' | b'\\') => char::from(byte),
        b'N' => '\u{85}',
        b'_' => '\u{a0}',
        b'L' => '\u{2028}',
        b'P' => '\u{2029}',
        &byte @ (b'x' | b'u' | b'U') => {
            let length = match byte {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            };
            let digits = std::str::from_utf8(bytes.get(2..2 + length)?).ok()?;
            let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let value = all.then(|| u32::from_str_radix(digits, 16).ok())??;
            return Some((char::from_u32(value)?, 2 + length));
        }
        _ => return None,
    };
    Some((c, 2))
}

/// The lines of a literal or folded scalar, without their indentation.
pub(super) fn block(
    bytes: &[u8],
    lines: &[Range<usize>],
    indent: usize,
    is_folded: bool,
) -> Option<Content> {
    let mut content = Content::default();
    let text = |line: &Range<usize>| &bytes[line.start + indent.min(line.len())..line.end];
    // Lines that are empty or indented more keep their ends.
    let is_apart = |text: &[u8]| text.first().is_none_or(u8::is_ascii_whitespace);
    for (number, line) in lines.iter().enumerate() {
        let start = line.start + indent.min(line.len());
        content.plain(bytes, start..line.end)?;
        if let Some(next) = lines.get(number + 1) {
            let raw = line.end..next.start + indent.min(next.len());
            let folds = is_folded && !is_apart(text(line)) && !is_apart(text(next));
            content.spelled(if folds { ' ' } else { '\n' }, raw);
        }
    }
    Some(content)
}

/// The strings of a list in brackets. Nothing if there is more in it, or if it does not end on the line.
pub(super) fn flow_items(bytes: &[u8], range: Range<usize>) -> Option<Vec<Range<usize>>> {
    let mut items = Vec::new();
    let mut at = range.start + 1;
    loop {
        at += bytes[at..range.end].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let rest = &bytes[at.min(range.end)..range.end];
        let start = at;
        match rest.first()? {
            b']' => break,
            b'"' | b'\'' => at = closing(&bytes[..range.end], at)? + 1,
            b'[' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'%' | b'@' | b'`' | b'#'
            | b',' | b'?' => return None,
            _ => {
                let length = rest.iter().position(|byte| b",]".contains(byte))?;
                let plain = &rest[..length];
                let is_odd = |pair: &[u8]| pair == b": " || pair == b" #";
                if plain.contains(&b'[') || plain.contains(&b'{') || plain.windows(2).any(is_odd) {
                    return None;
                }
                at += length;
            }
        }
        let end = start + bytes[start..at].trim_ascii_end().len();
        items.push(start..end);
        at += bytes[at..range.end].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        match bytes[..range.end].get(at)? {
            b',' => at += 1,
            b']' => break,
            _ => return None,
        }
    }
    super::is_empty(&bytes[at + 1..range.end]).then_some(items)
}
