//! How the strings of tables are written: in which quotes, and with which escapes.

/// How a string is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) quotes: Quotes,
    /// Whether characters beyond ASCII are escaped.
    pub(crate) ascii: bool,
    /// Whether braces and number signs have a meaning, and apostrophes quote them.
    pub(crate) icu: bool,
}

/// The kinds of strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Quotes {
    #[default]
    Json,
    /// A string of gettext.
    Po,
    /// `"…"` of YAML.
    YamlDouble,
    /// `'…'` of YAML.
    YamlSingle,
    /// A scalar of YAML without quotes. It gets some if its new text needs them.
    YamlPlain,
    /// The same in a list in brackets.
    YamlFlow,
    /// A line of a literal or folded scalar of YAML.
    YamlBlock,
}

impl Style {
    /// Writes the character that `rest` begins with.
    pub(crate) fn push(self, c: char, rest: &str, out: &mut Vec<u8>) {
        if self.icu {
            let next = rest[c.len_utf8()..].chars().next();
            match c {
                // An apostrophe before a brace, or before what may begin with one.
                '\'' if next.is_none_or(|c| matches!(c, '{' | '}' | '#' | '\'')) => {
                    self.quotes.push('\'', self.ascii, out);
                }
                '{' | '}' | '#' => {
                    for c in ['\'', c, '\''] {
                        self.quotes.push(c, self.ascii, out);
                    }
                    return;
                }
                _ => {}
            }
        }
        self.quotes.push(c, self.ascii, out);
    }

    /// Ends a string whose text was written from byte `start` on.
    pub(crate) fn finish(self, out: &mut Vec<u8>, start: usize) {
        if !matches!(self.quotes, Quotes::YamlPlain | Quotes::YamlFlow) {
            return;
        }
        let text = String::from_utf8_lossy(&out[start..]).into_owned();
        if !is_plain(&text, self.quotes == Quotes::YamlFlow) {
            out.truncate(start);
            out.extend_from_slice(format!("'{}'", text.replace('\'', "''")).as_bytes());
        }
    }
}

impl Quotes {
    fn push(self, c: char, ascii: bool, out: &mut Vec<u8>) {
        let escaped = match (self, c) {
            (Quotes::Json | Quotes::Po | Quotes::YamlDouble, '"') => "\\\"".to_owned(),
            (Quotes::Json | Quotes::Po | Quotes::YamlDouble, '\\') => "\\\\".to_owned(),
            (Quotes::Json | Quotes::Po | Quotes::YamlDouble, '\n') => "\\n".to_owned(),
            (Quotes::Json | Quotes::Po | Quotes::YamlDouble, '\t') => "\\t".to_owned(),
            (Quotes::Json | Quotes::Po | Quotes::YamlDouble, '\r') => "\\r".to_owned(),
            (Quotes::Po, c) if c.is_ascii_control() => format!("\\{:03o}", u32::from(c)),
            (Quotes::Json | Quotes::YamlDouble, c) if is_odd(c) || ascii && !c.is_ascii() => {
                match self {
                    Quotes::YamlDouble if c > '\u{ffff}' => format!("\\U{:08X}", u32::from(c)),
                    _ => {
                        let mut units = [0; 2];
                        let units = c.encode_utf16(&mut units).iter();
                        units.map(|unit| format!("\\u{unit:04x}")).collect()
                    }
                }
            }
            (Quotes::YamlSingle, '\'') => "''".to_owned(),
            (_, ' ') if self.is_folded() && begins_line(out) => String::new(),
            (_, c) if self.is_folded() && (is_odd(c) || c.is_ascii_whitespace()) => " ".to_owned(),
            _ => c.to_string(),
        };
        out.extend_from_slice(escaped.as_bytes());
    }

    /// Whether the end of a line in the document is a blank of the text.
    fn is_folded(self) -> bool {
        !matches!(self, Quotes::Json | Quotes::Po)
    }
}

/// Characters that cannot be written as themselves: controls, and what some take for the end of a line or a byte order mark.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether nothing but indentation was written since the end of the last line.
fn begins_line(out: &[u8]) -> bool {
    let blanks = out.iter().rev().take_while(|&&byte| byte == b' ').count();
    out[..out.len() - blanks].ends_with(b"\n")
}

/// Whether a text without quotes is read as that text.
pub(crate) fn is_plain(text: &str, in_flow: bool) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let rest = &text[first.len_utf8()..];
    let starts = match first {
        '-' | '?' | ':' => {
            !rest.is_empty()
                && !rest.starts_with([' ', '\t', ',', '[', ']', '{', '}'])
                && !text.starts_with("---")
        }
        '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' | '#' | ',' | '[' | ']'
        | '{' | '}' => false,
        c => !c.is_whitespace() && c != '.' && c != '=' && c != '<' && c != '~',
    };
    let flow = in_flow && text.contains([',', '[', ']', '{', '}']);
    let mut last = ' ';
    let mut safe = starts && !flow && !text.ends_with(|c: char| c.is_whitespace() || c == ':');
    for c in text.chars() {
        safe &= !(c == '#' && last.is_whitespace() || c.is_whitespace() && last == ':');
        safe &= !(is_odd(c) && c != '\n' && c != '\r');
        last = c;
    }
    safe && !is_value(text)
}

/// Whether a text is read as something else than a string, by some reader: a number, a time, a truth.
fn is_value(text: &str) -> bool {
    const WORDS: [&str; 11] =
        ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    let lower = text.to_ascii_lowercase();
    let numeric = |c: char| c.is_ascii_hexdigit() || "+-.:_eExXoOtTzZ ".contains(c);
    WORDS.contains(&lower.as_str())
        || text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-')
            && text.chars().all(numeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_need_quotes() {
        for text in [
            "a",
            "Olá, mundo!",
            "a:b",
            "a#b",
            "it's",
            "-hello",
            "12 apples",
            "a [b] {c}",
            "No problem",
        ] {
            assert!(is_plain(text, false), "{text}");
        }
        for text in [
            "",
            "a: b",
            "a #b",
            "- a",
            "yes",
            "No",
            "NULL",
            "12",
            "1.5",
            "1_000",
            "0x1F",
            "2020-01-01",
            "12:30",
            "~",
            "@a",
            "`a",
            "%a",
            "[a]",
            "{a}",
            "\"a\"",
            "'a'",
            "a:",
            "? a",
            ": a",
            "* a",
            "!a",
            "|",
            ">",
            "---",
            "...",
            "a\u{85}b",
            " a",
            "a ",
            "# a",
            "=",
        ] {
            assert!(!is_plain(text, false), "{text}");
        }
        assert!(!is_plain("a, b", true) && !is_plain("a]", true) && is_plain("a b", true));
    }
}
