//! Recurrent cells (GRU, LSTM, SRU, SSRU, tanh and ReLU) and the attention of recurrent decoders, row by row.
//!
//! Every kernel has two forms: with the polynomial sigmoid and tanh of `lanes`, which compilers vectorise, and with `exp` and `tanh`
//! of the system's library, one element at a time. [`Functions`] selects one. The polynomial forms are within [`FAST_ERROR`] of the
//! true value.

use peregrine_model::CellKind;

use crate::isa::kernel;
use crate::isa::lanes::{LANES, add_scaled, exp, multiply_add, sigmoid, softmax};

/// Largest absolute error of the vectorised sigmoid and tanh.
pub const FAST_ERROR: f32 = 2.5e-7;

/// Implementation of sigmoid and tanh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Functions {
    /// A polynomial, vectorised: within [`FAST_ERROR`].
    #[default]
    Fast,
    /// The system's library, one element at a time.
    Library,
}

/// `tanh x` as `1 - 2 / (1 + e^2x)`.
#[inline(always)]
pub(crate) fn fast_tanh<const FMA: bool>(x: f32) -> f32 {
    1.0 - 2.0 / (1.0 + exp::<FMA>(2.0 * x))
}

/// Sigmoid and tanh as a type parameter: the choice costs nothing within a row.
trait Sigmoids {
    fn sigmoid<const FMA: bool>(x: f32) -> f32;
    fn tanh<const FMA: bool>(x: f32) -> f32;
}

struct Fast;
struct Library;

impl Sigmoids for Fast {
    #[inline(always)]
    fn sigmoid<const FMA: bool>(x: f32) -> f32 {
        sigmoid::<FMA>(x)
    }

    #[inline(always)]
    fn tanh<const FMA: bool>(x: f32) -> f32 {
        fast_tanh::<FMA>(x)
    }
}

impl Sigmoids for Library {
    #[inline(always)]
    fn sigmoid<const FMA: bool>(x: f32) -> f32 {
        1.0 / (1.0 + (-x).exp())
    }

    #[inline(always)]
    fn tanh<const FMA: bool>(x: f32) -> f32 {
        x.tanh()
    }
}

kernel! {
    /// `values = tanh(values)`.
    pub(crate) fn tanh(functions: Functions, values: &mut [f32]) = tanh_body
}

#[inline(always)]
fn tanh_body<const FMA: bool>(functions: Functions, values: &mut [f32]) {
    match functions {
        Functions::Fast => values.iter_mut().for_each(|v| *v = Fast::tanh::<FMA>(*v)),
        Functions::Library => values.iter_mut().for_each(|v| *v = Library::tanh::<FMA>(*v)),
    }
}

/// Terms of one row of a cell. An empty term is zero.
#[derive(Clone, Copy)]
pub(crate) struct RowTerms<'a> {
    /// Product of the input, gate after gate.
    pub(crate) x: &'a [f32],
    /// Product of the state, gate after gate.
    pub(crate) s: &'a [f32],
    /// The input itself, which an SRU's highway passes on.
    pub(crate) raw: &'a [f32],
}

kernel! {
    /// One row of a cell: updates the hidden state `h` and the cell state `c`.
    pub(crate) fn recur(
        functions: Functions,
        kind: CellKind,
        terms: RowTerms<'_>,
        h: &mut [f32],
        c: &mut [f32],
    ) = recur_body
}

#[inline(always)]
fn recur_body<const FMA: bool>(
    functions: Functions,
    kind: CellKind,
    terms: RowTerms<'_>,
    h: &mut [f32],
    c: &mut [f32],
) {
    match functions {
        Functions::Fast => cell::<FMA, Fast>(kind, terms, h, c),
        Functions::Library => cell::<FMA, Library>(kind, terms, h, c),
    }
}

#[inline(always)]
fn cell<const FMA: bool, P: Sigmoids>(
    kind: CellKind,
    terms: RowTerms<'_>,
    h: &mut [f32],
    c: &mut [f32],
) {
    let d = h.len();
    let RowTerms { x, s, raw } = terms;
    match kind {
        CellKind::Gru | CellKind::Mgru => {
            if x.is_empty() {
                gru::<FMA, P, false>(&[], s, h)
            } else {
                gru::<FMA, P, true>(x, s, h)
            }
        }
        CellKind::Lstm | CellKind::Mlstm => {
            if x.is_empty() {
                lstm::<FMA, P, false>(&[], s, h, c);
            } else {
                lstm::<FMA, P, true>(x, s, h, c);
            }
        }
        CellKind::Tanh | CellKind::Relu => {
            for i in 0..d {
                let sum = s[i] + x.get(i).copied().unwrap_or(0.0);
                h[i] = match kind {
                    CellKind::Tanh => P::tanh::<FMA>(sum),
                    _ => sum.max(0.0),
                };
            }
        }
        CellKind::Sru => {
            for i in 0..d {
                let (f, r) = (P::sigmoid::<FMA>(x[d + i]), P::sigmoid::<FMA>(x[2 * d + i]));
                c[i] = multiply_add::<FMA>(f, c[i] - x[i], x[i]);
                let t = P::tanh::<FMA>(c[i]);
                h[i] = multiply_add::<FMA>(r, t - raw[i], raw[i]);
            }
        }
        CellKind::Ssru => {
            for i in 0..d {
                let f = P::sigmoid::<FMA>(x[d + i]);
                c[i] = multiply_add::<FMA>(f, c[i] - x[i], x[i]);
                h[i] = c[i].max(0.0);
            }
        }
    }
}

/// GRU. Gates are in the order reset, update, candidate.
#[inline(always)]
fn gru<const FMA: bool, P: Sigmoids, const INPUT: bool>(x: &[f32], s: &[f32], h: &mut [f32]) {
    let d = h.len();
    let (s_r, s_z, s_n) = (&s[..d], &s[d..2 * d], &s[2 * d..3 * d]);
    let part = |i: usize| if INPUT { &x[i * d..(i + 1) * d] } else { s_r };
    let (x_r, x_z, x_n) = (part(0), part(1), part(2));
    for i in 0..d {
        let (a, b, n) = if INPUT { (x_r[i], x_z[i], x_n[i]) } else { (0.0, 0.0, 0.0) };
        let r = P::sigmoid::<FMA>(a + s_r[i]);
        let z = P::sigmoid::<FMA>(b + s_z[i]);
        let n = P::tanh::<FMA>(multiply_add::<FMA>(r, s_n[i], n));
        h[i] = multiply_add::<FMA>(z, h[i] - n, n);
    }
}

/// LSTM. Gates are in the order forget, input, candidate, output.
#[inline(always)]
fn lstm<const FMA: bool, P: Sigmoids, const INPUT: bool>(
    x: &[f32],
    s: &[f32],
    h: &mut [f32],
    c: &mut [f32],
) {
    let d = h.len();
    let c = &mut c[..d];
    let state = |i: usize| &s[i * d..(i + 1) * d];
    let part = |i: usize| if INPUT { &x[i * d..(i + 1) * d] } else { state(i) };
    let (s_f, s_i, s_g, s_o) = (state(0), state(1), state(2), state(3));
    let (x_f, x_i, x_g, x_o) = (part(0), part(1), part(2), part(3));
    for k in 0..d {
        let sum = |x: &[f32], s: &[f32]| if INPUT { x[k] + s[k] } else { s[k] };
        let f = P::sigmoid::<FMA>(sum(x_f, s_f));
        let i = P::sigmoid::<FMA>(sum(x_i, s_i));
        let g = P::tanh::<FMA>(sum(x_g, s_g));
        let o = P::sigmoid::<FMA>(sum(x_o, s_o));
        c[k] = multiply_add::<FMA>(f, c[k], i * g);
        h[k] = o * P::tanh::<FMA>(c[k]);
    }
}

kernel! {
    /// Attention weights of one row over the keys it reads: the softmax of additive (Bahdanau) scores, or of dot products if `energy`
    /// is empty.
    pub(crate) fn align(
        functions: Functions,
        query: &[f32],
        keys: &[f32],
        reads: &[u32],
        energy: &[f32],
        weights: &mut [f32],
    ) = align_body
}

#[inline(always)]
fn align_body<const FMA: bool>(
    functions: Functions,
    query: &[f32],
    keys: &[f32],
    reads: &[u32],
    energy: &[f32],
    weights: &mut [f32],
) {
    let width = query.len();
    for (weight, &row) in weights.iter_mut().zip(reads) {
        let key = &keys[row as usize * width..][..width];
        *weight = match functions {
            _ if energy.is_empty() => dot::<FMA>(query, key),
            Functions::Fast => additive::<FMA, Fast>(query, key, energy),
            Functions::Library => additive::<FMA, Library>(query, key, energy),
        };
    }
    softmax::<FMA>(weights);
}

/// `Σ a∘b`.
#[inline(always)]
fn dot<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            sums[i] = multiply_add::<FMA>(a[i], b[i], sums[i]);
        }
    }
    for ((a, b), sum) in a_rest.iter().zip(b_rest).zip(&mut sums) {
        *sum = multiply_add::<FMA>(*a, *b, *sum);
    }
    crate::isa::lanes::sum(&sums, |v| v)
}

/// `Σ energy∘tanh(query + key)`.
#[inline(always)]
fn additive<const FMA: bool, P: Sigmoids>(query: &[f32], key: &[f32], energy: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (q, q_rest) = query.as_chunks::<LANES>();
    let (k, k_rest) = key.as_chunks::<LANES>();
    let (e, e_rest) = energy.as_chunks::<LANES>();
    for ((q, k), e) in q.iter().zip(k).zip(e) {
        for i in 0..LANES {
            sums[i] = multiply_add::<FMA>(e[i], P::tanh::<FMA>(q[i] + k[i]), sums[i]);
        }
    }
    for (((q, k), e), sum) in q_rest.iter().zip(k_rest).zip(e_rest).zip(&mut sums) {
        *sum = multiply_add::<FMA>(*e, P::tanh::<FMA>(q + k), *sum);
    }
    crate::isa::lanes::sum(&sums, |v| v)
}

kernel! {
    /// The context vector: `out = Σ weight · row`.
    pub(crate) fn weigh(values: &[f32], reads: &[u32], weights: &[f32], out: &mut [f32]) = weigh_body
}

#[inline(always)]
fn weigh_body<const FMA: bool>(values: &[f32], reads: &[u32], weights: &[f32], out: &mut [f32]) {
    let width = out.len();
    out.fill(0.0);
    for (&weight, &row) in weights.iter().zip(reads) {
        add_scaled::<FMA>(weight, &values[row as usize * width..][..width], out);
    }
}

kernel! {
    /// `out = a∘b`.
    pub(crate) fn multiply_rows(a: &[f32], b: &[f32], out: &mut [f32]) = multiply_rows_body
}

#[inline(always)]
fn multiply_rows_body<const FMA: bool>(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a * b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::lanes::bits;
    use crate::isa::{Isa, Level, same_everywhere};

    /// The documented bound, on a grid of -20 to 20.
    #[test]
    fn fast_functions_keep_to_their_bound() {
        let mut worst = (0.0f64, 0.0f64);
        for i in -400_000..=400_000 {
            let x = i as f32 * 5e-5 + 1.3e-6;
            let exact = f64::from(x);
            let sigmoid_exact = 1.0 / (1.0 + (-exact).exp());
            for (s, t) in [
                (Fast::sigmoid::<true>(x), Fast::tanh::<true>(x)),
                (Fast::sigmoid::<false>(x), Fast::tanh::<false>(x)),
            ] {
                worst.0 = worst.0.max((f64::from(s) - sigmoid_exact).abs());
                worst.1 = worst.1.max((f64::from(t) - exact.tanh()).abs());
            }
        }
        let bound = f64::from(FAST_ERROR);
        assert!(worst.0 < bound && worst.1 < bound, "sigmoid {:e}, tanh {:e}", worst.0, worst.1);
        for (x, s, t) in [(1e30, 1.0, 1.0), (-1e30, 0.0, -1.0), (0.0, 0.5, 0.0)] {
            assert!((Fast::sigmoid::<true>(x) - s).abs() < FAST_ERROR);
            assert!((Fast::tanh::<true>(x) - t).abs() < FAST_ERROR);
        }
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let wave = |n: usize, seed: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 41.3 - 1.2).collect()
        };
        use CellKind::*;
        for d in [1usize, 5, 16, 83] {
            let (x, s, raw) = (wave(4 * d, 1), wave(4 * d, 2), wave(d, 3));
            for functions in [Functions::Fast, Functions::Library] {
                for kind in [Gru, Lstm, Mgru, Mlstm, Tanh, Relu, Sru, Ssru] {
                    same_everywhere(&format!("{kind:?}"), |isa| {
                        let (mut h, mut c) = (wave(d, 4), wave(d, 5));
                        let terms = RowTerms { x: &x, s: &s, raw: &raw };
                        recur(isa, functions, kind, terms, &mut h, &mut c);
                        (bits(&h), bits(&c))
                    });
                }
                same_everywhere("attention", |isa| {
                    let (keys, reads) = (wave(7 * d, 6), [3, 0, 6, 5, 1]);
                    let (mut plain, mut additive, mut out) = ([0.0; 5], [0.0; 5], vec![0.0; d]);
                    align(isa, functions, &wave(d, 7), &keys, &reads, &[], &mut plain);
                    align(isa, functions, &wave(d, 7), &keys, &reads, &wave(d, 8), &mut additive);
                    weigh(isa, &keys, &reads, &additive, &mut out);
                    (bits(&plain), bits(&additive), bits(&out))
                });
            }
        }
    }

    #[test]
    fn fast_and_library_functions_agree() {
        let wave = |n: usize, seed: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 40.0 - 1.2).collect()
        };
        for isa in Level::ALL.into_iter().filter_map(Isa::new) {
            for kind in [CellKind::Gru, CellKind::Lstm, CellKind::Tanh, CellKind::Relu] {
                for d in [1usize, 5, 16, 33] {
                    let (x, s) = (wave(4 * d, 1), wave(4 * d, 2));
                    let terms = RowTerms { x: &x, s: &s, raw: &[] };
                    let run = |functions| {
                        let (mut h, mut c) = (wave(d, 3), wave(d, 4));
                        recur(isa, functions, kind, terms, &mut h, &mut c);
                        (h, c)
                    };
                    let ((h, c), (h2, c2)) = (run(Functions::Fast), run(Functions::Library));
                    for (a, b) in h.iter().chain(&c).zip(h2.iter().chain(&c2)) {
                        assert!((a - b).abs() < 2e-6, "{kind:?} {d}: {a} {b}");
                    }
                }
            }
        }
    }
}
