//! YAML vocabularies, line by line.
//!
//! Marian's files use a small corner of YAML, and tokens such as `<<`, `no`, `0x10` or `---` are exactly
//! what general YAML readers trip over. Here every key is a string: plain (taken as it stands, up to the
//! last colon), in double quotes (with escapes) or in single quotes. Only LF and CR LF end a line.

use super::Entry;
use crate::Error;

/// Whether the file is one `{…}`, that is JSON (or close enough).
pub(super) fn is_flow_map(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    bytes.trim_ascii_start().first() == Some(&b'{')
}

pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Entry>, Error> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if is_ignored(line) {
            continue;
        }
        let entry = parse_line(line)
            .map_err(|problem| Error::new(name, format!("line {number}"), problem))?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Empty lines, comments and document marks. A token `---` has a colon after it.
fn is_ignored(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line == b"---" || line == b"..." || line.starts_with(b"#")
}

fn parse_line(line: &[u8]) -> Result<Entry, String> {
    let line = trim_blanks(line);
    let (key, value) = match line.first() {
        Some(b'"') => double_quoted(&line[1..])?,
        Some(b'\'') => single_quoted(&line[1..])?,
        _ => plain(line)?,
    };
    let id = parse_id(value)?;
    match String::from_utf8(key) {
        Ok(token) => Ok(Entry { token, id, matchable: true }),
        // Marian writes U+007F as two malformed bytes, and cannot find it again either.
        Err(error) => {
            let token = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Ok(Entry { token, id, matchable: false })
        }
    }
}

/// A key's bytes and what follows its colon.
type KeyAndValue<'a> = (Vec<u8>, &'a [u8]);

/// The key ends at the last colon that a blank follows: `a: b: 7` is the token `a: b`.
fn plain(line: &[u8]) -> Result<KeyAndValue<'_>, String> {
    let colon = line
        .windows(2)
        .rposition(|pair| pair[0] == b':' && matches!(pair[1], b' ' | b'\t'))
        .ok_or_else(|| format!("expected `token: id`, found {:?}", printable(line)))?;
    Ok((trim_blanks(&line[..colon]).to_vec(), &line[colon + 1..]))
}

fn single_quoted(rest: &[u8]) -> Result<KeyAndValue<'_>, String> {
    let mut key = Vec::new();
    let mut at = 0;
    loop {
        match rest.get(at..).unwrap_or_default() {
            [b'\'', b'\'', ..] => {
                key.push(b'\'');
                at += 2;
            }
            [b'\'', after @ ..] => return Ok((key, after_colon(after)?)),
            [byte, ..] => {
                key.push(*byte);
                at += 1;
            }
            [] => return Err("a quoted token has no closing quote".into()),
        }
    }
}

fn double_quoted(rest: &[u8]) -> Result<KeyAndValue<'_>, String> {
    let mut key = Vec::new();
    let mut at = 0;
    loop {
        match rest.get(at..).unwrap_or_default() {
            [b'"', after @ ..] => return Ok((key, after_colon(after)?)),
            [b'\\', escape @ ..] => at += 1 + unescape(escape, &mut key)?,
            [byte, ..] => {
                key.push(*byte);
                at += 1;
            }
            [] => return Err("a quoted token has no closing quote".into()),
        }
    }
}

fn after_colon(after: &[u8]) -> Result<&[u8], String> {
    let after = trim_blanks(after);
    after.strip_prefix(b":").ok_or_else(|| "expected a colon after the quoted token".into())
}

/// Appends what an escape stands for and returns its length without the backslash.
fn unescape(escape: &[u8], key: &mut Vec<u8>) -> Result<usize, String> {
    let Some(&letter) = escape.first() else {
        return Err("a backslash ends the line".into());
    };
    let digits = match letter {
        b'x' => 2,
        b'u' => 4,
        b'U' => 8,
        _ => {
            let character = simple_escape(letter)
                .ok_or_else(|| format!("an unknown escape \\{}", letter.escape_ascii()))?;
            push(key, character);
            return Ok(1);
        }
    };
    let number = hex(escape, 1, digits)?;
    // JSON writers cut characters beyond U+FFFF into two surrogates.
    if let (b'u', 0xD800..=0xDBFF, Some([b'\\', b'u'])) = (letter, number, escape.get(5..7)) {
        let low = hex(escape, 7, 4)?;
        if (0xDC00..=0xDFFF).contains(&low) {
            push_number(key, 0x10000 + ((number - 0xD800) << 10) + (low - 0xDC00))?;
            return Ok(11);
        }
    }
    push_number(key, number)?;
    Ok(1 + digits)
}

fn simple_escape(letter: u8) -> Option<char> {
    Some(match letter {
        b'"' | b'\\' | b'/' | b' ' | b'\t' | b'\'' => letter as char,
        b'0' => '\0',
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b't' => '\t',
        b'n' => '\n',
        b'v' => '\u{B}',
        b'f' => '\u{C}',
        b'r' => '\r',
        b'e' => '\u{1B}',
        b'_' => '\u{A0}',
        b'N' => '\u{85}',
        b'L' => '\u{2028}',
        b'P' => '\u{2029}',
        _ => return None,
    })
}

fn hex(escape: &[u8], start: usize, digits: usize) -> Result<u32, String> {
    let problem = || format!("expected {digits} hexadecimal digits in an escape");
    let digits = escape.get(start..start + digits).ok_or_else(problem)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(problem());
    }
    let text = std::str::from_utf8(digits).map_err(|_| problem())?;
    u32::from_str_radix(text, 16).map_err(|_| problem())
}

fn push_number(key: &mut Vec<u8>, number: u32) -> Result<(), String> {
    let character = char::from_u32(number)
        .ok_or_else(|| format!("the escape for {number:#X} is not a character"))?;
    push(key, character);
    Ok(())
}

fn push(key: &mut Vec<u8>, character: char) {
    key.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The number after the colon; a comment may follow.
fn parse_id(value: &[u8]) -> Result<u64, String> {
    let value = trim_blanks(value);
    let end = value.windows(2).position(|pair| pair == b" #").unwrap_or(value.len());
    let digits = trim_blanks(&value[..end]);
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("expected an id after the colon, found {:?}", printable(value)))
}

/// Blanks and tabs only: other white space can be part of a token.
fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The start of a line for a message.
fn printable(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(60).collect()
}
