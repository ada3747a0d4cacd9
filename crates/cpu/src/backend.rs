//! The verbs on one core.

use peregrine_model::{Activation, CellKind, Precision, Weight};
use peregrine_nn::{
    Attention, Backend, Choices, Dense, Embed, Epilogue, Moves, NormWeights, PastExtension,
    PastReads, PreparedOp, Question, Reads, RunAhead, Term, Terms,
};

use crate::attention::kv_cache::{Cache, CachePrecision};
use crate::attention::{self, Queries, Reading};
use crate::elementwise::{self as elements, Norm};
use crate::gemm::linear::Linear;
use crate::isa::Isa;
use crate::memory::arena::{Arena, Pages};
use crate::memory::matrix::Matrix;
use crate::output::{self, Output, Selection};
use crate::recurrent_cells::{self, Functions, RowTerms};
use crate::technique::Technique;
use crate::tuning::precision_trial::PrecisionTrial;
use crate::tuning::tuner::Tuner;

/// Most rows a product is followed up in: few enough to be in cache when their sums, norms and the next
/// product's quantisation come, enough to read weights for.
const BLOCK_ROWS: usize = 256;

/// Blocks are as large as each other, up to whole tiles: few rows left over would cost as much as many.
const BLOCK_MULTIPLE: usize = 32;

/// Ways to compute in int8 that others use, for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Int8Options {
    /// Inputs are rounded to steps the file fixes (Bergamot's alphas), where it does, in place of steps
    /// fit to each row. One product of several layers takes the largest step of them.
    pub fixed_scales: bool,
    /// Products are summed in 16 bits, as Marian's `intgemm` does without VNNI. A sum that does not fit
    /// is wrong.
    pub saturating: bool,
    /// Hidden rows of feed-forward blocks are not rounded to half precision on their way to bytes.
    pub float_hidden: bool,
}

/// A CPU. Every worker runs on a core of its own; no verb uses more than one.
#[derive(Debug, Clone)]
pub struct Cpu {
    isa: Isa,
    precision: Precision,
    functions: Functions,
    cache_precision: CachePrecision,
    row_blocks: bool,
    screening: bool,
    int8_options: Int8Options,
    tuner: Option<Tuner>,
    arena: Arena,
}

impl Cpu {
    /// With certain instructions, computing products in a certain precision. Everything else is
    /// float32, but for attention over keys and values in bytes and, in int8, the hidden rows of feed-forward blocks.
    pub fn new(isa: Isa, precision: Precision) -> Cpu {
        Cpu {
            isa,
            precision,
            functions: Functions::default(),
            cache_precision: CachePrecision::beside(precision),
            row_blocks: true,
            screening: true,
            int8_options: Int8Options::default(),
            tuner: None,
            arena: Arena::new(Pages::of(isa)),
        }
    }

    /// The same without some techniques.
    pub fn without(self, techniques: &[Technique]) -> Cpu {
        let isa = self.isa.without(techniques);
        Cpu { isa, arena: Arena::new(Pages::of(isa)), ..self }
    }

    /// The same with another way to compute the functions of recurrent cells.
    pub fn with_functions(self, functions: Functions) -> Cpu {
        Cpu { functions, ..self }
    }

    /// The same with keys and values of past words and of the source kept in so many bits.
    pub fn with_cache(self, cache_precision: CachePrecision) -> Cpu {
        Cpu { cache_precision, ..self }
    }

    /// The same with each product's rows followed up in blocks that stay in cache, or all at once.
    pub fn with_row_blocks(self, row_blocks: bool) -> Cpu {
        Cpu { row_blocks, ..self }
    }

    /// The same with the best of few rows' words found in half of the output layer's bytes, or not.
    pub fn with_screening(self, screening: bool) -> Cpu {
        Cpu { screening, ..self }
    }

    /// The same with another way to compute in int8.
    pub fn with_int8_options(self, int8_options: Int8Options) -> Cpu {
        Cpu { int8_options, ..self }
    }

    /// The same with a tuner that times kernels for each shape, or without.
    pub fn with_tuner(self, tuner: Option<Tuner>) -> Cpu {
        Cpu { tuner, ..self }
    }

    /// `y` becomes `ops(y)`, rows of `width` numbers. `input` has as many.
    fn apply(&self, ops: &[PreparedOp<Cpu>], width: usize, input: Option<&[f32]>, y: &mut [f32]) {
        let mut left = ops;
        while let [op, behind @ ..] = left {
            left = behind;
            match (op, input) {
                (PreparedOp::Norm(norm), _) => elements::normalise(self.isa, norm, None, y),
                (PreparedOp::Norms(norms), _) => {
                    for row in y.chunks_exact_mut(width.max(1)) {
                        let mut rest = row;
                        for norm in norms {
                            let (group, behind) = rest.split_at_mut(norm.scale.len());
                            elements::normalise(self.isa, norm, None, group);
                            rest = behind;
                        }
                    }
                }
                (PreparedOp::Tanh, _) => recurrent_cells::tanh(self.isa, self.functions, y),
                (PreparedOp::Clamp { least, most }, _) => {
                    elements::clamp(self.isa, *least, *most, y)
                }
                (PreparedOp::Add, Some(input)) => match behind {
                    [PreparedOp::Norm(norm), behind @ ..]
                        if self.isa.uses(Technique::FusedNorms) =>
                    {
                        elements::normalise(self.isa, norm, Some(input), y);
                        left = behind;
                    }
                    _ => elements::add(self.isa, input, y),
                },
                (PreparedOp::Highway(linear), Some(input)) => {
                    let mut gate = vec![0.0; y.len()];
                    linear.multiply(self.isa, Activation::Sigmoid, input, &mut gate);
                    elements::highway(self.isa, &gate, input, y);
                }
                (PreparedOp::Add | PreparedOp::Highway(_), None) => {
                    debug_assert!(false, "an op has no input to add");
                }
            }
        }
    }

    /// Fills the rows of `out`, as wide as a product of `inputs` numbers a row gives, block by block:
    /// `product(x, y)` computes a block's rows, and what follows it is done while they are in cache.
    fn in_blocks(
        &self,
        x: &Matrix,
        after: &Epilogue<'_, Cpu>,
        out: &mut Matrix,
        mut product: impl FnMut(&[f32], &mut [f32]),
    ) {
        let (inputs, width) = (x.width(), out.width());
        let blocks = if self.row_blocks { x.rows().div_ceil(BLOCK_ROWS).max(1) } else { 1 };
        let block = x.rows().div_ceil(blocks).next_multiple_of(BLOCK_MULTIPLE);
        // Where nothing is added, what stands there may be of any size.
        let adds =
            after.ops.iter().any(|op| matches!(op, PreparedOp::Add | PreparedOp::Highway(_)));
        let input = after.input.filter(|_| adds);
        let input_width = input.map_or(0, Matrix::width);
        let outs = out.values_mut().chunks_mut((block * width).max(1));
        for (i, y) in outs.enumerate() {
            let rows = i * block..(i * block + y.len() / width);
            product(&x.values()[rows.start * inputs..rows.end * inputs], y);
            let input = input
                .map(|input| &input.values()[rows.start * input_width..rows.end * input_width]);
            self.apply(after.ops, width, input, y);
        }
    }
}

impl Backend for Cpu {
    type Rows = Matrix;
    type Cache = Cache;
    type Linear = Linear;
    type Table = Weight;
    type Norm = Norm;
    type Output = Output;
    type Selection = Selection;
    type Weights = Vec<f32>;
    type Pending = Choices;
    type Past = PastReads;
    type SideWork = ();

    fn run_ahead(&self) -> RunAhead {
        RunAhead::No
    }

    fn joins_products(&self) -> bool {
        self.isa.uses(Technique::JointProducts)
    }

    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Linear {
        let mut parts = parts.to_vec();
        if !self.int8_options.fixed_scales {
            parts.iter_mut().for_each(|part| part.alpha = None);
        }
        if let Some(tuner) = self.tuner.as_ref().filter(|tuner| tuner.crosses_precisions()) {
            return PrecisionTrial::prepare(&parts, tuner, &self.arena);
        }
        let linear = Linear::prepare(&parts, self.precision, &self.arena);
        let linear = if self.int8_options.saturating { linear.saturating() } else { linear };
        let linear =
            if self.int8_options.float_hidden { linear.with_float_hidden() } else { linear };
        match &self.tuner {
            Some(tuner) => linear.tuned(tuner),
            None => linear,
        }
    }

    fn prepare_table(&self, table: &Weight) -> Weight {
        table.clone()
    }

    fn prepare_norm(&self, norm: NormWeights<'_>) -> Norm {
        Norm {
            scale: norm.scale.to_f32().into_owned(),
            bias: norm.bias.map(|bias| bias.to_f32().into_owned()),
            epsilon: norm.epsilon,
            centred: norm.centred,
        }
    }

    fn prepare_output(&self, layer: Dense<'_>) -> Output {
        Output::new(self.prepare_linear(&[layer]), self.screening, self.row_blocks)
    }

    fn select(&self, output: &Output, words: &[u32]) -> Selection {
        output.select(self.isa, words)
    }

    fn rows(&self) -> Matrix {
        Matrix::on(Pages::of(self.isa))
    }

    fn width(&self, rows: &Matrix) -> usize {
        rows.width()
    }

    fn reserve(&self, states: &mut Matrix, rows: usize, width: usize) {
        states.grow(rows, width);
    }

    fn weights(&self) -> Vec<f32> {
        Vec::new()
    }

    fn read_weights(&self, weights: &Vec<f32>, out: &mut Vec<f32>) {
        out.clone_from(weights);
    }

    fn cache(&self) -> Cache {
        Cache::new(self.cache_precision, Pages::of(self.isa))
    }

    fn working_cache(&self) -> Cache {
        Cache::new(CachePrecision::Float32, Pages::of(self.isa))
    }

    fn reserve_cache(&self, cache: &mut Cache, positions: usize, width: usize, heads: usize) {
        cache.grow(positions, width, heads);
    }

    fn embed(&self, table: &Weight, request: Embed<'_>, out: &mut Matrix) {
        out.shape(request.ids.len(), table.columns());
        let rows = out.iter_mut().zip(request.ids).zip(request.at);
        for ((row, &id), &at) in rows {
            match id.filter(|&id| (id as usize) < table.rows()) {
                Some(id) => table.read_row(id as usize, row),
                None => row.fill(0.0),
            }
            for v in &mut *row {
                *v *= request.scale;
            }
            if let Some(positions) = request.positions {
                elements::add(self.isa, positions.row(at as usize), row);
            }
        }
    }

    fn linear(&self, x: &Matrix, linear: &Linear, after: Epilogue<'_, Cpu>, out: &mut Matrix) {
        out.shape(x.rows(), linear.outputs());
        self.in_blocks(x, &after, out, |x, y| linear.multiply(self.isa, after.activation, x, y));
    }

    fn feed_forward(
        &self,
        x: &Matrix,
        (first, activation): (&Linear, Activation),
        (second, after): (&Linear, Epilogue<'_, Cpu>),
        hidden: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(x.rows(), second.outputs());
        self.in_blocks(x, &after, out, |x, y| {
            let second = (second, after.activation);
            Linear::feed_forward(self.isa, x, (first, activation), second, hidden, y);
        });
    }

    fn process(
        &self,
        x: &Matrix,
        ops: &[PreparedOp<Cpu>],
        input: Option<&Matrix>,
        out: &mut Matrix,
    ) {
        out.shape(x.rows(), x.width());
        out.values_mut().copy_from_slice(x.values());
        self.apply(ops, x.width(), input.map(Matrix::values), out.values_mut());
    }

    fn extend_past(&self, step: PastExtension<'_>, past: &mut PastReads) {
        past.extend(step);
    }

    fn store(&self, x: &Matrix, key_column: usize, at: &[u32], cache: &mut Cache) {
        cache.store(self.isa, x, key_column, at);
    }

    fn attend(&self, queries: &Matrix, to: Attention<'_, Cpu>, out: &mut Matrix) {
        out.shape(queries.rows(), to.width);
        let queries = Queries { values: queries.values(), stride: queries.width() };
        let cache = (to.cache, to.heads);
        attention::attend(self.isa, queries, cache, to.reads, out.values_mut());
    }

    fn attention_weights(
        &self,
        queries: &Matrix,
        to: Attention<'_, Cpu>,
        heads: usize,
        out: &mut Vec<f32>,
    ) {
        out.clear();
        let mut memory = attention::Memory::default();
        for (i, query) in queries.iter().enumerate() {
            let positions = to.reads.of(i);
            let reading = Reading { cache: to.cache, positions, heads: to.heads, next: &[] };
            let start = out.len();
            out.resize(start + reading.positions.len(), 0.0);
            let out = &mut out[start..];
            attention::mean_weights(self.isa, query, reading, heads, &mut memory, out);
        }
    }

    fn average(
        &self,
        x: &Matrix,
        moves: Moves<'_>,
        before: &[u32],
        state: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(x.rows(), x.width());
        for (i, (&to, &before)) in moves.to.iter().zip(before).enumerate() {
            let out = out.row_mut(i);
            match moves.state(i) {
                Some(from) => out.copy_from_slice(state.row(from)),
                None => out.fill(0.0),
            }
            elements::average(self.isa, x.row(i), before, out);
            state.row_mut(to as usize).copy_from_slice(out);
        }
    }

    fn ssru(
        &self,
        candidate: &Matrix,
        forget: &Matrix,
        moves: Moves<'_>,
        state: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(candidate.rows(), candidate.width());
        let mut cell = vec![0.0; candidate.width()];
        for (i, &to) in moves.to.iter().enumerate() {
            match moves.state(i) {
                Some(from) => cell.copy_from_slice(state.row(from)),
                None => cell.fill(0.0),
            }
            elements::ssru(self.isa, candidate.row(i), forget.row(i), &mut cell, out.row_mut(i));
            state.row_mut(to as usize).copy_from_slice(&cell);
        }
    }

    fn mix(&self, a: &Matrix, x: &Matrix, b: &Matrix, y: &mut Matrix) {
        elements::mix(self.isa, a.values(), x.values(), b.values(), y.values_mut());
    }

    fn load(&self, state: &Matrix, moves: Moves<'_>, out: &mut Matrix) {
        out.shape(moves.from.len(), state.width());
        for (row, out) in out.iter_mut().enumerate() {
            match moves.state(row) {
                Some(from) => out.copy_from_slice(state.row(from)),
                None => out.fill(0.0),
            }
        }
    }

    fn gather(&self, rows: &Matrix, at: &[u32], out: &mut Matrix) {
        out.shape(at.len(), rows.width());
        for (out, &at) in out.iter_mut().zip(at) {
            out.copy_from_slice(rows.row(at as usize));
        }
    }

    fn scatter(&self, x: &Matrix, at: &[u32], column: usize, out: &mut Matrix) {
        for (row, &at) in x.iter().zip(at) {
            out.row_mut(at as usize)[column..column + row.len()].copy_from_slice(row);
        }
    }

    fn resize(&self, rows: &mut Matrix, count: usize, width: usize) {
        rows.resize(count, width);
    }

    fn mean(&self, rows: &Matrix, reads: &Reads, out: &mut Matrix) {
        out.shape(reads.len(), rows.width());
        for (i, out) in out.iter_mut().enumerate() {
            let reads = reads.of(i);
            out.fill(0.0);
            for &read in reads {
                elements::add(self.isa, rows.row(read as usize), out);
            }
            for v in out {
                *v /= reads.len() as f32;
            }
        }
    }

    fn recur(
        &self,
        kind: CellKind,
        terms: Terms<'_, Cpu>,
        h: &mut Matrix,
        mut c: Option<&mut Matrix>,
    ) {
        fn row<'t>(term: &Option<Term<'t, Cpu>>, i: usize) -> &'t [f32] {
            term.as_ref().map_or(&[], |term| term.rows.row(term.of.row(i)))
        }
        for i in 0..h.rows() {
            let terms =
                RowTerms { x: row(&terms.x, i), s: row(&terms.s, i), raw: row(&terms.raw, i) };
            let cell = c.as_mut().map_or(&mut [][..], |c| c.row_mut(i));
            recurrent_cells::recur(self.isa, self.functions, kind, terms, h.row_mut(i), cell);
        }
    }

    fn modulate(&self, a: Term<'_, Cpu>, s: Term<'_, Cpu>, h: &mut Matrix) {
        for (i, h) in h.iter_mut().enumerate() {
            let (a, s) = (a.rows.row(a.of.row(i)), s.rows.row(s.of.row(i)));
            recurrent_cells::multiply_rows(self.isa, a, s, h);
        }
    }

    fn align(
        &self,
        queries: &Matrix,
        keys: &Matrix,
        reads: &Reads,
        energy: Option<&Matrix>,
        weights: &mut Vec<f32>,
    ) {
        let energy = energy.map_or(&[][..], |energy| energy.row(0));
        weights.clear();
        for (i, query) in queries.iter().enumerate() {
            let (start, reads) = (weights.len(), reads.of(i));
            weights.resize(start + reads.len(), 0.0);
            let (keys, weights) = (keys.values(), &mut weights[start..]);
            recurrent_cells::align(self.isa, self.functions, query, keys, reads, energy, weights);
        }
    }

    fn weigh(&self, weights: &Vec<f32>, reads: &Reads, values: &Matrix, out: &mut Matrix) {
        out.shape(reads.len(), values.width());
        for (i, out) in out.iter_mut().enumerate() {
            let weights = &weights[reads.range(i)];
            recurrent_cells::weigh(self.isa, values.values(), reads.of(i), weights, out);
        }
    }

    fn top_k(
        &self,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        question: Question<'_>,
        pending: &mut Choices,
    ) {
        output::best(self.isa, x, output, selections, question, pending);
    }

    fn take_top_k(&self, pending: &mut Choices, answer: &mut Choices) {
        std::mem::swap(pending, answer);
    }

    fn logits(
        &self,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        out: &mut Vec<f32>,
    ) {
        output::logits(self.isa, x, output, selections, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::isa::float16::round_rows;

    #[test]
    fn a_feed_forward_block_is_two_products() {
        let values = |n: usize, k: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * k % 101) as f32 - 50.0) / 100.0).collect()
        };
        let (inputs, plain) = (24, Isa::new(Level::Portable).unwrap());
        // Rows of 64 and 192 hidden numbers may lie otherwise in memory than those of 70.
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
                    let rounds = precision == Precision::Int8
                        && activation == Activation::Relu
                        && !float_hidden;
                    let first = cpu.prepare_linear(&dense(&first));
                    let second = cpu.prepare_linear(&dense(&second));
                    for rows in [0, 1, 13, 31, 63, 64, 65, 77, 150, 300] {
                        let mut x = Matrix::from_rows(inputs, values(rows * inputs, 29));
                        // Some rows are too large or too small for half precision, or nothing at all.
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
                            round_rows(plain, inner, hidden.values_mut());
                        }
                        cpu.linear(&hidden, &second, Epilogue::nothing(), &mut apart);
                        assert_eq!(out.values(), apart.values(), "{rows} rows, {inner} inside");
                    }
                }
            }
        }
    }
}
