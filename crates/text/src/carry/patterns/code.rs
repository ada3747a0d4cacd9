//! Code, paths and names of files.

use super::address::has_ending;
use super::{before, begins, is_name, run, without_punctuation};

/// The most bytes of code between two marks.
const LONGEST: usize = 200;

/// `` `code` ``, also with more than one mark.
pub(super) fn backticks(text: &str, at: usize) -> Option<usize> {
    let marks = run(&text[at..], |c| c == '`');
    let inside = &text[at + marks..];
    let length =
        inside.find(&text[at..at + marks]).filter(|&length| (1..LONGEST).contains(&length))?;
    let end = at + marks + length + marks;
    Some(end + run(&text[end..], |c| c == '`'))
}

/// `snake_case`, `call()`, `name=value`, `Ctrl+Esc`, `C++`.
pub(super) fn identifier(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let scoped = rest[run(rest, is_name)..].starts_with("::");
    let mut end = run(rest, |c| is_name(c) || c == '.' || c == ':' && scoped);
    end = rest[..end].trim_end_matches(['.', ':']).len();
    let name = &rest[..end];
    let inner = name.trim_matches('_').contains('_') || name.starts_with("__") && name.len() > 4;
    let behind = &rest[end..];
    if behind.starts_with("()") {
        return Some(at + end + 2);
    }
    if behind.starts_with('=') && !behind[1..].starts_with([' ', '=']) {
        let value = run(&behind[1..], |c| !c.is_whitespace() && !matches!(c, ',' | ';' | ')'));
        let whole = without_punctuation(text, at, at + end + 1 + value);
        return (value > 0 && end > 1).then_some(whole);
    }
    if behind.starts_with("++") {
        return (end == 1).then_some(at + end + 2);
    }
    if behind.starts_with('+') {
        let keys = run(rest, |c| c.is_ascii_alphanumeric() || c == '+');
        let keys = rest[..keys].trim_end_matches('+').len();
        let letters =
            rest[..keys].split('+').all(|key| key.starts_with(|c: char| c.is_ascii_uppercase()));
        return (letters && keys > end).then_some(at + keys);
    }
    (inner || name.contains("::")).then_some(at + end)
}

/// `--option`.
pub(super) fn flag(text: &str, at: usize) -> Option<usize> {
    let name = text[at..].strip_prefix("--")?;
    let length = run(name, |c| c.is_ascii_alphanumeric() || c == '-' || c == '=');
    let alone = before(text, at).is_none_or(char::is_whitespace);
    let named = name.starts_with(|c: char| c.is_ascii_lowercase());
    (alone && named).then(|| at + 2 + name[..length].trim_end_matches(['-', '=']).len())
}

/// `/usr/lib`, `./run.sh`, `../x`, `~/notes`.
pub(super) fn path(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let opens =
        |c: char| c.is_whitespace() || matches!(c, '(' | '"' | '\'' | '“' | '‘' | '=' | '`');
    if !before(text, at).is_none_or(opens) {
        return None;
    }
    let length =
        run(rest, |c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '+' | '@'));
    let end = without_punctuation(text, at, at + length);
    let found = &text[at..end];
    let root = ["./", "../", "~/"].iter().any(|root| found.starts_with(root));
    let named = found.contains(|c: char| c.is_alphanumeric());
    let deep = found.starts_with('/') && found[1..].contains('/');
    (named && (root || deep || found.starts_with('/') && found.len() > 2)).then_some(end)
}

/// `C:\folder\file name.txt`, `\\server\share`.
pub(super) fn windows_path(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let drive =
        rest.len() > 2 && rest.as_bytes()[0].is_ascii_alphabetic() && rest[1..].starts_with(":\\");
    if !begins(text, at) || !drive && !rest.starts_with("\\\\") {
        return None;
    }
    let is_part = |c: char| !c.is_whitespace() && !matches!(c, '"' | '<' | '>' | '|' | '?' | '*');
    let length = run(rest, is_part);
    let end = without_punctuation(text, at, at + length);
    // A file name may have blanks if it has a known ending.
    let last = text[at..end].rsplit('\\').next().unwrap_or_default();
    if has_ending(last) || !text[end..].starts_with(' ') {
        return Some(end);
    }
    let mut longer = end;
    for word in text[end..].split(' ').skip(1).take(3) {
        longer += 1 + word.len();
        let whole = without_punctuation(text, at, longer);
        let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?', '"', '\'']);
        if has_ending(word) && word.contains(is_name) {
            return Some(whole);
        }
    }
    Some(end)
}

/// The `](target)` of a link.
pub(super) fn link(text: &str, at: usize) -> Option<usize> {
    let inside = text[at..].strip_prefix("](")?;
    let length = inside.find(')').filter(|&length| length < LONGEST)?;
    (!inside[..length].contains(char::is_whitespace)).then_some(at + 2 + length + 1)
}

/// `$formula$`, which must have a mathematical sign.
pub(super) fn formula(text: &str, at: usize) -> Option<usize> {
    let inside = &text[at + 1..];
    let length = inside.find('$').filter(|&length| (1..LONGEST).contains(&length))?;
    let formula = &inside[..length];
    let tight = formula.trim() == formula;
    let marked = formula.contains(['^', '_', '\\', '=']);
    (tight && marked && !formula.contains("{{")).then_some(at + length + 2)
}
