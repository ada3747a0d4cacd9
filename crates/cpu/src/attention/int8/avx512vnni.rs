//! Attention over an int8 KV cache with AVX-512 VNNI: `vpdpbusd` is an int8 dot product of 64 pairs, four to a sum. An int16 is
//! split into its high and low byte, whose products are summed apart.

use std::arch::x86_64::*;

use super::{BLOCK, HeadShape, LINE_HEADS, PrefetchQueue, PreparedRead, QueryScale, softmax};
use crate::isa::lanes::{LANES, array};
use crate::isa::vectors::Avx512;
use crate::memory::arena::CacheLine;

/// High bytes and low bytes, or sums of products with each.
type HighLow = [__m512i; 2];

/// See [`super::scores`].
///
/// # Safety
/// The processor has AVX-512 VNNI; the rows and scales of `read` exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
pub(super) unsafe fn scores(
    read: PreparedRead<'_>,
    query: &[f32],
    prefetch: &mut PrefetchQueue,
    scratch: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = read.shape;
    scratch.resize(2 * (shape.lines() + shape.groups()), bytemuck::Zeroable::zeroed());
    let (lines, initial_sums) = scratch.as_chunks_mut::<2>().0.split_at_mut(shape.lines());
    let QueryScale { scale, unit } = QueryScale::new(shape, max_magnitude(query));
    if shape.head_width.is_multiple_of(LANES) && shape.heads.is_multiple_of(LINE_HEADS) {
        quantise_query::<true>(query, scale, shape, lines, initial_sums);
    } else {
        quantise_query::<false>(query, scale, shape, lines, initial_sums);
    }
    // A vector of scores holds four groups of heads: of four positions, of two or of one.
    // SAFETY: the caller's.
    unsafe {
        match (shape.padded_heads() / LINE_HEADS, shape.vectors()) {
            (1, _) => score_vectors::<4, 0>(read, unit, (lines, initial_sums), prefetch, weights),
            (2, 4) => score_vectors::<2, 4>(read, unit, (lines, initial_sums), prefetch, weights),
            (2, 2) => score_vectors::<2, 2>(read, unit, (lines, initial_sums), prefetch, weights),
            (2, _) => score_vectors::<2, 0>(read, unit, (lines, initial_sums), prefetch, weights),
            (_, 4) => score_vectors::<1, 4>(read, unit, (lines, initial_sums), prefetch, weights),
            _ => score_vectors::<1, 0>(read, unit, (lines, initial_sums), prefetch, weights),
        }
    }
}

/// The largest magnitude of a row.
#[target_feature(enable = "avx512f,avx512dq")]
fn max_magnitude(numbers: &[f32]) -> f32 {
    let (fours, rest) = numbers.as_chunks::<{ 4 * LANES }>();
    let mut max = [_mm512_setzero_ps(); 4];
    for four in fours {
        for (i, max) in max.iter_mut().enumerate() {
            *max = _mm512_max_ps(_mm512_abs_ps(load_partial(four, i * LANES, LANES)), *max);
        }
    }
    for (rest, max) in rest.chunks(LANES).zip(&mut max) {
        *max = _mm512_max_ps(_mm512_abs_ps(load_partial(rest, 0, rest.len())), *max);
    }
    let [a, b, c, d] = max;
    _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)))
}

/// Loads `count` numbers from `start` on, at most sixteen, padded with zeros.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_partial(numbers: &[f32], start: usize, count: usize) -> __m512 {
    let lanes = if count >= LANES { !0 } else { (1 << count) - 1 };
    debug_assert!(start + count.min(LANES) <= numbers.len() || count == 0);
    // SAFETY: masked lanes are not read, and the caller has `count` numbers.
    unsafe { _mm512_maskz_loadu_ps(lanes, numbers.as_ptr().wrapping_add(start)) }
}

/// Quantises a query to int16 and splits it into high and low bytes. Low bytes are signed. `initial_sums`, for each group of heads,
/// cancel the offset of keys. With `WHOLE`, no line has padding.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn quantise_query<const WHOLE: bool>(
    query: &[f32],
    scale: f32,
    shape: HeadShape,
    lines: &mut [[CacheLine; 2]],
    initial_sums: &mut [[CacheLine; 2]],
) {
    let scale = _mm512_set1_ps(scale);
    let (half, low_byte, offset) =
        (_mm512_set1_epi16(128), _mm512_set1_epi16(255), _mm512_set1_epi8(-128));
    let groups = lines.chunks_exact_mut(shape.vectors()).zip(initial_sums);
    for (group, (lines, [high_initial, low_initial])) in groups.enumerate() {
        let mut sums = [_mm512_setzero_si512(); 2];
        for (vector, [high_line, low_line]) in lines.iter_mut().enumerate() {
            let left = shape.head_width - vector * LANES;
            let mut four = [_mm512_setzero_si512(); LINE_HEADS];
            for (i, four) in four.iter_mut().enumerate() {
                let head = group * LINE_HEADS + i;
                let start = head * shape.head_width + vector * LANES;
                let left = if head < shape.heads { left } else { 0 };
                let numbers = load_partial(query, start, if WHOLE { LANES } else { left });
                *four = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, scale));
            }
            let [a, b, c, d] = four;
            let (ab, cd) = (_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            let high = _mm512_packs_epi16(
                _mm512_srai_epi16::<8>(_mm512_add_epi16(ab, half)),
                _mm512_srai_epi16::<8>(_mm512_add_epi16(cd, half)),
            );
            let low =
                _mm512_packus_epi16(_mm512_and_si512(ab, low_byte), _mm512_and_si512(cd, low_byte));
            sums[0] = _mm512_dpbusd_epi32(sums[0], offset, high);
            sums[1] = _mm512_dpbusd_epi32(sums[1], offset, low);
            store(high, high_line);
            store(low, low_line);
        }
        store(_mm512_sub_epi32(_mm512_setzero_si512(), sums[0]), high_initial);
        store(_mm512_sub_epi32(_mm512_setzero_si512(), sums[1]), low_initial);
    }
}

/// Scores, sixteen at a time, which belong to `P` positions. A head has `V` vectors; 0 stands for any number.
///
/// # Safety
/// See [`scores`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
unsafe fn score_vectors<const P: usize, const V: usize>(
    read: PreparedRead<'_>,
    unit: f32,
    (lines, initial_sums): (&[[CacheLine; 2]], &[[CacheLine; 2]]),
    prefetch: &mut PrefetchQueue,
    weights: &mut [[f32; LANES]],
) {
    let shape = read.shape;
    let per_position = (shape.padded_heads() / LANES).max(1);
    let vectors = if V == 0 { shape.vectors() } else { V };
    let position = match P {
        4 => _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        2 => _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
        _ => _mm512_setzero_si512(),
    };
    let unit = _mm512_set1_ps(unit);
    for (i, weights) in weights.iter_mut().enumerate() {
        prefetch.advance(read.rows);
        let index = i / per_position * P;
        let keys: [_; P] = array(|p| read.key(index + p));
        let mut quarters = [_mm512_setzero_si512(); 4];
        for g in 0..4 / P {
            let group = i % per_position * 4 + g;
            let Some([high, low]) = initial_sums.get(group) else { continue };
            let mut sums: [HighLow; P] = [[load(high), load(low)]; P];
            let lines = &lines[group * vectors..][..vectors];
            for (v, [high, low]) in lines.iter().enumerate() {
                let (high, low) = (load(high), load(low));
                for (sums, key) in sums.iter_mut().zip(keys) {
                    // SAFETY: the caller's; a key has a line of each vector of each group.
                    let key = load(unsafe { &*key.add(group * vectors + v) });
                    sums[0] = _mm512_dpbusd_epi32(sums[0], key, high);
                    sums[1] = _mm512_dpbusd_epi32(sums[1], key, low);
                }
            }
            for (p, sums) in sums.into_iter().enumerate() {
                quarters[p * (4 / P) + g] = combine(sums);
            }
        }
        // SAFETY: the caller's: there are four scales; sixteen numbers.
        unsafe {
            let scales = _mm_loadu_ps(read.key_scales.as_ptr().add(index));
            let scales = _mm512_permutexvar_ps(position, _mm512_castps128_ps512(scales));
            let scores = _mm512_cvtepi32_ps(add_quarters(quarters));
            let scores = _mm512_mul_ps(scores, _mm512_mul_ps(unit, scales));
            _mm512_storeu_ps(weights.as_mut_ptr(), scores);
        }
    }
}

/// Sums the four quarters of each of four vectors. Quarter `i` of the result is the sum of vector `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn add_quarters([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let ab =
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
    let cd =
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
    let even = _mm512_shuffle_i32x4::<0x88>(ab, cd);
    _mm512_add_epi32(even, _mm512_shuffle_i32x4::<0xdd>(ab, cd))
}

/// See [`super::quantise_weights`]. For each four positions: the high bytes of their weights, a `u32` a head, then the low bytes.
///
/// # Safety
/// The processor has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn quantise_weights(
    read: PreparedRead<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    let padded_heads = read.shape.padded_heads();
    // SAFETY: the caller's.
    softmax(unsafe { Avx512::new() }, scores, padded_heads);
    let blocks =
        integers.chunks_exact_mut(2 * padded_heads).zip(read.weight_scales.as_chunks::<BLOCK>().0);
    match padded_heads {
        4 => {
            for ((integers, scales), weights) in blocks.zip(&*scores) {
                // SAFETY: four heads of four positions.
                unsafe { quantise_block::<4>(weights.as_ptr(), scales, 4, integers) };
            }
        }
        8 => {
            for ((integers, scales), weights) in blocks.zip(scores.as_chunks::<2>().0) {
                // SAFETY: eight heads of four positions.
                unsafe { quantise_block::<8>(weights[0].as_ptr(), scales, 8, integers) };
            }
        }
        _ => {
            let weights = scores.as_flattened().chunks_exact(BLOCK * padded_heads);
            for ((integers, scales), weights) in blocks.zip(weights) {
                for first in (0..padded_heads).step_by(LANES) {
                    let integers = &mut integers[first..];
                    // SAFETY: sixteen heads from there on, of four positions.
                    unsafe {
                        quantise_block::<LANES>(
                            weights.as_ptr().add(first),
                            scales,
                            padded_heads,
                            integers,
                        );
                    }
                }
            }
        }
    }
}

/// Quantises the weights of `C` heads of four positions, which are `padded_heads` numbers apart.
///
/// # Safety
/// AVX-512F; `weights` has these numbers.
#[target_feature(enable = "avx512f,avx512vl")]
#[inline]
unsafe fn quantise_block<const C: usize>(
    weights: *const f32,
    scales: &[f32; BLOCK],
    padded_heads: usize,
    integers: &mut [u32],
) {
    let lanes: __mmask16 = if C < LANES { (1 << C) - 1 } else { !0 };
    let mut rounded = [_mm512_setzero_si512(); BLOCK];
    for (i, rounded) in rounded.iter_mut().enumerate() {
        // SAFETY: the caller's.
        let weights = unsafe { _mm512_maskz_loadu_ps(lanes, weights.add(i * padded_heads)) };
        *rounded = _mm512_cvtps_epi32(_mm512_mul_ps(weights, _mm512_set1_ps(scales[i])));
    }
    let [a, b, c, d] = rounded;
    // Two positions in each number.
    let (ac, bd) = (
        _mm512_or_si512(a, _mm512_slli_epi32::<16>(c)),
        _mm512_or_si512(b, _mm512_slli_epi32::<16>(d)),
    );
    let low_bytes = _mm512_set1_epi32(0x00ff_00ff);
    let high = _mm512_or_si512(
        _mm512_and_si512(_mm512_srli_epi32::<8>(ac), low_bytes),
        _mm512_andnot_si512(low_bytes, bd),
    );
    let low = _mm512_or_si512(
        _mm512_and_si512(ac, low_bytes),
        _mm512_slli_epi32::<8>(_mm512_and_si512(bd, low_bytes)),
    );
    let to = integers[..padded_heads + C].as_mut_ptr().cast();
    // SAFETY: `C` heads of both.
    unsafe {
        _mm512_mask_storeu_epi32(to, lanes, high);
        _mm512_mask_storeu_epi32(to.add(padded_heads), lanes, low);
    }
}

/// See [`super::weighted_sums`].
///
/// # Safety
/// The processor has AVX-512 VNNI; the rows of `read` exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
pub(super) unsafe fn weighted_sums(
    read: PreparedRead<'_>,
    integers: &[u32],
    prefetch: &mut PrefetchQueue,
    out: &mut [f32],
) {
    let shape = read.shape;
    let rows = if out.len() / shape.width() == 4 { 4 } else { 1 };
    let integers = integers.chunks_exact(rows * read.row_weights());
    for (out, integers) in out.chunks_exact_mut(rows * shape.width()).zip(integers) {
        // SAFETY: the caller's.
        unsafe {
            match (rows, shape.vectors() % 4) {
                (4, _) => weighted_sum_rows::<4, 1>(read, integers, prefetch, out),
                (_, 0) => weighted_sum_rows::<1, 4>(read, integers, prefetch, out),
                (_, 2) => weighted_sum_rows::<1, 2>(read, integers, prefetch, out),
                _ => weighted_sum_rows::<1, 1>(read, integers, prefetch, out),
            }
        }
    }
}

/// Weighted sums for `R` rows, `V` vectors of two heads at a time.
///
/// # Safety
/// See [`weighted_sums`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
unsafe fn weighted_sum_rows<const R: usize, const V: usize>(
    read: PreparedRead<'_>,
    integers: &[u32],
    prefetch: &mut PrefetchQueue,
    out: &mut [f32],
) {
    let shape = read.shape;
    for head in (0..shape.heads).step_by(2) {
        for vector in (0..shape.vectors()).step_by(V) {
            let at = (head, vector);
            // SAFETY: the caller's.
            let sums = unsafe {
                if head % LINE_HEADS == 0 {
                    weighted_sum::<R, V, false>(read, integers, at, prefetch)
                } else {
                    weighted_sum::<R, V, true>(read, integers, at, prefetch)
                }
            };
            for (v, sums) in sums.iter().enumerate() {
                for (r, [first, second]) in sums.iter().enumerate() {
                    let out = &mut out[r * shape.width()..][..shape.width()];
                    store_means(read, *first, head, vector + v, out);
                    if head + 1 < shape.heads {
                        store_means(read, *second, head + 1, vector + v, out);
                    }
                }
            }
        }
    }
}

/// Stores a vector of a head without its padding.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
#[inline]
fn store_means(read: PreparedRead<'_>, sums: HighLow, head: usize, vector: usize, out: &mut [f32]) {
    let means = _mm512_mul_ps(_mm512_cvtepi32_ps(combine(sums)), _mm512_set1_ps(read.output_scale));
    let left = read.shape.head_width - vector * LANES;
    let out = &mut out[head * read.shape.head_width + vector * LANES..];
    if left >= LANES {
        let out = &mut out[..LANES];
        // SAFETY: sixteen numbers.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), means) };
    } else {
        let out = &mut out[..left];
        // SAFETY: `left` numbers.
        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), (1 << left) - 1, means) };
    }
}

/// Integer sums for `R` rows, from a head and one of its vectors on. `UPPER`: the third and fourth head of a line.
///
/// # Safety
/// See [`weighted_sums`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
#[inline]
unsafe fn weighted_sum<const R: usize, const V: usize, const UPPER: bool>(
    read: PreparedRead<'_>,
    integers: &[u32],
    (head, vector): (usize, usize),
    prefetch: &mut PrefetchQueue,
) -> [[[HighLow; 2]; R]; V] {
    let padded_heads = read.shape.padded_heads();
    let blocks = read.starts.len() / BLOCK;
    let line = read.shape.lines() + head / LINE_HEADS * read.shape.vectors() + vector;
    let rows = read.rows.as_ptr().wrapping_add(line);
    assert!(
        integers.len() >= R * blocks * 2 * padded_heads && head + 1 < padded_heads,
        "integer weights of every row"
    );
    let mut sums = [[[[_mm512_setzero_si512(); 2]; 2]; R]; V];
    for (block, starts) in read.starts.as_chunks::<BLOCK>().0.iter().enumerate() {
        prefetch.advance(read.rows);
        let mut weights = [[[_mm512_setzero_si512(); 2]; 2]; R];
        for (r, weights) in weights.iter_mut().enumerate() {
            let of_row =
                integers.as_ptr().wrapping_add((r * blocks + block) * 2 * padded_heads + head);
            for (h, weights) in weights.iter_mut().enumerate() {
                // SAFETY: asserted above.
                let (high, low) = unsafe { (*of_row.add(h), *of_row.add(padded_heads + h)) };
                *weights = [_mm512_set1_epi32(high as i32), _mm512_set1_epi32(low as i32)];
            }
        }
        for (v, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's; a value has a line of each vector of each group of heads.
            let values = unsafe { interleave::<UPPER>(rows.wrapping_add(v), starts) };
            for (sums, weights) in sums.iter_mut().zip(&weights) {
                for h in 0..2 {
                    let ([high, low], [high_weight, low_weight]) = (sums[h], weights[h]);
                    sums[h] = [
                        _mm512_dpbusd_epi32(high, high_weight, values[h]),
                        _mm512_dpbusd_epi32(low, low_weight, values[h]),
                    ];
                }
            }
        }
    }
    sums
}

/// Interleaves one cache line of each of four positions: the columns of two heads, four positions to 32 bits.
///
/// # Safety
/// The lines exist.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn interleave<const UPPER: bool>(
    line: *const CacheLine,
    starts: &[usize; BLOCK],
) -> [__m512i; 2] {
    // SAFETY: the caller's.
    let [a, b, c, d] = unsafe {
        [
            load(&*line.add(starts[0])),
            load(&*line.add(starts[1])),
            load(&*line.add(starts[2])),
            load(&*line.add(starts[3])),
        ]
    };
    let (ab, cd) = if UPPER {
        (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d))
    } else {
        (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d))
    };
    [_mm512_unpacklo_epi16(ab, cd), _mm512_unpackhi_epi16(ab, cd)]
}

/// The int32 sums of an int16: `256 · high + low`.
#[target_feature(enable = "avx512f")]
#[inline]
fn combine([high, low]: HighLow) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(line: &CacheLine) -> __m512i {
    // SAFETY: a `CacheLine` has 64 bytes and is aligned to 64.
    unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: __m512i, line: &mut CacheLine) {
    // SAFETY: as above.
    unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), bytes) }
}
