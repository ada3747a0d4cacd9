//! Segments: parts of a text that are translated separately, divided by tabs, line breaks and the
//! syntax of ICU messages.

use std::ops::Range;

use super::patterns;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text, without white space at its ends.
    Text(Range<usize>),
    /// Text that is kept unchanged.
    Kept(Range<usize>),
}

/// The segments of a text, in order; together they are the whole text.
///
/// ```
/// use peregrine_text::carry::{Segment, segments};
/// let text = "- Name:\tBob ";
/// let parts = segments(text).into_iter().map(|segment| match segment {
///     Segment::Text(range) => text[range].to_owned(),
///     Segment::Kept(range) => format!("[{}]", &text[range]),
/// });
/// assert_eq!(parts.collect::<Vec<_>>(), ["[- ]", "Name:", "[\t]", "Bob", "[ ]"]);
/// ```
pub fn segments(text: &str) -> Vec<Segment> {
    let mut kept = Vec::new();
    let marker = marker(text);
    if marker > 0 {
        kept.push(0..marker);
    }
    if text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        add_controls(text, &mut kept);
    }
    if text.contains('\\') {
        add_escapes(text, &mut kept);
    }
    if text.contains('{') {
        add_messages(text, &mut kept);
    }
    kept.sort_by_key(|range| range.start);
    around(text, &kept)
}

/// Splits a text at kept ranges, which must be sorted. Overlapping ones are merged.
pub(super) fn around(text: &str, kept: &[Range<usize>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut at = 0;
    for range in kept {
        if range.start >= at {
            push_text(text, at..range.start, &mut segments);
        }
        if range.end > at {
            push_kept(range.start.max(at)..range.end, &mut segments);
            at = range.end;
        }
    }
    push_text(text, at..text.len(), &mut segments);
    segments
}

/// Adds a text segment; white space at its ends is kept.
fn push_text(text: &str, range: Range<usize>, segments: &mut Vec<Segment>) {
    let inside = text[range.clone()].trim_start();
    let start = range.end - inside.len();
    let end = start + inside.trim_end().len();
    push_kept(range.start..start, segments);
    if start < end {
        segments.push(Segment::Text(start..end));
        push_kept(end..range.end, segments);
    }
}

/// Adds a kept range, merged with a kept one before it.
fn push_kept(range: Range<usize>, segments: &mut Vec<Segment>) {
    match segments.last_mut() {
        _ if range.is_empty() => {}
        Some(Segment::Kept(last)) if last.end == range.start => last.end = range.end,
        _ => segments.push(Segment::Kept(range)),
    }
}

/// The length in bytes of the marker of a list, heading or quotation at the start of a line.
fn marker(text: &str) -> usize {
    let mut rest = text.trim_start();
    while let Some(mark) = ["- [ ] ", "- [x] ", "- ", "* ", "+ ", "• ", "· ", "> ", "– ", "— "]
        .iter()
        .find(|mark| rest.starts_with(**mark))
    {
        rest = rest[mark.len()..].trim_start();
    }
    let heading = rest.trim_start_matches('#');
    if rest.len() - heading.len() <= 6 && heading.starts_with(' ') {
        rest = heading.trim_start();
    }
    if rest.is_empty() { 0 } else { text.len() - rest.len() }
}

/// Adds control characters and line breaks.
fn add_controls(text: &str, kept: &mut Vec<Range<usize>>) {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    kept.extend(text.match_indices(breaks).map(|(at, found)| at..at + found.len()));
}

/// Adds the escapes `\n`, `\t` and `\r`, except within paths and code.
fn add_escapes(text: &str, kept: &mut Vec<Range<usize>>) {
    let code = patterns::find(text);
    for (at, _) in text.match_indices('\\') {
        let escape = text[at + 1..].starts_with(['n', 't', 'r']);
        let doubled = text[..at].ends_with('\\');
        let in_code = code.get(code.partition_point(|range| range.end <= at));
        if escape && !doubled && !in_code.is_some_and(|range| range.contains(&at)) {
            kept.push(at..at + 2);
        }
    }
}

/// Adds the syntax of ICU messages: `{count, plural, one {`, `} other {`, `}}`.
fn add_messages(text: &str, kept: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(found) = text[at..].find('{') {
        let start = at + found;
        at = match message(text, start) {
            Some(frames) => {
                let end = frames.last().map_or(start + 1, |range| range.end);
                kept.extend(frames);
                end
            }
            None => start + 1,
        };
    }
}

/// The byte ranges of the syntax of the message that begins at an offset.
fn message(text: &str, start: usize) -> Option<Vec<Range<usize>>> {
    let mut fields = text[start + 1..].splitn(3, ',');
    let (name, kind) = (fields.next()?, fields.next()?.trim());
    fields.next()?;
    if name.contains(['{', '}']) || !matches!(kind, "plural" | "select" | "selectordinal") {
        return None;
    }
    let (mut frames, mut depth, mut from) = (Vec::new(), 0, start);
    for (place, c) in text[start..].char_indices() {
        let at = start + place;
        match c {
            '{' => {
                depth += 1;
                if depth == 2 {
                    frames.push(from..at + 1);
                }
            }
            '}' => {
                if depth == 2 {
                    from = at;
                }
                depth -= 1;
                if depth == 0 {
                    frames.push(from..at + 1);
                    return Some(frames);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        let text_of = |segment| match segment {
            Segment::Text(range) => Some(&text[range]),
            Segment::Kept(_) => None,
        };
        segments(text).into_iter().filter_map(text_of).collect()
    }

    #[test]
    fn lines_and_columns_are_texts_of_their_own() {
        assert_eq!(
            texts("First line\\nSecond line\\tafter"),
            ["First line", "Second line", "after"]
        );
        assert_eq!(texts("one\r\n\ttwo"), ["one", "two"]);
        assert_eq!(texts("C:\\new\\table.txt is here"), ["C:\\new\\table.txt is here"]);
        assert_eq!(texts("  - [ ] Buy milk"), ["Buy milk"]);
        assert_eq!(texts("## Title"), ["Title"]);
        assert_eq!(texts("#top is - here"), ["#top is - here"]);
        assert_eq!(texts("-"), ["-"]);
    }

    #[test]
    fn messages_are_translated_inside() {
        let text = "{count, plural, one {# file} other {# files}} selected";
        assert_eq!(texts(text), ["# file", "# files", "selected"]);
        assert_eq!(texts("{count, plural, one {# file}"), ["{count, plural, one {# file}"]);
        assert_eq!(texts("Hi {name}, you"), ["Hi {name}, you"]);
    }
}
