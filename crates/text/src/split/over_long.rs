//! Text longer than a model allows: cut at the best place.

use std::ops::Range;

use super::sentences;
use crate::{Encoded, Tokenizer};

/// Tokens of a piece when text must be cut. Models are trained on sentences; a piece of the longest
/// length they allow would be translated badly, if at all.
const PIECE_TOKENS: usize = 200;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its tokens.
    pub ids: Vec<u32>,
    /// What it is made of.
    pub range: Range<usize>,
}

/// A text in pieces of at most `limit` tokens: one piece unless the text is longer, none if it has no
/// tokens.
pub fn encode_pieces(tokenizer: &Tokenizer, text: &str, limit: usize) -> Vec<Piece> {
    let encoded = tokenizer.encode(text);
    if encoded.ids.is_empty() {
        return Vec::new();
    }
    if encoded.ids.len() <= limit {
        return vec![Piece { ids: encoded.ids, range: 0..text.len() }];
    }
    let mut pieces = Vec::new();
    for range in cut(text, &encoded, limit.clamp(1, PIECE_TOKENS)) {
        let mut ids = tokenizer.encode(&text[range.clone()]).ids;
        // Cutting can change a token or two at the edges; what is too long after all is cut blindly.
        while ids.len() > limit {
            let rest = ids.split_off(limit.max(1));
            let ids = std::mem::replace(&mut ids, rest);
            pieces.push(Piece { ids, range: range.clone() });
        }
        if !ids.is_empty() {
            pieces.push(Piece { ids, range });
        }
    }
    pieces
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
        assert_eq!(ids(&"x".repeat(100_000), 10), [vec![1]]);
    }
}
