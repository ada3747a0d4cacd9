//! Products of single rows with scattered outputs: the words of one sentence's shortlist.
//!
//! Panels suit runs of outputs. A shortlist's words lie all over the vocabulary, and a copy of their
//! weights for every sentence would be read once a step and share nothing with its neighbours: 64
//! sentences of 500 words are 8 MB where the words they have between them are one or two. So the
//! weights are kept a second time, an output after the other, and a list of outputs is multiplied
//! where they are:
//!
//! ```text
//! w[0][0..stride] │ w[1][0..stride] │ …        stride: inputs filled up to a multiple of 64
//! ```
//!
//! Sixteen outputs at a time: a sum of 16 lanes each, then one shuffle network that adds up the lanes
//! of all sixteen. Integers are exact, and the rest is computed as in the panels' kernels, so that
//! the results are the same to the last bit. Cost per row and output: a byte for each input, from
//! the cache that holds the lists of a batch.

use std::ops::Range;

use crate::gemm::int8::{INPUT_MULTIPLE, PackedInt8, QuantisedInt8, ScoreSink};
use crate::gemm::parallel;
use crate::isa::lanes::LANES;
use crate::isa::{Isa, Level};
use crate::memory::arena::{CacheLine, Store};
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// Weights an output after the other.
pub(crate) struct OutputRows {
    lines: Store<CacheLine>,
    /// Lines of an output.
    width: usize,
}

/// Some outputs of a layer, filled up to a multiple of 16.
#[derive(Default)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads it"))]
pub(crate) struct PickedRows {
    outputs: Vec<u32>,
    starts: Vec<i32>,
    scales: Vec<f32>,
    bias: Vec<f32>,
    count: usize,
    /// The last of them.
    last: u32,
}

impl OutputRows {
    /// Bytes of an output's weights.
    pub(crate) fn output_bytes(&self) -> usize {
        self.width * size_of::<CacheLine>()
    }

    /// How many there are.
    pub(super) fn outputs(&self) -> usize {
        self.lines.len() / self.width.max(1)
    }

    /// Where an output's weights begin.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn weights(&self, output: u32) -> *const u8 {
        self.lines.as_ptr().wrapping_add(output as usize * self.width).cast()
    }

    /// Whether there is a kernel.
    pub(crate) fn is_fast(isa: Isa) -> bool {
        cfg!(target_arch = "x86_64") && isa.level() >= Level::Avx512Vnni
    }

    pub(crate) fn new(packed: &PackedInt8) -> OutputRows {
        let width = packed.inputs.div_ceil(INPUT_MULTIPLE);
        let groups = packed.groups();
        let mut lines = Store::zeroed(0, packed.lines.pages());
        // On large pages, where there are many: words of a list are on as many pages as there are words.
        lines.grow(packed.outputs * width);
        let panels = packed.lines.chunks(groups.max(1)).zip(lines.chunks_mut(LANES * width.max(1)));
        parallel::for_each(panels.collect(), |(panel, lines)| {
            for (lane, lines) in lines.chunks_mut(width).enumerate() {
                for (to, from) in
                    bytemuck::cast_slice_mut::<_, [i8; 4]>(lines).iter_mut().zip(panel)
                {
                    *to = from.0[lane];
                }
            }
        });
        OutputRows { lines, width }
    }

    /// One output of the only row of `x`.
    pub(crate) fn score(&self, x: &QuantisedInt8, packed: &PackedInt8, output: usize) -> f32 {
        let (panel, lane) = (output / LANES, output % LANES);
        let weights = &self.lines[output * self.width..][..self.width];
        let weights = bytemuck::cast_slice::<_, i8>(weights);
        let products = x.bytes.iter().zip(weights).map(|(&x, &w)| i32::from(x) * i32::from(w));
        let sum = packed.starts[panel].0[lane] + products.sum::<i32>();
        sum as f32 * (packed.scales[panel].0[lane] * x.scales[0]) + packed.bias[panel].0[lane]
    }
}

impl PickedRows {
    /// Outputs that exist, in any order.
    pub(crate) fn new(packed: &PackedInt8, outputs: &[u32]) -> PickedRows {
        let mut picked = PickedRows::default();
        picked.fill(packed, outputs);
        picked
    }

    /// The same in the memory of others.
    pub(crate) fn fill(&mut self, packed: &PackedInt8, outputs: &[u32]) {
        self.count = outputs.len();
        self.last = outputs.iter().copied().max().unwrap_or(0);
        let filled = outputs.iter().copied().chain(outputs.last().copied().into_iter().cycle());
        self.outputs.clear();
        self.outputs.extend(filled.take(self.count.next_multiple_of(LANES)));
        self.starts.clear();
        self.scales.clear();
        self.bias.clear();
        for &output in &self.outputs {
            let (panel, lane) = (output as usize / LANES, output as usize % LANES);
            self.starts.push(packed.starts[panel].0[lane]);
            self.scales.push(packed.scales[panel].0[lane]);
            self.bias.push(packed.bias[panel].0[lane]);
        }
    }
}

/// [`multiply`], whose scores go to a sink through `block`.
pub(super) fn multiply_into(
    isa: Isa,
    (x, of): (&QuantisedInt8, Range<usize>),
    (rows, picked): (&OutputRows, &PickedRows),
    columns: Range<usize>,
    block: &mut Vec<f32>,
    sink: &mut impl ScoreSink,
) {
    if !columns.is_empty() {
        block.resize(of.len() * columns.len(), 0.0);
        multiply(isa, (x, of), rows, picked, columns.clone(), block);
        sink.take_block(isa, columns, block);
    }
}

/// The outputs `columns` of a selection (from a multiple of 16 on) for some rows of `x`, row by row.
pub(crate) fn multiply(
    isa: Isa,
    (x, of): (&QuantisedInt8, Range<usize>),
    rows: &OutputRows,
    picked: &PickedRows,
    columns: Range<usize>,
    out: &mut [f32],
) {
    assert!(OutputRows::is_fast(isa), "there is a kernel");
    assert!(columns.start.is_multiple_of(LANES) && columns.end <= picked.count, "outputs picked");
    assert_eq!(x.stride, rows.width * INPUT_MULTIPLE, "as many inputs as weights");
    assert_eq!(x.bytes.len(), x.scales.len() * x.stride, "whole rows");
    assert_eq!(out.len(), of.len() * columns.len(), "room for every output");
    let exists = (picked.last as usize + 1) * rows.width <= rows.lines.len();
    assert!(exists || picked.count == 0, "outputs that exist");
    #[cfg(target_arch = "x86_64")]
    let prefetch = isa.uses(Technique::Prefetch);
    #[cfg(target_arch = "x86_64")]
    for (row, out) in of.zip(out.chunks_exact_mut(columns.len().max(1))) {
        let bytes = &x.bytes[row * x.stride..][..x.stride];
        // SAFETY: the level proves the instructions, and the sizes have just been checked.
        unsafe {
            let row = (bytes, x.scales[row]);
            vnni::multiply_row(prefetch, row, rows, picked, columns.clone(), out);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod vnni {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{INPUT_MULTIPLE, LANES, OutputRows, PickedRows};

    /// # Safety
    /// AVX-512F and VNNI; `x` has as many bytes as an output has weights; the `columns` of `picked`
    /// exist, begin at a multiple of 16 and name outputs of `rows`; `out` has room for them.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn multiply_row(
        prefetch: bool,
        (x, row_scale): (&[u8], f32),
        rows: &OutputRows,
        picked: &PickedRows,
        columns: Range<usize>,
        out: &mut [f32],
    ) {
        let width = rows.width;
        let row_scale = _mm512_set1_ps(row_scale);
        // SAFETY: what the caller vouches for; lists are filled up to whole sixteens.
        unsafe {
            let weights = |output: u32| rows.weights(output).cast::<i8>();
            for (block, first) in columns.clone().step_by(LANES).enumerate() {
                let outputs = &picked.outputs[first..first + LANES];
                let following = picked.outputs.get(first + LANES..first + 2 * LANES).unwrap_or(&[]);
                let following = if prefetch { following } else { &[] };
                for &output in following {
                    for line in 0..width.min(8) {
                        _mm_prefetch::<_MM_HINT_T0>(weights(output).add(line * INPUT_MULTIPLE));
                    }
                }
                let mut sums = [_mm512_setzero_si512(); LANES];
                for (sums, outputs) in sums.chunks_exact_mut(4).zip(outputs.chunks_exact(4)) {
                    let from = [0, 1, 2, 3].map(|i| weights(outputs[i]));
                    for line in 0..width {
                        let at = line * INPUT_MULTIPLE;
                        let x = _mm512_loadu_si512(x.as_ptr().add(at).cast());
                        for (sum, from) in sums.iter_mut().zip(from) {
                            let w = _mm512_load_si512(from.add(at).cast());
                            *sum = _mm512_dpbusd_epi32(*sum, x, w);
                        }
                    }
                }
                let start = _mm512_loadu_si512(picked.starts.as_ptr().add(first).cast());
                let sum = _mm512_add_epi32(add_lanes(sums), start);
                let scale = _mm512_loadu_ps(picked.scales.as_ptr().add(first));
                let bias = _mm512_loadu_ps(picked.bias.as_ptr().add(first));
                // Not fused: every kernel must round alike.
                let y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, row_scale));
                let y = _mm512_add_ps(y, bias);
                let left = columns.end - first;
                let mask = if left >= LANES { !0 } else { (1 << left) - 1 };
                _mm512_mask_storeu_ps(out.as_mut_ptr().add(block * LANES), mask, y);
            }
        }
    }

    /// The sum over the lanes of each of sixteen vectors.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(in crate::output) fn add_lanes(v: [__m512i; LANES]) -> __m512i {
        let f = [
            four(two(v[0], v[1]), two(v[2], v[3])),
            four(two(v[4], v[5]), two(v[6], v[7])),
            four(two(v[8], v[9]), two(v[10], v[11])),
            four(two(v[12], v[13]), two(v[14], v[15])),
        ];
        parts(parts(f[0], f[1]), parts(f[2], f[3]))
    }

    /// Per 128 bits: pairs side by side,
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn two(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
    }

    /// then fours,
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn four(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
    }

    /// then the four 128-bit parts.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn parts(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b))
    }
}
