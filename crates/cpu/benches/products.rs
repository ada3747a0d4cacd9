//! Speed of dense layers by shape, precision and instruction set: `cargo bench -p peregrine-cpu`.
//!
//! Prints billions of operations a second (a multiply-add is two) and gigabytes of weights read a second. The best of several runs
//! counts. Each layer runs alone, so that its weights stay in cache if they fit.

use std::time::Instant;

use peregrine_cpu::{Cpu, Isa, Level, Matrix};
use peregrine_model::{Activation, Precision, Weight};
use peregrine_nn::{Backend, Dense, Epilogue};

fn main() {
    let shapes =
        [(256, 256), (256, 1536), (1536, 256), (512, 512), (512, 2048), (2048, 512), (512, 32000)];
    println!("{:>8} {:>12} {:>12} {:>5} {:>10} {:>8}", "", "", "in x out", "rows", "Gop/s", "GB/s");
    for precision in [Precision::Int8, Precision::Float32] {
        for isa in Level::ALL.into_iter().rev().filter_map(Isa::new) {
            if isa.level() == Level::Portable {
                continue;
            }
            for (inputs, outputs) in shapes {
                for rows in [1, 4, 16, 64, 512] {
                    measure(isa, precision, inputs, outputs, rows);
                }
            }
        }
    }
}

fn measure(isa: Isa, precision: Precision, inputs: usize, outputs: usize, rows: usize) {
    let cpu = Cpu::new(isa, precision);
    let numbers =
        |n: usize| (0..n).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect::<Vec<_>>();
    let weight = Weight::from_f32(vec![outputs, inputs], &numbers(inputs * outputs));
    let linear = cpu.prepare_linear(&[Dense { weight: &weight, bias: None, alpha: None }]);
    let x = Matrix::from_rows(inputs, numbers(rows * inputs));
    let mut out = cpu.rows();
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.05 {
        let one = Instant::now();
        cpu.linear(&x, &linear, Epilogue::activation(Activation::Identity), &mut out);
        best = best.min(one.elapsed().as_secs_f64());
    }
    let products = (inputs * outputs) as f64;
    println!(
        "{:>8} {:>12} {:>12} {rows:>5} {:>10.1} {:>8.1}",
        precision.name(),
        isa.level().name(),
        format!("{inputs}x{outputs}"),
        2.0 * products * rows as f64 / best / 1e9,
        products * precision.size() as f64 / best / 1e9,
    );
}
