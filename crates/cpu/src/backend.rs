//! The verbs on one core.

use peregrine_model::{CellKind, Precision, Weight};
use peregrine_nn::{
    After, Attention, Backend, Choices, Dense, Embed, Move, NormWeights, Question, Reads, Step,
    Term, Terms,
};

use crate::arena::Arena;
use crate::attention::{self, Cache, Queries, Reading};
use crate::elementwise::{self as elements, Norm};
use crate::isa::Isa;
use crate::linear::{Linear, vector};
use crate::matrix::Matrix;
use crate::output::{self, Output, Selection};
use crate::recurrent::{self, Functions, RowTerms};

/// A CPU. Every worker runs on a core of its own; no verb uses more than one.
#[derive(Debug, Clone)]
pub struct Cpu {
    isa: Isa,
    precision: Precision,
    functions: Functions,
    arena: Arena,
}

impl Cpu {
    /// With certain instructions, computing products in a certain precision. Everything else is
    /// float32.
    pub fn new(isa: Isa, precision: Precision) -> Cpu {
        Cpu { isa, precision, functions: Functions::default(), arena: Arena::default() }
    }

    /// The same with another way to compute the functions of recurrent cells.
    pub fn with_functions(self, functions: Functions) -> Cpu {
        Cpu { functions, ..self }
    }

    fn apply(&self, ops: &[Step<Cpu>], input: Option<&Matrix>, y: &mut Matrix) {
        for (position, op) in ops.iter().enumerate() {
            match (op, input) {
                (Step::Norm(norm), _) => {
                    for row in y.iter_mut() {
                        elements::normalise(self.isa, norm, row);
                    }
                }
                (Step::Norms(norms), _) => {
                    for row in y.iter_mut() {
                        let mut rest = row;
                        for norm in norms {
                            let (group, behind) = rest.split_at_mut(norm.scale.len());
                            elements::normalise(self.isa, norm, group);
                            rest = behind;
                        }
                    }
                }
                (Step::Tanh, _) => recurrent::tanh(self.isa, self.functions, y.values_mut()),
                (Step::Clamp { least, most }, _) => {
                    elements::clamp(self.isa, *least, *most, y.values_mut());
                }
                (Step::Add, Some(input)) => {
                    elements::add(self.isa, input.values(), y.values_mut());
                }
                (Step::Highway(linear), Some(input)) => {
                    let mut gate = Matrix::default();
                    let sigmoid = After::activation(peregrine_model::Activation::Sigmoid);
                    self.linear(input, linear, sigmoid, &mut gate);
                    elements::highway(self.isa, gate.values(), input.values(), y.values_mut());
                }
                (Step::Add | Step::Highway(_), None) => {
                    debug_assert!(false, "op {position} has no input to add");
                }
            }
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

    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Linear {
        Linear::prepare(parts, self.precision, &self.arena)
    }

    fn prepare_table(&self, table: &Weight) -> Weight {
        table.clone()
    }

    fn prepare_norm(&self, norm: NormWeights<'_>) -> Norm {
        Norm {
            scale: vector(Some(norm.scale)),
            bias: norm.bias.map(|bias| vector(Some(bias))),
            epsilon: norm.epsilon,
            centred: norm.centred,
        }
    }

    fn prepare_output(&self, layer: Dense<'_>) -> Output {
        Output::new(self.prepare_linear(&[layer]))
    }

    fn select(&self, output: &Output, words: &[u32]) -> Selection {
        output.select(self.isa, words)
    }

    fn rows(&self) -> Matrix {
        Matrix::default()
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
        Cache::default()
    }

    fn reserve_cache(&self, cache: &mut Cache, positions: usize, width: usize) {
        cache.grow(positions, width);
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

    fn linear(&self, x: &Matrix, linear: &Linear, after: After<'_, Cpu>, out: &mut Matrix) {
        out.shape(x.rows(), linear.outputs());
        linear.multiply(self.isa, after.activation, x.values(), out.values_mut());
        self.apply(after.ops, after.input, out);
    }

    fn process(&self, x: &Matrix, ops: &[Step<Cpu>], input: Option<&Matrix>, out: &mut Matrix) {
        out.shape(x.rows(), x.width());
        out.values_mut().copy_from_slice(x.values());
        self.apply(ops, input, out);
    }

    fn store(&self, x: &Matrix, key_column: usize, at: &[u32], cache: &mut Cache) {
        let width = (x.width() - key_column) / 2;
        for (row, &at) in x.iter().zip(at) {
            let (key, value) = row[key_column..].split_at(width);
            cache.store(at as usize, key, value);
        }
    }

    fn attend(&self, queries: &Matrix, to: Attention<'_, Cpu>, out: &mut Matrix) {
        out.shape(queries.rows(), to.width);
        let stride = queries.width();
        let mut weights = Vec::new();
        for (rows, positions) in to.reads.groups() {
            let reading = Reading { cache: to.cache, positions, heads: to.heads };
            let queries = Queries { values: &queries.values()[rows.start * stride..], stride };
            let out = &mut out.values_mut()[rows.start * to.width..rows.end * to.width];
            attention::attend(self.isa, queries, reading, &mut weights, out);
        }
    }

    fn attention_weights(
        &self,
        queries: &Matrix,
        to: Attention<'_, Cpu>,
        heads: usize,
        out: &mut Vec<f32>,
    ) {
        out.clear();
        let mut weights = Vec::new();
        for (i, query) in queries.iter().enumerate() {
            let reading = Reading { cache: to.cache, positions: to.reads.of(i), heads: to.heads };
            let start = out.len();
            out.resize(start + reading.positions.len(), 0.0);
            let out = &mut out[start..];
            attention::mean_weights(self.isa, query, reading, heads, &mut weights, out);
        }
    }

    fn average(
        &self,
        x: &Matrix,
        moves: &[Move],
        before: &[u32],
        state: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(x.rows(), x.width());
        for (i, (step, &before)) in moves.iter().zip(before).enumerate() {
            let out = out.row_mut(i);
            match step.from {
                Some(from) => out.copy_from_slice(state.row(from as usize)),
                None => out.fill(0.0),
            }
            elements::average(self.isa, x.row(i), before, out);
            state.row_mut(step.to as usize).copy_from_slice(out);
        }
    }

    fn ssru(
        &self,
        candidate: &Matrix,
        forget: &Matrix,
        moves: &[Move],
        state: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(candidate.rows(), candidate.width());
        let mut cell = vec![0.0; candidate.width()];
        for (i, step) in moves.iter().enumerate() {
            match step.from {
                Some(from) => cell.copy_from_slice(state.row(from as usize)),
                None => cell.fill(0.0),
            }
            elements::ssru(self.isa, candidate.row(i), forget.row(i), &mut cell, out.row_mut(i));
            state.row_mut(step.to as usize).copy_from_slice(&cell);
        }
    }

    fn mix(&self, a: &Matrix, x: &Matrix, b: &Matrix, y: &mut Matrix) {
        elements::mix(self.isa, a.values(), x.values(), b.values(), y.values_mut());
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
            recurrent::recur(self.isa, self.functions, kind, terms, h.row_mut(i), cell);
        }
    }

    fn modulate(&self, a: Term<'_, Cpu>, s: Term<'_, Cpu>, h: &mut Matrix) {
        for (i, h) in h.iter_mut().enumerate() {
            let (a, s) = (a.rows.row(a.of.row(i)), s.rows.row(s.of.row(i)));
            recurrent::multiply_rows(self.isa, a, s, h);
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
            recurrent::align(self.isa, self.functions, query, keys, reads, energy, weights);
        }
    }

    fn weigh(&self, weights: &Vec<f32>, reads: &Reads, values: &Matrix, out: &mut Matrix) {
        out.shape(reads.len(), values.width());
        for (i, out) in out.iter_mut().enumerate() {
            let weights = &weights[reads.range(i)];
            recurrent::weigh(self.isa, values.values(), reads.of(i), weights, out);
        }
    }

    fn best(
        &self,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        question: Question<'_>,
        answer: &mut Choices,
    ) {
        output::best(self.isa, x, output, selections, question, answer);
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
