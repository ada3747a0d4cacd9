//! ReLU sparsity: the second product of a feed-forward block for one row, of whose inputs most are zero.
//!
//! A ReLU leaves zeros, and quantisation rounds small activations to zero too: of the Firefox model's hidden units seven in ten. With
//! one row, reading the weights is the whole cost, and those of a zero input need not be read. The weights are therefore stored
//! a second time, one input after the other:
//!
//! ```text
//! w[0..outputs][0] │ w[0..outputs][1] │ …      outputs padded to a multiple of 64
//! ```
//!
//! Four inputs that are not zero at a time: their cache lines are interleaved in registers to groups of four bytes, the operand of the
//! VNNI instructions. The activations themselves are the unsigned operand, so that sums begin at zero. Integers are exact, and
//! the epilogue is that of the panels' kernels: results are the same to the last bit.
//!
//! Cost: a byte for each output and input that is not zero. The second copy is made once rows have been sparse a hundred times.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{PackedInt8, QuantisedInt8};
use crate::gemm::split;
use crate::gemm::tiles::InputLayout;
use crate::isa::lanes::LANES;
use crate::isa::{Isa, Level};
use crate::memory::arena::{Arena, CacheLine, Store};
use crate::memory::working_set;
use crate::technique::Technique;

/// Sparse rows before the weights are stored a second time: a short run would not earn it.
const ROWS_BEFORE: usize = 100;

/// A row is sparse if at most one in so many inputs is not zero.
const SPARSE: usize = 2;

/// Weights, one input after the other, once they are there.
#[derive(Default)]
pub(super) struct InputRows {
    lines: OnceLock<Store<CacheLine>>,
    /// Sparse rows so far.
    rows: AtomicUsize,
    arena: Arena,
}

impl InputRows {
    pub(super) fn new(arena: &Arena) -> InputRows {
        InputRows { arena: arena.clone(), ..InputRows::default() }
    }

    /// The weights of `packed`, if rows have been sparse often enough.
    fn of(&self, packed: &PackedInt8) -> Option<&[CacheLine]> {
        if let Some(lines) = self.lines.get() {
            return Some(lines);
        }
        let before = self.rows.fetch_add(1, Ordering::Relaxed);
        (before >= ROWS_BEFORE).then(|| &**self.lines.get_or_init(|| self.transposed(packed)))
    }

    fn transposed(&self, packed: &PackedInt8) -> Store<CacheLine> {
        let width = lines_of_input(packed);
        let mut lines = self.arena.zeroed(packed.inputs * width);
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut lines);
        let stride = width * size_of::<CacheLine>();
        for (panel, groups) in packed.lines.chunks(packed.groups().max(1)).enumerate() {
            for (input, row) in bytes.chunks_mut(stride).enumerate() {
                let to = &mut row[panel * LANES..][..LANES];
                for (to, from) in to.iter_mut().zip(&groups[input / 4].0) {
                    *to = from[input % 4];
                }
            }
        }
        lines
    }
}

/// Cache lines of an input's weights.
fn lines_of_input(packed: &PackedInt8) -> usize {
    packed.outputs.div_ceil(size_of::<CacheLine>())
}

/// Inputs that are not zero, padded with zeros to a multiple of four.
#[derive(Default)]
pub(crate) struct NonZeros {
    inputs: Vec<u32>,
    values: Vec<u8>,
}

/// The whole product of one row of activations after a ReLU, if it is sparse and there is a kernel for it.
pub(crate) fn multiply_sparse(
    isa: Isa,
    x: &QuantisedInt8,
    packed: &PackedInt8,
    relu: bool,
    found: &mut NonZeros,
    out: &mut [f32],
) -> bool {
    let fits = x.scales.len() == 1 && x.layout == InputLayout::RowMajor && split::members() == 1;
    let has_kernel = cfg!(target_arch = "x86_64") && isa.level() >= Level::Avx512Vnni;
    if !fits || !has_kernel || packed.saturates() || !isa.uses(Technique::ReluSparsity) {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the level proves the instructions.
        let non_negative = unsafe { avx512vnni::find(&x.bytes[..x.stride], found) };
        if !non_negative || found.inputs.len() * SPARSE > packed.inputs {
            return false;
        }
        let Some(weights) = packed.input_rows.of(packed) else { return false };
        let product = super::Product::of_rows(isa, x, packed, 0..packed.panels(), relu);
        assert_eq!(out.len(), product.width, "room for every output");
        working_set::count(found.inputs.len() * lines_of_input(packed) * size_of::<CacheLine>());
        // SAFETY: the level proves the instructions; inputs that are not zero have weights, and there is room for every output.
        unsafe { avx512vnni::multiply(product, found, weights, out) };
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
mod avx512vnni {
    use std::arch::x86_64::*;

    use super::NonZeros;
    use crate::gemm::int8::Product;
    use crate::gemm::int8::avx512vnni::{Scales, lanes_of};
    use crate::isa::lanes::LANES;
    use crate::memory::arena::CacheLine;
    use crate::memory::prefetch;

    /// Cache lines of an input whose sums are in registers together.
    const LINES: usize = 4;

    /// Inputs ahead whose weights are prefetched.
    const AHEAD: usize = 16;

    /// Finds the inputs that are not zero. Returns false if one is negative or not a number.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn find(bytes: &[u8], found: &mut NonZeros) -> bool {
        found.inputs.resize(bytes.len() + LANES, 0);
        found.values.resize(bytes.len() + LANES, 0);
        let (mut count, mut negative) = (0, 0);
        let zero = _mm512_set1_epi8(-128);
        let mut inputs = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for line in bytes.as_chunks::<64>().0 {
            // SAFETY: 64 bytes.
            let x = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            negative |= !_mm512_movepi8_mask(x);
            let mut left = _mm512_cmpneq_epi8_mask(x, zero);
            let x = _mm512_xor_si512(x, zero);
            let quarters = [
                _mm512_castsi512_si128(x),
                _mm512_extracti32x4_epi32::<1>(x),
                _mm512_extracti32x4_epi32::<2>(x),
                _mm512_extracti32x4_epi32::<3>(x),
            ];
            for x in quarters {
                let mask = left as __mmask16;
                let values = _mm512_maskz_compress_epi32(mask, _mm512_cvtepu8_epi32(x));
                let kept = _mm512_maskz_compress_epi32(mask, inputs);
                // SAFETY: there is room for sixteen more behind all inputs.
                unsafe {
                    _mm512_storeu_si512(found.inputs.as_mut_ptr().add(count).cast(), kept);
                    let values = _mm512_cvtepi32_epi8(values);
                    _mm_storeu_si128(found.values.as_mut_ptr().add(count).cast(), values);
                }
                count += mask.count_ones() as usize;
                inputs = _mm512_add_epi32(inputs, _mm512_set1_epi32(LANES as i32));
                left >>= LANES;
            }
        }
        let padded = count.next_multiple_of(4);
        found.inputs.truncate(padded);
        found.values.truncate(padded);
        found.inputs[count..].fill(0);
        found.values[count..].fill(0);
        negative == 0
    }

    /// See [`super::multiply_sparse`].
    ///
    /// # Safety
    /// AVX-512F, BW and VNNI; `weights` has the lines of every input in `found`; `out` has room for all outputs.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn multiply(
        product: Product<'_>,
        found: &NonZeros,
        weights: &[CacheLine],
        out: &mut [f32],
    ) {
        let width = super::lines_of_input(product.packed);
        let mut first = 0;
        while first < width {
            // SAFETY: the caller's; the lines exist.
            unsafe {
                if width - first >= LINES {
                    some_lines::<LINES>(product, found, (weights, width), first, out);
                    first += LINES;
                } else {
                    some_lines::<1>(product, found, (weights, width), first, out);
                    first += 1;
                }
            }
        }
    }

    /// The outputs of `N` lines of every input from the line `first` on.
    ///
    /// # Safety
    /// As [`multiply`]; an input has `width` lines, and these are among them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn some_lines<const N: usize>(
        product: Product<'_>,
        found: &NonZeros,
        (weights, width): (&[CacheLine], usize),
        first: usize,
        out: &mut [f32],
    ) {
        let weights = weights.as_ptr().wrapping_add(first);
        let line_of = |input: u32| weights.wrapping_add(input as usize * width);
        let mut sums = [[_mm512_setzero_si512(); 4]; N];
        let values = found.values.as_chunks::<4>().0;
        let ahead = found.inputs.get(AHEAD..).unwrap_or(&[]).as_chunks::<4>().0;
        let mut ahead = ahead.iter();
        for (inputs, &x) in found.inputs.as_chunks::<4>().0.iter().zip(values) {
            if product.prefetch
                && let Some(inputs) = ahead.next()
            {
                for &input in inputs {
                    (0..N).for_each(|n| {
                        prefetch::prefetch_line(line_of(input).wrapping_add(n).cast())
                    });
                }
            }
            let x = _mm512_set1_epi32(i32::from_le_bytes(x));
            let lines = inputs.map(line_of);
            for (n, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the caller's.
                let [a, b, c, d] =
                    lines.map(|line| unsafe { _mm512_load_si512(line.add(n).cast()) });
                let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
                sums[0] = _mm512_dpbusd_epi32(sums[0], x, _mm512_unpacklo_epi16(ab, cd));
                sums[1] = _mm512_dpbusd_epi32(sums[1], x, _mm512_unpackhi_epi16(ab, cd));
                let (ab, cd) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
                sums[2] = _mm512_dpbusd_epi32(sums[2], x, _mm512_unpacklo_epi16(ab, cd));
                sums[3] = _mm512_dpbusd_epi32(sums[3], x, _mm512_unpackhi_epi16(ab, cd));
            }
        }
        let row_scale = product.x.scales[0];
        for (n, sums) in sums.into_iter().enumerate() {
            for (panel, sum) in by_panels(sums).into_iter().enumerate() {
                let panel = (first + n) * 4 + panel;
                let Some(out) = out.get_mut(panel * LANES..) else { return };
                // SAFETY: a panel with outputs exists; the mask keeps to `out`.
                unsafe {
                    let y = Scales::of(product, panel).apply_with_floor(sum, row_scale);
                    _mm512_mask_storeu_ps(out.as_mut_ptr(), lanes_of(out.len()), y);
                }
            }
        }
    }

    /// Sums in the order of their outputs: the interleaving leaves four outputs of each 128 bits in every register.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn by_panels([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        let low = [_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d)];
        let high = [_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d)];
        [
            _mm512_shuffle_i32x4::<0x88>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0xdd>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0x88>(high[0], high[1]),
            _mm512_shuffle_i32x4::<0xdd>(high[0], high[1]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gemm::int8::tests::{levels, numbers, pack, run};

    /// Activations of which about so many percent are not zero.
    fn activations(count: usize, percent: usize, seed: u64) -> Vec<f32> {
        let kept = percent as f32 / 100.0 - 0.5;
        let pairs = numbers(count, seed).into_iter().zip(numbers(count, seed + 1));
        pairs.map(|(x, chance)| if chance < kept { x.abs() } else { 0.0 }).collect()
    }

    fn sparse(isa: Isa, x: &[f32], packed: &PackedInt8, relu: bool) -> Option<Vec<f32>> {
        let mut quantised = QuantisedInt8::default();
        quantised.fill(isa, x, packed);
        let mut out = vec![f32::NAN; packed.outputs()];
        let mut found = NonZeros::default();
        multiply_sparse(isa, &quantised, packed, relu, &mut found, &mut out).then_some(out)
    }

    proptest! {
        #[test]
        fn sparse_rows_give_the_bits_of_dense_ones(
            inputs in 1usize..200, outputs in 1usize..600, percent in 0usize..60, seed in 1u64..1000,
        ) {
            let bias = numbers(outputs, seed + 13);
            let (packed, _) = pack(numbers(outputs * inputs, seed + 7), &bias, inputs);
            packed.input_rows.rows.store(ROWS_BEFORE, Ordering::Relaxed);
            let x = activations(inputs, percent, seed);
            for isa in levels().filter(|isa| isa.level() >= Level::Avx512Vnni) {
                let expected = run(isa, &x, &packed);
                let floor = |y: &f32| if *y < 0.0 { 0.0 } else { *y };
                let not_zero = x.iter().filter(|&&x| x > 0.0).count();
                if let Some(out) = sparse(isa, &x, &packed, false) {
                    prop_assert_eq!(&out, &expected);
                    let out = sparse(isa, &x, &packed, true);
                    prop_assert_eq!(out, Some(expected.iter().map(floor).collect::<Vec<_>>()));
                } else {
                    prop_assert!((not_zero + 3) * SPARSE > inputs, "{not_zero} of {inputs} is sparse");
                }
            }
        }
    }

    #[test]
    fn weights_are_stored_again_only_for_many_sparse_rows_after_a_relu() {
        let (inputs, outputs) = (256, 64);
        let (packed, _) = pack(numbers(outputs * inputs, 1), &numbers(outputs, 2), inputs);
        let (few, most) = (activations(inputs, 20, 3), activations(inputs, 80, 3));
        let negative: Vec<f32> = few.iter().map(|x| -x).collect();
        let not_a_number: Vec<f32> =
            few.iter().map(|x| if *x > 0.0 { f32::NAN } else { 0.0 }).collect();
        let two_rows = [&few[..], &few].concat();
        for isa in levels() {
            let is_fast = isa.level() >= Level::Avx512Vnni;
            packed.input_rows.rows.store(0, Ordering::Relaxed);
            for _ in 0..2 * ROWS_BEFORE {
                assert_eq!(sparse(isa, &most, &packed, false), None);
            }
            let is_there = packed.input_rows.lines.get().is_some();
            for _ in 0..ROWS_BEFORE {
                assert_eq!(sparse(isa, &few, &packed, false).is_some(), is_there);
            }
            assert_eq!(sparse(isa, &few, &packed, false).is_some(), is_fast);
            for x in [&most, &negative, &two_rows] {
                assert_eq!(sparse(isa, x, &packed, false), None);
            }
            let of_nan = sparse(isa, &not_a_number, &packed, false);
            assert!(of_nan.is_none_or(|out| out == run(isa, &not_a_number, &packed)));
            let without = isa.without(&[Technique::ReluSparsity]);
            assert_eq!(sparse(without, &few, &packed, false), None);
        }
    }
}
