//! Splitting of text that is too long for a model.
//!
//! A text above [`LONGEST`] bytes is split before tokenisation, which bounds the memory of a line;
//! one with more tokens than the model allows is split after it. A stretch without a place to split
//! is not language (a key, an encoded image, a row of dashes) and is not translated.

use std::ops::Range;

use super::sentences;
use crate::{Encoded, Tokenizer};

/// The target size of a piece in tokens. Models are trained on sentences; a piece of the maximum
/// length would be translated badly, if at all.
const PIECE_TOKENS: usize = 200;

/// The most bytes of text that are tokenised together.
pub const LONGEST: usize = 1 << 16;

/// A too long text with more characters than this between two places to split is copied. Clauses of
/// scripts without blanks are much shorter.
const UNBROKEN: usize = 2000;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The tokens; empty if the piece is copied.
    pub ids: Vec<u32>,
    /// The byte range of each token in the text, see [`Encoded::spans`].
    pub spans: Vec<Range<usize>>,
    /// The byte range of the piece in the text.
    pub range: Range<usize>,
}

impl Piece {
    /// A piece of the text in `range`; the encoded spans are relative to its start.
    fn new(encoded: Encoded, range: Range<usize>) -> Piece {
        let Encoded { ids, mut spans } = encoded;
        if range.start > 0 {
            for span in &mut spans {
                *span = range.start + span.start..range.start + span.end;
            }
        }
        Piece { ids, spans, range }
    }

    /// Splits off the first `count` tokens with their text.
    fn split_front(&mut self, text: &str, count: usize) -> Piece {
        let (ids, spans) = (self.ids.split_off(count), self.spans.split_off(count));
        let place = spans.first().map_or(self.range.end, |span| char_boundary(text, span.start));
        let place = place.clamp(self.range.start, self.range.end);
        let rest = Piece { ids, spans, range: place..self.range.end };
        self.range.end = place;
        std::mem::replace(self, rest)
    }
}

/// The place to split a text of more than [`LONGEST`] bytes: after the last blank in the second
/// half of these bytes, or else at the last character. A shorter text is not split.
///
/// ```
/// use peregrine_text::{LONGEST, cut_place};
/// assert_eq!(cut_place(b"short"), 5);
/// assert_eq!(cut_place(" abcd".repeat(LONGEST).as_bytes()), LONGEST / 5 * 5 + 1);
/// assert_eq!(cut_place("水".repeat(LONGEST).as_bytes()), LONGEST / 3 * 3);
/// ```
pub fn cut_place(text: &[u8]) -> usize {
    if text.len() <= LONGEST {
        return text.len();
    }
    let blank = text[LONGEST / 2..LONGEST].iter().rposition(|byte| matches!(byte, b' ' | b'\t'));
    if let Some(place) = blank {
        return LONGEST / 2 + place + 1;
    }
    let continues = |&&at: &&usize| text[at] & 0b1100_0000 == 0b1000_0000;
    let back = [LONGEST, LONGEST - 1, LONGEST - 2].iter().take_while(continues).count();
    LONGEST - back
}

/// A text in pieces of at most `limit` tokens: one piece unless the text is longer, none if it has no
/// tokens.
pub fn encode_pieces(tokenizer: &Tokenizer, text: &str, limit: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = start + cut_place(&text.as_bytes()[start..]);
        encode_part(tokenizer, text, start..end, limit, &mut pieces);
        start = end;
    }
    pieces
}

/// The pieces of a part that can be tokenised as a whole.
fn encode_part(
    tokenizer: &Tokenizer,
    text: &str,
    part: Range<usize>,
    limit: usize,
    pieces: &mut Vec<Piece>,
) {
    let encoded = tokenizer.encode(&text[part.clone()]);
    if encoded.ids.is_empty() {
        return;
    }
    if encoded.ids.len() <= limit {
        pieces.push(Piece::new(encoded, part));
        return;
    }
    let within = |range: &Range<usize>| part.start + range.start..part.start + range.end;
    let mut start = part.start;
    for stretch in unbroken(&text[part.clone()]).iter().map(within) {
        encode_too_long(tokenizer, text, start..stretch.start, limit, pieces);
        start = stretch.end;
        pieces.push(Piece { ids: Vec::new(), spans: Vec::new(), range: stretch });
    }
    encode_too_long(tokenizer, text, start..part.end, limit, pieces);
}

/// The pieces of a part that probably has more than `limit` tokens.
fn encode_too_long(
    tokenizer: &Tokenizer,
    text: &str,
    part: Range<usize>,
    limit: usize,
    pieces: &mut Vec<Piece>,
) {
    let start = part.start;
    let inside = &text[part];
    let encoded = tokenizer.encode(inside);
    for range in cut(inside, &encoded, limit.clamp(1, PIECE_TOKENS)) {
        let range = start + range.start..start + range.end;
        let mut piece = Piece::new(tokenizer.encode(&text[range.clone()]), range);
        // Cutting can change a token or two at the edges; what is too long after all is cut blindly.
        while piece.ids.len() > limit {
            pieces.push(piece.split_front(text, limit.max(1)));
        }
        if !piece.ids.is_empty() {
            pieces.push(piece);
        }
    }
}

/// Stretches of more than [`UNBROKEN`] characters without a blank or the end of a clause.
fn unbroken(text: &str) -> Vec<Range<usize>> {
    let breaks = |c: char| c.is_whitespace() || ends_clause(c);
    let mut stretches = Vec::new();
    let mut start = 0;
    for part in text.split_inclusive(breaks) {
        let inside = part.trim_end_matches(breaks).len();
        if part[..inside].chars().nth(UNBROKEN).is_some() {
            stretches.push(start..start + inside);
        }
        start += part.len();
    }
    stretches
}

/// Whether a clause or sentence ends at this character, with or without a blank behind it.
fn ends_clause(c: char) -> bool {
    matches!(
        c,
        '，' | '、'
            | '；'
            | '：'
            | '。'
            | '！'
            | '？'
            | '｡'
            | '､'
            | '،'
            | '؛'
            | '؟'
            | '।'
            | '።'
    )
}

/// Byte ranges of pieces with at most `limit` tokens.
fn cut(text: &str, encoded: &Encoded, limit: usize) -> Vec<Range<usize>> {
    let ends: Vec<usize> = sentences(text).into_iter().map(|range| range.end).collect();
    let mut ranges = Vec::new();
    let (mut token, mut start) = (0, 0);
    while encoded.ids.len() - token > limit {
        // Every token in the window could be the last of this piece; the later half is preferred.
        let window = token + limit.div_ceil(2)..=token + limit;
        let place = |t: &usize| char_boundary(text, encoded.spans[*t].start);
        let best =
            window.rev().max_by_key(|t| (quality(text, place(t), &ends), *t)).unwrap_or(token + 1);
        let end = place(&best);
        if end > start {
            ranges.push(start..end);
            start = end;
        }
        token = best.max(token + 1);
    }
    if start < text.len() {
        ranges.push(start..text.len());
    }
    ranges
}

fn char_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// How good a place is to cut: after a sentence, after a clause, between words, anywhere.
fn quality(text: &str, at: usize, sentence_ends: &[usize]) -> u8 {
    let before = text[..at].trim_end();
    if sentence_ends.binary_search(&before.len()).is_ok() {
        return 3;
    }
    let ends_word = before.len() < at || text[at..].starts_with(char::is_whitespace);
    match before.chars().next_back() {
        Some('，' | '、' | '；' | '،') => 2,
        Some(',' | ';' | ':') if ends_word => 2,
        _ => u8::from(ends_word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Tokenizer {
        let vocabulary = "</s>\n<unk>\na\nb\nend.\nB\n";
        Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None)
            .expect("a small vocabulary")
    }

    fn ids(text: &str, limit: usize) -> Vec<Vec<u32>> {
        encode_pieces(&words(), text, limit).into_iter().map(|piece| piece.ids).collect()
    }

    #[test]
    fn short_texts_are_one_piece() {
        assert_eq!(ids("a b a", 3), [vec![2, 3, 2]]);
        assert!(ids("", 3).is_empty());
    }

    #[test]
    fn long_texts_are_cut_after_a_sentence_if_there_is_one() {
        assert_eq!(ids("a b a end. B b a", 5), [vec![2, 3, 2, 4], vec![5, 3, 2]]);
    }

    #[test]
    fn no_token_is_lost_and_no_piece_too_long() {
        let line = "a b ".repeat(5000);
        for limit in [1, 2, 7, 199, 1000] {
            let pieces = ids(&line, limit);
            assert!(pieces.iter().all(|p| p.len() <= limit));
            assert_eq!(pieces.iter().map(Vec::len).sum::<usize>(), 10_000);
        }
    }

    #[test]
    fn one_endless_word_is_cut_somewhere() {
        assert_eq!(ids(&"x".repeat(10_000), 10), [vec![1]]);
    }

    /// The words of a long text are in its pieces, whatever bytes it is cut at.
    #[test]
    fn a_text_of_any_size_is_cut_before_it_is_tokenised() {
        for unit in ["a b ", "a　", "\u{1f980}a b\t"] {
            let text = unit.repeat(3 * LONGEST / unit.len());
            let pieces = encode_pieces(&words(), &text, 200);
            let mut end = 0;
            for piece in &pieces {
                assert!(piece.range.len() <= LONGEST && piece.range.start >= end);
                end = piece.range.end;
            }
            let tokens: usize = pieces.iter().map(|piece| piece.ids.len()).sum();
            let expected = words().encode(&text).ids.len();
            // A word may be cut in two where nothing else can be.
            assert!(tokens.abs_diff(expected) <= 4, "{tokens}, not {expected}");
        }
    }

    /// Pieces follow each other, and their tokens' bytes are within them, also where a text is cut blindly.
    #[test]
    fn tokens_of_pieces_come_from_their_own_bytes() {
        // Each letter is a token of its own in the middle of a text, but two at its start.
        let vocabulary = "</s>\n<unk>\na@@\na\nb@@\nb\n";
        let codes = Some("#version: 0.2\n".as_bytes().into());
        let letters = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), codes);
        let letters = letters.expect("a small vocabulary");
        let text = format!("  {} ab ab", "ab".repeat(20));
        for limit in [1, 2, 3, 7, 40] {
            let pieces = encode_pieces(&letters, &text, limit);
            let mut end = 0;
            let mut spelt = String::new();
            for piece in &pieces {
                assert!(piece.range.start >= end && piece.ids.len() <= limit, "{limit}");
                assert_eq!(piece.ids.len(), piece.spans.len());
                for (span, &id) in piece.spans.iter().zip(&piece.ids) {
                    assert!(piece.range.start <= span.start && span.end <= piece.range.end);
                    assert_eq!(&text[span.clone()], letters.token(id).trim_end_matches('@'));
                    spelt.push_str(&text[span.clone()]);
                }
                end = piece.range.end;
            }
            assert_eq!(spelt, text.replace(' ', ""), "{limit}");
        }
    }

    #[test]
    fn what_has_no_place_to_cut_is_copied() {
        let model = Tokenizer::words("vocab.txt", "</s>\n<unk>\na\n".as_bytes().into(), None);
        let model = model.expect("a small vocabulary");
        let text = format!("a a a {} a", "x".repeat(UNBROKEN + 1));
        let pieces = encode_pieces(&model, &text, 2);
        let copied: Vec<_> = pieces.iter().filter(|piece| piece.ids.is_empty()).collect();
        assert_eq!(copied.len(), 1);
        assert_eq!(copied[0].range, 6..6 + UNBROKEN + 1);
        assert_eq!(pieces.iter().map(|piece| piece.ids.len()).sum::<usize>(), 4);
        // Text that fits is translated, whatever it is.
        assert_eq!(encode_pieces(&model, &text, 5).len(), 1);
    }
}
