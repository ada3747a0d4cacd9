//! Stretches that are carried with every vocabulary: addresses, placeholders, code, emoji, long
//! numbers.
//!
//! A matcher takes a text and a byte offset, and returns the end of its stretch if one begins
//! there.

mod address;
mod code;
mod emoji;
mod number;
mod placeholder;

use std::ops::Range;

pub(super) use emoji::is_emoji;

/// A function that returns the end of the stretch that begins at a byte offset, if there is one.
type Matcher = fn(&str, usize) -> Option<usize>;

/// The stretches of a text that a pattern matches, in order.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    find_by(text, matchers)
}

/// The placeholders of a text, in order: `{name}`, `{{name}}`, `%s`, `%1$s`, `%(name)d`, `%{name}`, `${name}`, `$name`, `$t(key)`,
/// `:name`.
///
/// ```
/// let text = "{0} of %d: $t(files) in %(folder)s";
/// let found = peregrine_text::carry::placeholders(text).into_iter().map(|range| &text[range]);
/// assert_eq!(found.collect::<Vec<_>>(), ["{0}", "%d", "$t(files)", "%(folder)s"]);
/// ```
pub fn placeholders(text: &str) -> Vec<Range<usize>> {
    find_by(text, |c, _| match c {
        '{' => &[placeholder::braces],
        '#' => &[placeholder::braced],
        '%' => &[placeholder::printf, placeholder::braced, placeholder::percent_name],
        '$' => &[placeholder::braced, placeholder::dollar_name, placeholder::nested],
        ':' => &[placeholder::colon_name],
        _ => &[],
    })
}

fn find_by(text: &str, matchers: fn(char, bool) -> &'static [Matcher]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    // Whether a word may begin here.
    let mut free = true;
    while let Some(c) = text[at..].chars().next() {
        let letters = letters(text, at);
        if letters > 0 && !(free && may_be_matched(text, at + letters)) {
            free = false;
            at += letters;
            continue;
        }
        let end = longest(matchers(c, free), text, at);
        if let Some(end) = end.filter(|&end| end > at) {
            found.push(at..end);
            at = end;
            free = true;
            continue;
        }
        free = !c.is_alphanumeric() && c != '_';
        at += c.len_utf8();
    }
    found
}

/// The number of ASCII letters from a place on.
fn letters(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    rest.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(rest.len())
}

/// Whether a stretch may begin with the letters that end here: a short cut, as most words are plain. Every stretch that begins
/// with a letter has one of these characters behind its first letters.
fn may_be_matched(text: &str, end: usize) -> bool {
    const BEHIND: &[u8] = b".:-_/+%@()=";
    let byte = text.as_bytes().get(end);
    byte.is_some_and(|byte| byte.is_ascii_digit() || BEHIND.contains(byte))
}

/// The bytes that a matcher is given at first. Only a match that fills the window is repeated on
/// the whole text, so that no text takes long.
const WINDOW: usize = 512;

/// The end of the longest match.
fn longest(matchers: &[Matcher], text: &str, at: usize) -> Option<usize> {
    if matchers.is_empty() {
        return None;
    }
    let window = &text[..text.floor_char_boundary(at + WINDOW)];
    let end = |text| matchers.iter().filter_map(|matcher| matcher(text, at)).max();
    match end(window) {
        Some(found) if found == window.len() && found < text.len() => end(text),
        found => found,
    }
}

/// The matchers of stretches that begin with a character. `free` says whether a word may begin
/// there.
fn matchers(c: char, free: bool) -> &'static [Matcher] {
    match c {
        'A'..='Z' | 'a'..='z' if free => &[
            address::url,
            address::email,
            address::site,
            code::windows_path,
            code::identifier,
            number::grouped,
            number::code,
        ],
        '0'..='9' if free => &[address::email, number::grouped, number::code, emoji::keycap],
        '+' | '(' => &[number::grouped],
        '@' => &[address::handle],
        '#' => &[placeholder::braced, address::hashtag, emoji::keycap],
        '*' => &[emoji::keycap],
        '{' => &[placeholder::braces],
        '%' => &[placeholder::printf, placeholder::braced, placeholder::percent_name],
        '$' => &[placeholder::braced, placeholder::dollar_name, code::formula],
        ':' => &[placeholder::colon_name, emoji::emoticon],
        ';' | '=' => &[emoji::emoticon],
        '<' => &[placeholder::tag, emoji::emoticon],
        '[' => &[placeholder::bracketed],
        ']' => &[code::link],
        '_' if free => &[code::identifier],
        '/' | '.' | '~' | '\\' => &[code::path, code::windows_path],
        '-' => &[code::flag],
        '`' => &[code::backticks],
        _ if c < '\u{a9}' => &[],
        _ if is_emoji(c) => &[emoji::emoji],
        _ => &[],
    }
}

/// The length in bytes of the longest prefix of a text whose characters are all wanted.
fn run(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

/// The character before a place.
fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

/// Whether a stretch may begin at an offset: there is no letter or digit before it.
fn begins(text: &str, at: usize) -> bool {
    before(text, at).is_none_or(|c| !c.is_alphanumeric() && c != '_')
}

/// Whether a character may be part of an identifier.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The end of an address or a path, without punctuation of the sentence.
fn without_punctuation(text: &str, start: usize, mut end: usize) -> usize {
    loop {
        let inside = &text[start..end];
        let Some(last) = inside.chars().next_back() else { return end };
        let opens = match last {
            ')' => Some('('),
            ']' => Some('['),
            '}' => Some('{'),
            _ => None,
        };
        let unmatched =
            opens.is_some_and(|open| inside.matches(last).count() > inside.matches(open).count());
        if !unmatched && !matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '"' | '*') {
            return end;
        }
        end -= last.len_utf8();
    }
}

#[cfg(test)]
mod tests {
    use super::{Range, find, longest, matchers};

    /// The definition: every place is asked.
    fn slowly(text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut free = true;
        for (at, c) in text.char_indices() {
            if found.last().is_some_and(|last| at < last.end) {
                free = true;
                continue;
            }
            match longest(matchers(c, free), text, at).filter(|&end| end > at) {
                Some(end) => {
                    found.push(at..end);
                    free = true;
                }
                None => free = !c.is_alphanumeric() && c != '_',
            }
        }
        found
    }

    proptest::proptest! {
        #[test]
        fn the_short_cut_leaves_nothing_out(
            text in r"([a-zA-Z0-9é水🍕]{0,9}[ -~\n“]{1,2}){0,12}",
            other in r"((www|mailto|tel|data|http|[A-Z]{1,3}|x|é)[-.:/_+%@()=# \\*0-9]{1,3}){0,9}",
        ) {
            for text in [&text, &other] {
                proptest::prop_assert_eq!(find(text), slowly(text), "{}", text);
            }
        }
    }

    /// Texts and the stretches that are found in each.
    const CASES: &[(&str, &[&str])] = &[
        (
            "See https://example.org/a.html?id=12&lang=en#top, please.",
            &["https://example.org/a.html?id=12&lang=en#top"],
        ),
        ("(see www.example.com/help) or example.net.", &["www.example.com/help", "example.net"]),
        ("http://[::1]:8080/x and mailto:a@b.org", &["http://[::1]:8080/x", "mailto:a@b.org"]),
        (
            "Wiki: https://en.wikipedia.org/wiki/Rust_(language).",
            &["https://en.wikipedia.org/wiki/Rust_(language)"],
        ),
        ("Ask first.last+tag@mail.example.co.uk today.", &["first.last+tag@mail.example.co.uk"]),
        ("Follow @green_fox and use #SaveTheRiver.", &["@green_fox", "#SaveTheRiver"]),
        (
            "Hello {name}, {0} of {{user.firstName}} {%s}",
            &["{name}", "{0}", "{{user.firstName}}", "{%s}"],
        ),
        (
            "%s, %d, %1$s, %.2f, %(name)s, %{item}, %@ and %%",
            &["%s", "%d", "%1$s", "%.2f", "%(name)s", "%{item}", "%@", "%%"],
        ),
        ("10% of 100% sure, 5 % discount", &[]),
        ("${code}, $minutes, #{x}, $5 and US$ 7", &["${code}", "$minutes", "#{x}"]),
        ("The :attribute field at 10:30: yes", &[":attribute"]),
        (
            "Click <0>here</0> or <br/> <a href=\"x\">y</a>",
            &["<0>", "</0>", "<br/>", "<a href=\"x\">", "</a>"],
        ),
        ("x < 5 and y > 3, Vec<String>", &[]),
        (
            "Dear [CUSTOMER_NAME], __ORDER_ID__ [sic] %USER%",
            &["[CUSTOMER_NAME]", "__ORDER_ID__", "%USER%"],
        ),
        (
            "Open C:\\Users\\Anna\\Documents\\report v2.docx and",
            &["C:\\Users\\Anna\\Documents\\report v2.docx"],
        ),
        (
            "in /var/log/app/error.log, ./run.sh or ~/notes",
            &["/var/log/app/error.log", "./run.sh", "~/notes"],
        ),
        ("and/or km/h 1/2 he/she", &[]),
        (
            "call get_user_name() or max_tokens=256 in src/main.rs",
            &["get_user_name()", "max_tokens=256", "src/main.rs"],
        ),
        (
            "press Ctrl+Shift+Esc, learn C++, pass --no-color",
            &["Ctrl+Shift+Esc", "C++", "--no-color"],
        ),
        ("`cargo test` runs", &["`cargo test`"]),
        ("$E = mc^2$ costs $5 and $6", &["$E = mc^2$"]),
        ("I ❤️ it 🦀🍕, 👨‍👩‍👧 👍🏽 🇧🇷 1️⃣", &["❤️", "🦀🍕", "👨‍👩‍👧", "👍🏽", "🇧🇷", "1️⃣"]),
        (":-) hi ;) :smile: <3", &[":-)", ";)", ":smile:", "<3"]),
        ("IBAN DE89 3704 0044 0532 0130 00 is", &["DE89 3704 0044 0532 0130 00"]),
        ("Call +1 (555) 010-9988 before", &["+1 (555) 010-9988"]),
        ("3.14159265358979 on 2024-03-09T08:15:00Z", &["3.14159265358979", "2024-03-09T08:15:00Z"]),
        ("1,250,000 in 1987-1990, 3.75 kg, 1 250 000", &[]),
        ("the [manual](docs/manual.md) first", &["](docs/manual.md)"]),
        ("End of it.Next e.g. this, a.m., U.S. and etc.", &[]),
        ("Plain words, it's 5 o'clock - really (yes).", &[]),
    ];

    #[test]
    fn patterns_find_what_is_meant() {
        for (text, expected) in CASES {
            let found: Vec<&str> = find(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(&found, expected, "{text}");
        }
    }
}
