//! Attention against its equation in float64, instruction sets against each other, and rows of a batch against rows alone.

use super::*;
use crate::isa::lanes::bits;
use crate::isa::{Level, same_everywhere};
use crate::memory::arena::Pages;
use crate::memory::matrix::Matrix;

/// Reads of `rows` rows that share all positions.
fn all_read(positions: &[u32], rows: usize) -> Reads {
    let mut reads = Reads::default();
    reads.push(positions.iter().copied());
    (1..rows).for_each(|_| reads.push_same());
    reads
}

fn wave(i: usize) -> f32 {
    ((i * 37 % 101) as f32 / 50.0 - 1.0) * 1.5
}

/// Keys and values of `positions` positions, and a cache that holds them.
fn filled(
    cache_precision: CachePrecision,
    positions: usize,
    (width, heads): (usize, usize),
) -> (Vec<f32>, Vec<f32>, Cache) {
    let keys: Vec<f32> = (0..positions * width).map(wave).collect();
    let values: Vec<f32> = (0..positions * width).map(|i| wave(i + 11)).collect();
    let mut cache = Cache::new(cache_precision, Pages::Large);
    // Not all in order.
    let mut at: Vec<u32> = (0..positions as u32).collect();
    at[17..20].reverse();
    let row = |&p: &u32| {
        let columns = p as usize * width..(p as usize + 1) * width;
        [&[f32::NAN], &keys[columns.clone()], &values[columns]].concat()
    };
    let rows = Matrix::from_rows(2 * width + 1, at.iter().flat_map(row).collect());
    cache.grow(positions, width, heads);
    cache.store(Isa::best(), &rows, 1, &at);
    (keys, values, cache)
}

/// The equations of attention in float64.
fn naive(
    query: &[f32],
    (keys, values): (&[f32], &[f32]),
    positions: &[u32],
    heads: usize,
) -> Vec<f64> {
    let width = query.len();
    let head_width = width / heads;
    (0..width)
        .map(|column| {
            let head = column / head_width * head_width..(column / head_width + 1) * head_width;
            let score = |p: u32| -> f64 {
                let key = &keys[p as usize * width..][..width];
                let dot: f64 = head.clone().map(|c| f64::from(query[c]) * f64::from(key[c])).sum();
                (dot / (head_width as f64).sqrt()).exp()
            };
            let total: f64 = positions.iter().map(|&p| score(p)).sum();
            let value = |p: u32| f64::from(values[p as usize * width + column]);
            positions.iter().map(|&p| score(p) / total * value(p)).sum()
        })
        .collect()
}

/// Error allowed for a cache precision. Values and keys are within 1.5, and a relative error of a key is the relative error of
/// its scores.
fn allowed(cache_precision: CachePrecision) -> f64 {
    match cache_precision {
        CachePrecision::Float32 => 2e-6,
        CachePrecision::Float16 => 3e-3,
        CachePrecision::Bfloat16 => 2e-2,
        CachePrecision::Int8 => 4e-2,
    }
}

#[test]
fn attention_follows_its_equation() {
    let shapes = [(10, 2), (64, 4), (96, 2), (48, 3), (128, 2), (164, 2), (288, 9), (320, 5)];
    for (cache_precision, (width, heads)) in
        CachePrecision::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
    {
        let (keys, values, cache) = filled(cache_precision, 70, (width, heads));
        let orders: [Vec<u32>; 4] = [
            (0..70).collect(),
            (16..53).collect(),
            (0..70).rev().step_by(3).collect(),
            vec![6, 40, 7, 41, 7, 69],
        ];
        let queries: Vec<f32> = (0..7 * 2 * width).map(|i| wave(i + 5)).collect();
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            for positions in &orders {
                let rows = Queries { values: &queries, stride: 2 * width };
                let mut reads = all_read(positions, 6);
                // Positions that another row reads must not change these rows.
                reads.push([3, 40]);
                let mut out = vec![f32::NAN; 7 * width];
                attend(isa, rows, (&cache, heads), &reads, &mut out);
                let out = &out[..6 * width];
                for (row, out) in out.chunks(width).enumerate() {
                    let query = &queries[row * 2 * width..][..width];
                    let expected = naive(query, (&keys, &values), positions, heads);
                    for (got, want) in out.iter().zip(expected) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(
                            error < allowed(cache_precision),
                            "{cache_precision:?}: {got} for {want}"
                        );
                    }
                    let mut alone = vec![0.0; width];
                    let one = Queries { values: query, stride: width };
                    attend(isa, one, (&cache, heads), &all_read(positions, 1), &mut alone);
                    assert_eq!(alone, out, "other rows of the batch must not change a row");
                }
            }
        }
    }
}

#[test]
fn every_level_gives_the_same_bits() {
    let shapes = [(10, 2), (64, 2), (48, 3), (256, 4), (164, 2), (288, 9)];
    for (cache_precision, (width, heads)) in
        CachePrecision::ALL.into_iter().flat_map(|k| shapes.map(|shape| (k, shape)))
    {
        let (keys, values, _) = filled(cache_precision, 70, (width, heads));
        let row = |p: usize| [&keys[p * width..][..width], &values[p * width..][..width]].concat();
        let keys_and_values = Matrix::from_rows(2 * width, (0..70).flat_map(row).collect());
        let queries: Vec<f32> = (0..19 * width).map(|i| wave(i + 5)).collect();
        let positions: Vec<u32> = (0..70).rev().step_by(3).collect();
        let what = format!("{cache_precision:?}, {width} columns of {heads} heads");
        same_everywhere(&what, |isa| {
            let mut cache = Cache::new(cache_precision, Pages::Large);
            cache.grow(70, width, heads);
            cache.store(isa, &keys_and_values, 0, &(0..70).collect::<Vec<u32>>());
            let rows = Queries { values: &queries, stride: width };
            let few_and_many = [3, 19].map(|count| {
                let mut out = vec![f32::NAN; count * width];
                attend(isa, rows, (&cache, heads), &all_read(&positions, count), &mut out);
                bits(&out)
            });
            let read = CacheRead { cache: &cache, positions: &positions, heads, next: &[] };
            let (mut scratch, mut mean) = (Scratch::default(), vec![0.0; positions.len()]);
            mean_weights(isa, &queries[..width], read, heads, &mut scratch, &mut mean);
            (few_and_many, bits(&mean))
        });
    }
}

#[test]
fn many_rows_follow_the_same_equation() {
    for (cache_precision, (width, heads)) in
        CachePrecision::ALL.into_iter().flat_map(|k| [(64, 2), (256, 4)].map(|shape| (k, shape)))
    {
        let (keys, values, cache) = filled(cache_precision, 70, (width, heads));
        let queries: Vec<f32> = (0..19 * width).map(|i| wave(i + 5)).collect();
        let queries = Queries { values: &queries, stride: width };
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            for count in [1, 15, 16, 17, 33, 70] {
                let positions: Vec<u32> = (0..count).rev().collect();
                let mut out = vec![f32::NAN; 19 * width];
                attend(isa, queries, (&cache, heads), &all_read(&positions, 19), &mut out);
                for (row, out) in out.chunks(width).enumerate() {
                    let query = &queries.row(row)[..width];
                    let expected = naive(query, (&keys, &values), &positions, heads);
                    for (got, want) in out.iter().zip(expected) {
                        let error = (f64::from(*got) - want).abs();
                        // Twice: `transposed` sums a score in one chain of additions, not in sixteen short ones.
                        assert!(
                            error < 2.0 * allowed(cache_precision),
                            "{cache_precision:?}: {got} for {want}"
                        );
                    }
                }
                let mut fewer = vec![f32::NAN; 9 * width];
                attend(isa, queries, (&cache, heads), &all_read(&positions, 9), &mut fewer);
                assert_eq!(fewer, out[..9 * width], "other rows must not change a row");
            }
        }
    }
}

/// Rows after quantisation to int8.
fn quantised(rows: &[f32], width: usize) -> Vec<f32> {
    let row = |row: &[f32]| {
        let scale = row.iter().fold(0f32, |max, v| max.max(v.abs())) / 127.0;
        row.iter().map(|v| (v / scale).round() * scale).collect::<Vec<_>>()
    };
    rows.chunks(width).flat_map(row).collect()
}

/// Int16 queries and weights of 15 bits lose little beside what int8 keys and values have lost.
#[test]
fn integer_arithmetic_is_nearly_exact() {
    for (width, heads) in [(64, 4), (48, 3), (512, 8), (600, 1), (288, 9)] {
        let (keys, values, cache) = filled(CachePrecision::Int8, 70, (width, heads));
        let (keys, values) = (quantised(&keys, width), quantised(&values, width));
        let queries: Vec<f32> = (0..5 * width).map(|i| wave(i + 5)).collect();
        let rows = Queries { values: &queries, stride: width };
        for (isa, count) in
            Level::ALL.into_iter().filter_map(Isa::new).flat_map(|isa| [(isa, 3), (isa, 70)])
        {
            let positions: Vec<u32> = (0..count).rev().collect();
            let mut out = vec![f32::NAN; 5 * width];
            attend(isa, rows, (&cache, heads), &all_read(&positions, 5), &mut out);
            for (query, out) in queries.chunks(width).zip(out.chunks(width)) {
                let expected = naive(query, (&keys, &values), &positions, heads);
                for (got, want) in out.iter().zip(expected) {
                    let error = (f64::from(*got) - want).abs();
                    assert!(error < 3e-4, "{got} for {want}");
                }
            }
        }
    }
}

#[test]
fn nothing_to_read_is_zero() {
    for cache_precision in CachePrecision::ALL {
        let (_, _, cache) = filled(cache_precision, 20, (64, 2));
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            let queries = Queries { values: &[1.0; 2 * 64], stride: 64 };
            let mut out = vec![f32::NAN; 2 * 64];
            attend(isa, queries, (&cache, 2), &all_read(&[], 2), &mut out);
            assert_eq!(out, vec![0.0; 2 * 64]);
        }
    }
}

#[test]
fn weights_sum_to_one_and_follow_keys() {
    let (_, _, cache) = filled(CachePrecision::Float32, 20, (10, 2));
    let query: Vec<f32> = (0..10).map(wave).collect();
    let read = CacheRead { cache: &cache, positions: &[6, 0, 3, 3, 5], heads: 2, next: &[] };
    let (mut scratch, mut mean) = (Scratch::default(), vec![0.0; 5]);
    mean_weights(Isa::best(), &query, read, 2, &mut scratch, &mut mean);
    assert!((mean.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    assert_eq!(mean[2], mean[3]);
}
