//! Finds the words that can be a row's best from half of the output layer's bytes.
//!
//! With few rows, reading the weights is all of the cost, and the output layer has nearly half of them. So
//! they are kept a second time in four bits: `w = scale · h + l`. `Σ x · h` tells an output up to `Σ x · l`,
//! which is at most `‖x‖ · ‖l‖` (Cauchy and Schwarz), and `‖l‖` is known for each word. A word whose score
//! cannot reach that of another is out; the others are computed in full (`rows.rs`). The best word and its
//! score are the same to the last bit.
//!
//! Sixteen outputs make a panel, as in [`super`]; a byte holds `h + 8` of an input in its lower half and of
//! the input four further on in its upper half:
//!
//! ```text
//! panel 0:  w[0][0..4]+w[0][4..8] w[1][0..4]+w[1][4..8] … │ w[0][8..12]+w[0][12..16] …
//! ```
//!
//! Cost per row: half a byte for each output and input, and a byte for each input of words that are left.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::scattered::OutputRows;
use crate::gemm::int8::{PackedInt8, QuantisedInt8};
use crate::gemm::parallel;
use crate::isa::Isa;
use crate::isa::lanes::LANES;
use crate::memory::arena::Store;
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// Where more than one word in so many is left, all of them are computed.
const FEW: usize = 4;

/// One word in so many is a sample of them.
const SAMPLED: usize = 16;

/// What rounding may add to a score, as a part of its terms.
const ROUNDING: f32 = 1e-6;

/// An output layer's weights in four bits.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads all of it"))]
pub(crate) struct Screen {
    lines: Store<Line4>,
    /// For each output `‖l‖`, filled up to whole panels.
    errors: Vec<f32>,
    /// and what `h` is multiplied with.
    scales: Vec<f32>,
    /// Rows looked at, and those of them that left too many words.
    tried: AtomicU64,
    failed: AtomicU64,
}

/// Eight inputs of sixteen outputs.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line4([[u8; 4]; LANES]);

/// A word's step for weights in four bits, in units of its step for eight: near the best for weights that
/// are spread like noise, of which the largest do not fit and stay at the end of the range.
fn coarse_step(weights: impl Iterator<Item = i8>, inputs: usize) -> f32 {
    let squares: i64 = weights.map(|w| i64::from(w) * i64::from(w)).sum();
    let spread = (squares as f32 / inputs.max(1) as f32).sqrt();
    (spread * 0.36).round().clamp(1.0, 16.0)
}

impl Screen {
    pub(crate) fn new(packed: &PackedInt8) -> Screen {
        let groups = packed.groups();
        let mut lines: Store<Line4> = Store::zeroed(0, packed.lines.pages());
        lines.grow(packed.panels() * groups / 2);
        let mut errors = vec![0f32; packed.panels() * LANES];
        let mut scales = vec![1f32; errors.len()];
        let panels = packed.lines.chunks(groups).zip(lines.chunks_mut(groups / 2));
        let words = errors.chunks_mut(LANES).zip(scales.chunks_mut(LANES));
        parallel::for_each(panels.zip(words).collect(), |((from, to), (errors, scales))| {
            for (lane, (error, scale)) in errors.iter_mut().zip(scales).enumerate() {
                let weights = || from.iter().flat_map(|line| line.0[lane]);
                *scale = coarse_step(weights(), packed.inputs);
                let inverse = 1.0 / *scale;
                let mut squares = 0f64;
                let mut narrow = |w: i8| {
                    let w = f32::from(w);
                    let half = (w * inverse + 8.5).clamp(0.0, 15.0) as u8;
                    let left = w - *scale * (f32::from(half) - 8.0);
                    squares += f64::from(left * left);
                    half
                };
                for (pair, line) in from.as_chunks::<2>().0.iter().zip(&mut *to) {
                    for (i, byte) in line.0[lane].iter_mut().enumerate() {
                        *byte = narrow(pair[0].0[lane][i]) | narrow(pair[1].0[lane][i]) << 4;
                    }
                }
                *error = squares.sqrt() as f32 * (1.0 + ROUNDING);
            }
        });
        let (tried, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Screen { lines, errors, scales, tried, failed }
    }

    /// Whether it has left few words often enough to be worth its time.
    pub(crate) fn pays(&self) -> bool {
        self.failed.load(Relaxed) * 4 <= self.tried.load(Relaxed) + 16
    }

    /// The words, in order, that may have the largest score of the only row of `x`, banned ones aside;
    /// false if they are not few. `rows` are those of `packed`, `bounds` is working memory.
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
        // Any word's score is one that the best must reach; that of a likely one is a high one.
        let allowed = |word: &usize| *word < packed.outputs && !banned.contains(&(*word as u32));
        let score = best.into_iter().filter(allowed).map(|word| rows.score(x, packed, word));
        if let Some(score) = score.reduce(f32::max) {
            // SAFETY: `bounds` has asked for the instructions.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                vnni::at_least(score, bounds, words);
            }
            #[cfg(not(target_arch = "x86_64"))]
            words.extend((0..).zip(&*bounds).filter(|(_, b)| **b >= score).map(|(word, _)| word));
        }
        let few = !words.is_empty() && words.len() <= packed.outputs / FEW;
        self.note(few);
        few
    }

    fn note(&self, few: bool) {
        self.tried.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(!few), Relaxed);
    }

    /// For each word of `packed` a number that its score for the only row of `x` does not exceed. Tells the words
    /// that seem best.
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
        let row = Row {
            bytes: &x.bytes,
            scale: x.scales[0],
            start: -8 * integers().sum::<i64>() as i32,
            norm: (integers().map(|x| x * x).sum::<i64>() as f32).sqrt() * (1.0 + ROUNDING),
        };
        bounds.resize(self.errors.len(), 0.0);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `is_fast` has told that the processor has the instructions; sizes have been checked.
        let best =
            unsafe { vnni::bounds(isa.uses(Technique::Prefetch), self, packed, row, bounds) };
        // Never so: there is no kernel.
        #[cfg(not(target_arch = "x86_64"))]
        let best = [row.bytes.len(); LANES];
        bounds.truncate(packed.outputs);
        best
    }
}

/// Some of a layer's words: they tell, before there is a screen of all, whether it would pay.
pub(crate) struct Sample {
    packed: PackedInt8,
    screen: Screen,
}

impl Sample {
    pub(crate) fn new(packed: &PackedInt8) -> Sample {
        let words: Vec<u32> = (0..packed.outputs as u32).step_by(SAMPLED).collect();
        let packed = packed.select(&words);
        let screen = Screen::new(&packed);
        Sample { packed, screen }
    }

    /// Looks at a row whose best score is known.
    pub(crate) fn look(&self, isa: Isa, x: &QuantisedInt8, best: f32, bounds: &mut Vec<f32>) {
        self.screen.bounds(isa, (x, &self.packed), bounds);
        let left = bounds.iter().filter(|bound| **bound >= best).count();
        self.screen.note(left <= self.packed.outputs / FEW);
    }

    pub(crate) fn pays(&self) -> bool {
        self.screen.pays()
    }
}

/// The row whose best words are sought.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads all of it"))]
struct Row<'a> {
    bytes: &'a [u8],
    scale: f32,
    /// Where sums start, to make up for halves kept as `h + 8`.
    start: i32,
    norm: f32,
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use super::{LANES, PackedInt8, ROUNDING, Row, Screen};
    use crate::memory::prefetch;

    /// For each output a number that its score does not exceed. Tells the words that seem best, each of
    /// those with the same place in a panel.
    ///
    /// # Safety
    /// AVX-512F and VNNI; `screen` was made of `packed`; `row` has as many bytes as an output has weights;
    /// `out` has room for whole panels.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn bounds(
        prefetch: bool,
        screen: &Screen,
        packed: &PackedInt8,
        row: Row<'_>,
        out: &mut [f32],
    ) -> [usize; LANES] {
        let (lines, panels) = (packed.groups() / 2, packed.panels());
        let (mut most, mut at) = (_mm512_set1_ps(f32::NEG_INFINITY), _mm512_setzero_si512());
        for panel in (0..panels).step_by(2) {
            // The last one twice where their number is odd.
            let second = (panel + 1).min(panels - 1);
            // SAFETY: panels that exist; what is only prefetched need not.
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
                    let sum = _mm512_add_epi32(sum, _mm512_set1_epi32(row.start));
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
                    let more = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(y, most);
                    most = _mm512_mask_mov_ps(most, more, y);
                    at = _mm512_mask_mov_epi32(at, more, _mm512_set1_epi32(panel as i32));
                    let bound = _mm512_add_ps(_mm512_add_ps(y, error), rounding);
                    _mm512_storeu_ps(out.as_mut_ptr().add(panel * LANES), bound);
                }
            }
        }
        let mut panel = [0i32; LANES];
        // SAFETY: sixteen integers.
        unsafe { _mm512_storeu_si512(panel.as_mut_ptr().cast(), at) };
        std::array::from_fn(|lane| panel[lane] as usize * LANES + lane)
    }

    /// Sets `words` to the places of all bounds that are at least `score`.
    #[target_feature(enable = "avx512f")]
    pub(super) fn at_least(score: f32, bounds: &[f32], words: &mut Vec<u32>) {
        words.resize(bounds.len(), 0);
        let mut count = 0;
        let mut places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for bounds in bounds.chunks(LANES) {
            let there = ((1u32 << bounds.len()) - 1) as __mmask16;
            // SAFETY: sixteen bounds or as many as there are; no more words are written than bounds were read.
            unsafe {
                let bounds = _mm512_maskz_loadu_ps(there, bounds.as_ptr());
                let left =
                    _mm512_mask_cmp_ps_mask::<_CMP_GE_OQ>(there, bounds, _mm512_set1_ps(score));
                _mm512_mask_compressstoreu_epi32(
                    words.as_mut_ptr().add(count).cast(),
                    left,
                    places,
                );
                count += left.count_ones() as usize;
            }
            places = _mm512_add_epi32(places, _mm512_set1_epi32(LANES as i32));
        }
        words.truncate(count);
    }
}
