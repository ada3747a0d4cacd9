//! Lines longer than a model allows: cut at the best place, translated in parts, joined again.

use std::ops::Range;

use peregrine_text::{Encoded, Tokenizer};

/// Tokens of a part when a line must be cut. Models are trained on sentences; a part of the longest
/// length they allow would be translated badly, if at all.
const PART_TOKENS: usize = 200;

/// Source ids of a line in parts of at most `limit` tokens: one part unless the line is longer.
pub(crate) fn encode_parts(tokenizer: &Tokenizer, line: &str, limit: usize) -> Vec<Vec<u32>> {
    let encoded = tokenizer.encode(line);
    if encoded.ids.len() <= limit {
        return vec![encoded.ids];
    }
    let mut parts = Vec::new();
    for range in cut(line, &encoded, limit.clamp(1, PART_TOKENS)) {
        let mut ids = tokenizer.encode(&line[range]).ids;
        // Cutting can change a token or two at the edges; what is too long after all is cut blindly.
        while ids.len() > limit {
            let rest = ids.split_off(limit.max(1));
            parts.push(std::mem::replace(&mut ids, rest));
        }
        if !ids.is_empty() {
            parts.push(ids);
        }
    }
    parts
}

/// Byte ranges of parts with at most `limit` tokens.
fn cut(line: &str, encoded: &Encoded, limit: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut token, mut start) = (0, 0);
    while encoded.ids.len() - token > limit {
        // Every token in the window could be the last of this part; the later half is preferred.
        let window = token + limit.div_ceil(2)..=token + limit;
        let place = |t: &usize| char_boundary(line, encoded.spans[*t].start);
        let best = window.rev().max_by_key(|t| (quality(line, place(t)), *t)).unwrap_or(token + 1);
        let end = place(&best);
        if end > start {
            ranges.push(start..end);
            start = end;
        }
        token = best.max(token + 1);
    }
    if start < line.len() {
        ranges.push(start..line.len());
    }
    ranges
}

fn char_boundary(line: &str, mut at: usize) -> usize {
    while !line.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// How good a place is to cut: after a sentence, after a clause, between words, anywhere.
fn quality(line: &str, at: usize) -> u8 {
    let before = &line[..at];
    let ends_word =
        before.ends_with(char::is_whitespace) || line[at..].starts_with(char::is_whitespace);
    match before.trim_end().chars().next_back() {
        Some('。' | '！' | '？' | '।' | '؟') => 3,
        Some('.' | '!' | '?' | '…') if ends_word => 3,
        Some('，' | '、' | '；' | '،') => 2,
        Some(',' | ';' | ':') if ends_word => 2,
        _ => u8::from(ends_word),
    }
}

/// Puts the translations of two parts together, with a blank unless the script uses none.
pub(crate) fn join_texts(left: &str, right: &str) -> String {
    let unspaced = |c: char| matches!(c, '\u{3000}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}');
    let tight = left.is_empty()
        || right.is_empty()
        || left.ends_with(unspaced)
        || right.starts_with(unspaced);
    format!("{left}{}{right}", if tight { "" } else { " " })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Tokenizer {
        let vocabulary = "</s>\n<unk>\na\nb\nend.\n";
        Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None)
            .expect("a small vocabulary")
    }

    #[test]
    fn short_lines_are_one_part() {
        assert_eq!(encode_parts(&words(), "a b a", 3), [vec![2, 3, 2]]);
    }

    #[test]
    fn long_lines_are_cut_after_a_sentence_if_there_is_one() {
        let parts = encode_parts(&words(), "a b a end. b b a", 5);
        assert_eq!(parts, [vec![2, 3, 2, 4], vec![3, 3, 2]]);
    }

    #[test]
    fn no_token_is_lost_and_no_part_too_long() {
        let line = "a b ".repeat(5000);
        for limit in [1, 2, 7, 199, 1000] {
            let parts = encode_parts(&words(), &line, limit);
            assert!(parts.iter().all(|p| p.len() <= limit));
            assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 10_000);
        }
    }

    #[test]
    fn one_endless_word_is_cut_somewhere() {
        let line = "x".repeat(100_000);
        assert_eq!(encode_parts(&words(), &line, 10), [vec![1]]);
    }

    #[test]
    fn scripts_without_blanks_get_none() {
        assert_eq!(join_texts("One.", "Two."), "One. Two.");
        assert_eq!(join_texts("一。", "二。"), "一。二。");
        assert_eq!(join_texts("", "Two."), "Two.");
    }
}
