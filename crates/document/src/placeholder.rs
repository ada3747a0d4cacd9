//! What must survive in the strings of a table: placeholders and tags. And which strings are no text at all.

use std::ops::Range;

use peregrine_text::carry;

use crate::markup::{Role, role_in_html};

/// Something in a string that is not translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// It must come back.
    Keep,
    /// A start tag that has an end tag.
    Open(String),
    Close(String),
    /// A tag that stands for something.
    Object,
    /// The mark of a key, before a letter: `&File`.
    Accelerator,
}

/// The marks in the strings of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Whether `%` always begins a directive of `printf`.
    pub(crate) printf: bool,
    /// Whether `&` and `_` may mark keys.
    pub(crate) accelerators: bool,
}

/// What is in a string besides text, in order.
pub(crate) fn find(text: &str, marks: Marks) -> Vec<(Range<usize>, What)> {
    let mut found = tags(text);
    let keep = |range: Range<usize>| (range, What::Keep);
    if marks.printf {
        found.extend(directives(text).into_iter().map(keep));
    }
    found.extend(carry::placeholders(text).into_iter().map(keep));
    if marks.accelerators {
        found.extend(accelerator(text).map(|at| (at..at + 1, What::Accelerator)));
    }
    // What begins first is what counts; of two at the same place the one that was found first.
    found.sort_by_key(|(range, _)| range.start);
    let mut end = 0;
    found.retain(|(range, _)| {
        let free = range.start >= end;
        end = if free { range.end } else { end };
        free
    });
    found
}

/// Bytes that a tag may have.
const LONGEST: usize = 400;

fn tags(text: &str) -> Vec<(Range<usize>, What)> {
    let mut list: Vec<(Range<usize>, What)> = Vec::new();
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut kept_until = 0;
    for (at, _) in text.match_indices('<') {
        let Some((length, name, is_end)) = tag(&text[at..]) else { continue };
        let range = at..at + length;
        if at < kept_until {
            continue;
        }
        let closed = text[range.clone()].ends_with("/>");
        match is_end {
            true => match open.iter().rev().take(16).position(|(_, other)| *other == name) {
                Some(back) => {
                    let place = open.len() - 1 - back;
                    list[open[place].0].1 = What::Open(name.clone());
                    open.truncate(place);
                    list.push((range, What::Close(name)));
                }
                None => list.push((range, What::Keep)),
            },
            false if closed || matches!(name.as_str(), "br" | "hr" | "img" | "wbr") => {
                list.push((range, What::Object));
            }
            false => {
                let end = format!("</{name}>");
                let near = &text[range.end..text.floor_char_boundary(range.end + LONGEST)];
                match near.find(&end).filter(|_| role_in_html(&name) == Role::Keep) {
                    Some(inside) => {
                        kept_until = range.end + inside + end.len();
                        list.push((at..kept_until, What::Keep));
                    }
                    None => {
                        open.push((list.len(), name));
                        // Until its end is found.
                        list.push((range, What::Keep));
                    }
                }
            }
        }
    }
    list
}

/// The tag that a text begins with: its length, its name, whether it is an end.
fn tag(text: &str) -> Option<(usize, String, bool)> {
    let near = &text[..text.floor_char_boundary(LONGEST)];
    let inside = &near[1..near.find('>')?];
    let is_end = inside.starts_with('/');
    let name = inside.trim_start_matches('/');
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
    let behind = &inside[usize::from(is_end) + name.len()..];
    let fits = !name.is_empty()
        && !inside[1..].contains('<')
        && (behind.is_empty() || behind == "/" || behind.starts_with([' ', '\n']));
    // Several words without a value are a remark.
    let attributes = behind.trim_matches([' ', '/', '\n']);
    let fits = fits && (attributes.is_empty() || attributes.contains('='));
    fits.then(|| (inside.len() + 2, name.to_ascii_lowercase(), is_end))
}

/// All directives of `printf` and of its relatives in Python, Objective C and Qt.
fn directives(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find('%').map(|found| at + found) {
        let mut rest = &text[start + 1..];
        if let Some(end) = rest.strip_prefix('(').and_then(|rest| rest.find(')')) {
            rest = &rest[end + 2..];
        }
        rest = rest.trim_start_matches(|c: char| {
            matches!(c, '0'..='9' | '$' | '.' | '-' | '+' | '*' | '#' | '\'' | ' ')
        });
        // Sizes, and the macros of C for them: `%<PRIu64>`.
        rest = rest.trim_start_matches(['l', 'h', 'z', 'j', 'q', 't', 'L']);
        let macro_end = rest.strip_prefix('<').and_then(|rest| rest.find('>'));
        let kind = rest.chars().next();
        let length = match (macro_end, kind) {
            (Some(end), _) => end + 2,
            (_, Some(c)) if c.is_ascii_alphabetic() || c == '%' || c == '@' => 1,
            _ => 0,
        };
        let end = text.len() - rest.len() + length;
        if length > 0 {
            found.push(start..end);
        }
        at = end.max(start + 1);
    }
    found
}

/// The place of the one mark of a key.
fn accelerator(text: &str) -> Option<usize> {
    let places = |mark: char| {
        let mut places = text.match_indices(mark).map(|(at, _)| at);
        places.next().filter(|_| places.next().is_none())
    };
    let letter = |at: usize| text[at + 1..].starts_with(char::is_alphanumeric);
    let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric());
    let reference = |at: usize| {
        let word = text[at + 1..].trim_start_matches(|c: char| c.is_alphanumeric());
        word.starts_with(';')
    };
    let ampersand = places('&').filter(|&at| letter(at) && !reference(at));
    ampersand.or_else(|| places('_').filter(|&at| letter(at) && begins(at)))
}

/// Whether a string of a table is for people: not an address, a path, a colour, a name of a program's things.
///
/// What has a blank or letters beyond ASCII is text, if it has letters. A single word is text if it consists of letters, perhaps with
/// punctuation at its ends, a hyphen before a small letter behind a capital, or an apostrophe.
pub(crate) fn is_prose(text: &str) -> bool {
    let text = text.trim();
    if !text.contains(char::is_alphabetic) {
        return false;
    }
    let is_address = ["://", "mailto:", "data:"].iter().any(|mark| text.contains(mark));
    if text.contains(char::is_whitespace) {
        return !text.starts_with("data:");
    }
    if is_address {
        return false;
    }
    if !text.is_ascii() {
        return true;
    }
    let found = find(text, Marks::default());
    let mut word = String::new();
    let mut at = 0;
    for (range, _) in found {
        word.push_str(&text[at..range.start]);
        at = range.end;
    }
    word.push_str(&text[at..]);
    if word.starts_with(['#', '.', '/', '@', '$', '_', '-', '~', '&', '*', '\\']) {
        return false;
    }
    let end = word.trim_end_matches(['.', ',', ':', ';', '!', '?', ')', ']', '"', '\'']);
    let core = end.trim_start_matches(['(', '[', '"', '\'', '+']);
    let first_capital = core.starts_with(|c: char| c.is_ascii_uppercase());
    let mut last = ' ';
    for c in core.chars() {
        let fits = match c {
            'a'..='z' | '\'' | '&' => true,
            // Names like `camelCase` are not words; `LaTeX` and `OK` may be.
            'A'..='Z' => !last.is_ascii_lowercase() || first_capital,
            '-' => first_capital && last.is_ascii_alphabetic(),
            '/' => last.is_ascii_alphabetic(),
            _ => false,
        };
        if !fits {
            return false;
        }
        last = c;
    }
    core.contains(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, marks: Marks) -> Vec<String> {
        let found = find(text, marks).into_iter();
        found.map(|(range, what)| format!("{} {what:?}", &text[range])).collect()
    }

    #[test]
    fn placeholders_and_tags_are_found() {
        let plain = Marks::default();
        assert_eq!(
            shown("Hi {name}, <b>%d</b> new<br/>in <file> {{x}}", plain),
            [
                "{name} Keep",
                "<b> Open(\"b\")",
                "%d Keep",
                "</b> Close(\"b\")",
                "<br/> Object",
                "<file> Keep",
                "{{x}} Keep"
            ]
        );
        assert_eq!(shown("run <code>a {b}</code> 3 < 4 > 2", plain), ["<code>a {b}</code> Keep"]);
        let printf = Marks { printf: true, accelerators: true };
        assert_eq!(
            shown("%sfoo %-5.2lf%% %(a)s %1$s %<PRIu64> 100 %", printf),
            ["%s Keep", "%-5.2lf Keep", "%% Keep", "%(a)s Keep", "%1$s Keep", "%<PRIu64> Keep"]
        );
        assert_eq!(shown("&File", printf), ["& Accelerator"]);
        assert_eq!(shown("E&xit", printf), ["& Accelerator"]);
        assert_eq!(shown("_Open file_name", printf), [] as [&str; 0]);
        assert_eq!(shown("Save _as", printf), ["_ Accelerator"]);
        assert_eq!(shown("a &amp; b &x &y", printf), [] as [&str; 0]);
    }

    #[test]
    fn prose_is_told_from_names() {
        for text in [
            "Save",
            "save",
            "OK",
            "Cancel…",
            "E-mail",
            "Don't",
            "Hello world",
            "我",
            "{n} files",
            "Loading...",
            "Yes/No",
            "Hi!",
            "<b>Bold</b>",
            "see https://x.y for more",
            "GitHub",
        ] {
            assert!(is_prose(text), "{text}");
        }
        for text in [
            "",
            "42",
            "{name}",
            "https://example.org/a",
            "#fff",
            "en_US",
            "src/main.rs",
            "image.png",
            "camelCase",
            "snake_case",
            "btn-primary",
            "a@b.org",
            "v1.2",
            "12px",
            "2020-01-01T00:00:00Z",
            "/usr/bin",
            "--flag",
            "%s",
            "0x1F",
            "$variable",
            "data:x y",
        ] {
            assert!(!is_prose(text), "{text}");
        }
    }
}
