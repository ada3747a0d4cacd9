//! Attention over an int8 KV cache with AVX2: `vpmaddwd` multiplies sixteen int16 and adds pairs of products.

use std::arch::x86_64::*;

use super::layout::max_magnitude;
use super::{
    BLOCK, HeadShape, LINE_HEADS, PrefetchQueue, PreparedRead, QueryScale, quantise_to_pairs,
};
use crate::isa::lanes::LANES;
use crate::isa::vectors::Avx2;
use crate::memory::arena::CacheLine;

/// Bytes of a register, half of a cache line.
const HALF_LINE: usize = 32;

/// See [`super::scores`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores(
    read: PreparedRead<'_>,
    query: &[f32],
    prefetch: &mut PrefetchQueue,
    scratch: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = read.shape;
    scratch.resize(2 * shape.lines() + shape.groups(), bytemuck::Zeroable::zeroed());
    let (lines, initial_sums) = scratch.split_at_mut(2 * shape.lines());
    let lines = lines.as_chunks_mut::<2>().0;
    // SAFETY: the caller's.
    let max = max_magnitude(unsafe { Avx2::new() }, query);
    let QueryScale { scale, unit } = QueryScale::new(shape, max);
    quantise_query(query, scale, shape, lines, initial_sums);
    let low = _mm256_set1_epi16(255);
    let weights = weights.as_flattened_mut().chunks_exact_mut(shape.padded_heads());
    for (weights, (&start, key_scale)) in weights.zip(read.starts.iter().zip(read.key_scales)) {
        prefetch.advance(read.rows);
        let unit = _mm_set1_ps(unit * key_scale);
        let key = &read.rows[start..][..shape.lines()];
        weights[shape.groups() * LINE_HEADS..].fill(0.0);
        for (group, initial) in initial_sums.iter().enumerate() {
            let mut sums = [load(initial, 0), load(initial, HALF_LINE)];
            let first = group * shape.vectors();
            let lines = lines[first..][..shape.vectors()].iter().zip(&key[first..]);
            for ([even, odd], key) in lines {
                for (half, sum) in sums.iter_mut().enumerate() {
                    let bytes = load(key, half * HALF_LINE);
                    let (low, high) = (_mm256_and_si256(bytes, low), _mm256_srli_epi16::<8>(bytes));
                    let even = _mm256_madd_epi16(low, load(even, half * HALF_LINE));
                    let odd = _mm256_madd_epi16(high, load(odd, half * HALF_LINE));
                    *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
                }
            }
            let sum = _mm256_add_epi32(sums[0], sums[1]);
            let sum =
                _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            let scores = _mm_mul_ps(_mm_cvtepi32_ps(sum), unit);
            let weights = &mut weights[group * LINE_HEADS..][..LINE_HEADS];
            // SAFETY: four numbers.
            unsafe { _mm_storeu_ps(weights.as_mut_ptr(), scores) };
        }
    }
}

/// Quantises a query to int16. Of each four columns the first and the third make the even lines, the second and the fourth the odd
/// lines: in a key these are the low and the high bytes of 16 bits. `initial_sums`, for each group of heads, cancel the offset of
/// keys.
#[target_feature(enable = "avx2")]
fn quantise_query(
    query: &[f32],
    scale: f32,
    shape: HeadShape,
    lines: &mut [[CacheLine; 2]],
    initial_sums: &mut [CacheLine],
) {
    let scale = _mm256_set1_ps(scale);
    let swap_middle = _mm256_setr_epi8(
        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13,
        10, 11, 14, 15,
    );
    let groups = lines.chunks_exact_mut(shape.vectors()).zip(initial_sums);
    for (group, (lines, initial)) in groups.enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (vector, [even, odd]) in lines.iter_mut().enumerate() {
            let mut four = [[_mm256_setzero_si256(); 2]; LINE_HEADS];
            for (head, four) in four.iter_mut().enumerate() {
                let numbers = shape.vector(query, group * LINE_HEADS + head, vector);
                for (half, four) in four.iter_mut().enumerate() {
                    // SAFETY: eight of sixteen numbers.
                    let numbers = unsafe { _mm256_loadu_ps(numbers[half * 8..].as_ptr()) };
                    *four = _mm256_cvtps_epi32(_mm256_mul_ps(numbers, scale));
                }
            }
            let [a, b, c, d] = four;
            for half in 0..2 {
                let ab = _mm256_shuffle_epi8(_mm256_packs_epi32(a[half], b[half]), swap_middle);
                let cd = _mm256_shuffle_epi8(_mm256_packs_epi32(c[half], d[half]), swap_middle);
                let (ab, cd) = (_mm256_castsi256_ps(ab), _mm256_castsi256_ps(cd));
                let first = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(ab, cd));
                let second = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(ab, cd));
                let sum = _mm256_add_epi32(
                    _mm256_madd_epi16(first, _mm256_set1_epi16(128)),
                    _mm256_madd_epi16(second, _mm256_set1_epi16(128)),
                );
                sums[half] = _mm256_sub_epi32(sums[half], sum);
                store(first, even, half * HALF_LINE);
                store(second, odd, half * HALF_LINE);
            }
        }
        store(sums[0], initial, 0);
        store(sums[1], initial, HALF_LINE);
    }
}

/// See [`super::quantise_weights`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quantise_weights(
    read: PreparedRead<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    // SAFETY: the caller's.
    quantise_to_pairs(unsafe { Avx2::new() }, read, scores, integers);
}

/// See [`super::weighted_sums`].
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn weighted_sums(
    read: PreparedRead<'_>,
    pairs: &[u32],
    prefetch: &mut PrefetchQueue,
    out: &mut [f32],
) {
    let shape = read.shape;
    let (padded_heads, vectors) = (shape.padded_heads(), shape.vectors());
    let rows = out.chunks_exact_mut(shape.width()).zip(pairs.chunks_exact(read.row_weights()));
    for (out, pairs) in rows {
        for line in 0..shape.lines() {
            let (head, vector) = (line / vectors * LINE_HEADS, line % vectors);
            let mut sums = [[_mm256_setzero_si256(); 2]; 4];
            for (pair, weights) in pairs.chunks_exact(padded_heads).enumerate() {
                prefetch.advance(read.rows);
                let weights = broadcast_heads(weights[head..].first_chunk().expect("four heads"));
                let first = &read.rows[read.starts[2 * pair] + shape.lines() + line];
                let second = &read.rows[read.starts[2 * pair + 1] + shape.lines() + line];
                for (quarter, sums) in sums.iter_mut().enumerate() {
                    let (a, b) = (widen_quarter(first, quarter), widen_quarter(second, quarter));
                    let values = [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)];
                    for i in 0..2 {
                        let products = _mm256_madd_epi16(values[i], weights[i]);
                        sums[i] = _mm256_add_epi32(sums[i], products);
                    }
                }
            }
            // A quarter of a line has four columns of each of four heads.
            let mut means = [[0.0; LANES]; LINE_HEADS];
            for (quarter, sums) in sums.iter().enumerate() {
                for (i, &sum) in sums.iter().enumerate() {
                    let mean =
                        _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(read.output_scale));
                    let columns = quarter * BLOCK..(quarter + 1) * BLOCK;
                    let (low, high) = (&mut [0.0; 4], &mut [0.0; 4]);
                    // SAFETY: four numbers each.
                    unsafe {
                        _mm_storeu_ps(low.as_mut_ptr(), _mm256_castps256_ps128(mean));
                        _mm_storeu_ps(high.as_mut_ptr(), _mm256_extractf128_ps::<1>(mean));
                    }
                    means[i][columns.clone()].copy_from_slice(low);
                    means[i + 2][columns].copy_from_slice(high);
                }
            }
            let (start, left) = (vector * LANES, (shape.head_width - vector * LANES).min(LANES));
            for (i, means) in means.iter().enumerate().take(shape.heads - head) {
                let out = &mut out[(head + i) * shape.head_width + start..][..left];
                out.copy_from_slice(&means[..left]);
            }
        }
    }
}

/// Broadcasts the weights of four heads, four times each: the first and third head in one register, the second and fourth in
/// the other.
#[target_feature(enable = "avx2")]
#[inline]
fn broadcast_heads(weights: &[u32; LINE_HEADS]) -> [__m256i; 2] {
    // SAFETY: four numbers.
    let all = unsafe { _mm_loadu_si128(weights.as_ptr().cast()) };
    let all = _mm256_castsi128_si256(all);
    [
        _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2)),
        _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3)),
    ]
}

/// A quarter of a cache line, widened to int16.
#[target_feature(enable = "avx2")]
#[inline]
fn widen_quarter(line: &CacheLine, quarter: usize) -> __m256i {
    let bytes = &line.0[quarter * 16..][..16];
    // SAFETY: sixteen bytes.
    _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(line: &CacheLine, start: usize) -> __m256i {
    let half = &line.0[start..][..HALF_LINE];
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: __m256i, line: &mut CacheLine, start: usize) {
    let half = &mut line.0[start..][..HALF_LINE];
    // SAFETY: as above.
    unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), bytes) }
}
