//! Documents piece by piece, so that a long one need not be in memory as a whole.
//!
//! Plain text can be cut behind every line, JSON behind every line that ends outside of all brackets: JSON lines. Other
//! documents are a single piece, and so is text in another encoding than UTF-8, which is told from all of it.

use std::io::Read;

use crate::document::Document;
use crate::options::Options;
use crate::{Error, Format, encoding, json, text};

/// The bytes that a piece has, if it can be cut so.
const PIECE: usize = 1 << 20;

/// Reads a document piece by piece. Each piece is a [`Document`]; what they are written as, one behind the other, is the whole.
///
/// ```
/// use peregrine_document::{Format, Options, Pieces, Translated};
///
/// let lines = "{\"text\": \"One day\"}\n{\"text\": \"Two days\"}\n";
/// let mut written = Vec::new();
/// for piece in Pieces::new(lines.as_bytes(), Format::Json, Options::default()) {
///     let piece = piece?;
///     let copy: Vec<Translated> = piece.blocks().iter().map(Translated::copy).collect();
///     written.extend(piece.write(&copy).bytes);
/// }
/// assert_eq!(written, lines.as_bytes());
/// # Ok::<(), peregrine_document::Error>(())
/// ```
#[derive(Debug)]
pub struct Pieces<R> {
    input: R,
    format: Format,
    options: Options,
    /// The bytes of a piece.
    size: usize,
    /// What was read and is in no piece yet.
    rest: Vec<u8>,
    /// The lines of the pieces so far; none before the first piece.
    lines: Option<usize>,
    /// The bytes of the pieces so far.
    position: u64,
    ended: bool,
}

impl<R: Read> Pieces<R> {
    /// The pieces of what `input` holds. A piece may have as many bytes as [`Options::largest`] allows a document.
    pub fn new(input: R, format: Format, options: Options) -> Pieces<R> {
        let (size, rest) = (PIECE, Vec::new());
        Pieces { input, format, options, size, rest, lines: None, position: 0, ended: false }
    }

    /// The number of bytes of the pieces so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether there are no more pieces.
    pub fn is_at_end(&self) -> bool {
        self.ended
    }

    /// The bytes of the next piece: all that is left if it cannot be cut.
    fn next_bytes(&mut self) -> Result<Vec<u8>, Error> {
        let largest = self.options.largest;
        loop {
            // Twice as much each time, because places to cut are looked for anew.
            let most = self.size.max(2 * self.rest.len()).min(largest.saturating_add(1));
            let missing = most.saturating_sub(self.rest.len());
            let read = self.input.by_ref().take(missing as u64).read_to_end(&mut self.rest);
            let read = read.map_err(|error| Error::Unreadable(error.to_string()))?;
            if read < missing {
                self.ended = true;
                return Ok(std::mem::take(&mut self.rest));
            }
            let cut = self.cut();
            if cut > 0 {
                let behind = self.rest.split_off(cut);
                return Ok(std::mem::replace(&mut self.rest, behind));
            }
            if self.rest.len() > largest {
                return Err(Error::whole(format!("more than the limit of {largest} bytes")));
            }
        }
    }

    /// Where what was read can be cut; 0 if nowhere.
    fn cut(&self) -> usize {
        let cut = match self.format {
            Format::Text if !self.options.wrapped => text::last_line_end(&self.rest),
            Format::Json => json::last_line_end(&self.rest),
            _ => 0,
        };
        let is_known = self.lines.is_some() || encoding::is_utf8(&self.rest[..cut]);
        if is_known { cut } else { 0 }
    }

    fn next_piece(&mut self) -> Result<Document, Error> {
        let bytes = self.next_bytes()?;
        self.position += bytes.len() as u64;
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        let before = self.lines.unwrap_or(0);
        let read = match self.lines.replace(before + lines) {
            None => Document::read,
            Some(_) => Document::read_more,
        };
        read(bytes, self.format, &self.options).map_err(|error| error.behind_lines(before))
    }
}

impl<R: Read> Iterator for Pieces<R> {
    type Item = Result<Document, Error>;

    /// The next piece. Behind one that cannot be read there is none.
    fn next(&mut self) -> Option<Result<Document, Error>> {
        if self.ended {
            return None;
        }
        let piece = self.next_piece();
        self.ended |= piece.is_err();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Translated;

    /// A reader that gives a few bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let length = self.0.len().min(to.len()).min(3);
            let (now, rest) = self.0.split_at(length);
            to[..length].copy_from_slice(now);
            self.0 = rest;
            Ok(length)
        }
    }

    fn pieces(bytes: &[u8], format: Format, size: usize) -> Vec<Result<Document, Error>> {
        let pieces = Pieces::new(Slow(bytes), format, Options::default());
        Pieces { size, ..pieces }.collect()
    }

    /// The document with a word before each block, in pieces or as a whole.
    fn written(documents: &[Document]) -> (Vec<u8>, usize) {
        let (mut bytes, mut blocks) = (Vec::new(), 0);
        for document in documents {
            let new = |text: &str| Translated { text: format!("x {text}"), ..Default::default() };
            let new: Vec<_> = document.blocks().iter().map(|block| new(&block.text)).collect();
            bytes.extend(document.write(&new).bytes);
            blocks += document.blocks().len();
        }
        (bytes, blocks)
    }

    #[test]
    fn a_document_in_pieces_is_that_document() {
        let text = "\u{feff}One\r\n\n  - two\tthree\n\nç four".repeat(20);
        let lines =
            "{\"a\": \"b c\", // }\n \"d\": [\"e \\\" ]\"]}\n[\"é f\"]\n /* \n */ \"g h\"\n"
                .repeat(9);
        let mixed = [text.as_bytes(), b"caf\xe9 noir\n"].concat();
        let cases = [
            (Format::Text, text.clone().into_bytes(), true),
            (Format::Text, mixed, true),
            (Format::Json, lines.clone().into_bytes(), true),
            (Format::Json, format!("[{}]", lines.replace('\n', ",\n")).into_bytes(), false),
            (Format::Text, b"caf\xe9 noir\n".repeat(9), false),
            (Format::Html, b"<p>a b\n</p>\n".repeat(9), false),
            (Format::Text, Vec::new(), false),
        ];
        for (format, bytes, is_cut) in cases {
            let whole = Document::read(bytes.clone(), format, &Options::default());
            let whole = whole.unwrap_or_else(|error| panic!("{format}: {error}"));
            for size in [1, 7, 20, 64] {
                let pieces: Result<Vec<_>, _> = pieces(&bytes, format, size).into_iter().collect();
                let pieces = pieces.unwrap_or_else(|error| panic!("{format}: {error}"));
                assert_eq!(pieces.len() > 1, is_cut, "{format} {size}");
                assert_eq!(written(&pieces), written(std::slice::from_ref(&whole)), "{format}");
            }
            assert_eq!(pieces(&bytes, format, PIECE).len(), 1);
        }
    }

    #[test]
    fn places_are_those_of_the_whole() {
        let lines = b"{\"a\": \"b\"}\n".repeat(5);
        let broken = [&lines[..], b"  ]\n", &lines[..]].concat();
        let found = pieces(&broken, Format::Json, 12);
        let error = found.last().and_then(|last| last.as_ref().err()).map(Error::to_string);
        assert_eq!(error.as_deref(), Some("line 6, column 3: a bracket that closes nothing"));
        let options = Options { largest: 20, ..Options::default() };
        let long = b"one two three four five six\n";
        let mut pieces = Pieces::new(&long[..], Format::Text, options);
        let error = pieces.next().and_then(Result::err).map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("more than the limit of 20 bytes"));
        assert!(pieces.next().is_none());
    }
}
