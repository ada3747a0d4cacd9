//! Placeholders of printf, ICU, Python, JavaScript and Ruby, and tags.

use super::{begins, is_name, run};

/// The most bytes of a placeholder.
const LONGEST: usize = 100;

/// `{name}`, `{{ name }}`, `{0}`, `{count, number}`: matching braces that do not enclose a
/// sentence.
pub(super) fn braces(text: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (place, c) in text[at..].char_indices().take(LONGEST) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let end = at + place + 1;
            return is_argument(text[at..end].trim_matches(['{', '}'])).then_some(end);
        }
    }
    None
}

/// Whether the text in braces is a name, a number or a call, not a sentence.
fn is_argument(inside: &str) -> bool {
    let marked = inside.contains(|c: char| c.is_ascii_punctuation() && !matches!(c, '.' | '\''));
    marked || inside.split_whitespace().count() <= 1
}

/// `${name}`, `#{name}`, `%{name}`, `$(name)`, `%(name)s`.
pub(super) fn braced(text: &str, at: usize) -> Option<usize> {
    match text.as_bytes().get(at + 1)? {
        b'{' => braces(text, at + 1),
        b'(' => {
            let name = run(&text[at + 2..], |c| is_name(c) || c == '.');
            let end = at + 2 + name;
            let closed = name > 0 && text[end..].starts_with(')');
            closed
                .then(|| end + 1 + text[end + 1..].starts_with(['s', 'd', 'f', 'r', 'i']) as usize)
        }
        _ => None,
    }
}

/// `%s`, `%1$s`, `%-5.2f`, `%ld`, `%@`, `%%`.
pub(super) fn printf(text: &str, at: usize) -> Option<usize> {
    if text[..at].ends_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let flags =
        run(&text[at + 1..], |c| matches!(c, '0'..='9' | '$' | '.' | '-' | '+' | '*' | '#'));
    let size = at + 1 + flags;
    let size = size + run(&text[size..], |c| matches!(c, 'l' | 'h' | 'z' | 'j' | 'q')).min(2);
    let kind = text[size..].chars().next()?;
    let ends = text[size + kind.len_utf8()..].chars().next().is_none_or(|c| !c.is_alphanumeric());
    let known =
        matches!(kind, 'a'..='i' | 'o' | 'p' | 'r' | 's' | 'u' | 'x' | 'X' | 'E' | 'G' | 'S');
    (known && ends || matches!(kind, '@' | '%') && flags == 0).then_some(size + 1)
}

/// `%NAME%`.
pub(super) fn percent_name(text: &str, at: usize) -> Option<usize> {
    let name = run(&text[at + 1..], |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let end = at + 1 + name;
    (name > 1 && text[end..].starts_with('%')).then_some(end + 1)
}

/// `$name`.
pub(super) fn dollar_name(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let name = run(rest, is_name);
    let is_word = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name > 1;
    (is_word && begins(text, at)).then_some(at + 1 + name)
}

/// `$t(key)`: another message of the same table.
pub(super) fn nested(text: &str, at: usize) -> Option<usize> {
    let inside = text[at..].strip_prefix("$t(")?;
    let length = inside.find(')').filter(|&length| length < LONGEST)?;
    Some(at + 3 + length + 1)
}

/// `:name`, `:name:`.
pub(super) fn colon_name(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let name = run(rest, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let alone = text[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || c == '(');
    let is_word = rest.starts_with(|c: char| c.is_ascii_lowercase()) && name > 1;
    let end = at + 1 + name;
    (alone && is_word).then(|| end + usize::from(text[end..].starts_with(':')))
}

/// `[NAME]`, `[ORDER_ID]`.
pub(super) fn bracketed(text: &str, at: usize) -> Option<usize> {
    let name = run(&text[at + 1..], |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let end = at + 1 + name;
    let has_letter = text[at..end].contains(|c: char| c.is_ascii_uppercase());
    (name > 1 && has_letter && text[end..].starts_with(']')).then_some(end + 1)
}

/// Names of inline elements.
const TAGS: &[&str] = &[
    "a", "abbr", "b", "bpt", "br", "code", "del", "div", "em", "ept", "font", "g", "hr", "i",
    "img", "ins", "kbd", "li", "link", "mark", "ol", "p", "ph", "q", "s", "small", "span",
    "strong", "sub", "sup", "td", "tr", "u", "ul", "var", "wbr", "x",
];

/// `<0>`, `</0>`, `<b>`, `<br/>`, `<a href="…">`.
pub(super) fn tag(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let name = &rest[..run(rest, |c| c.is_ascii_alphanumeric() || c == '-')];
    let numbered = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let known = TAGS.binary_search(&name.to_ascii_lowercase().as_str()).is_ok();
    let attributes = &rest[name.len()..];
    let length = attributes.find('>').filter(|&length| length < 4 * LONGEST)?;
    let inside = &attributes[..length];
    let plain = matches!(inside.trim(), "" | "/");
    let with_values = inside.starts_with(' ') && inside.contains('=') && !inside.contains('<');
    let end = text.len() - attributes.len() + length + 1;
    ((numbered || known) && plain || known && with_values).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_in_order() {
        assert!(TAGS.is_sorted());
    }

    #[test]
    fn sentences_in_braces_are_text() {
        assert_eq!(braces("{this is a note}", 0), None);
        assert_eq!(braces("{count, number}", 0), Some(15));
        assert_eq!(braces("{ name", 0), None);
    }
}
