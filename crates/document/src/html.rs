//! HTML, as it is found on the web. Nothing is refused: what a browser would mend or drop is copied.

use std::ops::Range;

use html5gum::{DefaultEmitter, Token as Html, Tokenizer};

use crate::Error;
use crate::body::Parsed;
use crate::escape::Escape;
use crate::format::find;
use crate::markup::reference::References;
use crate::markup::{Markup, Role, Token, What, ends_of_html, has_tags, role_in_html, set_roles};
use crate::options::Options;
use crate::text::{bom, refuse_utf16};

/// Tags that end with the document are cut short, so many times at most.
const MOST_MENDED: usize = 16;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let encoding = Encoding::of(&bytes)?;
    let tokens = tokens(&bytes);
    let ends = ends_of_html(&tokens);
    let mut roles: Vec<Role> = tokens.iter().map(role).collect();
    set_roles(&mut roles, &tokens, &options.elements);
    let markup = Markup {
        bytes: &bytes,
        tokens: &tokens,
        ends: &ends,
        roles: &roles,
        references: References::Html,
        escape: Escape::Html,
        latin: encoding == Encoding::Latin,
    };
    let mut places = markup.read(options);
    places.ascii = encoding != Encoding::Utf8;
    Ok(places.finish(bytes))
}

/// How a page's bytes are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    /// Windows-1252, which browsers take when nothing is said, and for all that is called Latin-1.
    Latin,
    /// Something else, of which this page uses ASCII only.
    Ascii,
}

impl Encoding {
    /// The encoding that a page says it has. UTF-8 counts as such whatever is said.
    fn of(bytes: &[u8]) -> Result<Encoding, Error> {
        let named = declared(&bytes[..bytes.len().min(1024)]);
        let valid = std::str::from_utf8(bytes).is_ok();
        Ok(match named.as_str() {
            "" | "utf-8" | "utf8" | "unicode-1-1-utf-8" if valid => Encoding::Utf8,
            // Stray bytes in a page that is otherwise in UTF-8.
            "utf-8" | "utf8" => Encoding::Utf8,
            _ if valid && !bytes.is_ascii() => Encoding::Utf8,
            "" | "iso-8859-1" | "iso8859-1" | "windows-1252" | "cp1252" | "latin1" | "us-ascii"
            | "ascii" => Encoding::Latin,
            _ if bytes.is_ascii() => Encoding::Ascii,
            other => {
                let problem = format!("the page's encoding is {other:?}; UTF-8 was expected");
                return Err(Error::whole(problem));
            }
        })
    }
}

/// The name behind `charset=`, in small letters.
fn declared(start: &[u8]) -> String {
    let lower = start.to_ascii_lowercase();
    let Some(at) = find(&lower, b"charset") else { return String::new() };
    let value = lower[at + "charset".len()..].trim_ascii_start();
    let Some(value) = value.strip_prefix(b"=") else { return String::new() };
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte);
    value.iter().take_while(is_name).map(|&byte| char::from(byte)).collect()
}

fn role(token: &Token) -> Role {
    match &token.what {
        What::Start { name, .. } | What::End { name } => role_in_html(name),
        _ => Role::Inline,
    }
}

/// The tokens of a document. Bytes between them belong to tags that are never closed.
fn tokens(bytes: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = bom(bytes);
    for _ in 0..MOST_MENDED {
        tokenize(bytes, at, &mut tokens);
        at = tokens.last().map_or(at, |last: &Token| last.raw.end.max(at));
        // The document ends inside of a tag: a quote was not closed.
        let Some(end) = bytes[at..].iter().position(|&byte| byte == b'>') else { break };
        let raw = at..at + end + 1;
        tokens.push(Token { what: mended(&bytes[raw.clone()]), raw: raw.clone() });
        at = raw.end;
    }
    tokens
}

/// What a tag is that a browser would drop.
fn mended(tag: &[u8]) -> What {
    let is_end = tag.starts_with(b"</");
    let name = &tag[if is_end { 2 } else { 1 }.min(tag.len())..];
    let length =
        name.iter().take_while(|byte| !byte.is_ascii_whitespace() && !b"/>".contains(byte)).count();
    let name = String::from_utf8_lossy(&name[..length]).to_ascii_lowercase();
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true if is_end => What::End { name },
        true => What::Start { name, closed: false },
        false => What::Comment,
    }
}

fn tokenize(bytes: &[u8], start: usize, tokens: &mut Vec<Token>) {
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    emitter.naively_switch_states(true);
    // The end of a section of characters, which browsers do not know outside of SVG and MathML.
    let mut section = 0;
    for token in Tokenizer::new_with_emitter(&bytes[start..], emitter).flatten() {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let (what, span) = match token {
            Html::StartTag(tag) => (What::Start { name: name(&tag.name), closed: false }, tag.span),
            Html::EndTag(tag) => (What::End { name: name(&tag.name) }, tag.span),
            Html::String(text) => (What::Text, text.span),
            Html::Comment(comment) => (What::Comment, comment.span),
            Html::Doctype(doctype) => (What::Prologue, doctype.span),
            Html::Error(_) => continue,
        };
        let raw = start + span.start..(start + span.end).min(bytes.len());
        let raw = raw.start.max(section)..raw.end;
        if raw.is_empty() {
            continue;
        }
        // In `textarea` and `title` a browser takes tags for text. They are there for a script, not for people.
        let for_scripts = what == What::Text && has_tags(&bytes[raw.clone()]);
        let what = if for_scripts { What::Comment } else { what };
        match character_section(bytes, &what, &raw) {
            Some(range) => {
                section = range.end;
                tokens.push(Token { what: What::Cdata, raw: range });
            }
            None => tokens.push(Token { what, raw }),
        }
    }
}

/// The section of characters that begins where a browser sees a comment.
fn character_section(bytes: &[u8], what: &What, raw: &Range<usize>) -> Option<Range<usize>> {
    let is_section = *what == What::Comment && bytes[raw.clone()].starts_with(b"<![CDATA[");
    let end = is_section.then(|| find(&bytes[raw.start..], b"]]>"))??;
    Some(raw.start..raw.start + end + 3)
}
