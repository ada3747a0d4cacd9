//! Screening: finds the words that can be a row's best with 4-bit weights, half of the output layer's bytes.
//!
//! With few rows, reading the weights is all of the cost, and the output layer has nearly half of them. A second copy of its weights
//! therefore has 4 bits: `w = scale · h + l`. A score is `Σ x · h` up to `Σ x · l`, which is at most `‖x‖ · ‖l‖` by the Cauchy-Schwarz
//! inequality, and `‖l‖` is stored for each word. A word whose upper bound is below the score of another is ruled out. The others,
//! the survivors, are computed in full (`scattered`). The best word and its score are the same to the last bit.
//!
//! Sixteen outputs make a panel, as in `gemm::int8`. A byte holds `h + 8` of an input in its low nibble and of the input four further
//! on in its high nibble:
//!
//! ```text
//! panel 0:  w[0][0..4]+w[0][4..8] w[1][0..4]+w[1][4..8] … │ w[0][8..12]+w[0][12..16] …
//! ```
//!
//! Cost per row: half a byte for each output and input, and a byte for each input of a survivor.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::scattered::OutputRows;
use crate::gemm::int8::{PackedInt8, QuantisedInt8};
use crate::gemm::parallel;
use crate::isa::Isa;
use crate::isa::lanes::LANES;
use crate::memory::arena::Store;
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// If more than one word in so many survives, all words are computed in full instead.
pub(super) const SURVIVOR_RATIO: usize = 4;

/// The sample has one word in so many.
const SAMPLE_RATIO: usize = 16;

/// Relative rounding error of a score, of which bounds are increased.
const ROUNDING: f32 = 1e-6;

/// The weights of an output layer in 4 bits.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads all of it"))]
pub(crate) struct Screen {
    lines: Store<NibbleLine>,
    /// `‖l‖` of each output, padded to whole panels.
    errors: Vec<f32>,
    /// The scale of each output's `h`, padded to whole panels.
    scales: Vec<f32>,
    tally: Tally,
}

/// How often screening helped.
#[derive(Default)]
pub(super) struct Tally {
    /// Rows that were screened.
    tried: AtomicU64,
    /// Rows that had too many survivors.
    failed: AtomicU64,
}

impl Tally {
    /// Whether few rows had too many survivors.
    pub(super) fn pays(&self) -> bool {
        self.failed.load(Relaxed) <= self.tried.load(Relaxed) / 4 + 4
    }

    /// Records a row.
    pub(super) fn record(&self, few_survivors: bool) {
        self.tried.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(!few_survivors), Relaxed);
    }

    /// The rows so far, and those of them that had too many survivors.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.tried.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Makes [`pays`](Tally::pays) false for ever.
    pub(super) fn give_up(&self) {
        self.failed.store(u64::MAX / 2, Relaxed);
    }
}

/// Eight inputs of sixteen outputs.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct NibbleLine([[u8; 4]; LANES]);

/// A word's 4-bit scale, in units of its int8 scale. It is near the optimum for normally distributed weights, the largest of which
/// are clamped.
fn coarse_scale(weights: impl Iterator<Item = i8>, inputs: usize) -> f32 {
    let squares: i64 = weights.map(|w| i64::from(w) * i64::from(w)).sum();
    let deviation = (squares as f32 / inputs.max(1) as f32).sqrt();
    (deviation * 0.36).round().clamp(1.0, 16.0)
}

impl Screen {
    pub(crate) fn new(packed: &PackedInt8) -> Screen {
        let groups = packed.groups();
        let mut lines: Store<NibbleLine> = Store::zeroed(0, packed.lines.pages());
        lines.grow(packed.panels() * groups / 2);
        let mut errors = vec![0f32; packed.panels() * LANES];
        let mut scales = vec![1f32; errors.len()];
        let panels = packed.lines.chunks(groups).zip(lines.chunks_mut(groups / 2));
        let words = errors.chunks_mut(LANES).zip(scales.chunks_mut(LANES));
        let weights = packed.panels() * LANES * packed.inputs;
        parallel::for_each(
            panels.zip(words).collect(),
            weights,
            |((from, to), (errors, scales))| {
                for (lane, (error, scale)) in errors.iter_mut().zip(scales).enumerate() {
                    let weights = || from.iter().flat_map(|line| line.0[lane]);
                    *scale = coarse_scale(weights(), packed.inputs);
                    let inverse = 1.0 / *scale;
                    let mut squares = 0f64;
                    let mut to_nibble = |w: i8| {
                        let w = f32::from(w);
                        let nibble = (w * inverse + 8.5).clamp(0.0, 15.0) as u8;
                        let error = w - *scale * (f32::from(nibble) - 8.0);
                        squares += f64::from(error * error);
                        nibble
                    };
                    for (pair, line) in from.as_chunks::<2>().0.iter().zip(&mut *to) {
                        for (i, byte) in line.0[lane].iter_mut().enumerate() {
                            *byte =
                                to_nibble(pair[0].0[lane][i]) | to_nibble(pair[1].0[lane][i]) << 4;
                        }
                    }
                    *error = squares.sqrt() as f32 * (1.0 + ROUNDING);
                }
            },
        );
        Screen { lines, errors, scales, tally: Tally::default() }
    }

    /// Whether few rows had too many survivors.
    pub(crate) fn pays(&self) -> bool {
        self.tally.pays()
    }

    /// Sets `words` to the words, in ascending order, that may have the largest score of the only row of `x`, without banned ones.
    /// Returns false if they are too many. `rows` are those of `packed`, `bounds` is scratch memory.
    pub(crate) fn survivors(
        &self,
        isa: Isa,
        (x, packed, rows): (&QuantisedInt8, &PackedInt8, &OutputRows),
        banned: &[u32],
        (bounds, words): (&mut Vec<f32>, &mut Vec<u32>),
    ) -> bool {
        words.clear();
        let best = self.bounds(isa, (x, packed), bounds);
        for &word in banned {
            if let Some(bound) = bounds.get_mut(word as usize) {
                *bound = f32::NEG_INFINITY;
            }
        }
        // The best word has at least the score of any other. That of a likely word rules out most.
        let allowed = |word: &usize| *word < packed.outputs && !banned.contains(&(*word as u32));
        let score = best.into_iter().filter(allowed).map(|word| rows.score(x, packed, word));
        if let Some(score) = score.reduce(f32::max) {
            // SAFETY: `bounds` has checked the instructions.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                vnni::at_least(score, bounds, words);
            }
            #[cfg(not(target_arch = "x86_64"))]
            words.extend((0..).zip(&*bounds).filter(|(_, b)| **b >= score).map(|(word, _)| word));
        }
        let few = !words.is_empty() && words.len() <= packed.outputs / SURVIVOR_RATIO;
        self.tally.record(few);
        few
    }

    /// Sets `bounds` to an upper bound of each word's score for the only row of `x`. Returns likely best words.
    fn bounds(
        &self,
        isa: Isa,
        (x, packed): (&QuantisedInt8, &PackedInt8),
        bounds: &mut Vec<f32>,
    ) -> [usize; LANES] {
        assert!(OutputRows::is_fast(isa) && x.scales.len() == 1, "one row, and a kernel");
        assert_eq!(x.stride, packed.groups() * 4, "as many inputs as weights");
        assert_eq!(self.lines.len() * 2, packed.lines.len(), "the same layer");
        let integers = || x.bytes.iter().map(|&byte| i64::from(byte) - 128);
        let row = ScreenedRow {
            bytes: &x.bytes,
            scale: x.scales[0],
            initial_sum: -8 * integers().sum::<i64>() as i32,
            norm: (integers().map(|x| x * x).sum::<i64>() as f32).sqrt() * (1.0 + ROUNDING),
        };
        bounds.resize(self.errors.len(), 0.0);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `is_fast` proves the instructions; sizes have been checked.
        let best =
            unsafe { vnni::bounds(isa.uses(Technique::Prefetch), self, packed, row, bounds) };
        // Unreachable: `is_fast` is false.
        #[cfg(not(target_arch = "x86_64"))]
        let best = [row.bytes.len(); LANES];
        bounds.truncate(packed.outputs);
        best
    }
}

/// A screen of some words, which tells whether a screen of all words would pay.
pub(crate) struct Sample {
    packed: PackedInt8,
    screen: Screen,
}

impl Sample {
    pub(crate) fn new(packed: &PackedInt8) -> Sample {
        let words: Vec<u32> = (0..packed.outputs as u32).step_by(SAMPLE_RATIO).collect();
        let packed = packed.select(&words);
        let screen = Screen::new(&packed);
        Sample { packed, screen }
    }

    /// Screens a row whose best score is known, and records whether survivors were few.
    pub(crate) fn look(&self, isa: Isa, x: &QuantisedInt8, best: f32, bounds: &mut Vec<f32>) {
        self.screen.bounds(isa, (x, &self.packed), bounds);
        let survivors = bounds.iter().filter(|bound| **bound >= best).count();
        self.screen.tally.record(survivors <= self.packed.outputs / SURVIVOR_RATIO);
    }

    pub(crate) fn pays(&self) -> bool {
        self.screen.pays()
    }
}

/// A quantised input row.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads all of it"))]
struct ScreenedRow<'a> {
    bytes: &'a [u8],
    scale: f32,
    /// Initial value of sums, which cancels the 8 of `h + 8`.
    initial_sum: i32,
    /// Euclidean norm of the integers.
    norm: f32,
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use super::{LANES, PackedInt8, ROUNDING, Screen, ScreenedRow};
    use crate::memory::prefetch;

    /// Writes an upper bound of each output's score to `out`. Returns likely best words: for each lane, the output with the largest
    /// approximate score.
    ///
    /// # Safety
    /// AVX-512F and VNNI; `screen` was made of `packed`; `row` has as many bytes as an output has weights;
    /// `out` has room for whole panels.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn bounds(
        prefetch: bool,
        screen: &Screen,
        packed: &PackedInt8,
        row: ScreenedRow<'_>,
        out: &mut [f32],
    ) -> [usize; LANES] {
        let (lines, panels) = (packed.groups() / 2, packed.panels());
        let (mut max, mut max_panel) = (_mm512_set1_ps(f32::NEG_INFINITY), _mm512_setzero_si512());
        for panel in (0..panels).step_by(2) {
            // The last panel twice if their number is odd.
            let second = (panel + 1).min(panels - 1);
            // SAFETY: panels that exist; a prefetch may have any address.
            unsafe {
                let from = [panel, second].map(|panel| screen.lines.as_ptr().add(panel * lines));
                let mut sums = [[_mm512_setzero_si512(); 2]; 2];
                for line in 0..lines {
                    let x = row.bytes.as_ptr().add(line * 8).cast::<i32>();
                    let inputs = [0, 1].map(|half| {
                        let signed = x.add(half).read_unaligned() ^ 0x8080_8080u32 as i32;
                        _mm512_set1_epi32(signed)
                    });
                    if prefetch {
                        prefetch::prefetch_next_window(from[0].wrapping_add(2 * line).cast());
                        prefetch::prefetch_next_window(from[0].wrapping_add(2 * line + 1).cast());
                    }
                    for (sums, from) in sums.iter_mut().zip(from) {
                        let both = _mm512_load_si512(from.add(line).cast());
                        let mask = _mm512_set1_epi8(15);
                        let low = _mm512_and_si512(both, mask);
                        let high = _mm512_and_si512(_mm512_srli_epi32::<4>(both), mask);
                        sums[0] = _mm512_dpbusd_epi32(sums[0], low, inputs[0]);
                        sums[1] = _mm512_dpbusd_epi32(sums[1], high, inputs[1]);
                    }
                }
                for (sums, panel) in sums.iter().zip([panel, second]) {
                    let sum = _mm512_add_epi32(sums[0], sums[1]);
                    let sum = _mm512_add_epi32(sum, _mm512_set1_epi32(row.initial_sum));
                    let scale = _mm512_load_ps(packed.scales.as_ptr().add(panel).cast());
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(row.scale));
                    let coarse = _mm512_loadu_ps(screen.scales.as_ptr().add(panel * LANES));
                    let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, coarse));
                    let error = _mm512_loadu_ps(screen.errors.as_ptr().add(panel * LANES));
                    let error = _mm512_mul_ps(error, _mm512_set1_ps(row.norm));
                    let error = _mm512_mul_ps(error, _mm512_abs_ps(scale));
                    let bias = _mm512_load_ps(packed.bias.as_ptr().add(panel).cast());
                    let terms = _mm512_add_ps(_mm512_abs_ps(y), _mm512_abs_ps(bias));
                    let rounding =
                        _mm512_mul_ps(_mm512_add_ps(terms, error), _mm512_set1_ps(ROUNDING));
                    let y = _mm512_add_ps(y, bias);
                    let more = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(y, max);
                    max = _mm512_mask_mov_ps(max, more, y);
                    max_panel =
                        _mm512_mask_mov_epi32(max_panel, more, _mm512_set1_epi32(panel as i32));
                    let bound = _mm512_add_ps(_mm512_add_ps(y, error), rounding);
                    _mm512_storeu_ps(out.as_mut_ptr().add(panel * LANES), bound);
                }
            }
        }
        let mut panel = [0i32; LANES];
        // SAFETY: sixteen integers.
        unsafe { _mm512_storeu_si512(panel.as_mut_ptr().cast(), max_panel) };
        std::array::from_fn(|lane| panel[lane] as usize * LANES + lane)
    }

    /// Sets `words` to the indices of all bounds that are at least `score`.
    #[target_feature(enable = "avx512f")]
    pub(super) fn at_least(score: f32, bounds: &[f32], words: &mut Vec<u32>) {
        words.resize(bounds.len(), 0);
        let mut count = 0;
        let mut indices = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for bounds in bounds.chunks(LANES) {
            let valid = ((1u32 << bounds.len()) - 1) as __mmask16;
            // SAFETY: sixteen bounds or as many as there are; no more words are written than bounds were read.
            unsafe {
                let bounds = _mm512_maskz_loadu_ps(valid, bounds.as_ptr());
                let survivors =
                    _mm512_mask_cmp_ps_mask::<_CMP_GE_OQ>(valid, bounds, _mm512_set1_ps(score));
                _mm512_mask_compressstoreu_epi32(
                    words.as_mut_ptr().add(count).cast(),
                    survivors,
                    indices,
                );
                count += survivors.count_ones() as usize;
            }
            indices = _mm512_add_epi32(indices, _mm512_set1_epi32(LANES as i32));
        }
        words.truncate(count);
    }
}
