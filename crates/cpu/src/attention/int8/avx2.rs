//! With AVX2, whose `vpmaddwd` multiplies 16 integers of 16 bits and adds up pairs of them.

use std::arch::x86_64::*;

use super::layout::largest;
use super::{BLOCK, HEADS, Prefetch, Rounding, Shape, Task, to_pairs};
use crate::isa::lanes::LANES;
use crate::isa::vectors::Avx2;
use crate::memory::arena::CacheLine;

/// Half of a line.
const HALF: usize = 32;

/// See [`super::scores`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores(
    task: Task<'_>,
    query: &[f32],
    ahead: &mut Prefetch,
    memory: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = task.shape;
    memory.resize(2 * shape.lines() + shape.groups(), bytemuck::Zeroable::zeroed());
    let (lines, starts) = memory.split_at_mut(2 * shape.lines());
    let lines = lines.as_chunks_mut::<2>().0;
    // SAFETY: the caller's.
    let largest = largest(unsafe { Avx2::new() }, query);
    let Rounding { scale, unit } = Rounding::new(shape, largest);
    split(query, scale, shape, lines, starts);
    let low = _mm256_set1_epi16(255);
    let weights = weights.as_flattened_mut().chunks_exact_mut(shape.columns());
    for (weights, (&start, step)) in weights.zip(task.starts.iter().zip(task.steps)) {
        ahead.step(task.rows);
        let unit = _mm_set1_ps(unit * step);
        let key = &task.rows[start..][..shape.lines()];
        weights[shape.groups() * HEADS..].fill(0.0);
        for (group, start) in starts.iter().enumerate() {
            let mut sums = [load(start, 0), load(start, HALF)];
            let first = group * shape.vectors();
            let lines = lines[first..][..shape.vectors()].iter().zip(&key[first..]);
            for ([even, odd], key) in lines {
                for (half, sum) in sums.iter_mut().enumerate() {
                    let bytes = load(key, half * HALF);
                    let (low, high) = (_mm256_and_si256(bytes, low), _mm256_srli_epi16::<8>(bytes));
                    let even = _mm256_madd_epi16(low, load(even, half * HALF));
                    let odd = _mm256_madd_epi16(high, load(odd, half * HALF));
                    *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
                }
            }
            let sum = _mm256_add_epi32(sums[0], sums[1]);
            let sum =
                _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            let scores = _mm_mul_ps(_mm_cvtepi32_ps(sum), unit);
            let weights = &mut weights[group * HEADS..][..HEADS];
            // SAFETY: four numbers.
            unsafe { _mm_storeu_ps(weights.as_mut_ptr(), scores) };
        }
    }
}

/// Rounds a query: of each four columns of a line the first and third, then the second and fourth, since these are the
/// lower and upper halves of 16 bits of a key. `starts`, for each group of heads, take back what keys have too much.
#[target_feature(enable = "avx2")]
fn split(
    query: &[f32],
    scale: f32,
    shape: Shape,
    lines: &mut [[CacheLine; 2]],
    starts: &mut [CacheLine],
) {
    let scale = _mm256_set1_ps(scale);
    let turn = _mm256_setr_epi8(
        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13,
        10, 11, 14, 15,
    );
    for (group, (lines, start)) in lines.chunks_exact_mut(shape.vectors()).zip(starts).enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (vector, [even, odd]) in lines.iter_mut().enumerate() {
            let mut four = [[_mm256_setzero_si256(); 2]; HEADS];
            for (head, four) in four.iter_mut().enumerate() {
                let numbers = shape.vector(query, group * HEADS + head, vector);
                for (half, four) in four.iter_mut().enumerate() {
                    // SAFETY: eight of sixteen numbers.
                    let numbers = unsafe { _mm256_loadu_ps(numbers[half * 8..].as_ptr()) };
                    *four = _mm256_cvtps_epi32(_mm256_mul_ps(numbers, scale));
                }
            }
            let [a, b, c, d] = four;
            for half in 0..2 {
                let ab = _mm256_shuffle_epi8(_mm256_packs_epi32(a[half], b[half]), turn);
                let cd = _mm256_shuffle_epi8(_mm256_packs_epi32(c[half], d[half]), turn);
                let (ab, cd) = (_mm256_castsi256_ps(ab), _mm256_castsi256_ps(cd));
                let first = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(ab, cd));
                let second = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(ab, cd));
                let sum = _mm256_add_epi32(
                    _mm256_madd_epi16(first, _mm256_set1_epi16(128)),
                    _mm256_madd_epi16(second, _mm256_set1_epi16(128)),
                );
                sums[half] = _mm256_sub_epi32(sums[half], sum);
                save(first, even, half * HALF);
                save(second, odd, half * HALF);
            }
        }
        save(sums[0], start, 0);
        save(sums[1], start, HALF);
    }
}

/// See [`super::to_integers`].
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn to_integers(
    task: Task<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    // SAFETY: the caller's.
    to_pairs(unsafe { Avx2::new() }, task, scores, integers);
}

/// See [`super::weigh`].
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn weigh(task: Task<'_>, pairs: &[u32], ahead: &mut Prefetch, out: &mut [f32]) {
    let shape = task.shape;
    let (columns, vectors) = (shape.columns(), shape.vectors());
    let rows = out.chunks_exact_mut(shape.width()).zip(pairs.chunks_exact(task.integers()));
    for (out, pairs) in rows {
        for line in 0..shape.lines() {
            let (head, vector) = (line / vectors * HEADS, line % vectors);
            let mut sums = [[_mm256_setzero_si256(); 2]; 4];
            for (pair, weights) in pairs.chunks_exact(columns).enumerate() {
                ahead.step(task.rows);
                let weights = of_heads(weights[head..].first_chunk().expect("four heads"));
                let first = &task.rows[task.starts[2 * pair] + shape.lines() + line];
                let second = &task.rows[task.starts[2 * pair + 1] + shape.lines() + line];
                for (quarter, sums) in sums.iter_mut().enumerate() {
                    let (a, b) = (wide(first, quarter), wide(second, quarter));
                    let values = [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)];
                    for i in 0..2 {
                        let products = _mm256_madd_epi16(values[i], weights[i]);
                        sums[i] = _mm256_add_epi32(sums[i], products);
                    }
                }
            }
            // Quarters of four heads.
            let mut means = [[0.0; LANES]; HEADS];
            for (quarter, sums) in sums.iter().enumerate() {
                for (i, &sum) in sums.iter().enumerate() {
                    let mean = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(task.unit));
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

/// Of four heads' weights those of the first and third, four times each, then those of the second and fourth.
#[target_feature(enable = "avx2")]
#[inline]
fn of_heads(weights: &[u32; HEADS]) -> [__m256i; 2] {
    // SAFETY: four numbers.
    let all = unsafe { _mm_loadu_si128(weights.as_ptr().cast()) };
    let all = _mm256_castsi128_si256(all);
    [
        _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2)),
        _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3)),
    ]
}

/// A quarter of a line, in 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn wide(line: &CacheLine, quarter: usize) -> __m256i {
    let bytes = &line.0[quarter * 16..][..16];
    // SAFETY: sixteen bytes.
    _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(line: &CacheLine, start: usize) -> __m256i {
    let half = &line.0[start..][..HALF];
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn save(bytes: __m256i, line: &mut CacheLine, start: usize) {
    let half = &mut line.0[start..][..HALF];
    // SAFETY: as above.
    unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), bytes) }
}
