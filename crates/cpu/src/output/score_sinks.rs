//! Fused softmax statistics of the output layer: top-k and online log-sum-exp, without storing the scores of a row.
//!
//! Scores (logits) arrive in pieces of 32 words. Each row keeps its top-k and, where log-probabilities are wanted, the sum of
//! `e^score` over all words; a log-probability is `score - log Σ e^score`. Nearly always no score of a piece is above the row's
//! threshold, and adding its terms is all there is to do. With ℓ = log₂ e, a term is `2^(ℓ · score + offset)`: the offset gives the
//! largest of the first scores the exponent zero, and the sum is rescaled where a later score is too far above it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use bytemuck::Zeroable;
use peregrine_nn::{Choice, RowRequest, Scoring, profile};

use super::top_k::TopK;
use crate::gemm::int8::{PIECE, Piece, ScoreSink};
use crate::gemm::panels::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::isa::lanes::EXP2;
use crate::isa::lanes::{LANES, add_up, exp2, largest, multiply_add};
use crate::isa::{Isa, kernel};

/// Words after which the float32 lanes of a sum are added to its float64 total.
const FLUSH_WORDS: usize = 2048;

/// The largest exponent of 2 that a term may have: float32 overflows at 128.
const MAX_EXPONENT: f32 = 80.0;

/// The largest exponent of 2 at which the sum is precise without rescaling.
const RESCALE_EXPONENT: f32 = 8.0;

/// The state that every piece of a row reads. It is small so that those of all rows stay in L1.
#[derive(Clone, Copy)]
pub(super) struct RowFilter {
    /// A score above this enters the top-k or has the sum rescaled.
    threshold: f32,
    /// Added to the exponents of terms. Negative infinity before the first score.
    offset: f32,
}

/// The rest of a row's state, which few pieces touch.
pub(super) struct RowState<'a> {
    pub(super) request: &'a RowRequest<'a>,
    /// Whether the log-sum-exp is wanted. If not, the lanes of the row are never read.
    sums: bool,
    top_k: TopK,
    /// A word enters the top-k if its score is above this: the k-th best score.
    pub(super) top_k_threshold: f32,
    /// The next column that is forced or excluded from the softmax.
    special: usize,
    /// A score above this has the sum rescaled. Infinity where there is no sum.
    rescale_threshold: f32,
    /// Sum of the terms of all words up to the last flush of the lanes.
    sum: f64,
    /// Whether NaN or a term above [`MAX_EXPONENT`] was added in registers: the row has to be computed again.
    overflowed: bool,
}

/// The sinks of some rows that share a word list.
pub(super) struct ScoreSinks<'r, 'a> {
    pub(super) rows: &'r mut [RowState<'a>],
    filters: &'r mut [RowFilter],
    /// Sums of terms since the last flush.
    lanes: &'r mut [Lanes<f32>],
    /// The word of each column. None if a word is its column.
    words: Option<&'r [u32]>,
    /// Lower bound of the rows' special columns.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "the register sink reads it")
    )]
    special: usize,
    /// Whether the log-sum-exp of any row is wanted.
    sums: bool,
}

impl<'r, 'a> ScoreSinks<'r, 'a> {
    /// Sinks of rows without a word list.
    pub(super) fn new(
        rows: &'r mut [RowState<'a>],
        filters: &'r mut [RowFilter],
        lanes: &'r mut [Lanes<f32>],
    ) -> ScoreSinks<'r, 'a> {
        let sums = rows.iter().any(|row| row.sums);
        assert!(rows.len() == filters.len() && filters.len() == lanes.len(), "one of each a row");
        ScoreSinks { rows, filters, lanes, words: None, special: 0, sums }
    }
}

impl<'a> ScoreSinks<'_, 'a> {
    /// The sinks of some rows, which share a word list.
    pub(super) fn slice_rows<'r>(
        &'r mut self,
        range: Range<usize>,
        words: Option<&'r [u32]>,
    ) -> ScoreSinks<'r, 'a> {
        let rows = &mut self.rows[range.clone()];
        let sums = rows.iter().any(|row| row.sums);
        let (filters, lanes) = (&mut self.filters[range.clone()], &mut self.lanes[range]);
        ScoreSinks { rows, filters, lanes, words, special: 0, sums }
    }

    /// Resets the rows whose sum overflowed, and returns them. Their scores have to be computed again.
    pub(super) fn reset_overflowed(&mut self) -> Vec<usize> {
        let overflowed: Vec<usize> =
            (0..self.rows.len()).filter(|&row| self.rows[row].overflowed).collect();
        for &row in &overflowed {
            let state = &mut self.rows[row];
            let top_k = std::mem::take(&mut state.top_k);
            *state = RowState::new(state.request, self.words, top_k);
            self.filters[row] = state.filter();
            self.lanes[row] = Lanes::zeroed();
        }
        overflowed
    }
}

// SAFETY: no function computes a product; a register sink points at as many filters and lanes as there are rows.
unsafe impl ScoreSink for ScoreSinks<'_, '_> {
    #[cfg(target_arch = "x86_64")]
    type RegisterSink = RegisterSink;

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn take_block(&mut self, isa: Isa, columns: Range<usize>, scores: &[f32]) {
        profile::lap("output product and bias");
        take_block(isa, self, columns, scores);
        profile::lap("output best words");
    }

    #[cfg(target_arch = "x86_64")]
    fn register_sink(&mut self, column: usize) -> Option<RegisterSink> {
        if self.special < column {
            self.special = self.rows.iter().map(|row| row.special).min().unwrap_or(usize::MAX);
        }
        let (filters, lanes) = (self.filters.as_ptr(), self.lanes.as_mut_ptr());
        (self.special >= column + PIECE).then_some(RegisterSink { filters, lanes, sums: self.sums })
    }

    #[inline(always)]
    fn threshold(&self, row: usize) -> f32 {
        self.filters[row].threshold
    }

    #[inline(always)]
    fn take_piece<const FMA: bool>(
        &mut self,
        row: usize,
        column: usize,
        (mut scores, high): (Piece, u32),
        seen: bool,
    ) {
        let (state, filter) = (&mut self.rows[row], &mut self.filters[row]);
        if state.special < column + PIECE {
            scores = state.apply_special(scores, column, self.words);
        }
        // The register sink has added the terms of what it has seen.
        let (mut added, lanes) = (seen, &mut self.lanes[row]);
        state.overflowed |= state.sums && added && has_nan(scores);
        let rescales = high != 0 && above(scores, state.rescale_threshold);
        if rescales {
            added = state.rescale_before(filter, lanes, scores, added);
        }
        if state.sums && !added {
            add_terms::<FMA>(scores, filter.offset, lanes);
        }
        if rescales {
            state.rescale(filter, lanes, scores);
        }
        if high != 0 {
            state.update_top_k((scores, high), column, self.words);
            filter.threshold = state.top_k_threshold.min(state.rescale_threshold);
        }
    }

    /// Flushes the lanes now and then, since float32 sums of many small terms lose precision.
    #[inline]
    fn end(&mut self, rows: Range<usize>, column: usize) {
        if self.sums && (column + PIECE).is_multiple_of(FLUSH_WORDS) {
            let lanes = self.lanes[rows.clone()].iter_mut();
            self.rows[rows].iter_mut().zip(lanes).for_each(|(row, lanes)| row.flush(lanes));
        }
    }
}

/// The sinks of a piece while it is in registers: filters scores and adds their terms.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct RegisterSink {
    filters: *const RowFilter,
    lanes: *mut Lanes<f32>,
    sums: bool,
}

#[cfg(target_arch = "x86_64")]
impl crate::gemm::int8::RegisterSink for RegisterSink {
    /// Branchless: a mispredicted branch would discard the loads of the next AMX tiles.
    #[target_feature(enable = "avx512f,avx512dq")]
    #[inline]
    unsafe fn accept(self, row: usize, [left, right]: [__m512; 2]) -> bool {
        // SAFETY: the caller's: there is such a row.
        let RowFilter { threshold, offset } = unsafe { *self.filters.add(row) };
        let threshold = _mm512_set1_ps(threshold);
        // NaN counts as above.
        let above = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(left, threshold)
            | _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(right, threshold);
        if self.sums {
            let offset = _mm512_set1_ps(offset);
            let both = _mm512_add_ps(terms(left, offset), terms(right, offset));
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

/// Takes a block of scores, row by row, in pieces.
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

/// Whether any score is above a threshold.
#[inline(always)]
fn above([left, right]: Piece, threshold: f32) -> bool {
    let mut above = false;
    for i in 0..LANES {
        let larger = if left[i] > right[i] { left[i] } else { right[i] };
        above |= larger > threshold;
    }
    above
}

/// A bit for each score above a threshold. Nearly always there is none.
#[inline(always)]
fn which_above(scores: Piece, threshold: f32) -> u32 {
    if !above(scores, threshold) {
        return 0;
    }
    let bits = scores.as_flattened().iter().map(|&score| u32::from(score > threshold));
    bits.rev().fold(0, |all, bit| all << 1 | bit)
}

/// Whether any score is NaN.
#[inline(always)]
fn has_nan([left, right]: Piece) -> bool {
    let mut nan = false;
    for i in 0..LANES {
        nan |= left[i].is_nan() | right[i].is_nan();
    }
    nan
}

/// Adds the terms of a piece to the lanes.
#[inline(always)]
fn add_terms<const FMA: bool>([left, right]: Piece, offset: f32, lanes: &mut Lanes<f32>) {
    let term = |score| exp2::<FMA>(multiply_add::<FMA>(score, LOG2_E, offset));
    for i in 0..LANES {
        lanes.0[i] += term(left[i]) + term(right[i]);
    }
}

/// The terms of sixteen words: the bits of [`exp2`], except for terms near zero.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn terms(scores: __m512, offset: __m512) -> __m512 {
    let t = _mm512_fmadd_ps(scores, _mm512_set1_ps(LOG2_E), offset);
    let f = _mm512_reduce_ps::<0>(t);
    let mut p = _mm512_set1_ps(EXP2[0]);
    for &c in &EXP2[1..] {
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    }
    _mm512_scalef_ps(p, _mm512_sub_ps(t, f))
}

impl<'a> RowState<'a> {
    pub(super) fn new(
        request: &'a RowRequest<'a>,
        words: Option<&[u32]>,
        mut top_k: TopK,
    ) -> RowState<'a> {
        let sums = request.scoring != Scoring::Logit;
        top_k.clear(if request.forced.is_some() { 1 } else { request.count });
        let wants_none = request.forced.is_some() || request.count == 0;
        let top_k_threshold = if wants_none { f32::INFINITY } else { f32::NEG_INFINITY };
        let rescale_threshold = if sums { f32::NEG_INFINITY } else { f32::INFINITY };
        let mut state = RowState {
            request,
            sums,
            top_k,
            top_k_threshold,
            special: 0,
            rescale_threshold,
            sum: 0.0,
            overflowed: false,
        };
        state.special = state.special_from(0, words);
        state
    }

    /// The filter before the first score.
    pub(super) fn filter(&self) -> RowFilter {
        let threshold = self.top_k_threshold.min(self.rescale_threshold);
        RowFilter { threshold, offset: f32::NEG_INFINITY }
    }

    /// Inserts a forced word into the top-k, and sets scores that are excluded from the softmax to negative infinity.
    #[cold]
    #[inline(never)]
    fn apply_special(&mut self, mut scores: Piece, first: usize, words: Option<&[u32]>) -> Piece {
        let all = scores.as_flattened_mut();
        while self.special < first + PIECE {
            let column = self.special;
            self.special = self.special_from(column + 1, words);
            let word = |words: &[u32]| words.get(column).copied();
            let Some(token) = words.map_or(Some(column as u32), word) else { continue };
            let score = &mut all[column - first];
            // Padding behind the last word is never forced.
            if self.request.forced == Some(token) && *score > f32::NEG_INFINITY {
                self.top_k.insert(Choice { token, score: *score });
            }
            if self.request.scoring == Scoring::LogProbabilityOfAllowed
                && self.request.banned.binary_search(&token).is_ok()
            {
                *score = f32::NEG_INFINITY;
            }
        }
        scores
    }

    /// The first special column from `first` on.
    fn special_from(&self, first: usize, words: Option<&[u32]>) -> usize {
        let banned = match self.request.scoring {
            Scoring::LogProbabilityOfAllowed => self.request.banned,
            Scoring::Logit | Scoring::LogProbability => &[],
        };
        let column = |&word: &u32| match words {
            Some(words) => words.binary_search(&word).ok(),
            None => Some(word as usize),
        };
        let columns = self.request.forced.iter().chain(banned).filter_map(column);
        columns.filter(|&column| column >= first).min().unwrap_or(usize::MAX)
    }

    /// Rescales before the terms of `scores` are added, where one of them would overflow, and for the first scores of a row. Returns
    /// whether the terms are in the sum. If they were added already and overflowed, the row has to be computed again.
    #[cold]
    #[inline(never)]
    fn rescale_before(
        &mut self,
        filter: &mut RowFilter,
        lanes: &mut Lanes<f32>,
        scores: Piece,
        added: bool,
    ) -> bool {
        if filter.offset == f32::NEG_INFINITY {
            filter.offset = -LOG2_E * largest(scores.as_flattened());
            (self.sum, *lanes) = (0.0, Lanes::zeroed());
            return false;
        }
        if above(scores, (MAX_EXPONENT - filter.offset) * LN_2) {
            self.overflowed |= added;
            self.rescale(filter, lanes, scores);
        }
        added
    }

    /// Rescales the sum so that the term of the largest score has the exponent zero: the step of an online softmax.
    #[cold]
    #[inline(never)]
    fn rescale(&mut self, filter: &mut RowFilter, lanes: &mut Lanes<f32>, scores: Piece) {
        let offset = -LOG2_E * largest(scores.as_flattened());
        let factor = (f64::from(offset) - f64::from(filter.offset)).exp2();
        self.sum *= factor;
        lanes.0.iter_mut().for_each(|lane| *lane *= factor as f32);
        filter.offset = offset;
        self.rescale_threshold = (RESCALE_EXPONENT - offset) * LN_2;
    }

    /// Offers the words whose bit in `above` is set to the top-k.
    #[inline(always)]
    fn update_top_k(
        &mut self,
        (scores, mut above): (Piece, u32),
        column: usize,
        words: Option<&[u32]>,
    ) {
        let scores = scores.as_flattened();
        while above != 0 {
            let i = above.trailing_zeros() as usize;
            let token = words.map_or((column + i) as u32, |words| words[column + i]);
            self.consider(Choice { token, score: scores[i] });
            above &= above - 1;
        }
    }

    /// Inserts a word into the top-k, if its score is above the threshold and it is not banned.
    #[inline(always)]
    pub(super) fn consider(&mut self, choice: Choice) {
        if choice.score <= self.top_k_threshold
            || self.request.banned.binary_search(&choice.token).is_ok()
        {
            return;
        }
        self.top_k.insert(choice);
        self.top_k_threshold = self.top_k.kth_score().unwrap_or(f32::INFINITY);
    }

    /// As [`RowState::consider`]. Returns the new threshold.
    #[inline(always)]
    pub(super) fn consider_and_raise(&mut self, choice: Choice) -> f32 {
        self.consider(choice);
        self.top_k_threshold
    }

    /// Adds the lanes to the sum.
    fn flush(&mut self, lanes: &mut Lanes<f32>) {
        self.sum += f64::from(add_up(lanes.0));
        *lanes = Lanes::zeroed();
    }

    /// The top-k, and the log-sum-exp to subtract from its scores: 0 if only logits are wanted.
    pub(super) fn finish(mut self, filter: RowFilter, lanes: &mut Lanes<f32>) -> (TopK, f32) {
        if let Some(token) = self.request.forced {
            // Takes effect only if the word did not appear: `TopK` keeps the better of two.
            self.top_k.insert(Choice { token, score: f32::MIN });
        }
        if !self.sums {
            return (self.top_k, 0.0);
        }
        self.flush(lanes);
        let log_sum_exp = self.sum.ln() - f64::from(filter.offset) / f64::from(LOG2_E);
        (self.top_k, log_sum_exp as f32)
    }
}
