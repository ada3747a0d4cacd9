//! Messages of ICU: `{count, plural, one {# file} other {# files}}`. Their frame stays; their texts are translated.

use std::ops::Range;

/// Messages inside of each other.
const DEEPEST: usize = 8;

/// A message with several texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// All of it, with its braces.
    pub(crate) range: Range<usize>,
    /// Its texts, and the texts of messages in it.
    pub(crate) leaves: Vec<Range<usize>>,
}

/// The messages of a text. One that is not well-formed is text, and so is all behind it.
pub(crate) fn messages(text: &str) -> Vec<Message> {
    let mut leaves = Vec::new();
    inside(text, 0..text.len(), 0, &mut leaves).unwrap_or_default()
}

/// The messages in a part of a text. Their texts are added to the leaves.
fn inside(
    text: &str,
    part: Range<usize>,
    depth: usize,
    leaves: &mut Vec<Range<usize>>,
) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    let mut at = part.start;
    while let Some(start) = next_brace(text, at..part.end) {
        let end = closing(text, start..part.end)?;
        let before = leaves.len();
        if depth < DEEPEST && message(text, start..end, depth, leaves)? {
            let leaves = leaves[before..].to_vec();
            messages.push(Message { range: start..end, leaves });
        }
        at = end;
    }
    Some(messages)
}

/// The next brace that opens something and is not quoted.
fn next_brace(text: &str, part: Range<usize>) -> Option<usize> {
    let mut at = part.start;
    while at < part.end {
        match text.as_bytes()[at] {
            b'{' => return Some(at),
            b'\'' => at = quoted(text, at..part.end),
            _ => at += 1,
        }
    }
    None
}

/// The end of what an apostrophe begins: a quotation, a doubled apostrophe, or nothing but itself.
pub(crate) fn quoted(text: &str, part: Range<usize>) -> usize {
    let rest = &text[part.start + 1..part.end];
    match rest.as_bytes().first() {
        Some(b'\'') => part.start + 2,
        Some(b'{' | b'}') => match rest.find('\'') {
            Some(end) => part.start + 1 + end + 1,
            None => part.start + 1,
        },
        _ => part.start + 1,
    }
}

/// The end of what a brace opens.
fn closing(text: &str, part: Range<usize>) -> Option<usize> {
    let mut depth = 0;
    let mut at = part.start;
    while at < part.end {
        match text.as_bytes()[at] {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'\'' => {
                at = quoted(text, at..part.end);
                continue;
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Reads `{name, kind, selector {text} …}`, and tells whether it is that.
fn message(
    text: &str,
    range: Range<usize>,
    depth: usize,
    leaves: &mut Vec<Range<usize>>,
) -> Option<bool> {
    let whole = &text[range.start + 1..range.end - 1];
    let mut fields = whole.splitn(3, ',');
    let (name, kind) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let (Some(rest), false) = (fields.next(), name.contains(['{', '}'])) else {
        return Some(false);
    };
    if !["plural", "select", "selectordinal"].contains(&kind.trim()) {
        return Some(false);
    }
    let end = range.end - 1;
    let mut at = end - rest.len();
    while let Some(open) = text[at..end].find('{').map(|found| at + found) {
        let close = closing(text, open..end)?;
        leaf(text, open + 1..close - 1, depth + 1, leaves)?;
        at = close;
    }
    Some(true)
}

/// A text of a message. One with messages in it falls into what stands between them.
fn leaf(
    text: &str,
    range: Range<usize>,
    depth: usize,
    leaves: &mut Vec<Range<usize>>,
) -> Option<()> {
    let mut nested = Vec::new();
    let messages = inside(text, range.clone(), depth, &mut nested)?;
    let mut at = range.start;
    for message in messages {
        leaves.push(at..message.range.start);
        leaves.extend(message.leaves);
        at = message.range.end;
    }
    leaves.push(at..range.end);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_messages_are_found() {
        let leaves = |text: &str| -> Vec<Vec<String>> {
            let messages = messages(text).into_iter();
            messages
                .map(|m| m.leaves.into_iter().map(|leaf| text[leaf].to_owned()).collect())
                .collect()
        };
        let text = "You have {n, plural, offset:1 =0 {no files} one {# file} other {# files in {dir}}} now, {name}.";
        assert_eq!(leaves(text), [["no files", "# file", "# files in {dir}"]]);
        let text = "{g, select, male {He has {n, plural, one {a cat} other {# cats}}.} other {{n, plural, other {x}}}}";
        assert_eq!(leaves(text), [["He has ", "a cat", "# cats", ".", "", "x", ""]]);
        assert_eq!(leaves("{n, number} '{a, plural, b {c}}' it''s {x"), [] as [Vec<&str>; 0]);
        assert_eq!(leaves("{n, plural, one {a} other {b}"), [] as [Vec<&str>; 0]);
        let deep = "{a, select, b {".repeat(50_000);
        assert_eq!(leaves(&deep), [] as [Vec<&str>; 0]);
        let deep = format!("{}x{}", "{a, select, b {".repeat(1000), "}}".repeat(1000));
        assert_eq!(leaves(&deep).len(), 1);
    }
}
