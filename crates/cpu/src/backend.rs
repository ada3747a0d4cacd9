//! The verbs of a [`Backend`] on a CPU.
//!
//! A worker runs them on its own thread. Within [`split_products`](crate::split_products), the columns of a product are split among
//! a team of threads; all other verbs run on one.

#[cfg(test)]
mod tests;

use peregrine_model::{Activation, CellKind, Precision, Weight};
use peregrine_nn::{
    Attention, AttentionWithin, Backend, Choices, Dense, Embed, Epilogue, Moves, NormWeights,
    PastExtension, PastReads, PreparedOp, Reads, RunAhead, Term, Terms, TopKQuery, WithinScratch,
};

use crate::attention::kv_cache::{Cache, CachePrecision};
use crate::attention::{self, CacheRead, Queries};
use crate::elementwise::{self as elements, Norm};
use crate::gemm::linear::Linear;
use crate::isa::Isa;
use crate::memory::arena::{Arena, Pages};
use crate::memory::matrix::Matrix;
use crate::memory::working_set;
use crate::output::{self, Output, Selection};
use crate::recurrent_cells::{self, Functions, RowTerms};
use crate::technique::Technique;
use crate::tuning::tuner::Tuner;

/// Most rows of a block, whose product and epilogue come before the next block. They are few enough to stay in cache for the epilogue
/// and the quantisation of the next product, and enough to amortise reading the weights.
const BLOCK_ROWS: usize = 256;

/// Most rows of a block of sentences: their queries, keys and values take about this many bytes.
const WITHIN_BLOCK_BYTES: usize = 768 << 10;

/// Rows of a block are a multiple of this, so that AMX tiles are full. Blocks are of equal size: a small last block would cost as much
/// as a large one.
const BLOCK_MULTIPLE: usize = 32;

/// Int8 arithmetic of other programs, for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Int8Options {
    /// Inputs are quantised with the fixed scales of the model file (Bergamot's alphas), where it has them, instead of a scale for
    /// each row. A joint product of several layers uses the largest scale.
    pub fixed_scales: bool,
    /// Products are summed in int16 with saturation, as Marian's `intgemm` does without VNNI. A sum that does not fit is wrong.
    pub saturating: bool,
    /// Hidden rows of feed-forward blocks are not rounded to float16 before their quantisation to int8.
    pub float_hidden: bool,
}

/// A CPU with its settings.
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
    /// A CPU that uses one instruction set and computes products in one precision. With int8 products, the KV cache is int8 and hidden
    /// rows of feed-forward blocks are float16; with bfloat16 products, the KV cache is float16. All else is float32.
    pub fn new(isa: Isa, precision: Precision) -> Cpu {
        Cpu {
            isa,
            precision,
            functions: Functions::default(),
            cache_precision: CachePrecision::default_for(precision),
            row_blocks: true,
            screening: true,
            int8_options: Int8Options::default(),
            tuner: None,
            arena: Arena::new(Pages::of(isa)),
        }
    }

    /// Disables some techniques.
    pub fn without(self, techniques: &[Technique]) -> Cpu {
        let isa = self.isa.without(techniques);
        Cpu { isa, arena: Arena::new(Pages::of(isa)), ..self }
    }

    /// Sets the implementation of sigmoid and tanh in recurrent cells.
    pub fn with_functions(self, functions: Functions) -> Cpu {
        Cpu { functions, ..self }
    }

    /// Sets the precision of the KV cache.
    pub fn with_cache(self, cache_precision: CachePrecision) -> Cpu {
        Cpu { cache_precision, ..self }
    }

    /// Sets whether products and their epilogues are computed in blocks of rows that stay in cache.
    pub fn with_row_blocks(self, row_blocks: bool) -> Cpu {
        Cpu { row_blocks, ..self }
    }

    /// Sets whether the output layer screens words with smaller weights.
    pub fn with_screening(self, screening: bool) -> Cpu {
        Cpu { screening, ..self }
    }

    /// Sets the int8 arithmetic.
    pub fn with_int8_options(self, int8_options: Int8Options) -> Cpu {
        Cpu { int8_options, ..self }
    }

    /// Sets the auto-tuner, which times kernels for each shape.
    pub fn with_tuner(self, tuner: Option<Tuner>) -> Cpu {
        Cpu { tuner, ..self }
    }

    /// The instruction set, with prefetch if the decoder's working set calls for it.
    fn isa(&self) -> Isa {
        working_set::with_useful_prefetch(self.isa)
    }

    /// Applies the ops of an epilogue to `y`, rows of `width` numbers. `input` has as many rows as `y`.
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
                    linear.multiply(self.isa(), Activation::Sigmoid, input, &mut gate);
                    elements::highway(self.isa, &gate, input, y);
                }
                (PreparedOp::Add | PreparedOp::Highway(_), None) => {
                    debug_assert!(false, "an op has no input to add");
                }
            }
        }
    }

    /// Fills the rows of `out` block by block. `product(x, y)` computes a block's rows; its epilogue runs while they are in cache.
    fn in_blocks(
        &self,
        x: &Matrix,
        epilogue: &Epilogue<'_, Cpu>,
        out: &mut Matrix,
        mut product: impl FnMut(&[f32], &mut [f32]),
    ) {
        let (inputs, width) = (x.width(), out.width());
        let blocks = if self.row_blocks { x.rows().div_ceil(BLOCK_ROWS).max(1) } else { 1 };
        let block = x.rows().div_ceil(blocks).next_multiple_of(BLOCK_MULTIPLE);
        // If no op reads the input, it may have any size.
        let adds =
            epilogue.ops.iter().any(|op| matches!(op, PreparedOp::Add | PreparedOp::Highway(_)));
        let input = epilogue.input.filter(|_| adds);
        let input_width = input.map_or(0, Matrix::width);
        let outs = out.values_mut().chunks_mut((block * width).max(1));
        for (i, y) in outs.enumerate() {
            let rows = i * block..(i * block + y.len() / width);
            product(&x.values()[rows.start * inputs..rows.end * inputs], y);
            let input = input
                .map(|input| &input.values()[rows.start * input_width..rows.end * input_width]);
            self.apply(epilogue.ops, width, input, y);
        }
    }
}

/// Most rows of a block of sentences in [`Cpu::attend_within`]. With too few, reading weights would not be amortised.
fn within_block_rows(width: usize) -> usize {
    (WITHIN_BLOCK_BYTES / (3 * width * size_of::<f32>())).max(BLOCK_ROWS / 2)
}

/// Cuts sentences of these lengths into blocks of at most `rows` rows. Blocks are of about equal size; a longer sentence is one.
fn blocks_of_sentences(lengths: &[usize], rows: usize) -> impl Iterator<Item = &[usize]> {
    let all: usize = lengths.iter().sum();
    let share = all.div_ceil(all.div_ceil(rows).max(1));
    let mut left = lengths;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let more = left.iter().take_while(|&&length| {
            sum += length;
            sum <= share
        });
        let count = more.count().max(1).min(left.len());
        let (block, behind) = left.split_at(count);
        left = behind;
        (!block.is_empty()).then_some(block)
    })
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
            return Linear::prepare_trial(&parts, tuner, &self.arena);
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

    fn linear(&self, x: &Matrix, linear: &Linear, epilogue: Epilogue<'_, Cpu>, out: &mut Matrix) {
        out.shape(x.rows(), linear.outputs());
        self.in_blocks(x, &epilogue, out, |x, y| {
            linear.multiply(self.isa(), epilogue.activation, x, y)
        });
    }

    fn feed_forward(
        &self,
        x: &Matrix,
        (first, activation): (&Linear, Activation),
        (second, epilogue): (&Linear, Epilogue<'_, Cpu>),
        hidden: &mut Matrix,
        out: &mut Matrix,
    ) {
        out.shape(x.rows(), second.outputs());
        self.in_blocks(x, &epilogue, out, |x, y| {
            let second = (second, epilogue.activation);
            Linear::feed_forward(self.isa(), x, (first, activation), second, hidden, y);
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
        let positions: usize = to.reads.groups().map(|(_, positions)| positions.len()).sum();
        working_set::count(positions * to.cache.position_bytes());
        attention::attend(self.isa(), queries, cache, to.reads, out.values_mut());
    }

    /// Sentence by sentence in blocks that stay in cache from the first product to the end. Keys and values are read where the
    /// product has left them.
    fn attend_within(
        &self,
        x: &Matrix,
        block: AttentionWithin<'_, Cpu>,
        scratch: &mut WithinScratch<Cpu>,
        out: &mut Matrix,
    ) {
        let AttentionWithin { projection, sentences, heads, width, last, after } = block;
        let WithinScratch { joint, attended, .. } = scratch;
        let (isa, inputs) = (self.isa(), x.width());
        let lengths: Vec<usize> = sentences.reads.groups().map(|(rows, _)| rows.len()).collect();
        let most_rows = if self.row_blocks { within_block_rows(width) } else { usize::MAX };
        out.shape(x.rows(), last.map_or(width, Linear::outputs));
        let mut first = 0;
        for lengths in blocks_of_sentences(&lengths, most_rows) {
            let rows = first..first + lengths.iter().sum::<usize>();
            first = rows.end;
            joint.shape(rows.len(), 3 * width);
            attended.shape(rows.len(), width);
            let of_rows = |width: usize| rows.start * width..rows.end * width;
            let x = &x.values()[of_rows(inputs)];
            projection.multiply(isa, Activation::Identity, x, joint.values_mut());
            let lengths = lengths.iter().copied();
            let to = (width, heads);
            attention::attend_within(isa, joint.values(), to, lengths, attended.values_mut());
            let width = out.width();
            let y = &mut out.values_mut()[of_rows(width)];
            match last {
                Some(last) => last.multiply(isa, Activation::Identity, attended.values(), y),
                None => y.copy_from_slice(attended.values()),
            }
            let input = after.input.map(|input| &input.values()[of_rows(input.width())]);
            self.apply(after.ops, width, input, y);
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
        let mut scratch = attention::Scratch::default();
        for (i, query) in queries.iter().enumerate() {
            let positions = to.reads.of(i);
            let read = CacheRead { cache: to.cache, positions, heads: to.heads, next: &[] };
            let start = out.len();
            out.resize(start + read.positions.len(), 0.0);
            let out = &mut out[start..];
            attention::mean_weights(self.isa, query, read, heads, &mut scratch, out);
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
        query: TopKQuery<'_>,
        pending: &mut Choices,
    ) {
        output::best(self.isa(), x, output, selections, query, pending);
        working_set::end_step();
    }

    fn take_top_k(&self, pending: &mut Choices, answer: &mut Choices) {
        std::mem::swap(pending, answer);
    }

    fn logits(
        &self,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        wanted: &[bool],
        out: &mut Vec<f32>,
    ) {
        output::logits(self.isa, x, output, selections, wanted, out);
    }
}
