//! Products compared with the peak of the processor: billions of multiply-adds a second, by precision, shape and rows; first with
//! weights that stay in cache, then with as many weights, one layer after the other, as a decoder step reads.
//!
//! `rates [ISA]`. The fastest of many rounds counts, since other programs can only slow a round down.

use std::time::Instant;

use peregrine_cpu::{Cpu, Isa, Level, Matrix};
use peregrine_model::{Precision, Weight};
use peregrine_nn::{Backend, Dense, Epilogue};

const ROUNDS: usize = 12;
/// Bytes of all weights, if they are not to stay in cache.
const UNCACHED_BYTES: usize = 32 << 20;
const ROWS: [usize; 8] = [1, 8, 16, 24, 32, 64, 96, 512];

fn main() {
    let name = std::env::args().nth(1);
    let level = Level::ALL.into_iter().find(|level| Some(level.name()) == name.as_deref());
    let isa = level.and_then(Isa::new).unwrap_or_else(Isa::best);
    for precision in [Precision::Int8, Precision::Bfloat16, Precision::Float32] {
        println!("{precision:?}, {}; rows: {ROWS:?}", isa.level().name());
        for shape @ (inputs, outputs) in
            [(256, 256), (256, 1536), (1536, 256), (512, 512), (512, 2048), (2048, 512)]
        {
            let rates = ROWS.map(|rows| format!("{:7.1}", rate(isa, precision, rows, shape, 1)));
            println!("{inputs:6} {outputs:6} {}", rates.join(" "));
        }
    }
    println!(
        "Int8, {}, {} MB of weights; rows: {ROWS:?}",
        isa.level().name(),
        UNCACHED_BYTES >> 20
    );
    for shape @ (inputs, outputs) in [(512, 512), (512, 2048), (2048, 512)] {
        let copies = UNCACHED_BYTES / (inputs * outputs);
        let rate = |rows| rate(isa, Precision::Int8, rows, shape, copies);
        println!(
            "{inputs:6} {outputs:6} {}",
            ROWS.map(|rows| format!("{:7.1}", rate(rows))).join(" ")
        );
    }
}

/// Billions of multiply-adds a second, alternating between `copies` copies of the weights.
fn rate(
    isa: Isa,
    precision: Precision,
    rows: usize,
    (inputs, outputs): (usize, usize),
    copies: usize,
) -> f64 {
    let values =
        |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 100.0).collect() };
    let weight = Weight::from_f32(vec![outputs, inputs], &values(outputs * inputs));
    let cpu = Cpu::new(isa, precision);
    let copy = |_| cpu.prepare_linear(&[Dense { weight: &weight, bias: None, alpha: None }]);
    let linears: Vec<_> = (0..copies).map(copy).collect();
    let x = Matrix::from_rows(inputs, values(rows * inputs));
    let mut out = Matrix::default();
    let multiply_adds = rows * inputs * outputs;
    let calls = (20_000_000 / multiply_adds).max(copies);
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for linear in linears.iter().cycle().take(calls) {
            cpu.linear(&x, linear, Epilogue::nothing(), &mut out);
        }
        fastest = fastest.min(start.elapsed().as_secs_f64() / calls as f64);
    }
    multiply_adds as f64 / fastest / 1e9
}
