//! The unigram model: of all ways to cut a line into pieces, the one with the greatest sum of scores.
//!
//! One pass from left to right keeps, for every position, the best way to get there. Costs one trie walk
//! per character.
//!
//! Ties matter: repeated letters (`aaa`) make them common, and which segmentation wins then depends on the
//! last bit. A candidate must be strictly greater to win. The library used to compare the exact sum (in
//! float64) with the stored, rounded one; since 0.2.2 it rounds first. Both are in use, so
//! both are here.

use super::file::{Kind, Piece};
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
    /// By id.
    scores: Vec<f64>,
    unknown: u32,
    unknown_score: f32,
    rule: UserDefinedScore,
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
        Self {
            restricted,
            scores: pieces.iter().map(score).collect(),
            unknown,
            unknown_score: least - UNKNOWN_PENALTY,
            rule,
        }
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
        let mut best = vec![Best { score: 0.0, id: 0, from: UNREACHED }; text.len() + 1];
        let mut start = 0;
        while start < text.len() {
            let sum = best[start].score;
            let character = utf8::length_by_first_byte(text[start]).min(text.len() - start);
            let mut single = false;
            for (length, id) in trie.prefixes(&text[start..]) {
                best[start + length].improve(add(self.scores[id as usize], sum), id, start);
                single |= length == character;
            }
            // Every character must be passable, so that every position is reached.
            if !single {
                let score = f64::from(self.unknown_score + sum);
                best[start + character].improve(score, self.unknown, start);
            }
            start += character;
        }
        trace_back(&best)
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

fn trace_back(best: &[Best]) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(best.len() / 4 + 1);
    let mut end = best.len() - 1;
    while end > 0 {
        let Best { id, from, .. } = best[end];
        segments.push(Segment { id, range: from..end });
        end = from;
    }
    segments.reverse();
    segments
}
