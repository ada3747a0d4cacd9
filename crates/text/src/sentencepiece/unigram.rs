//! The unigram model: of all ways to cut a line into pieces, the one with the greatest sum of scores.
//!
//! One pass from left to right keeps, for every position, the best way to get there. Costs one trie walk
//! per character, but for words that the word cache knows (`word_cache.rs`).
//!
//! Ties matter: repeated letters (`aaa`) make them common, and which segmentation wins then depends on the
//! last bit. A candidate must be strictly greater to win. The library used to compare the exact sum (in
//! float64) with the stored, rounded one; since 0.2.2 it rounds first. Both are in use, so
//! both are here.

use super::file::{Kind, Piece};
use super::word_cache::{Pieces, WordCache, first_word};
use super::{Segment, UserDefinedScore};
use crate::trie::Trie;
use crate::utf8;

/// How much worse than the worst piece an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;

const UNREACHED: usize = usize::MAX;

#[derive(Debug, Clone)]
pub(super) struct Unigram {
    /// Pieces that may be produced, if not all that text may match.
    restricted: Option<Trie>,
    /// By id, that of an unknown character included.
    scores: Vec<f64>,
    unknown: u32,
    rule: UserDefinedScore,
    words: Option<WordCache>,
}

/// The best way to reach a position.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    id: u32,
    from: usize,
}

impl Unigram {
    pub(super) fn new(
        pieces: &[Piece<'_>],
        restricted: Option<Trie>,
        unknown: u32,
        rule: UserDefinedScore,
    ) -> Self {
        let normal =
            || pieces.iter().filter(|piece| piece.kind == Kind::Normal).map(|piece| piece.score);
        let least = normal().reduce(f32::min).unwrap_or(0.0);
        // Scores are negative, so this is nearly always the smallest positive number.
        let greatest = normal().fold(f32::MIN_POSITIVE, f32::max);
        let score = |piece: &Piece<'_>| match piece.kind {
            Kind::UserDefined => user_defined_score(piece.text.len(), greatest, rule),
            _ => f64::from(piece.score),
        };
        let mut scores: Vec<f64> = pieces.iter().map(score).collect();
        scores[unknown as usize] = f64::from(least - UNKNOWN_PENALTY);
        let words = WordCache::new(pieces, &scores);
        Self { restricted, scores, unknown, rule, words }
    }

    /// Cuts `text`; `matchable` holds every piece that text may match.
    pub(super) fn segment(&self, matchable: &Trie, text: &[u8]) -> Vec<Segment> {
        let trie = self.restricted.as_ref().unwrap_or(matchable);
        match self.rule {
            UserDefinedScore::Zero => {
                self.best_path(trie, text, |score, sum| f64::from(score as f32 + sum))
            }
            UserDefinedScore::Marian => {
                self.best_path(trie, text, |score, sum| score + f64::from(sum))
            }
        }
    }

    /// `add` extends the sum of a path by the score of a piece.
    fn best_path(&self, trie: &Trie, text: &[u8], add: impl Fn(f64, f32) -> f64) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(text.len() / 4 + 1);
        let (mut start, mut sum, mut best) = (0, 0.0, Vec::new());
        while start < text.len() {
            let rest = &text[start..];
            let Some(words) = &self.words else {
                self.segment_word(trie, rest, &add, &mut best, (start, sum), &mut segments);
                break;
            };
            let word = &rest[..first_word(rest)];
            match words.get(word, sum, || self.best_without_rounding(trie, word)) {
                Some(pieces) => {
                    for &(length, id) in pieces {
                        sum = self.extend(sum, id, &add) as f32;
                        segments.push(Segment { id, range: start..start + usize::from(length) });
                        start += usize::from(length);
                    }
                }
                None => {
                    let at = (start, sum);
                    sum = self.segment_word(trie, word, &add, &mut best, at, &mut segments);
                    start += word.len();
                }
            }
        }
        segments
    }

    /// The sum of a path with one piece more.
    #[inline]
    fn extend(&self, sum: f32, id: u32, add: &impl Fn(f64, f32) -> f64) -> f64 {
        let score = self.scores[id as usize];
        // Unknown characters are added in float32 by both rules.
        if id == self.unknown { f64::from(score as f32 + sum) } else { add(score, sum) }
    }

    /// Cuts a word that stands at `start`, behind pieces whose scores have this sum, and returns the new sum. `best` is
    /// scratch memory.
    fn segment_word(
        &self,
        trie: &Trie,
        word: &[u8],
        add: &impl Fn(f64, f32) -> f64,
        best: &mut Vec<Best>,
        (start, sum): (usize, f32),
        segments: &mut Vec<Segment>,
    ) -> f32 {
        best.clear();
        best.resize(word.len() + 1, Best { score: sum, id: 0, from: UNREACHED });
        for_each_edge(trie, word, self.unknown, |at, length, id| {
            let score = self.extend(best[at].score, id, add);
            best[at + length].improve(score, id, at);
        });
        let first = segments.len();
        let mut end = word.len();
        while end > 0 {
            let Best { id, from, .. } = best[end];
            segments.push(Segment { id, range: start + from..start + end });
            end = from;
        }
        segments[first..].reverse();
        best[word.len()].score
    }

    /// The best segmentation of a word with sums in float64, and by how much it is better than the second.
    fn best_without_rounding(&self, trie: &Trie, word: &[u8]) -> (Pieces, f64) {
        // The two greatest sums at each position, and the last piece of the greatest.
        let unreached = ([f64::NEG_INFINITY; 2], 0, 0);
        let mut best = vec![unreached; word.len() + 1];
        best[0].0[0] = 0.0;
        for_each_edge(trie, word, self.unknown, |at, length, id| {
            for sum in best[at].0.map(|sum| sum + self.scores[id as usize]) {
                let (sums, last, from) = &mut best[at + length];
                if sum > sums[0] {
                    (*sums, *last, *from) = ([sum, sums[0]], id, at);
                } else {
                    sums[1] = sums[1].max(sum);
                }
            }
        });
        let (mut pieces, mut end) = (Vec::new(), word.len());
        while end > 0 {
            let (_, id, from) = best[end];
            pieces.push(((end - from) as u8, id));
            end = from;
        }
        pieces.reverse();
        let [first, second] = best[word.len()].0;
        (pieces.into(), first - second)
    }
}

/// Calls `edge(at, length, id)` for every piece at every character of a word, in order. Where no piece is a single character it is
/// unknown: every character must be passable, so that every position is reached.
#[inline]
fn for_each_edge(trie: &Trie, word: &[u8], unknown: u32, mut edge: impl FnMut(usize, usize, u32)) {
    let mut at = 0;
    while at < word.len() {
        let character = utf8::length_by_first_byte(word[at]).min(word.len() - at);
        let mut single = false;
        for (length, id) in trie.prefixes(&word[at..]) {
            edge(at, length, id);
            single |= length == character;
        }
        if !single {
            edge(at, character, unknown);
        }
        at += character;
    }
}

/// The score of a user-defined piece of `length` bytes.
fn user_defined_score(length: usize, greatest: f32, rule: UserDefinedScore) -> f64 {
    match rule {
        UserDefinedScore::Zero => f64::from((0.1 * (length as f64 - 1.0)) as f32),
        UserDefinedScore::Marian => f64::from(length as f32 * greatest) - 0.1,
    }
}

impl Best {
    #[inline]
    fn improve(&mut self, score: f64, id: u32, from: usize) {
        if self.from == UNREACHED || score > f64::from(self.score) {
            *self = Self { score: score as f32, id, from };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Segmenter, SentencePiece};
    use super::*;

    /// A model as it is, and with every word segmented.
    fn with_and_without(name: &str, rule: UserDefinedScore) -> [SentencePiece; 2] {
        let path = format!("{}/tests/fixtures/{name}.spm", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).expect("a fixture");
        let model = SentencePiece::from_bytes(&path, &bytes, rule).expect("a model");
        let mut without = model.clone();
        let Segmenter::Unigram(unigram) = &mut without.segmenter else { panic!("{name}") };
        unigram.words = None;
        [model, without]
    }

    fn cache(model: &SentencePiece) -> Option<&WordCache> {
        let Segmenter::Unigram(unigram) = &model.segmenter else { return None };
        unigram.words.as_ref()
    }

    proptest::proptest! {
        #[test]
        fn the_word_cache_changes_no_segmentation(parts: Vec<(u16, bool)>) {
            for name in ["unigram", "ties", "unused", "user-defined", "unigram-bytes", "suffix"] {
                for rule in [UserDefinedScore::Zero, UserDefinedScore::Marian] {
                    let [model, without] = with_and_without(name, rule);
                    let pieces: Vec<&str> = model.pieces().collect();
                    let part = |&(at, blank): &(u16, bool)| {
                        let piece = pieces[usize::from(at) % pieces.len()].replace('\u{2581}', " ");
                        if blank { piece + " " } else { piece }
                    };
                    let text: String = parts.iter().map(part).collect();
                    let expected = without.encode(&text);
                    // The second time words are known.
                    for _ in 0..2 {
                        proptest::prop_assert_eq!(&model.encode(&text), &expected, "{:?}", text);
                    }
                }
            }
        }
    }

    #[test]
    fn words_are_kept_where_a_blank_begins_them() {
        let [model, without] = with_and_without("unigram", UserDefinedScore::Zero);
        let text = model.pieces().collect::<String>().replace('\u{2581}', " ");
        for _ in 0..2 {
            assert_eq!(model.encode(&text), without.encode(&text));
        }
        assert!(cache(&model).expect("words begin with blanks").len() > 20);
        // Where a blank ends a word, pieces continue beyond it.
        assert!(cache(&with_and_without("suffix", UserDefinedScore::Zero)[0]).is_none());
    }

    #[test]
    fn ties_are_decided_line_by_line() {
        let [model, without] = with_and_without("ties", UserDefinedScore::Marian);
        let tie = "a".repeat(7);
        for text in [&tie, &format!("aaaaa {tie} {tie}"), &format!("{tie} {tie} {tie}")] {
            assert_eq!(model.encode(text), without.encode(text));
        }
        assert_eq!(cache(&model).expect("words begin with blanks").len(), 0);
    }
}
