//! Text that is not in UTF-8. It is read as UTF-8 and written in the encoding it came in.
//!
//! An encoding is taken only if writing what was read gives the same bytes, so that nothing but new text can change.

use std::ops::Range;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, WINDOWS_1252};

use crate::Error;
use crate::block::{Block, Translated};
use crate::body::{Body, Note, NoteKind, Parsed, Written};

/// How characters are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf16 {
        big: bool,
    },
    /// The first 256 characters, each as one byte.
    Latin1,
    Other(&'static Encoding),
}

/// Reads text of any encoding with a reader of UTF-8. UTF-16 is known by its byte order mark, others are guessed.
pub(crate) fn read(
    bytes: Vec<u8>,
    reader: impl FnOnce(Vec<u8>) -> Result<Parsed, Error>,
) -> Result<Parsed, Error> {
    match decode(&bytes)? {
        None => reader(bytes),
        Some((text, charset)) => reencoded(text, charset, None, reader),
    }
}

/// Reads text in an encoding that the document names. One that cannot be read so is refused.
pub(crate) fn read_named(
    bytes: Vec<u8>,
    name: &str,
    reader: impl FnOnce(Vec<u8>) -> Result<Parsed, Error>,
) -> Result<Parsed, Error> {
    let charset = match name.to_ascii_lowercase().as_str() {
        // Without the characters that Windows-1252 has in place of control characters.
        "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" => Charset::Latin1,
        _ => match Encoding::for_label(name.as_bytes()) {
            Some(encoding) => Charset::Other(encoding),
            None => return Err(Error::whole(format!("the encoding {name:?} is not known"))),
        },
    };
    match charset.decode_exactly(&bytes) {
        Some(text) => reencoded(text, charset, Some(name), reader),
        None => Err(Error::whole(format!("the text is not in {name}, as the document says"))),
    }
}

/// Whether the first bytes of a text say that it is in UTF-8.
pub(crate) fn is_utf8(bytes: &[u8]) -> bool {
    matches!(decode(bytes), Ok(None))
}

fn reencoded(
    text: String,
    charset: Charset,
    name: Option<&str>,
    reader: impl FnOnce(Vec<u8>) -> Result<Parsed, Error>,
) -> Result<Parsed, Error> {
    let (blocks, body) = reader(text.into_bytes())?;
    Ok((blocks, Box::new(Reencoded { body, charset, name: name.map(str::to_owned) })))
}

/// The text of a document that is not in UTF-8. A few stray bytes do not make it another encoding.
fn decode(bytes: &[u8]) -> Result<Option<(String, Charset)>, Error> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        if bytes.starts_with(b"\xff\xfe\0\0") {
            return Err(Error::whole("text in UTF-32; UTF-8 or UTF-16 was expected"));
        }
        let charset = Charset::Utf16 { big: bytes[0] == 0xfe };
        return match charset.decode_exactly(bytes) {
            Some(text) => Ok(Some((text, charset))),
            None => Err(Error::whole("text in UTF-16 that is broken")),
        };
    }
    let (mut stray, mut fitting) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        stray += usize::from(!chunk.invalid().is_empty());
        fitting += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
    }
    if stray == 0 || fitting > 10 * stray {
        return Ok(None);
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let guess = Charset::Other(detector.guess(None, Utf8Detection::Deny));
    // Windows-1252 has a character for every byte.
    let both = [guess, Charset::Other(WINDOWS_1252)];
    Ok(both.into_iter().find_map(|charset| Some((charset.decode_exactly(bytes)?, charset))))
}

impl Charset {
    /// The text, if it can be written as the same bytes again.
    fn decode_exactly(self, bytes: &[u8]) -> Option<String> {
        let text = match self {
            Charset::Utf16 { big } => {
                let unit = |pair: &[u8]| match big {
                    true => u16::from_be_bytes([pair[0], pair[1]]),
                    false => u16::from_le_bytes([pair[0], pair[1]]),
                };
                let pairs = bytes.chunks_exact(2);
                let whole = pairs.remainder().is_empty();
                let units = whole.then(|| pairs.map(unit))?;
                char::decode_utf16(units).collect::<Result<String, _>>().ok()?
            }
            Charset::Latin1 => bytes.iter().map(|&byte| char::from(byte)).collect(),
            Charset::Other(encoding) => {
                encoding.decode_without_bom_handling_and_without_replacement(bytes)?.into_owned()
            }
        };
        (self.encode(&text)? == bytes).then_some(text)
    }

    /// The bytes of a text, if there are some for each of its characters.
    fn encode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Charset::Utf16 { big: true } => {
                Some(text.encode_utf16().flat_map(u16::to_be_bytes).collect())
            }
            Charset::Utf16 { big: false } => {
                Some(text.encode_utf16().flat_map(u16::to_le_bytes).collect())
            }
            Charset::Latin1 => text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect(),
            Charset::Other(encoding) => {
                let (bytes, _, lossy) = encoding.encode(text);
                (!lossy).then(|| bytes.into_owned())
            }
        }
    }
}

/// A document that is written in another encoding than UTF-8, unless it has a character that this lacks.
#[derive(Debug)]
struct Reencoded {
    body: Box<dyn Body>,
    charset: Charset,
    /// The name that the document gives to its encoding, behind `charset=`.
    name: Option<String>,
}

impl Body for Reencoded {
    fn ready(&self, _: usize) -> bool {
        // Text that comes later may lead to UTF-8 for all of it.
        false
    }

    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written) {
        let mut part = Written::default();
        self.body.write(blocks, range.clone(), new, &mut part);
        to.report.append(&mut part.report);
        let text = String::from_utf8_lossy(&part.bytes);
        if let Some(mut bytes) = self.charset.encode(&text) {
            return to.bytes.append(&mut bytes);
        }
        let is_odd = |new: &Translated| self.charset.encode(&new.text).is_none();
        let block = range.start + new.iter().position(is_odd).unwrap_or(0);
        to.report.push(Note { block, span: 0, kind: NoteKind::Reencoded });
        let text = match &self.name {
            Some(name) => text.replacen(&format!("charset={name}"), "charset=UTF-8", 1).into(),
            None => text,
        };
        to.bytes.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_known_only_if_they_give_the_same_bytes() {
        let known = |bytes: &[u8]| decode(bytes).map(|found| found.map(|(text, _)| text));
        assert_eq!(known("çé".as_bytes()), Ok(None));
        assert_eq!(known(b"caf\xe9 cr\xe8me, na\xefve"), Ok(Some("café crème, naïve".to_owned())));
        assert_eq!(known(b"\xff\xfea\0\xe9\0"), Ok(Some("\u{feff}aé".to_owned())));
        assert_eq!(known(b"\xfe\xff\0a"), Ok(Some("\u{feff}a".to_owned())));
        assert!(known(b"\xff\xfea").is_err() && known(b"\xff\xfe\0\xd8").is_err());
        let stray = ["ção ".repeat(20).as_bytes(), b"\xe9"].concat();
        assert_eq!(known(&stray), Ok(None));
        let all: Vec<u8> = (0..=255).collect();
        let (text, charset) = decode(&all).expect("text").expect("an encoding");
        assert_eq!(charset.encode(&text), Some(all));
        assert_eq!(Charset::Latin1.encode("é“"), None);
        assert_eq!(Charset::Other(WINDOWS_1252).encode("é“"), Some(b"\xe9\x93".to_vec()));
    }
}
