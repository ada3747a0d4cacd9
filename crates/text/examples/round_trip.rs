//! Times text to ids and ids to text: microseconds a line, the fastest of many rounds.
//!
//! ```text
//! cargo run --release -p peregrine-text --example round_trip -- vocab.spm text.en text.pt
//! ```
//!
//! The first text is encoded, and the ids of the second one are decoded, as a translation does it.

use std::hint::black_box;
use std::time::Instant;

use peregrine_text::{Tokenizer, UserDefinedScore};

const ROUNDS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vocabulary, source, target] = arguments.as_slice() else {
        return Err("expected a .spm file, a source text and a target text".into());
    };
    let bytes = std::fs::read(vocabulary)?.into();
    let tokenizer = Tokenizer::sentencepiece(vocabulary, bytes, UserDefinedScore::Marian)?;
    let (source, target) = (std::fs::read_to_string(source)?, std::fs::read_to_string(target)?);
    let source: Vec<&str> = source.lines().collect();
    let ids: Vec<Vec<u32>> = target.lines().map(|line| tokenizer.encode(line).ids).collect();
    let bytes: usize = source.iter().map(|line| line.len()).sum();
    println!("{} lines of {:.0} bytes", source.len(), bytes as f64 / source.len() as f64);
    let encode = fastest(source.len(), || {
        for line in &source {
            black_box(tokenizer.encode(line));
        }
    });
    let decode = fastest(ids.len(), || {
        for ids in &ids {
            black_box(tokenizer.decode(ids));
        }
    });
    println!("encode {encode:.2} µs, decode {decode:.2} µs, together {:.2} µs", encode + decode);
    Ok(())
}

/// Microseconds for each of `count` lines.
fn fastest(count: usize, mut all: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        all();
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    1e6 * best / count.max(1) as f64
}
