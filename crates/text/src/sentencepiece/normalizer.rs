//! Rewrites a line before it is segmented, and records where every byte came from.
//!
//! Three things happen in one pass: the model's character map is applied (NFKC and more), blanks are
//! squeezed and trimmed, and blanks become U+2581 so that they survive inside pieces.

use super::charsmap::Charsmap;
use super::file::NormalizerSpec;
use crate::trie::{ROOT, Trie};
use crate::{Error, utf8};

/// U+2581, what a blank looks like inside pieces.
pub(super) const ESCAPED_BLANK: &str = "\u{2581}";
/// The same as a character, which is found faster than a text.
pub(super) const ESCAPED_BLANK_CHAR: char = '\u{2581}';

/// A rewritten line. `origin[i]` is the input offset that byte `i` came from; it has one entry more than
/// `text`, for the end (none at all if the line came out empty).
#[derive(Debug, Default)]
pub(super) struct Normalized {
    pub(super) text: Vec<u8>,
    pub(super) origin: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Normalizer {
    charsmap: Option<Charsmap>,
    /// User-defined pieces: passed through as they stand.
    protected: Option<Trie>,
    /// ASCII characters that nothing rewrites, at least before another one: most of most lines.
    plain: [bool; 256],
    blank: &'static [u8],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    whitespace_as_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(
        name: &str,
        place: &str,
        spec: &NormalizerSpec<'_>,
        whitespace_as_suffix: bool,
        protected: Option<Trie>,
    ) -> Result<Self, Error> {
        let charsmap = match spec.charsmap {
            [] => None,
            bytes => Some(Charsmap::parse(name, place, bytes)?),
        };
        let plain = std::array::from_fn(|byte| {
            let byte = byte as u8;
            let protects = |trie: &Trie| trie.step(ROOT, byte).is_some();
            byte.is_ascii()
                && byte != b' '
                && !protected.as_ref().is_some_and(protects)
                && charsmap.as_ref().is_none_or(|map| map.keeps(byte))
        });
        let blank = if spec.escape_whitespaces { ESCAPED_BLANK } else { " " };
        Ok(Self {
            charsmap,
            protected,
            plain,
            blank: blank.as_bytes(),
            add_dummy_prefix: spec.add_dummy_prefix,
            remove_extra_whitespaces: spec.remove_extra_whitespaces,
            whitespace_as_suffix,
        })
    }

    /// Whether decoding drops a blank at the start of the line.
    pub(super) fn eats_leading_blank(&self) -> bool {
        self.add_dummy_prefix || self.remove_extra_whitespaces
    }

    pub(super) fn removes_extra_whitespaces(&self) -> bool {
        self.remove_extra_whitespaces
    }

    pub(super) fn normalize(&self, input: &[u8]) -> Normalized {
        let mut at = self.skip_leading_blanks(input);
        let mut out = Normalized::default();
        if at == input.len() {
            return out;
        }
        // Room for the line, its blanks as three bytes each, and a little growth.
        out.text.reserve(input.len() * 3 / 2 + 8);
        out.origin.reserve(input.len() * 3 / 2 + 8);
        if self.add_dummy_prefix && !self.whitespace_as_suffix {
            out.push(self.blank, at);
        }
        let mut after_blank = self.remove_extra_whitespaces;
        while at < input.len() {
            let plain = self.plain_run(&input[at..]);
            if plain > 0 {
                out.text.extend_from_slice(&input[at..at + plain]);
                out.origin.extend(at..at + plain);
                after_blank = false;
                at += plain;
                continue;
            }
            let (mut chunk, length) = self.next_chunk(&input[at..]);
            if after_blank {
                chunk = trim_blanks_start(chunk);
            }
            if let Some(last) = chunk.last() {
                self.append(&mut out, chunk, at);
                after_blank = self.remove_extra_whitespaces && *last == b' ';
            }
            at += length;
        }
        if self.remove_extra_whitespaces {
            at = self.trim_end(&mut out, at);
        }
        if self.add_dummy_prefix && self.whitespace_as_suffix {
            out.push(self.blank, at);
        }
        out.origin.push(at);
        out
    }

    /// Where the text begins, if blanks at its start are to be dropped.
    fn skip_leading_blanks(&self, input: &[u8]) -> usize {
        let mut at = 0;
        while self.remove_extra_whitespaces && at < input.len() {
            let (chunk, length) = self.next_chunk(&input[at..]);
            if chunk != b" " {
                break;
            }
            at += length;
        }
        at
    }

    /// Bytes at the start that stay as they are: a short cut through [`Self::next_chunk`]. The last one must have an ASCII character
    /// or nothing behind it.
    #[inline]
    fn plain_run(&self, input: &[u8]) -> usize {
        let run = input.iter().position(|&byte| !self.plain[byte as usize]);
        let run = run.unwrap_or(input.len());
        match input.get(run) {
            Some(byte) if !byte.is_ascii() => run.saturating_sub(1),
            _ => run,
        }
    }

    /// What the start of `input` (not empty) becomes, and how many bytes of it that covers.
    #[inline]
    fn next_chunk<'a>(&'a self, input: &'a [u8]) -> (&'a [u8], usize) {
        if let Some(length) = self.protected.as_ref().and_then(|trie| trie.longest_prefix(input)) {
            return (&input[..length], length);
        }
        if let Some(found) = self.charsmap.as_ref().and_then(|map| map.longest_match(input)) {
            return found;
        }
        match utf8::well_formed(input) {
            Some(length) => (&input[..length], length),
            None => (utf8::REPLACEMENT, 1),
        }
    }

    fn append(&self, out: &mut Normalized, chunk: &[u8], at: usize) {
        for byte in chunk {
            match byte {
                b' ' => out.push(self.blank, at),
                byte => out.push(std::slice::from_ref(byte), at),
            }
        }
    }

    /// Drops blanks at the end; the line then ends where the first of them began.
    fn trim_end(&self, out: &mut Normalized, mut end: usize) -> usize {
        while out.text.ends_with(self.blank) {
            let length = out.text.len() - self.blank.len();
            end = out.origin[length];
            out.text.truncate(length);
            out.origin.truncate(length);
        }
        end
    }
}

impl Normalized {
    #[inline]
    fn push(&mut self, bytes: &[u8], at: usize) {
        for &byte in bytes {
            self.text.push(byte);
            self.origin.push(at);
        }
    }
}

fn trim_blanks_start(mut chunk: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = chunk {
        chunk = rest;
    }
    chunk
}
