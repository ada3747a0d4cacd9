//! With AVX-512 VNNI, whose `vpdpbusd` multiplies 64 bytes and adds up fours of them. Integers of 16 bits are two bytes:
//! the upper ones are summed up apart from the lower.

use std::arch::x86_64::*;

use super::{BLOCK, HEADS, Prefetch, Rounding, Shape, Task, softmax};
use crate::isa::lanes::{LANES, array};
use crate::isa::vectors::Avx512;
use crate::memory::arena::CacheLine;

/// Of upper bytes and of lower ones: bytes themselves, or sums of products with them.
type Both = [__m512i; 2];

/// See [`super::scores`].
///
/// # Safety
/// The processor has AVX-512 VNNI; the rows and steps of `task` are there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
pub(super) unsafe fn scores(
    task: Task<'_>,
    query: &[f32],
    ahead: &mut Prefetch,
    memory: &mut Vec<CacheLine>,
    weights: &mut [[f32; LANES]],
) {
    let shape = task.shape;
    memory.resize(2 * (shape.lines() + shape.groups()), bytemuck::Zeroable::zeroed());
    let (lines, starts) = memory.as_chunks_mut::<2>().0.split_at_mut(shape.lines());
    let Rounding { scale, unit } = Rounding::new(shape, largest(query));
    if shape.head_width.is_multiple_of(LANES) && shape.heads.is_multiple_of(HEADS) {
        split::<true>(query, scale, shape, lines, starts);
    } else {
        split::<false>(query, scale, shape, lines, starts);
    }
    // A vector of weights has four groups of heads: of four positions, of two or of one.
    // SAFETY: the caller's.
    unsafe {
        match (shape.columns() / HEADS, shape.vectors()) {
            (1, _) => vectors::<4, 0>(task, unit, (lines, starts), ahead, weights),
            (2, 4) => vectors::<2, 4>(task, unit, (lines, starts), ahead, weights),
            (2, 2) => vectors::<2, 2>(task, unit, (lines, starts), ahead, weights),
            (2, _) => vectors::<2, 0>(task, unit, (lines, starts), ahead, weights),
            (_, 4) => vectors::<1, 4>(task, unit, (lines, starts), ahead, weights),
            _ => vectors::<1, 0>(task, unit, (lines, starts), ahead, weights),
        }
    }
}

/// The largest magnitude.
#[target_feature(enable = "avx512f,avx512dq")]
fn largest(numbers: &[f32]) -> f32 {
    let (fours, rest) = numbers.as_chunks::<{ 4 * LANES }>();
    let mut most = [_mm512_setzero_ps(); 4];
    for four in fours {
        for (i, most) in most.iter_mut().enumerate() {
            *most = _mm512_max_ps(_mm512_abs_ps(part(four, i * LANES, LANES)), *most);
        }
    }
    for (rest, most) in rest.chunks(LANES).zip(&mut most) {
        *most = _mm512_max_ps(_mm512_abs_ps(part(rest, 0, rest.len())), *most);
    }
    let [a, b, c, d] = most;
    _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)))
}

/// Up to sixteen of so many numbers from one on, and zeros.
#[target_feature(enable = "avx512f")]
#[inline]
fn part(numbers: &[f32], start: usize, count: usize) -> __m512 {
    let lanes = if count >= LANES { !0 } else { (1 << count) - 1 };
    debug_assert!(start + count.min(LANES) <= numbers.len() || count == 0);
    // SAFETY: what is read is there.
    unsafe { _mm512_maskz_loadu_ps(lanes, numbers.as_ptr().wrapping_add(start)) }
}

/// Rounds a query: upper and lower bytes of each line. A lower byte is signed. `starts`, for each group of heads, take
/// back what keys have too much. `WHOLE`: lines are full.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn split<const WHOLE: bool>(
    query: &[f32],
    scale: f32,
    shape: Shape,
    lines: &mut [[CacheLine; 2]],
    starts: &mut [[CacheLine; 2]],
) {
    let scale = _mm512_set1_ps(scale);
    let (half, low, offset) =
        (_mm512_set1_epi16(128), _mm512_set1_epi16(255), _mm512_set1_epi8(-128));
    let groups = lines.chunks_exact_mut(shape.vectors()).zip(starts);
    for (group, (lines, [upper_start, lower_start])) in groups.enumerate() {
        let mut sums = [_mm512_setzero_si512(); 2];
        for (vector, [upper_line, lower_line]) in lines.iter_mut().enumerate() {
            let left = shape.head_width - vector * LANES;
            let mut four = [_mm512_setzero_si512(); HEADS];
            for (i, four) in four.iter_mut().enumerate() {
                let head = group * HEADS + i;
                let start = head * shape.head_width + vector * LANES;
                let left = if head < shape.heads { left } else { 0 };
                let numbers = part(query, start, if WHOLE { LANES } else { left });
                *four = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, scale));
            }
            let [a, b, c, d] = four;
            let (ab, cd) = (_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            let upper = _mm512_packs_epi16(
                _mm512_srai_epi16::<8>(_mm512_add_epi16(ab, half)),
                _mm512_srai_epi16::<8>(_mm512_add_epi16(cd, half)),
            );
            let lower = _mm512_packus_epi16(_mm512_and_si512(ab, low), _mm512_and_si512(cd, low));
            sums[0] = _mm512_dpbusd_epi32(sums[0], offset, upper);
            sums[1] = _mm512_dpbusd_epi32(sums[1], offset, lower);
            save(upper, upper_line);
            save(lower, lower_line);
        }
        save(_mm512_sub_epi32(_mm512_setzero_si512(), sums[0]), upper_start);
        save(_mm512_sub_epi32(_mm512_setzero_si512(), sums[1]), lower_start);
    }
}

/// Scores, sixteen at a time, which are of `P` positions. `V` is how many vectors a head has, or 0: any number.
///
/// # Safety
/// See [`scores`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
unsafe fn vectors<const P: usize, const V: usize>(
    task: Task<'_>,
    unit: f32,
    (lines, starts): (&[[CacheLine; 2]], &[[CacheLine; 2]]),
    ahead: &mut Prefetch,
    weights: &mut [[f32; LANES]],
) {
    let shape = task.shape;
    let per_position = (shape.columns() / LANES).max(1);
    let vectors = if V == 0 { shape.vectors() } else { V };
    let position = match P {
        4 => _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        2 => _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
        _ => _mm512_setzero_si512(),
    };
    let unit = _mm512_set1_ps(unit);
    for (i, weights) in weights.iter_mut().enumerate() {
        ahead.step(task.rows);
        let place = i / per_position * P;
        let keys: [_; P] = array(|p| task.key(place + p));
        let mut quarters = [_mm512_setzero_si512(); 4];
        for g in 0..4 / P {
            let group = i % per_position * 4 + g;
            let Some([upper, lower]) = starts.get(group) else { continue };
            let mut sums: [Both; P] = [[load(upper), load(lower)]; P];
            let lines = &lines[group * vectors..][..vectors];
            for (v, [upper, lower]) in lines.iter().enumerate() {
                let (upper, lower) = (load(upper), load(lower));
                for (sums, key) in sums.iter_mut().zip(keys) {
                    // SAFETY: the caller's; a key has a line of each vector of each group.
                    let key = load(unsafe { &*key.add(group * vectors + v) });
                    sums[0] = _mm512_dpbusd_epi32(sums[0], key, upper);
                    sums[1] = _mm512_dpbusd_epi32(sums[1], key, lower);
                }
            }
            for (p, sums) in sums.into_iter().enumerate() {
                quarters[p * (4 / P) + g] = together(sums);
            }
        }
        // SAFETY: the caller's: there are four steps; sixteen numbers.
        unsafe {
            let steps = _mm_loadu_ps(task.steps.as_ptr().add(place));
            let steps = _mm512_permutexvar_ps(position, _mm512_castps128_ps512(steps));
            let scores = _mm512_cvtepi32_ps(add_quarters(quarters));
            let scores = _mm512_mul_ps(scores, _mm512_mul_ps(unit, steps));
            _mm512_storeu_ps(weights.as_mut_ptr(), scores);
        }
    }
}

/// A vector whose quarters are the sums of those of each of four.
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

/// See [`super::to_integers`]: for each four positions the upper bytes of their weights, a number for each column, then the
/// lower ones.
///
/// # Safety
/// The processor has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn to_integers(
    task: Task<'_>,
    scores: &mut [[f32; LANES]],
    integers: &mut [u32],
) {
    let columns = task.shape.columns();
    // SAFETY: the caller's.
    softmax(unsafe { Avx512::new() }, scores, columns);
    let blocks = integers.chunks_exact_mut(2 * columns).zip(task.scales.as_chunks::<BLOCK>().0);
    match columns {
        4 => {
            for ((integers, scales), weights) in blocks.zip(&*scores) {
                // SAFETY: four columns of four positions.
                unsafe { block::<4>(weights.as_ptr(), scales, 4, integers) };
            }
        }
        8 => {
            for ((integers, scales), weights) in blocks.zip(scores.as_chunks::<2>().0) {
                // SAFETY: eight columns of four positions.
                unsafe { block::<8>(weights[0].as_ptr(), scales, 8, integers) };
            }
        }
        _ => {
            let weights = scores.as_flattened().chunks_exact(BLOCK * columns);
            for ((integers, scales), weights) in blocks.zip(weights) {
                for first in (0..columns).step_by(LANES) {
                    let integers = &mut integers[first..];
                    // SAFETY: sixteen columns from there on, of four positions.
                    unsafe {
                        block::<LANES>(weights.as_ptr().add(first), scales, columns, integers);
                    }
                }
            }
        }
    }
}

/// `C` columns of four positions, `columns` numbers apart.
///
/// # Safety
/// AVX-512F; there are so many of `weights`.
#[target_feature(enable = "avx512f,avx512vl")]
#[inline]
unsafe fn block<const C: usize>(
    weights: *const f32,
    scales: &[f32; BLOCK],
    columns: usize,
    integers: &mut [u32],
) {
    let lanes: __mmask16 = if C < LANES { (1 << C) - 1 } else { !0 };
    let mut of = [_mm512_setzero_si512(); BLOCK];
    for (i, of) in of.iter_mut().enumerate() {
        // SAFETY: the caller's.
        let weights = unsafe { _mm512_maskz_loadu_ps(lanes, weights.add(i * columns)) };
        *of = _mm512_cvtps_epi32(_mm512_mul_ps(weights, _mm512_set1_ps(scales[i])));
    }
    let [a, b, c, d] = of;
    // Two positions in each number.
    let (ac, bd) = (
        _mm512_or_si512(a, _mm512_slli_epi32::<16>(c)),
        _mm512_or_si512(b, _mm512_slli_epi32::<16>(d)),
    );
    let low = _mm512_set1_epi32(0x00ff_00ff);
    let upper = _mm512_or_si512(
        _mm512_and_si512(_mm512_srli_epi32::<8>(ac), low),
        _mm512_andnot_si512(low, bd),
    );
    let lower = _mm512_or_si512(
        _mm512_and_si512(ac, low),
        _mm512_slli_epi32::<8>(_mm512_and_si512(bd, low)),
    );
    let to = integers[..columns + C].as_mut_ptr().cast();
    // SAFETY: so many columns of both.
    unsafe {
        _mm512_mask_storeu_epi32(to, lanes, upper);
        _mm512_mask_storeu_epi32(to.add(columns), lanes, lower);
    }
}

/// See [`super::weigh`].
///
/// # Safety
/// The processor has AVX-512 VNNI; the rows of `task` are there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
pub(super) unsafe fn weigh(
    task: Task<'_>,
    integers: &[u32],
    ahead: &mut Prefetch,
    out: &mut [f32],
) {
    let shape = task.shape;
    let rows = if out.len() / shape.width() == 4 { 4 } else { 1 };
    let bytes = integers.chunks_exact(rows * task.integers());
    for (out, bytes) in out.chunks_exact_mut(rows * shape.width()).zip(bytes) {
        // SAFETY: the caller's.
        unsafe {
            match (rows, shape.vectors() % 4) {
                (4, _) => weigh_rows::<4, 1>(task, bytes, ahead, out),
                (_, 0) => weigh_rows::<1, 4>(task, bytes, ahead, out),
                (_, 2) => weigh_rows::<1, 2>(task, bytes, ahead, out),
                _ => weigh_rows::<1, 1>(task, bytes, ahead, out),
            }
        }
    }
}

/// Weighted means for `R` rows, `V` vectors of two heads at a time.
///
/// # Safety
/// See [`weigh`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
unsafe fn weigh_rows<const R: usize, const V: usize>(
    task: Task<'_>,
    bytes: &[u32],
    ahead: &mut Prefetch,
    out: &mut [f32],
) {
    let shape = task.shape;
    for head in (0..shape.heads).step_by(2) {
        for vector in (0..shape.vectors()).step_by(V) {
            let place = (head, vector);
            // SAFETY: the caller's.
            let sums = unsafe {
                if head % HEADS == 0 {
                    weighted::<R, V, false>(task, bytes, place, ahead)
                } else {
                    weighted::<R, V, true>(task, bytes, place, ahead)
                }
            };
            for (v, sums) in sums.iter().enumerate() {
                for (r, [first, second]) in sums.iter().enumerate() {
                    let out = &mut out[r * shape.width()..][..shape.width()];
                    save_means(task, *first, head, vector + v, out);
                    if head + 1 < shape.heads {
                        save_means(task, *second, head + 1, vector + v, out);
                    }
                }
            }
        }
    }
}

/// A vector of a head, or what there is of it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
#[inline]
fn save_means(task: Task<'_>, sums: Both, head: usize, vector: usize, out: &mut [f32]) {
    let means = _mm512_mul_ps(_mm512_cvtepi32_ps(together(sums)), _mm512_set1_ps(task.unit));
    let left = task.shape.head_width - vector * LANES;
    let out = &mut out[head * task.shape.head_width + vector * LANES..];
    if left >= LANES {
        let out = &mut out[..LANES];
        // SAFETY: sixteen numbers.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), means) };
    } else {
        let out = &mut out[..left];
        // SAFETY: so many numbers.
        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), (1 << left) - 1, means) };
    }
}

/// Sums for `R` rows, from a head and one of its vectors on; whether it is in the upper half of a line's heads.
///
/// # Safety
/// See [`weigh`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
#[inline]
unsafe fn weighted<const R: usize, const V: usize, const UPPER: bool>(
    task: Task<'_>,
    bytes: &[u32],
    (head, vector): (usize, usize),
    ahead: &mut Prefetch,
) -> [[[Both; 2]; R]; V] {
    let columns = task.shape.columns();
    let blocks = task.starts.len() / BLOCK;
    let line = task.shape.lines() + head / HEADS * task.shape.vectors() + vector;
    let rows = task.rows.as_ptr().wrapping_add(line);
    assert!(bytes.len() >= R * blocks * 2 * columns && head + 1 < columns, "weights are there");
    let mut sums = [[[[_mm512_setzero_si512(); 2]; 2]; R]; V];
    for (block, starts) in task.starts.as_chunks::<BLOCK>().0.iter().enumerate() {
        ahead.step(task.rows);
        let mut weights = [[[_mm512_setzero_si512(); 2]; 2]; R];
        for (r, weights) in weights.iter_mut().enumerate() {
            let of_row = bytes.as_ptr().wrapping_add((r * blocks + block) * 2 * columns + head);
            for (h, weights) in weights.iter_mut().enumerate() {
                // SAFETY: asserted above.
                let (upper, lower) = unsafe { (*of_row.add(h), *of_row.add(columns + h)) };
                *weights = [_mm512_set1_epi32(upper as i32), _mm512_set1_epi32(lower as i32)];
            }
        }
        for (v, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's; a value has a line of each vector of each group of heads.
            let values = unsafe { interleave::<UPPER>(rows.wrapping_add(v), starts) };
            for (sums, weights) in sums.iter_mut().zip(&weights) {
                for h in 0..2 {
                    let ([upper, lower], [weight, rest]) = (sums[h], weights[h]);
                    sums[h] = [
                        _mm512_dpbusd_epi32(upper, weight, values[h]),
                        _mm512_dpbusd_epi32(lower, rest, values[h]),
                    ];
                }
            }
        }
    }
    sums
}

/// A line of each of four positions: the columns of two of its heads, four positions side by side.
///
/// # Safety
/// They are there.
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

#[target_feature(enable = "avx512f")]
#[inline]
fn together([upper, lower]: Both) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<8>(upper), lower)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(line: &CacheLine) -> __m512i {
    // SAFETY: a line has 64 bytes and begins where a line of memory does.
    unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn save(bytes: __m512i, line: &mut CacheLine) {
    // SAFETY: as above.
    unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), bytes) }
}
