//! How fast it is: run with `cargo test --release -p peregrine-text --test speed -- --ignored --nocapture`.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{fixture, generated_lines, lines, shared};
use peregrine_text::{SentencePiece, UserDefinedScore};

/// The shortest of several runs: noise only ever adds.
fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..runs).map(time).min().unwrap_or_default()
}

fn report(name: &str, bytes: &[u8], text: &[String]) {
    let load = || SentencePiece::from_bytes(name, bytes, UserDefinedScore::Marian).unwrap();
    let loading = best_of(40, || drop(black_box(load())));
    let model = load();
    let ids: Vec<Vec<u32>> = text.iter().map(|line| model.encode(line).ids).collect();
    let encoding = best_of(40, || {
        text.iter().for_each(|line| drop(black_box(model.encode(line))));
    });
    let decoding = best_of(40, || ids.iter().for_each(|ids| drop(black_box(model.decode(ids)))));
    let per_line = |time: Duration| time.as_secs_f64() * 1e6 / text.len() as f64;
    println!(
        "{name}: {} pieces, load {loading:.1?}; per line of {} bytes: encode {:.2} µs, decode {:.2} µs",
        model.len(),
        text.iter().map(String::len).sum::<usize>() / text.len(),
        per_line(encoding),
        per_line(decoding),
    );
}

#[test]
#[ignore = "measures, checks nothing"]
fn speed() {
    for name in ["unigram.spm", "bpe.spm"] {
        report(name, &fixture(name), &generated_lines(1, 1000));
    }
    let Some(text) = shared("data/flores/devtest.en") else { return };
    for name in ["enpt/vocab.enpt.spm", "golden/vocab/vocab.joint.spm"] {
        let Some(bytes) = shared(&format!("models/{name}")) else { continue };
        report(name, &bytes, &lines(&text));
    }
}
