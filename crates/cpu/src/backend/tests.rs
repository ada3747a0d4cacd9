//! Verbs that are fused, against the same verbs one by one.

use super::*;
use crate::gemm::int8::round_to_float16;
use crate::isa::Level;

#[test]
#[ignore = "slow: .ci/run runs it"]
fn a_fused_feed_forward_block_is_two_products() {
    let values = |n: usize, k: usize| -> Vec<f32> {
        (0..n).map(|i| ((i * k % 101) as f32 - 50.0) / 100.0).collect()
    };
    let (inputs, plain) = (24, Isa::new(Level::Portable).unwrap());
    // Rows of 64 and 192 hidden numbers may have another layout than those of 70.
    for (inner, activation) in [
        (70, Activation::Relu),
        (64, Activation::Relu),
        (192, Activation::Relu),
        (192, Activation::Swish),
    ] {
        let first = Weight::from_f32(vec![inner, inputs], &values(inner * inputs, 37));
        let second = Weight::from_f32(vec![inputs, inner], &values(inputs * inner, 41));
        let dense = |weight| [Dense { weight, bias: None, alpha: None }];
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            for (precision, float_hidden) in
                [(Precision::Float32, false), (Precision::Int8, false), (Precision::Int8, true)]
            {
                let int8_options = Int8Options { float_hidden, ..Int8Options::default() };
                let cpu = Cpu::new(isa, precision).with_int8_options(int8_options);
                let rounds =
                    precision == Precision::Int8 && activation == Activation::Relu && !float_hidden;
                let first = cpu.prepare_linear(&dense(&first));
                let second = cpu.prepare_linear(&dense(&second));
                for rows in [0, 1, 13, 31, 63, 64, 65, 77, 150, 300] {
                    let mut x = Matrix::from_rows(inputs, values(rows * inputs, 29));
                    // Some rows are too large or too small for float16, or zero.
                    for (row, x) in x.iter_mut().enumerate() {
                        let factor = [1.0, 1.0, 1e6, 1.0, 1e-6, 1.0, 0.0, 4e4, 1e-3][row % 9];
                        x.iter_mut().for_each(|x| *x *= factor);
                    }
                    let (mut hidden, mut out, mut apart) =
                        (Matrix::default(), Matrix::default(), Matrix::default());
                    let last = (&second, Epilogue::nothing());
                    cpu.feed_forward(&x, (&first, activation), last, &mut hidden, &mut out);
                    cpu.linear(&x, &first, Epilogue::activation(activation), &mut hidden);
                    if rounds {
                        round_to_float16(plain, inner, hidden.values_mut());
                    }
                    cpu.linear(&hidden, &second, Epilogue::nothing(), &mut apart);
                    assert_eq!(out.values(), apart.values(), "{rows} rows, {inner} inside");
                }
            }
        }
    }
}
