//! Times Peregrine's products on a CPU against the `gemm` crate, at the sizes of Devlin's networks.
//!
//! `gemm` cannot pack a matrix ahead of time, as the papers' BLAS could not. Both compute float32 on one thread. Peregrine's int16
//! products are timed too. Every round times all of them, and the fastest round of each counts, since other programs can only slow a
//! round down.

use std::time::Instant;

use peregrine_cpu::{Cpu, Isa, Linear, Matrix};
use peregrine_model::{Precision, Weight};
use peregrine_nn::{Backend, Dense, Epilogue};

const ROUNDS: usize = 25;

fn main() {
    println!(
        "{:>6} {:>6} {:>6} {:>12} {:>12} {:>8} {:>12} {:>8}",
        "rows", "inputs", "outputs", "gemm µs", "float32 µs", "ratio", "int16 µs", "ratio"
    );
    for (inputs, outputs) in
        [(1024, 3072), (512, 3072), (512, 1536), (768, 768), (1024, 500), (512, 500), (256, 256)]
    {
        for rows in [1, 2, 6, 25] {
            time(rows, inputs, outputs);
        }
    }
}

fn time(rows: usize, inputs: usize, outputs: usize) {
    let values =
        |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 100.0).collect() };
    let weight = Weight::from_f32(vec![outputs, inputs], &values(outputs * inputs));
    let gemm_weights = transpose(&weight);
    let dense = Dense { weight: &weight, bias: None, alpha: None };
    let (float, fixed) =
        (Cpu::new(Isa::best(), Precision::Float32), Cpu::new(Isa::best(), Precision::Int16));
    let (float_weights, fixed_weights) =
        (float.prepare_linear(&[dense]), fixed.prepare_linear(&[dense]));
    let x = Matrix::from_rows(inputs, values(rows * inputs));
    let mut out = Matrix::default();
    let mut gemm_out = vec![0.0f32; rows * outputs];
    let mut times = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        times[0] = times[0].min(clock(|| gemm_product(&x, &gemm_weights, outputs, &mut gemm_out)));
        times[1] = times[1].min(clock(|| our_product(&float, &x, &float_weights, &mut out)));
        times[2] = times[2].min(clock(|| our_product(&fixed, &x, &fixed_weights, &mut out)));
    }
    let [gemm, ours, int16] = times;
    println!(
        "{rows:6} {inputs:6} {outputs:6} {gemm:12.1} {ours:12.1} {:7.2}x {int16:12.1} {:7.2}x",
        gemm / ours,
        gemm / int16
    );
}

/// Microseconds a call, the mean of many calls.
fn clock(mut product: impl FnMut()) -> f64 {
    const CALLS: usize = 40;
    product();
    let start = Instant::now();
    for _ in 0..CALLS {
        product();
    }
    start.elapsed().as_secs_f64() * 1e6 / CALLS as f64
}

fn our_product(cpu: &Cpu, x: &Matrix, linear: &Linear, out: &mut Matrix) {
    cpu.linear(x, linear, Epilogue::nothing(), out);
}

/// Weights in row-major order (inputs, outputs), which `gemm` reads fastest.
fn transpose(weight: &Weight) -> Vec<f32> {
    let (outputs, inputs) = (weight.rows(), weight.columns());
    let values = weight.to_f32();
    let mut transposed = vec![0.0; values.len()];
    for o in 0..outputs {
        for i in 0..inputs {
            transposed[i * outputs + o] = values[o * inputs + i];
        }
    }
    transposed
}

fn gemm_product(x: &Matrix, weights: &[f32], outputs: usize, out: &mut [f32]) {
    let (m, k, n) = (x.rows(), x.width(), outputs);
    assert!(weights.len() == k * n && out.len() == m * n, "sizes that fit");
    // SAFETY: the strides describe row-major matrices of the sizes just checked.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            x.values().as_ptr(),
            1,
            k as isize,
            weights.as_ptr(),
            1,
            n as isize,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
