//! How long SentencePiece takes: `cargo run --release -p peregrine-text --example speed VOCABULARY.spm TEXT`.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use peregrine_text::{SentencePiece, UserDefinedScore};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vocabulary, text] = arguments.as_slice() else {
        return Err("speed VOCABULARY.spm TEXT".into());
    };
    let (bytes, text) = (std::fs::read(vocabulary)?, std::fs::read_to_string(text)?);
    let lines: Vec<&str> = text.lines().collect();
    let load = || SentencePiece::from_bytes(vocabulary, &bytes, UserDefinedScore::Marian);
    let loading = best_of(40, || drop(black_box(load())));
    let model = load()?;
    let ids: Vec<Vec<u32>> = lines.iter().map(|line| model.encode(line).ids).collect();
    let encoding = best_of(40, || {
        lines.iter().for_each(|line| drop(black_box(model.encode(line))));
    });
    let decoding = best_of(40, || ids.iter().for_each(|ids| drop(black_box(model.decode(ids)))));
    let per_line = |time: Duration| time.as_secs_f64() * 1e6 / lines.len() as f64;
    println!(
        "{vocabulary}: {} pieces, load {loading:.1?}; {} lines: encode {:.2} µs a line, decode {:.2} µs",
        model.len(),
        lines.len(),
        per_line(encoding),
        per_line(decoding),
    );
    Ok(())
}

/// The shortest of several runs: noise only ever adds.
fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..runs).map(time).min().unwrap_or_default()
}
