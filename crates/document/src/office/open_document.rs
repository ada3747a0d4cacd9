//! OpenDocument texts. Text stands in paragraphs and headings, as in HTML, and white space is folded as there.

use crate::Error;
use crate::body::Parsed;
use crate::format::find;
use crate::markup::{Role, Token, What};
use crate::options::Options;
use crate::text::refuse_utf16;
use crate::xml;

use super::Package;
use crate::Format;

/// The parts with text: the document, and its headers and footers.
const PARTS: [&str; 2] = ["content.xml", "styles.xml"];

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    let mut package = Package::open(bytes, Format::Odt, options)?;
    if package.says("META-INF/manifest.xml", "encryption-data")? {
        return Err(Error::whole("an encrypted document; save it without a password"));
    }
    if package.archive.find("content.xml")?.is_none() {
        return Err(Error::whole("a zip archive, but no odt file"));
    }
    for part in PARTS {
        package.add(part, read_part)?;
    }
    Ok(package.finish())
}

fn read_part(bytes: Vec<u8>) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let mut tokens = xml::tokens(&bytes)?;
    if find(&bytes, b"xmlns:text=").is_none() {
        return Err(Error::whole("the prefix \"text\" was expected for the vocabulary of texts"));
    }
    let is_change = |token: &Token| matches!(&token.what, What::Start { name, .. } if name == "text:changed-region");
    if let Some(change) = tokens.iter().find(|token| is_change(token)) {
        let problem = "tracked changes; accept or reject them first";
        return Err(Error::at(&bytes, change.raw.start, problem));
    }
    let ends = xml::ends(&tokens);
    let roles = roles(&mut tokens, &ends);
    Ok(xml::read_tokens(bytes, &tokens, &ends, &roles, &Options::default()))
}

/// What elements are. Text outside of paragraphs is for machines: it becomes a comment.
fn roles(tokens: &mut [Token], ends: &[usize]) -> Vec<Role> {
    let mut roles = vec![Role::Block; tokens.len()];
    // The elements that are open, and whether they are part of a text.
    let mut open: Vec<bool> = Vec::new();
    for number in 0..tokens.len() {
        let in_text = open.last().copied().unwrap_or(false);
        match &tokens[number].what {
            What::Start { name, closed } => {
                let role = match in_text {
                    true => role(name, &tokens[number..=ends[number]]),
                    false => Role::Block,
                };
                roles[number] = role;
                roles[ends[number]] = role;
                let is_text = match in_text {
                    true => !matches!(role, Role::Aside | Role::Object | Role::Point),
                    false => matches!(name.as_str(), "text:p" | "text:h"),
                };
                if !closed {
                    open.push(is_text);
                }
            }
            What::End { .. } => {
                open.pop();
            }
            What::Text | What::Cdata if !in_text => tokens[number].what = What::Comment,
            _ => {}
        }
    }
    roles
}

/// What an element inside of a text is.
fn role(name: &str, element: &[Token]) -> Role {
    let has_paragraphs = || {
        element.iter().any(|token| {
            matches!(&token.what, What::Start { name, .. } if name == "text:p" || name == "text:h")
        })
    };
    match name {
        "text:span" | "text:a" | "text:meta" | "text:ruby" | "text:ruby-base" => Role::Inline,
        "text:tab" | "text:line-break" => Role::Block,
        "text:s" | "text:soft-page-break" | "text:ruby-text" => Role::Point,
        "text:note" | "office:annotation" => Role::Aside,
        _ if name.starts_with("draw:") && has_paragraphs() => Role::Aside,
        _ if name.starts_with("draw:") => Role::Object,
        _ if element.len() == 1 => Role::Point,
        // A field with its result.
        _ => Role::Keep,
    }
}
