//! The attributes of a start tag, with the bytes of their values.

use std::ops::Range;

/// The attributes of a start tag.
#[derive(Debug)]
pub(crate) struct Attributes {
    list: Vec<Attribute>,
}

#[derive(Debug)]
struct Attribute {
    /// In small letters.
    name: String,
    value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    /// Its bytes of the document, without the quotes.
    pub(crate) range: Range<usize>,
    pub(crate) quote: Option<char>,
}

impl Attributes {
    /// The attributes of a tag that begins at byte `start` of a document.
    pub(crate) fn new(tag: &[u8], start: usize) -> Attributes {
        let mut list = Vec::new();
        let mut at =
            skip(tag, 1, |byte| !byte.is_ascii_whitespace() && byte != b'/' && byte != b'>');
        loop {
            at = skip(tag, at, |byte| byte.is_ascii_whitespace() || byte == b'/');
            let name = at;
            at = skip(tag, at, |byte| !byte.is_ascii_whitespace() && !b"/>=".contains(&byte));
            // A name may begin with an equals sign.
            if at == name && tag.get(at) == Some(&b'=') {
                at += 1;
            }
            if at == name {
                return Attributes { list };
            }
            let name = String::from_utf8_lossy(&tag[name..at]).to_ascii_lowercase();
            let equals = skip(tag, at, |byte| byte.is_ascii_whitespace());
            if tag.get(equals) != Some(&b'=') {
                continue;
            }
            let from = skip(tag, equals + 1, |byte| byte.is_ascii_whitespace());
            let quote = tag.get(from).copied().filter(|byte| matches!(byte, b'"' | b'\''));
            let (range, next) = match quote {
                Some(quote) => {
                    let end = skip(tag, from + 1, |byte| byte != quote);
                    (from + 1..end, end + 1)
                }
                None => {
                    let end = skip(tag, from, |byte| !byte.is_ascii_whitespace() && byte != b'>');
                    (from..end, end)
                }
            };
            at = next.min(tag.len());
            let range = start + range.start..start + range.end;
            list.push(Attribute { name, value: Value { range, quote: quote.map(char::from) } });
        }
    }

    /// The value of an attribute, whose name is given in small letters.
    pub(crate) fn get<'b>(&self, name: &str, document: &'b [u8]) -> Option<&'b [u8]> {
        let found = self.list.iter().find(|attribute| attribute.name == name)?;
        document.get(found.value.range.clone())
    }

    /// Whether the element's text is marked as not to be translated.
    pub(crate) fn forbid_translation(&self, document: &[u8]) -> bool {
        let is_no =
            |name| self.get(name, document).is_some_and(|value| value.eq_ignore_ascii_case(b"no"));
        let class = self.get("class", document).unwrap_or_default();
        let mut classes = class.split(u8::is_ascii_whitespace);
        is_no("translate") || is_no("its:translate") || classes.any(|class| class == b"notranslate")
    }

    /// Whether the element says that its white space counts.
    pub(crate) fn preserve_space(&self, document: &[u8]) -> bool {
        self.get("xml:space", document) == Some(b"preserve")
    }

    /// The values that people read.
    pub(crate) fn readable(&self, element: &str, document: &[u8]) -> impl Iterator<Item = &Value> {
        let is = |name: &str, values: &[&[u8]]| {
            let value = self.get(name, document).unwrap_or_default().to_ascii_lowercase();
            values.contains(&value.as_slice())
        };
        let button = element == "input" && is("type", &[b"button", b"reset"]);
        let described = element == "meta"
            && (is(
                "name",
                &[b"description", b"keywords", b"twitter:title", b"twitter:description"],
            ) || is("property", &[b"og:title", b"og:description", b"og:site_name"]));
        self.list.iter().filter_map(move |attribute| {
            let wanted = match attribute.name.as_str() {
                "title"
                | "aria-label"
                | "aria-description"
                | "aria-placeholder"
                | "aria-roledescription"
                | "aria-valuetext"
                | "aria-braillelabel"
                | "aria-brailleroledescription" => true,
                "alt" => matches!(element, "img" | "area" | "input"),
                "placeholder" => matches!(element, "input" | "textarea"),
                "label" => matches!(element, "track" | "optgroup" | "option"),
                "abbr" => element == "th",
                "value" => button,
                "content" => described,
                _ => false,
            };
            wanted.then_some(&attribute.value)
        })
    }
}

/// The first place from `at` on whose byte is of another kind.
fn skip(bytes: &[u8], at: usize, kind: impl Fn(u8) -> bool) -> usize {
    let at = at.min(bytes.len());
    at + bytes[at..].iter().take_while(|&&byte| kind(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_bytes() {
        let tag = br#"<a href = 'x y' TITLE="a>b"disabled data=/7 = q=">"#;
        let attributes = Attributes::new(tag, 100);
        let found: Vec<_> = attributes
            .list
            .iter()
            .map(|attribute| {
                let Range { start, end } = attribute.value.range;
                (
                    attribute.name.as_str(),
                    std::str::from_utf8(&tag[start - 100..end - 100]).expect("text"),
                )
            })
            .collect();
        assert_eq!(found, [("href", "x y"), ("title", "a>b"), ("data", "/7"), ("q", ">")]);
    }

    #[test]
    fn marks_against_translation_are_seen() {
        let forbids =
            |tag: &str| Attributes::new(tag.as_bytes(), 0).forbid_translation(tag.as_bytes());
        assert!(forbids("<b translate=NO>") && forbids("<b class='a notranslate'/>"));
        assert!(
            !forbids("<b translate>")
                && !forbids("<b class=notranslated>")
                && !forbids("<translate no>")
        );
    }
}
