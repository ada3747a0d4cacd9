//! Attention of a decoder compared with memory bandwidth: microseconds a layer of Transformer-base (512 wide, 8 heads) and gigabytes of
//! KV cache read a second, for 64 sentences whose hypotheses read 13 target words and 25 source words.
//!
//! `attention [ISA]`. The KV cache of one layer fits L3, that of six layers does not. A loop that only reads as much is printed for
//! comparison. The fastest of many rounds counts, since other programs can only slow a round down.

use std::hint::black_box;
use std::time::Instant;

use peregrine_cpu::{Cache, CachePrecision, Cpu, Isa, Level, Matrix};
use peregrine_model::Precision;
use peregrine_nn::{Attention, Backend, Reads};

const SENTENCES: usize = 64;
const WIDTH: usize = 512;
const HEADS: usize = 8;
const BLOCK: usize = 16;
const ROUNDS: usize = 40;

fn main() {
    let name = std::env::args().nth(1);
    let level = Level::ALL.into_iter().find(|level| Some(level.name()) == name.as_deref());
    let isa = level.and_then(Isa::new).unwrap_or_else(Isa::best);
    for cache_precision in CachePrecision::ALL {
        let cpu = Cpu::new(isa, Precision::Float32).with_cache(cache_precision);
        for (layers, beam) in [(1, 1), (6, 1), (1, 4), (6, 4)] {
            let fastest = step(&cpu, layers, beam);
            let bytes = SENTENCES * beam * WIDTH * 2 * (13 + 25 / beam) * size(cache_precision);
            print!("{:9} {layers} layers, beam {beam}:", cache_precision.name());
            println!(
                " past {:6.0} source {:6.0} store {:5.0} µs a layer, {:5.1} GB/s",
                fastest[0] * 1e6,
                fastest[1] * 1e6,
                fastest[2] * 1e6,
                bytes as f64 / (fastest[0] + fastest[1]) / 1e9
            );
        }
    }
    for megabytes in [10, 60] {
        for pages in [1, 8] {
            let rate = plain_reading(megabytes, pages);
            println!("{megabytes} MB read, {pages} pages in alternation: {rate:5.1} GB/s");
        }
    }
    println!("encoder {:6.0} µs a layer", encoder(&Cpu::new(isa, Precision::Float32)) * 1e6);
}

fn size(cache_precision: CachePrecision) -> usize {
    match cache_precision {
        CachePrecision::Float32 => 4,
        CachePrecision::Float16 | CachePrecision::Bfloat16 => 2,
        CachePrecision::Int8 => 1,
    }
}

fn rows(count: usize, width: usize) -> Matrix {
    Matrix::from_rows(
        width,
        (0..count * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect(),
    )
}

/// A KV cache of `lists` lists of `length` positions, each list in blocks of its own, and the positions of each list.
fn filled(cpu: &Cpu, lists: usize, length: usize) -> (Cache, Vec<Vec<u32>>) {
    let blocks = length.next_multiple_of(BLOCK);
    let at: Vec<Vec<u32>> =
        (0..lists).map(|list| (0..length).map(|i| (list * blocks + i) as u32).collect()).collect();
    let mut cache = cpu.cache();
    cpu.reserve_cache(&mut cache, lists * blocks, WIDTH, HEADS);
    for at in &at {
        cpu.store(&rows(length, 2 * WIDTH), 0, at, &mut cache);
    }
    (cache, at)
}

/// Seconds a layer of a step: self-attention, cross-attention, and storing keys and values. A hypothesis reads words that all
/// hypotheses of its beam have stored.
fn step(cpu: &Cpu, layers: usize, beam: usize) -> [f64; 3] {
    let mut past: Vec<_> = (0..layers).map(|_| filled(cpu, SENTENCES * beam, 13)).collect();
    let source: Vec<_> = (0..layers).map(|_| filled(cpu, SENTENCES, 25)).collect();
    let (mut reads_past, mut reads_source) = (Reads::default(), Reads::default());
    for row in 0..SENTENCES * beam {
        let first = row / beam * beam;
        reads_past.push((0..13).map(|i| match i {
            12 => past[0].1[row][i],
            _ => past[0].1[first + i * i % beam][i],
        }));
        match row % beam {
            0 => reads_source.push(source[0].1[row / beam].iter().copied()),
            _ => reads_source.push_same(),
        }
    }
    let own: Vec<u32> = past[0].1.iter().map(|at| at[12]).collect();
    let (x, mut out) = (rows(SENTENCES * beam, 3 * WIDTH), Matrix::default());
    let mut fastest = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let mut spent = [0.0; 3];
        for layer in 0..layers {
            let cache = &mut past[layer].0;
            spent[2] += clock(|| cpu.store(&x, WIDTH, &own, cache));
            let of = |cache, reads| Attention { cache, reads, heads: HEADS, width: WIDTH };
            spent[0] += clock(|| cpu.attend(&x, of(cache, &reads_past), &mut out));
            spent[1] += clock(|| cpu.attend(&x, of(&source[layer].0, &reads_source), &mut out));
        }
        for (fastest, spent) in fastest.iter_mut().zip(spent) {
            *fastest = fastest.min(spent / layers as f64);
        }
    }
    fastest
}

/// Gigabytes a second of a loop that only reads, from `pages` pages in alternation.
fn plain_reading(megabytes: usize, pages: usize) -> f64 {
    const PAGE_LINES: usize = 64;
    let memory = rows(megabytes << 8, 1 << 10);
    let lines = memory.values().as_chunks::<16>().0;
    let read = || {
        let mut sums = [0u32; 16];
        for run in black_box(lines).chunks_exact(pages * PAGE_LINES) {
            for line in 0..PAGE_LINES {
                for page in 0..pages {
                    let line = &run[page * PAGE_LINES + line];
                    for (sum, v) in sums.iter_mut().zip(line) {
                        *sum = sum.wrapping_add(v.to_bits());
                    }
                }
            }
        }
        black_box(sums);
    };
    let fastest = (0..ROUNDS).map(|_| clock(read)).fold(f64::INFINITY, f64::min);
    size_of_val(memory.values()) as f64 / fastest / 1e9
}

/// Seconds of an encoder layer's attention for 64 sentences of 25 words.
fn encoder(cpu: &Cpu) -> f64 {
    let (cache, at) = filled(cpu, SENTENCES, 25);
    let mut reads = Reads::default();
    for at in at {
        reads.push(at.iter().copied());
        (1..at.len()).for_each(|_| reads.push_same());
    }
    let (x, mut out) = (rows(SENTENCES * 25, 3 * WIDTH), Matrix::default());
    let to = Attention { cache: &cache, reads: &reads, heads: HEADS, width: WIDTH };
    (0..10).map(|_| clock(|| cpu.attend(&x, to, &mut out))).fold(f64::INFINITY, f64::min)
}

fn clock(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}
