//! The bounded cursor through which every binary field is read.

use std::path::Path;

use crate::{Bytes, Error, Source};

/// Reads little-endian fields one after the other. A field that does not lie within the bytes is
/// an error that names its place and its purpose.
pub(crate) struct Reader<'a> {
    file: &'a Path,
    /// The name of the part being read, for messages; empty for the whole file.
    part: &'a str,
    bytes: &'a Bytes,
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of a file.
    pub(crate) fn new(source: &'a Source) -> Self {
        Self::of_part(&source.path, "", &source.bytes)
    }

    /// Starts at the first byte of a part of a file, such as a member of an archive.
    pub(crate) fn of_part(file: &'a Path, part: &'a str, bytes: &'a Bytes) -> Self {
        Self { file, part, bytes, position: 0 }
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Goes to an offset from the start.
    pub(crate) fn seek(&mut self, offset: u64, what: &str) -> Result<(), Error> {
        let length = self.bytes.len();
        self.position =
            usize::try_from(offset).ok().filter(|&offset| offset <= length).ok_or_else(|| {
                self.error(format!("{what} at byte {offset}, but there are only {length} bytes"))
            })?;
        Ok(())
    }

    /// The next `length` bytes; `what` names them in messages.
    pub(crate) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], Error> {
        let start = self.advance(length, what)?;
        Ok(&self.bytes[start..self.position])
    }

    /// The next `length` bytes as a view that shares their memory.
    pub(crate) fn view(&mut self, length: u64, what: &str) -> Result<Bytes, Error> {
        let start = self.advance(length, what)?;
        Ok(self.bytes.slice(start..self.position))
    }

    /// All remaining bytes, as a view.
    pub(crate) fn rest(&mut self) -> Bytes {
        let start = self.position;
        self.position = self.bytes.len();
        self.bytes.slice(start..self.position)
    }

    /// Bytes up to the next line end, which is skipped and not returned.
    pub(crate) fn line(&mut self, what: &str) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.position..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            return Err(self.error(format!("{what} has no end")));
        };
        self.position += length + 1;
        Ok(&rest[..length])
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, Error> {
        self.array(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, Error> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A field of fixed size.
    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let start = self.advance(N as u64, what)?;
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[start..self.position]);
        Ok(field)
    }

    /// Fails unless all bytes have been read.
    pub(crate) fn expect_end(&self, after: &str) -> Result<(), Error> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.error(format!("{left} bytes after {after}, expected the end"))),
        }
    }

    /// An error at the next byte.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        self.error_at(format!("byte {}", self.position), problem)
    }

    /// An error at a named place, such as an item.
    pub(crate) fn error_at(&self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        let mut place = place.into();
        if !self.part.is_empty() {
            place = format!("{}, {place}", self.part);
        }
        Error::new(self.file, place, problem)
    }

    /// Skips `length` bytes and returns the offset of the first; fails if fewer are left.
    fn advance(&mut self, length: u64, what: &str) -> Result<usize, Error> {
        let left = self.remaining();
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                let start = self.position;
                self.position += length;
                Ok(start)
            }
            _ => {
                Err(self.error(format!("{what}: {length} bytes needed, but only {left} are left")))
            }
        }
    }
}

/// Text for messages: quoted, with control characters escaped, and shortened.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
