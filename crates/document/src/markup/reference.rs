//! Character references: `&eacute;`, `&#233;`, and how they are read.

use std::ops::Range;

use html5gum::{DefaultEmitter, Token, Tokenizer};

use crate::builder::Builder;

/// The references that a kind of text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    /// All names of HTML; some of them need no semicolon.
    Html,
    /// All names of HTML, but a semicolon is needed.
    HtmlAttribute,
    /// The five names of XML. Others are defined elsewhere and are kept as they are.
    Xml,
}

/// No name of HTML is longer.
const LONGEST: usize = 40;

impl References {
    /// The same in attributes.
    pub(crate) fn in_attribute(self) -> References {
        if self == References::Html { References::HtmlAttribute } else { self }
    }

    /// Whether a text begins with a reference.
    pub(crate) fn begin(self, text: &str) -> bool {
        self.read(text.as_bytes()).is_some()
    }

    /// Adds text to a block.
    pub(crate) fn add(self, document: &[u8], range: Range<usize>, builder: &mut Builder) {
        let mut plain = range.start;
        let mut at = range.start;
        while at < range.end {
            let rest = &document[at..range.end];
            let found = match rest[0] {
                b'&' => self.read(rest),
                // Browsers take this for nothing.
                b'<' if self == References::Html && rest.starts_with(b"</>") => Some((None, 3)),
                _ => None,
            };
            let Some((text, length)) = found else {
                at += 1;
                continue;
            };
            builder.bytes(&document[plain..at], plain);
            let raw = at..at + length;
            match text {
                Some(text) => builder.spelled(&text, raw),
                None if rest[0] == b'&' => {
                    builder.keep(&String::from_utf8_lossy(&rest[..length]), raw)
                }
                None => builder.point(raw),
            }
            at += length;
            plain = at;
        }
        builder.bytes(&document[plain..range.end], plain);
    }

    /// Adds text to a string.
    pub(crate) fn decode(self, text: &[u8], to: &mut String) {
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&byte| byte == b'&') {
            to.push_str(&String::from_utf8_lossy(&rest[..at]));
            let length = match self.read(&rest[at..]) {
                Some((Some(decoded), length)) => {
                    to.push_str(&decoded);
                    length
                }
                _ => {
                    to.push('&');
                    1
                }
            };
            rest = &rest[at + length..];
        }
        to.push_str(&String::from_utf8_lossy(rest));
    }

    /// The reference that a text begins with: what it stands for, if that is known, and its length.
    fn read(self, text: &[u8]) -> Option<(Option<String>, usize)> {
        let digits = |from: usize, hex: bool| {
            let kind =
                |byte: &&u8| if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
            from + text[from..].iter().take_while(kind).count()
        };
        let end = match text.get(1..3)? {
            [b'#', b'x' | b'X'] => digits(3, true),
            [b'#', _] => digits(2, false),
            [first, _] if first.is_ascii_alphabetic() || self == References::Xml => {
                let is_name = |byte: &&u8| match self {
                    References::Xml => {
                        byte.is_ascii_alphanumeric() || b"_:.-".contains(byte) || **byte >= 0x80
                    }
                    _ => byte.is_ascii_alphanumeric(),
                };
                1 + text[1..].iter().take_while(is_name).take(LONGEST).count()
            }
            _ => return None,
        };
        let has_end = text.get(end) == Some(&b';');
        let length = end + usize::from(has_end);
        match self {
            References::Html => decode_html(&text[..length]),
            References::HtmlAttribute if has_end => {
                decode_html(&text[..length]).filter(|&(_, used)| used == length)
            }
            References::Xml if has_end && end > 1 => {
                let name = &text[1..end];
                let known = name[0] == b'#'
                    || [b"amp".as_slice(), b"lt", b"gt", b"quot", b"apos"].contains(&name);
                match known {
                    true => decode_html(&text[..length]),
                    false => Some((None, length)),
                }
            }
            _ => None,
        }
    }
}

/// What HTML takes a reference for. A long name may be a shorter one and other letters.
fn decode_html(reference: &[u8]) -> Option<(Option<String>, usize)> {
    let tokens = Tokenizer::new_with_emitter(reference, DefaultEmitter::default());
    let mut text = Vec::new();
    for token in tokens.flatten() {
        if let Token::String(string) = token {
            text.extend_from_slice(&string);
        }
    }
    let text = String::from_utf8(text).ok().filter(|text| text.as_bytes() != reference)?;
    // All names that need no semicolon stand for one character.
    match reference.ends_with(b";") && text.chars().count() <= 2 {
        true => Some((Some(text), reference.len())),
        false => {
            let first = text.chars().next()?;
            let length = reference.len() - (text.len() - first.len_utf8());
            Some((Some(first.to_string()), length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_browsers_do() {
        let cases = [
            ("&eacute;", "é", 8),
            ("&notit;", "¬", 4),
            ("&notin;", "∉", 7),
            ("&ampamp", "&", 4),
            ("&amp;amp;", "&", 5),
            ("&semi;", ";", 6),
            ("&#8211;x", "–", 7),
            ("&#x2013x", "–", 7),
            ("&#128;", "€", 6),
            ("&copy", "©", 5),
            ("&ampx;", "&", 4),
            ("&NotEqualTilde;", "≂̸", 15),
        ];
        for (text, decoded, length) in cases {
            let found = References::Html.read(text.as_bytes());
            assert_eq!(found, Some((Some(decoded.to_owned()), length)), "{text}");
        }
        for text in ["&", "& ", "&am;", "&#;", "&#x;", "&T and", "&&"] {
            assert_eq!(References::Html.read(text.as_bytes()), None, "{text}");
        }
        let in_attribute = |text: &str| References::HtmlAttribute.read(text.as_bytes());
        assert_eq!((in_attribute("&copy=1"), in_attribute("&copy1;")), (None, None));
        assert_eq!(References::Xml.read(b"&copy;"), Some((None, 6)));
        assert_eq!(References::Xml.read(b"&lt;"), Some((Some("<".to_owned()), 4)));
        let mut text = String::new();
        References::Html.decode("a&lt;b & &eacute;&".as_bytes(), &mut text);
        assert_eq!(text, "a<b & é&");
    }
}
