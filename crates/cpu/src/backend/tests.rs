//! Verbs that are fused, against the same verbs one by one.

use peregrine_nn::Sentences;

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

/// Queries, keys and values by [`Backend::linear`], stored in a KV cache, read from there, and the last product.
fn attend_within_by_single_verbs(
    cpu: &Cpu,
    x: &Matrix,
    block: AttentionWithin<'_, Cpu>,
    out: &mut Matrix,
) {
    let AttentionWithin { projection, sentences, heads, width, last, after } = block;
    let (mut joint, mut attended, mut cache) =
        (Matrix::default(), Matrix::default(), cpu.working_cache());
    cpu.reserve_cache(&mut cache, sentences.positions, width, heads);
    cpu.linear(x, projection, Epilogue::nothing(), &mut joint);
    cpu.store(&joint, width, &sentences.at, &mut cache);
    let to = Attention { cache: &cache, reads: &sentences.reads, heads, width };
    cpu.attend(&joint, to, &mut attended);
    match last {
        Some(last) => cpu.linear(&attended, last, after, out),
        None => cpu.process(&attended, after.ops, after.input, out),
    }
}

#[test]
fn attention_within_sentences_is_that_over_a_cache() {
    let values = |n: usize, k: usize| -> Vec<f32> {
        (0..n).map(|i| ((i * k % 101) as f32 - 50.0) / 50.0).collect()
    };
    for (width, heads, lengths) in [
        (64, 2, &[1, 9, 30, 8, 3, 40, 17][..]),
        (128, 2, &[200, 1, 40, 250, 9, 60]),
        (48, 3, &[5]),
        (64, 2, &[]),
    ] {
        let rows: usize = lengths.iter().sum();
        let joint = Weight::from_f32(vec![3 * width, width], &values(3 * width * width, 37));
        let square = Weight::from_f32(vec![width, width], &values(width * width, 41));
        let dense = |weight| [Dense { weight, bias: None, alpha: None }];
        let x = Matrix::from_rows(width, values(rows * width, 29));
        let mut sentences = Sentences::default();
        for &length in lengths {
            let own = sentences.positions as u32..(sentences.positions + length) as u32;
            sentences.at.extend(own.clone());
            sentences.reads.push_party(own);
            (1..length).for_each(|_| sentences.reads.push_same());
            sentences.positions += length;
        }
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            for precision in [Precision::Float32, Precision::Int8] {
                let cpu = Cpu::new(isa, precision);
                let projection = cpu.prepare_linear(&dense(&joint));
                let last = cpu.prepare_linear(&dense(&square));
                let ops = [PreparedOp::Add, PreparedOp::Tanh];
                for (last, row_blocks) in [(Some(&last), true), (Some(&last), false), (None, true)]
                {
                    let cpu = cpu.clone().with_row_blocks(row_blocks);
                    let (projection, sentences) = (&projection, &sentences);
                    let block = || {
                        let activation = Activation::Identity;
                        let after = Epilogue { activation, ops: &ops, input: Some(&x) };
                        AttentionWithin { projection, sentences, heads, width, last, after }
                    };
                    let (mut got, mut expected) = (Matrix::default(), Matrix::default());
                    cpu.attend_within(&x, block(), &mut WithinScratch::new(&cpu), &mut got);
                    attend_within_by_single_verbs(&cpu, &x, block(), &mut expected);
                    assert_eq!(got.values(), expected.values(), "{width} columns, {lengths:?}");
                }
            }
        }
    }
}

#[test]
fn blocks_of_sentences_are_of_about_equal_size() {
    let blocks = |lengths: &[usize], rows| -> Vec<Vec<usize>> {
        blocks_of_sentences(lengths, rows).map(<[usize]>::to_vec).collect()
    };
    assert_eq!(blocks(&[], 8), Vec::<Vec<usize>>::new());
    assert_eq!(blocks(&[3, 3, 3, 3], 8), [[3, 3], [3, 3]]);
    assert_eq!(blocks(&[9, 1, 2], 8), [vec![9], vec![1, 2]]);
    assert_eq!(blocks(&[1, 2, 3], usize::MAX), [[1, 2, 3]]);
}
