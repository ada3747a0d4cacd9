//! Rows that listen to the scores of a product, 32 words at a time.
//!
//! A row keeps a list of the best words and, if probabilities are asked for, the sum of all words' terms. Nearly always no
//! score of a piece is above the row's threshold, and its terms are all there is to add. With ℓ = log₂ e, a term is
//! `2^(ℓ · score + origin)`: the first scores' largest has the exponent zero, and where later ones come too far above it, the
//! origin is moved.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use bytemuck::Zeroable;
use peregrine_nn::{Ask, Choice, Scoring, profile};

use super::top_k::TopK;
use crate::gemm::int8::{PIECE, Piece, ScoreSink};
use crate::gemm::panels::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::isa::lanes::EXP2;
use crate::isa::lanes::{LANES, add_up, exp2, largest, multiply_add};
use crate::isa::{Isa, kernel};

/// Words after which the lanes of a sum are added up.
const FOLDED: usize = 2048;

/// The largest exponent of 2 that may be added to a sum,
const ROOM: f32 = 80.0;

/// and the largest that is precise enough to let the origin be.
const NEAR: f32 = 8.0;

/// What a row looks at for every piece: little, as the first cache has all rows' and more to hold.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// A score above this wants a closer look: it changes the list, or has no room in the sum.
    threshold: f32,
    /// What is added to exponents; negative infinity as long as there is no score.
    origin: f32,
}

/// What else a row knows of the words it has seen.
pub(super) struct Running<'a> {
    pub(super) ask: &'a Ask<'a>,
    /// Whether it adds up terms. Where others do and it does not, its lanes mean nothing.
    sums: bool,
    best: TopK,
    /// What a newcomer to the list must beat: its last entry, once it is full.
    pub(super) floor: f32,
    /// The next column of a word to look up: one that is forced, or that has no probability.
    special: usize,
    /// A score above this has the origin moved; none has where there is no sum.
    near: f32,
    /// The terms of all words but the last, which are in lanes.
    sum: f64,
    /// Whether a term had no room and was added all the same: the row has to begin again.
    lost: bool,
}

/// Rows that listen.
pub(super) struct ScoreSinks<'r, 'a> {
    pub(super) running: &'r mut [Running<'a>],
    marks: &'r mut [Mark],
    /// Sums of the last words' terms.
    lanes: &'r mut [Lanes<f32>],
    /// The words columns stand for; without, a word is its column.
    words: Option<&'r [u32]>,
    /// The first column that some row has to look up, as far as is known.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "the register sink reads it")
    )]
    special: usize,
    /// Whether a row adds up terms.
    sums: bool,
}

impl<'r, 'a> ScoreSinks<'r, 'a> {
    /// Rows without words in common.
    pub(super) fn new(
        running: &'r mut [Running<'a>],
        marks: &'r mut [Mark],
        lanes: &'r mut [Lanes<f32>],
    ) -> ScoreSinks<'r, 'a> {
        let sums = running.iter().any(|row| row.sums);
        assert!(running.len() == marks.len() && marks.len() == lanes.len(), "one of each a row");
        ScoreSinks { running, marks, lanes, words: None, special: 0, sums }
    }
}

impl<'a> ScoreSinks<'_, 'a> {
    /// Some of the rows, which have a list of words in common.
    pub(super) fn of<'r>(
        &'r mut self,
        rows: Range<usize>,
        words: Option<&'r [u32]>,
    ) -> ScoreSinks<'r, 'a> {
        let running = &mut self.running[rows.clone()];
        let sums = running.iter().any(|row| row.sums);
        let (marks, lanes) = (&mut self.marks[rows.clone()], &mut self.lanes[rows]);
        ScoreSinks { running, marks, lanes, words, special: 0, sums }
    }

    /// The rows that have to begin again, as if they had seen nothing.
    pub(super) fn lost(&mut self) -> Vec<usize> {
        let lost: Vec<usize> =
            (0..self.running.len()).filter(|&row| self.running[row].lost).collect();
        for &row in &lost {
            let running = &mut self.running[row];
            let list = std::mem::take(&mut running.best);
            *running = Running::new(running.ask, self.words, list);
            self.marks[row] = running.mark();
            self.lanes[row] = Lanes::zeroed();
        }
        lost
    }
}

// SAFETY: no function computes a product; an ear points at as many marks and sums as there are rows.
unsafe impl ScoreSink for ScoreSinks<'_, '_> {
    #[cfg(target_arch = "x86_64")]
    type RegisterSink = RegisterSink;

    fn rows(&self) -> usize {
        self.running.len()
    }

    fn take_block(&mut self, isa: Isa, columns: Range<usize>, scores: &[f32]) {
        profile::lap("output product and bias");
        take_block(isa, self, columns, scores);
        profile::lap("output best words");
    }

    #[cfg(target_arch = "x86_64")]
    fn register_sink(&mut self, column: usize) -> Option<RegisterSink> {
        if self.special < column {
            self.special = self.running.iter().map(|row| row.special).min().unwrap_or(usize::MAX);
        }
        let (marks, lanes) = (self.marks.as_ptr(), self.lanes.as_mut_ptr());
        (self.special >= column + PIECE).then_some(RegisterSink { marks, lanes, sums: self.sums })
    }

    #[inline(always)]
    fn threshold(&self, row: usize) -> f32 {
        self.marks[row].threshold
    }

    #[inline(always)]
    fn take_piece<const FMA: bool>(
        &mut self,
        row: usize,
        column: usize,
        (mut scores, high): (Piece, u32),
        heard: bool,
    ) {
        let (running, mark) = (&mut self.running[row], &mut self.marks[row]);
        if running.special < column + PIECE {
            scores = running.look_up(scores, column, self.words);
        }
        // Terms of what was heard are in the sum already.
        let (mut added, lanes) = (heard, &mut self.lanes[row]);
        running.lost |= running.sums && added && !known(scores);
        let far = high != 0 && above(scores, running.near);
        if far {
            added = running.make_room(mark, lanes, scores, added);
        }
        if running.sums && !added {
            add::<FMA>(scores, mark.origin, lanes);
        }
        if far {
            running.come_near(mark, lanes, scores);
        }
        if high != 0 {
            running.rise((scores, high), column, self.words);
            mark.threshold = running.floor.min(running.near);
        }
    }

    /// Many small numbers are added up in higher precision.
    #[inline]
    fn end(&mut self, rows: Range<usize>, column: usize) {
        if self.sums && (column + PIECE).is_multiple_of(FOLDED) {
            let lanes = self.lanes[rows.clone()].iter_mut();
            self.running[rows].iter_mut().zip(lanes).for_each(|(row, lanes)| row.fold(lanes));
        }
    }
}

/// Listeners, as far as a piece of scores is nothing special.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct RegisterSink {
    marks: *const Mark,
    lanes: *mut Lanes<f32>,
    sums: bool,
}

#[cfg(target_arch = "x86_64")]
impl crate::gemm::int8::RegisterSink for RegisterSink {
    /// Without a branch: one that is guessed wrong has the processor forget the tiles it is loading for what comes next.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    unsafe fn accept(self, row: usize, [left, right]: [__m512; 2]) -> bool {
        // SAFETY: the caller's: there is such a row.
        let Mark { threshold, origin } = unsafe { *self.marks.add(row) };
        let threshold = _mm512_set1_ps(threshold);
        // What is not a number is looked at closer.
        let above = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(left, threshold)
            | _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(right, threshold);
        if self.sums {
            let origin = _mm512_set1_ps(origin);
            let both = _mm512_add_ps(terms(left, origin), terms(right, origin));
            // SAFETY: as above; sixteen floats.
            unsafe {
                let lanes = self.lanes.add(row).cast();
                _mm512_store_ps(lanes, _mm512_add_ps(_mm512_load_ps(lanes), both));
            }
        }
        above == 0
    }
}

kernel! {
    fn take_block(
        sinks: &mut ScoreSinks<'_, '_>,
        columns: Range<usize>,
        scores: &[f32],
    ) = take_block_body
}

/// As if the scores had come in pieces.
#[inline(always)]
fn take_block_body<const FMA: bool>(
    sinks: &mut ScoreSinks<'_, '_>,
    columns: Range<usize>,
    scores: &[f32],
) {
    for (row, scores) in scores.chunks_exact(columns.len()).enumerate() {
        let (pieces, rest) = scores.as_chunks::<PIECE>();
        let mut last = [f32::NEG_INFINITY; PIECE];
        last[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() { None } else { Some(&last) };
        let columns = columns.clone().step_by(PIECE);
        for (column, piece) in columns.zip(pieces.iter().chain(last)) {
            let piece: Piece = bytemuck::cast(*piece);
            let high = which_above(piece, sinks.threshold(row));
            sinks.take_piece::<FMA>(row, column, (piece, high), false);
            sinks.end(row..row + 1, column);
        }
    }
}

/// Whether one of them is above a threshold.
#[inline(always)]
fn above([left, right]: Piece, threshold: f32) -> bool {
    let mut above = false;
    for i in 0..LANES {
        let larger = if left[i] > right[i] { left[i] } else { right[i] };
        above |= larger > threshold;
    }
    above
}

/// Which ones are, a bit each. Nearly always none is.
#[inline(always)]
fn which_above(scores: Piece, threshold: f32) -> u32 {
    if !above(scores, threshold) {
        return 0;
    }
    let bits = scores.as_flattened().iter().map(|&score| u32::from(score > threshold));
    bits.rev().fold(0, |all, bit| all << 1 | bit)
}

/// Whether all of them are numbers.
#[inline(always)]
fn known([left, right]: Piece) -> bool {
    let mut unknown = false;
    for i in 0..LANES {
        unknown |= left[i].is_nan() | right[i].is_nan();
    }
    !unknown
}

/// Adds the terms of some words.
#[inline(always)]
fn add<const FMA: bool>([left, right]: Piece, origin: f32, lanes: &mut Lanes<f32>) {
    let term = |score| exp2::<FMA>(multiply_add::<FMA>(score, LOG2_E, origin));
    for i in 0..LANES {
        lanes.0[i] += term(left[i]) + term(right[i]);
    }
}

/// The terms of sixteen words: the bits of [`exp2`], but for what is next to nothing.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn terms(scores: __m512, origin: __m512) -> __m512 {
    let t = _mm512_fmadd_ps(scores, _mm512_set1_ps(LOG2_E), origin);
    let f = _mm512_reduce_ps::<0>(t);
    let mut p = _mm512_set1_ps(EXP2[0]);
    for &c in &EXP2[1..] {
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    }
    _mm512_scalef_ps(p, _mm512_sub_ps(t, f))
}

impl<'a> Running<'a> {
    pub(super) fn new(ask: &'a Ask<'a>, words: Option<&[u32]>, mut best: TopK) -> Running<'a> {
        let sums = ask.scoring != Scoring::Logit;
        best.clear(if ask.forced.is_some() { 1 } else { ask.count });
        let wants_none = ask.forced.is_some() || ask.count == 0;
        let floor = if wants_none { f32::INFINITY } else { f32::NEG_INFINITY };
        let near = if sums { f32::NEG_INFINITY } else { f32::INFINITY };
        let mut running =
            Running { ask, sums, best, floor, special: 0, near, sum: 0.0, lost: false };
        running.special = running.special_from(0, words);
        running
    }

    /// That of a row that has seen nothing.
    pub(super) fn mark(&self) -> Mark {
        Mark { threshold: self.floor.min(self.near), origin: f32::NEG_INFINITY }
    }

    /// Notes the score of a forced word, and puts those out of reach that have no probability.
    #[cold]
    #[inline(never)]
    fn look_up(&mut self, mut scores: Piece, first: usize, words: Option<&[u32]>) -> Piece {
        let all = scores.as_flattened_mut();
        while self.special < first + PIECE {
            let column = self.special;
            self.special = self.special_from(column + 1, words);
            let word = |words: &[u32]| words.get(column).copied();
            let Some(token) = words.map_or(Some(column as u32), word) else { continue };
            let score = &mut all[column - first];
            // Behind the last word there is nothing to force.
            if self.ask.forced == Some(token) && *score > f32::NEG_INFINITY {
                self.best.insert(Choice { token, score: *score });
            }
            if self.ask.scoring == Scoring::LogProbabilityOfAllowed
                && self.ask.banned.binary_search(&token).is_ok()
            {
                *score = f32::NEG_INFINITY;
            }
        }
        scores
    }

    /// The first column to look up of those from the given one on.
    fn special_from(&self, first: usize, words: Option<&[u32]>) -> usize {
        let banned = match self.ask.scoring {
            Scoring::LogProbabilityOfAllowed => self.ask.banned,
            Scoring::Logit | Scoring::LogProbability => &[],
        };
        let column = |&word: &u32| match words {
            Some(words) => words.binary_search(&word).ok(),
            None => Some(word as usize),
        };
        let columns = self.ask.forced.iter().chain(banned).filter_map(column);
        columns.filter(|&column| column >= first).min().unwrap_or(usize::MAX)
    }

    /// Moves the origin where the largest score has no room, which for the first scores there never is. Tells whether terms are
    /// in the sum then; where it is too late for that the row is lost.
    #[cold]
    #[inline(never)]
    fn make_room(
        &mut self,
        mark: &mut Mark,
        lanes: &mut Lanes<f32>,
        scores: Piece,
        added: bool,
    ) -> bool {
        if mark.origin == f32::NEG_INFINITY {
            mark.origin = -LOG2_E * largest(scores.as_flattened());
            (self.sum, *lanes) = (0.0, Lanes::zeroed());
            return false;
        }
        if above(scores, (ROOM - mark.origin) * LN_2) {
            self.lost |= added;
            self.come_near(mark, lanes, scores);
        }
        added
    }

    /// Gives the largest score's term the exponent zero.
    #[cold]
    #[inline(never)]
    fn come_near(&mut self, mark: &mut Mark, lanes: &mut Lanes<f32>, scores: Piece) {
        let origin = -LOG2_E * largest(scores.as_flattened());
        let less = (f64::from(origin) - f64::from(mark.origin)).exp2();
        self.sum *= less;
        lanes.0.iter_mut().for_each(|lane| *lane *= less as f32);
        mark.origin = origin;
        self.near = (NEAR - origin) * LN_2;
    }

    /// Takes those words into the list that are good enough. `above` tells which may be.
    #[inline(always)]
    fn rise(&mut self, (scores, mut above): (Piece, u32), column: usize, words: Option<&[u32]>) {
        let scores = scores.as_flattened();
        while above != 0 {
            let i = above.trailing_zeros() as usize;
            let token = words.map_or((column + i) as u32, |words| words[column + i]);
            self.consider(Choice { token, score: scores[i] });
            above &= above - 1;
        }
    }

    /// Takes a word into the list, if it is good enough and not banned.
    #[inline(always)]
    pub(super) fn consider(&mut self, choice: Choice) {
        if choice.score <= self.floor || self.ask.banned.binary_search(&choice.token).is_ok() {
            return;
        }
        self.best.insert(choice);
        self.floor = self.best.last().unwrap_or(f32::INFINITY);
    }

    fn fold(&mut self, lanes: &mut Lanes<f32>) {
        self.sum += f64::from(add_up(lanes.0));
        *lanes = Lanes::zeroed();
    }

    /// The list, and what has to be taken off its scores.
    pub(super) fn finish(mut self, mark: Mark, lanes: &mut Lanes<f32>) -> (TopK, f32) {
        if let Some(token) = self.ask.forced {
            // Unless it has been met.
            self.best.insert(Choice { token, score: f32::MIN });
        }
        if !self.sums {
            return (self.best, 0.0);
        }
        self.fold(lanes);
        let shift = self.sum.ln() - f64::from(mark.origin) / f64::from(LOG2_E);
        (self.best, shift as f32)
    }
}
