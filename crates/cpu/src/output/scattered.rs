//! Products of single rows with scattered outputs: the words of a sentence's shortlist.
//!
//! Panels suit runs of outputs. The words of a shortlist are spread over the vocabulary, and a packed copy of their weights for every
//! sentence would be read once a step and share nothing with other sentences: 64 copies of 500 words are 8 MB, where the union of the
//! words is one or two. The weights are therefore stored a second time, one output after the other, and the outputs of a shortlist
//! are multiplied where they are:
//!
//! ```text
//! w[0][0..stride] │ w[1][0..stride] │ …        stride: inputs padded to a multiple of 64
//! ```
//!
//! Sixteen outputs at a time: an int8 dot product of 16 lanes each, then one shuffle network that sums the lanes of all sixteen.
//! Integers are exact, and the rest is computed as in the panels' kernels, so that results are the same to the last bit.
//!
//! Cost per row and output: a byte for each input, from the cache level that holds the shortlists of a batch.

use std::ops::Range;

use crate::gemm::int8::{INPUT_MULTIPLE, PackedInt8, QuantisedInt8, ScoreSink};
use crate::gemm::parallel;
use crate::isa::lanes::LANES;
use crate::isa::{Isa, Level};
use crate::memory::arena::{CacheLine, Store};
#[cfg(target_arch = "x86_64")]
use crate::technique::Technique;

/// Weights, one output after the other.
pub(crate) struct OutputRows {
    lines: Store<CacheLine>,
    /// Cache lines of an output.
    width: usize,
}

/// Some outputs of a layer, padded to a multiple of 16.
#[derive(Default)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only VNNI reads it"))]
pub(crate) struct PickedRows {
    outputs: Vec<u32>,
    starts: Vec<i32>,
    scales: Vec<f32>,
    bias: Vec<f32>,
    /// Number of outputs without padding.
    count: usize,
    /// The largest output.
    max: u32,
}

impl OutputRows {
    /// Bytes of an output's weights.
    pub(crate) fn output_bytes(&self) -> usize {
        self.width * size_of::<CacheLine>()
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.lines.len() / self.width.max(1)
    }

    /// First weight of an output.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn weights(&self, output: u32) -> *const u8 {
        self.lines.as_ptr().wrapping_add(output as usize * self.width).cast()
    }

    /// Whether there is a kernel for this instruction set.
    pub(crate) fn is_fast(isa: Isa) -> bool {
        cfg!(target_arch = "x86_64") && isa.level() >= Level::Avx512Vnni
    }

    pub(crate) fn new(packed: &PackedInt8) -> OutputRows {
        let width = packed.inputs.div_ceil(INPUT_MULTIPLE);
        let groups = packed.groups();
        let mut lines = Store::zeroed(0, packed.lines.pages());
        // Large layers go on large pages: nearly every word of a shortlist is on a page of its own.
        lines.grow(packed.outputs * width);
        let panels = packed.lines.chunks(groups.max(1)).zip(lines.chunks_mut(LANES * width.max(1)));
        let weights = packed.outputs * packed.inputs;
        parallel::for_each(panels.collect(), weights, |(panel, lines)| {
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

    /// The score of one output for the only row of `x`.
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
    /// Picks outputs of `packed`, in any order.
    pub(crate) fn new(packed: &PackedInt8, outputs: &[u32]) -> PickedRows {
        let mut picked = PickedRows::default();
        picked.fill(packed, outputs);
        picked
    }

    /// As [`PickedRows::new`], reusing the memory of `self`.
    pub(crate) fn fill(&mut self, packed: &PackedInt8, outputs: &[u32]) {
        self.count = outputs.len();
        self.max = outputs.iter().copied().max().unwrap_or(0);
        let padded = outputs.iter().copied().chain(outputs.last().copied().into_iter().cycle());
        self.outputs.clear();
        self.outputs.extend(padded.take(self.count.next_multiple_of(LANES)));
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

/// As [`multiply`], with the scores given to a sink. `block` is scratch memory.
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
    assert!(columns.start.is_multiple_of(LANES) && columns.end <= picked.count, "picked outputs");
    assert_eq!(x.stride, rows.width * INPUT_MULTIPLE, "as many inputs as weights");
    assert_eq!(x.bytes.len(), x.scales.len() * x.stride, "whole rows");
    assert_eq!(out.len(), of.len() * columns.len(), "room for every output");
    let exists = (picked.max as usize + 1) * rows.width <= rows.lines.len();
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

    /// The outputs of one row.
    ///
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
        // SAFETY: the caller's; picked outputs are padded to a multiple of 16.
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

    /// Adds pairs of lanes within each 128 bits of two vectors.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn two(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
    }

    /// Adds what [`two`] leaves: the sums of each 128 bits of four vectors.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn four(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
    }

    /// Adds pairs of 128-bit parts of two vectors. Applied twice, it leaves one sum for each of sixteen vectors.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn parts(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b))
    }
}
