//! Electronic books (EPUB): pages of XHTML, the titles of a table of contents, and the title of the book.

use crate::body::Parsed;
use crate::markup::{Role, Token, What};
use crate::options::Options;
use crate::text::refuse_utf16;
use crate::{Error, Format, xml};

use super::Package;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    let mut package = Package::open(bytes, Format::Epub, options)?;
    if package.archive.find("META-INF/container.xml")?.is_none() {
        return Err(Error::whole("a zip archive, but no epub file"));
    }
    // Fonts may be encrypted, pages may not.
    if package.says("META-INF/encryption.xml", "html\"")? {
        return Err(Error::whole("a book whose pages are encrypted"));
    }
    let names: Vec<String> = package.archive.names().map(str::to_owned).collect();
    for name in &names {
        let ending = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "xhtml" | "html" | "htm" => {
                package.add(name, |bytes| xml::read_page(bytes, options))?
            }
            "ncx" => package.add(name, |bytes| read_elements(bytes, "text"))?,
            "opf" => package.add(name, |bytes| read_elements(bytes, "title"))?,
            _ => {}
        }
    }
    Ok(package.finish())
}

/// The text of the elements of one name, in whatever vocabulary.
fn read_elements(bytes: Vec<u8>, wanted: &str) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let mut tokens = xml::tokens(&bytes)?;
    let ends = xml::ends(&tokens);
    let is_wanted = |token: &Token| match &token.what {
        What::Start { name, .. } => name.rsplit(':').next() == Some(wanted),
        _ => false,
    };
    let mut end = 0;
    for number in 0..tokens.len() {
        if is_wanted(&tokens[number]) {
            end = end.max(ends[number]);
        } else if number >= end && matches!(tokens[number].what, What::Text | What::Cdata) {
            tokens[number].what = What::Comment;
        }
    }
    let roles = vec![Role::Block; tokens.len()];
    Ok(xml::read_tokens(bytes, &tokens, &ends, &roles, &Options::default()))
}
