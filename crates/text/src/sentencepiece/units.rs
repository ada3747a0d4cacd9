//! The two model types that do not search: whole words and single characters.

use super::Segment;
use super::lexicon::Lexicon;
use super::normalizer::ESCAPED_BLANK;
use crate::utf8;

/// One piece per character.
pub(super) fn characters(lexicon: &Lexicon, text: &[u8]) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let end = text.len().min(start + utf8::length_by_first_byte(text[start]));
        segments.push(Segment { id: lexicon.id_or_unknown(&text[start..end]), range: start..end });
        start = end;
    }
    segments
}

/// One piece per word; a word begins at each escaped blank.
pub(super) fn words(lexicon: &Lexicon, text: &[u8]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let length = word_length(&text[start..]);
        let word = &text[start..start + length];
        segments.push(Segment { id: lexicon.id_or_unknown(word), range: start..start + length });
        start += length;
    }
    segments
}

/// Bytes up to the next escaped blank after the first character.
fn word_length(text: &[u8]) -> usize {
    let mut end = text.len().min(utf8::length_by_first_byte(text[0]));
    while end < text.len() && !text[end..].starts_with(ESCAPED_BLANK.as_bytes()) {
        end = text.len().min(end + utf8::length_by_first_byte(text[end]));
    }
    end
}
