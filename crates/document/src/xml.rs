//! XML of any kind, and HTML written as XML. What is not well-formed is refused with its place.

use std::collections::HashSet;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::body::Parsed;
use crate::escape::Escape;
use crate::markup::attributes::Attributes;
use crate::markup::reference::References;
use crate::markup::{Markup, Role, Token, What, role_in_html, set_roles};
use crate::options::Options;
use crate::text::{bom, refuse_utf16};
use crate::{Error, html};

/// Reads XML. In the vocabulary of HTML elements have the meaning they have there.
pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let tokens = tokens(&bytes)?;
    let ends = ends(&tokens);
    let mut roles = match is_html(&tokens) {
        true => html_roles(&tokens),
        false => roles(&bytes, &tokens, &ends),
    };
    set_roles(&mut roles, &tokens, &options.elements);
    Ok(read_tokens(bytes, &tokens, &ends, &roles, options))
}

/// Reads a page of HTML written as XML. What is no XML is still a page.
pub(crate) fn read_page(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    match read(bytes.clone(), options) {
        Ok(read) => Ok(read),
        Err(_) => html::read(bytes, options),
    }
}

/// The blocks of tokens whose meaning is known.
pub(crate) fn read_tokens(
    bytes: Vec<u8>,
    tokens: &[Token],
    ends: &[usize],
    roles: &[Role],
    options: &Options,
) -> Parsed {
    let markup = Markup {
        bytes: &bytes,
        tokens,
        ends,
        roles,
        references: References::Xml,
        escape: Escape::Xml,
        latin: false,
    };
    let places = markup.read(options);
    places.finish(bytes)
}

/// The tokens of a document, which follow each other without a gap.
pub(crate) fn tokens(bytes: &[u8]) -> Result<Vec<Token>, Error> {
    let mut tokens: Vec<Token> = Vec::new();
    scan(bytes, |what, raw| {
        match tokens.last_mut() {
            // A text with references in it is one text.
            Some(last) if what == What::Text && last.what == What::Text => last.raw.end = raw.end,
            _ => tokens.push(Token { what, raw }),
        }
        Ok(())
    })?;
    Ok(tokens)
}

/// Hands out the tokens of a document one by one; references in a text are texts of their own.
pub(crate) fn scan(
    bytes: &[u8],
    mut each: impl FnMut(What, Range<usize>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = bom(bytes);
    let mut reader = Reader::from_reader(&bytes[start..]);
    reader.config_mut().check_end_names = true;
    let mut open: Vec<usize> = Vec::new();
    loop {
        let from = start + reader.buffer_position() as usize;
        let event = reader.read_event().map_err(|error| {
            let at = start + reader.error_position() as usize;
            Error::at(bytes, at, format!("not well-formed: {error}"))
        })?;
        let to = start + reader.buffer_position() as usize;
        let what = match event {
            Event::Start(tag) => {
                open.push(from);
                What::Start { name: tag.name().as_ref().to_owned(), closed: false }
            }
            Event::Empty(tag) => What::Start { name: tag.name().as_ref().to_owned(), closed: true },
            Event::End(tag) => {
                open.pop();
                What::End { name: tag.name().as_ref().to_owned() }
            }
            Event::Text(_) | Event::GeneralRef(_) => What::Text,
            Event::CData(_) => What::Cdata,
            Event::Comment(_) | Event::PI(_) => What::Comment,
            Event::DocType(_) => What::Prologue,
            Event::Decl(declaration) => {
                check_encoding(bytes, from, &declaration)?;
                What::Prologue
            }
            Event::Eof => break,
        };
        each(what, from..to)?;
    }
    match open.last() {
        Some(&start) => {
            Err(Error::at(bytes, start, "not well-formed: this element is never closed"))
        }
        None => Ok(()),
    }
}

/// New text is written in UTF-8.
fn check_encoding(
    bytes: &[u8],
    at: usize,
    declaration: &quick_xml::events::BytesDecl,
) -> Result<(), Error> {
    let Some(Ok(name)) = declaration.encoding() else { return Ok(()) };
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    if known.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    Err(Error::at(bytes, at, format!("the encoding is {name}; UTF-8 was expected")))
}

/// For each start tag the number of its end tag; for other tokens their own number.
pub(crate) fn ends(tokens: &[Token]) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..tokens.len()).collect();
    let mut open = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        match token.what {
            What::Start { closed: false, .. } => open.push(number),
            What::End { .. } => {
                if let Some(start) = open.pop() {
                    ends[start] = number;
                }
            }
            _ => {}
        }
    }
    ends
}

/// Whether the elements are those of HTML.
fn is_html(tokens: &[Token]) -> bool {
    let mut names = tokens.iter().filter_map(|token| match &token.what {
        What::Start { name, .. } => Some(name.as_str()),
        _ => None,
    });
    names.next() == Some("html")
}

fn html_roles(tokens: &[Token]) -> Vec<Role> {
    let role = |token: &Token| match &token.what {
        What::Start { name, closed } => match role_in_html(name) {
            // An anchor without text, say.
            Role::Inline | Role::Keep if *closed => Role::Point,
            role => role,
        },
        What::End { name } => role_in_html(name),
        _ => Role::Inline,
    };
    tokens.iter().map(role).collect()
}

/// What elements are whose vocabulary is not known. An element that has text of its own is a text, and the elements in it are
/// part of that text. The elements of one that has none are blocks, unless it is a single one inside of a text.
fn roles(bytes: &[u8], tokens: &[Token], ends: &[usize]) -> Vec<Role> {
    let (texts, single) = shapes(bytes, tokens);
    // Text outside of all elements: a snippet, which is one text.
    let is_snippet = texts.contains(&NO_ELEMENT);
    let mut roles = vec![Role::Inline; tokens.len()];
    // The elements that are open, and whether those in them are blocks.
    let mut open: Vec<bool> = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        let What::Start { closed, .. } = &token.what else {
            if let What::End { .. } = token.what {
                open.pop();
            }
            continue;
        };
        let is_block = *open.last().unwrap_or(&!is_snippet);
        let attributes = Attributes::new(&bytes[token.raw.clone()], token.raw.start);
        roles[number] = match is_block {
            true if attributes.preserve_space(bytes) => Role::Preserved,
            true => Role::Block,
            false if *closed => Role::Object,
            false => Role::Inline,
        };
        roles[ends[number]] = roles[number];
        if !closed {
            open.push(!texts.contains(&number) && (is_block || !single.contains(&number)));
        }
    }
    roles
}

/// Stands for the element that a text is in which is outside of all elements.
const NO_ELEMENT: usize = usize::MAX;

/// The numbers of the elements that have text of their own, and of those with one element in them or none.
fn shapes(bytes: &[u8], tokens: &[Token]) -> (HashSet<usize>, HashSet<usize>) {
    let (mut texts, mut single) = (HashSet::new(), HashSet::new());
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        match &token.what {
            What::Start { closed, .. } => {
                if let Some((_, children)) = open.last_mut() {
                    *children += 1;
                }
                if !closed {
                    open.push((number, 0));
                }
            }
            What::End { .. } => match open.pop() {
                Some((start, children)) if children <= 1 => {
                    single.insert(start);
                }
                _ => {}
            },
            What::Text | What::Cdata => {
                let is_text = !bytes[token.raw.clone()].trim_ascii().is_empty();
                if is_text {
                    texts.insert(open.last().map_or(NO_ELEMENT, |(start, _)| *start));
                }
            }
            _ => {}
        }
    }
    (texts, single)
}
