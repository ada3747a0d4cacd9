//! The verbs a device must implement.
//!
//! A verb has the grain of a layer's part: a product (GEMM) comes with its [`Epilogue`], all that happens to
//! its result before another part reads it. Networks call nothing smaller, so a backend is free to
//! fuse. Batches are ragged: rows laid end to end, and for attention a list of the rows each row
//! reads ([`Reads`]). A verb reads no other row than those in the list.

use peregrine_model::{Activation, CellKind, Weight};

use crate::device_beam::RunAhead;
use crate::past::PastExtension;
use crate::positions::PositionTable;
use crate::reads::Reads;
use crate::top_k::{Choices, TopKQuery};

/// A device that can run networks.
pub trait Backend: Sized + Send + Sync + 'static {
    /// Rows of activations, or of recurrent states. The width is set when a verb writes it.
    type Rows: Send + Sync;
    /// A KV cache: keys and values of many positions, laid out for the step that reads them.
    type Cache: Send;
    /// One or several dense layers side by side, packed for products.
    type Linear: Send + Sync;
    /// An embedding table.
    type Table: Send + Sync;
    /// A prepared layer norm or root-mean-square norm.
    type Norm: Send + Sync;
    /// A prepared output layer.
    type Output: Send + Sync;
    /// The part of an output layer that a shortlist leaves.
    type Selection: Send + Sync;
    /// Attention weights of recurrent networks.
    type Weights: Send;
    /// A top-k request whose result may still be on its way.
    type Pending: Default + Send;

    /// The positions of the KV cache that each row reads of its own past.
    type Past: AsRef<Reads> + Default + Send;

    /// The event that ends the work on a [side stream](Self::on_side_stream).
    type SideWork: Clone + Default + Send;

    /// Drops what this thread has begun and returns unused memory to the device. Called after the device
    /// has run out of memory.
    fn abandon(&self) {}

    /// Whether the device has a side stream, on which work runs at the same time as other work.
    fn has_side_stream(&self) -> bool {
        false
    }

    /// Runs `work` on a side stream, at the same time as the work that follows if the device can. It sees all
    /// earlier work. Until it is [joined](Self::join) no other work may read or write what it writes, and it
    /// may not reallocate rows or caches that other work uses.
    fn on_side_stream(&self, work: impl FnOnce()) -> Self::SideWork {
        work();
        Self::SideWork::default()
    }

    /// Makes the work that follows wait for work on a side stream.
    fn join(&self, side: &Self::SideWork) {
        let _ = side;
    }

    /// Whether [`Self::top_k`] returns before its result is there, so that the next step may be begun
    /// meanwhile.
    fn run_ahead(&self) -> RunAhead;

    /// Whether queries, keys and values of the same input are computed in one product.
    fn joins_products(&self) -> bool {
        true
    }

    /// Packs dense layers that share their input, once when a model is opened (memoization of
    /// packed weights); their outputs are concatenated.
    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Self::Linear;
    /// Packs dense layers that see the source only, once a sentence. Their rounding errors affect every word of
    /// the translation.
    fn prepare_source_linear(&self, parts: &[Dense<'_>]) -> Self::Linear {
        self.prepare_linear(parts)
    }
    /// Prepares an embedding table.
    fn prepare_table(&self, table: &Weight) -> Self::Table;
    /// Prepares a norm.
    fn prepare_norm(&self, norm: NormWeights<'_>) -> Self::Norm;
    /// Packs the output layer.
    fn prepare_output(&self, layer: Dense<'_>) -> Self::Output;
    /// Gathers the rows of a shortlist. `words` are sorted ids.
    fn select(&self, output: &Self::Output, words: &[u32]) -> Self::Selection;
    /// No rows yet.
    fn rows(&self) -> Self::Rows;
    /// Width of rows.
    fn width(&self, rows: &Self::Rows) -> usize;
    /// Makes at least `rows` rows of that width, keeping what is in them.
    fn reserve(&self, states: &mut Self::Rows, rows: usize, width: usize);
    /// No attention weights yet.
    fn weights(&self) -> Self::Weights;
    /// Attention weights, row after row.
    fn read_weights(&self, weights: &Self::Weights, out: &mut Vec<f32>);
    /// An empty cache.
    fn cache(&self) -> Self::Cache;
    /// An empty cache for keys and values that are read right after they are stored and not again. It
    /// keeps all bits, as quantising it would cost more than reading it.
    fn working_cache(&self) -> Self::Cache {
        self.cache()
    }
    /// Makes room for at least `positions` keys and values and keeps its content. A cache's width and number of
    /// heads never change.
    fn reserve_cache(&self, cache: &mut Self::Cache, positions: usize, width: usize, heads: usize);

    /// `out[r] = scale · table[ids[r]] + position(at[r])`, with a zero vector where there is no id.
    fn embed(&self, table: &Self::Table, request: Embed<'_>, out: &mut Self::Rows);
    /// `out = after(x · Wᵀ + b)`.
    fn linear(
        &self,
        x: &Self::Rows,
        linear: &Self::Linear,
        after: Epilogue<'_, Self>,
        out: &mut Self::Rows,
    );
    /// Two dense layers with an activation between them: `out = after(second(activation(first(x))))`.
    /// `hidden` is working memory, unspecified afterwards.
    fn feed_forward(
        &self,
        x: &Self::Rows,
        (first, activation): (&Self::Linear, Activation),
        (second, after): (&Self::Linear, Epilogue<'_, Self>),
        hidden: &mut Self::Rows,
        out: &mut Self::Rows,
    ) {
        self.linear(x, first, Epilogue::activation(activation), hidden);
        self.linear(hidden, second, after, out);
    }
    /// `out = ops(x)`, for ops that follow no product. `input` is what [`PreparedOp::Add`] and
    /// [`PreparedOp::Highway`] read.
    fn process(
        &self,
        x: &Self::Rows,
        ops: &[PreparedOp<Self>],
        input: Option<&Self::Rows>,
        out: &mut Self::Rows,
    );
    /// Works out which positions of the KV cache each row of a step reads of its own past. Called after the
    /// step's [`Self::embed`].
    fn extend_past(&self, step: PastExtension<'_>, past: &mut Self::Past);
    /// Stores keys (D columns of `x` from `key_column` on) and values (the D columns after) in
    /// positions `at` of a KV cache.
    fn store(&self, x: &Self::Rows, key_column: usize, at: &[u32], cache: &mut Self::Cache);
    /// Multi-head attention of the first D columns of `queries` to cached positions.
    fn attend(&self, queries: &Self::Rows, to: Attention<'_, Self>, out: &mut Self::Rows);
    /// A self-attention block in which every row reads all rows of its sentence: queries, keys and values by one product,
    /// attention, and the end of the block.
    fn attend_within(
        &self,
        x: &Self::Rows,
        block: AttentionWithin<'_, Self>,
        scratch: &mut WithinScratch<Self>,
        out: &mut Self::Rows,
    ) {
        let AttentionWithin { projection, sentences, heads, width, last, after } = block;
        let WithinScratch { joint, attended, cache } = scratch;
        self.reserve_cache(cache, sentences.positions, width, heads);
        self.linear(x, projection, Epilogue::nothing(), joint);
        self.store(joint, width, &sentences.at, cache);
        let to = Attention { cache, reads: &sentences.reads, heads, width };
        self.attend(joint, to, attended);
        match last {
            Some(last) => self.linear(attended, last, after, out),
            None => self.process(attended, after.ops, after.input, out),
        }
    }
    /// The softmax weights of [`Self::attend`]: the mean over the first `heads` heads, row after row.
    fn attention_weights(
        &self,
        queries: &Self::Rows,
        to: Attention<'_, Self>,
        heads: usize,
        out: &mut Vec<f32>,
    );
    /// The running mean of an average attention network (AAN):
    /// `out[r] = state[to] = (state[from] · n + x[r]) / (n + 1)`, n = `before[r]`.
    fn average(
        &self,
        x: &Self::Rows,
        moves: Moves<'_>,
        before: &[u32],
        state: &mut Self::Rows,
        out: &mut Self::Rows,
    );
    /// Simpler simple recurrent unit (SSRU): `f = sigmoid(forget)`, `c = f∘state[from] + (1-f)∘candidate`,
    /// `state[to] = c`, `out = max(0, c)`.
    fn ssru(
        &self,
        candidate: &Self::Rows,
        forget: &Self::Rows,
        moves: Moves<'_>,
        state: &mut Self::Rows,
        out: &mut Self::Rows,
    );
    /// `y = a∘x + b∘y`.
    fn mix(&self, a: &Self::Rows, x: &Self::Rows, b: &Self::Rows, y: &mut Self::Rows);
    /// `out[r] = state[from]`. The state of [`Source::Zero`] is zero.
    fn load(&self, state: &Self::Rows, moves: Moves<'_>, out: &mut Self::Rows);
    /// `out[i] = rows[at[i]]`.
    fn gather(&self, rows: &Self::Rows, at: &[u32], out: &mut Self::Rows);
    /// Copies row `i` of `x` to row `at[i]` of `out`, from column `column` on.
    fn scatter(&self, x: &Self::Rows, at: &[u32], column: usize, out: &mut Self::Rows);
    /// Makes `rows` have `count` rows of that width. Rows that were there stay and new ones are zero; a
    /// change of width clears all.
    fn resize(&self, rows: &mut Self::Rows, count: usize, width: usize);
    /// `out[i]` = the mean of the rows that row `i` reads.
    fn mean(&self, rows: &Self::Rows, reads: &Reads, out: &mut Self::Rows);
    /// One step of a recurrent cell for every row of `h`, in place: see [`CellKind`] and
    /// [`Terms`]. Multiplicative cells are their base cell here.
    fn recur(
        &self,
        kind: CellKind,
        terms: Terms<'_, Self>,
        h: &mut Self::Rows,
        c: Option<&mut Self::Rows>,
    );
    /// `h = a∘s`, what multiplicative cells begin with.
    fn modulate(&self, a: Term<'_, Self>, s: Term<'_, Self>, h: &mut Self::Rows);
    /// Attention weights of every row over the keys it reads, end to end: the softmax of
    /// `energy · tanh(key + query)`, or without energy of `key · query`.
    fn align(
        &self,
        queries: &Self::Rows,
        keys: &Self::Rows,
        reads: &Reads,
        energy: Option<&Self::Rows>,
        weights: &mut Self::Weights,
    );
    /// `out[i]` = the sum of the rows that row `i` reads, with those weights.
    fn weigh(
        &self,
        weights: &Self::Weights,
        reads: &Reads,
        values: &Self::Rows,
        out: &mut Self::Rows,
    );
    /// Begins the output layer with a fused top-k: product, k best words and log-sum-exp in one pass, without
    /// storing all scores.
    fn top_k(
        &self,
        x: &Self::Rows,
        output: &Self::Output,
        selections: &[Option<&Self::Selection>],
        query: TopKQuery<'_>,
        pending: &mut Self::Pending,
    );
    /// Collects the result of a top-k request.
    fn take_top_k(&self, pending: &mut Self::Pending, best: &mut Choices);
    /// The scores of all words of every row that is wanted, one row after the other. A row with a selection has scores of the
    /// selected words only.
    fn logits(
        &self,
        x: &Self::Rows,
        output: &Self::Output,
        selections: &[Option<&Self::Selection>],
        wanted: &[bool],
        out: &mut Vec<f32>,
    );
}

/// A dense layer's weights.
#[derive(Clone, Copy)]
pub struct Dense<'a> {
    /// The matrix, of shape (outputs, inputs).
    pub weight: &'a Weight,
    /// The bias, of shape (outputs).
    pub bias: Option<&'a Weight>,
    /// A fixed multiplier for quantising the input, if the file has one.
    pub alpha: Option<f32>,
}

/// A norm's weights.
#[derive(Clone, Copy)]
pub struct NormWeights<'a> {
    /// The factors of the normalised row.
    pub scale: &'a Weight,
    /// The bias that is added last.
    pub bias: Option<&'a Weight>,
    /// The number that is added to the variance.
    pub epsilon: f32,
    /// Whether the mean is subtracted first (layer norm) or not (root-mean-square norm).
    pub centred: bool,
}

/// A prepared processing op.
pub enum PreparedOp<B: Backend> {
    /// Adds the block's input.
    Add,
    /// Normalises the row.
    Norm(B::Norm),
    /// Normalises neighbouring groups of columns separately.
    Norms(Vec<B::Norm>),
    /// Hyperbolic tangent.
    Tanh,
    /// Clamps values to a range.
    Clamp {
        /// Least value.
        least: f32,
        /// Largest value.
        most: f32,
    },
    /// `g = sigmoid(input · W + b)`, `y = g∘y + (1-g)∘input`.
    Highway(B::Linear),
}

/// The epilogue of a product: an activation, then ops.
pub struct Epilogue<'a, B: Backend> {
    /// The activation, which comes first.
    pub activation: Activation,
    /// The ops after the activation.
    pub ops: &'a [PreparedOp<B>],
    /// The rows that [`PreparedOp::Add`] and [`PreparedOp::Highway`] read.
    pub input: Option<&'a B::Rows>,
}

impl<B: Backend> Epilogue<'_, B> {
    /// An epilogue of one activation.
    pub fn activation(activation: Activation) -> Self {
        Epilogue { activation, ops: &[], input: None }
    }

    /// An epilogue that leaves the product as it is.
    pub fn nothing() -> Self {
        Epilogue::activation(Activation::Identity)
    }
}

/// What [`Backend::embed`] looks up.
#[derive(Clone, Copy)]
pub struct Embed<'a> {
    /// The word of each row; none is a zero vector.
    pub ids: &'a [Option<u32>],
    /// The factor of the embedding.
    pub scale: f32,
    /// For each row the place of the last top-k request ([`Origin::Place`](crate::Origin::Place)) whose word it
    /// takes in place of its id. That word may still be known to the device only. Empty if no row has one.
    pub follows: &'a [Option<u32>],
    /// The position of each row.
    pub at: &'a [u32],
    /// The position vectors, which are added.
    pub positions: Option<&'a PositionTable>,
}

/// What attention reads.
pub struct Attention<'a, B: Backend> {
    /// The KV cache.
    pub cache: &'a B::Cache,
    /// The positions each row reads.
    pub reads: &'a Reads,
    /// Number of heads.
    pub heads: usize,
    /// Width of queries, keys and values (D).
    pub width: usize,
}

impl<B: Backend> Clone for Attention<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Attention<'_, B> {}

/// The rows of sentences, end to end, and the positions of a KV cache for them.
#[derive(Default)]
pub struct Sentences {
    /// The position each row stores.
    pub at: Vec<u32>,
    /// The positions each row reads: all of its sentence.
    pub reads: Reads,
    /// The number of positions in all.
    pub positions: usize,
}

/// A block of self-attention within sentences.
pub struct AttentionWithin<'a, B: Backend> {
    /// Computes queries, keys and values, side by side.
    pub projection: &'a B::Linear,
    /// The sentences.
    pub sentences: &'a Sentences,
    /// Number of heads.
    pub heads: usize,
    /// Width of queries, keys and values (D).
    pub width: usize,
    /// The last projection, if there is one.
    pub last: Option<&'a B::Linear>,
    /// The epilogue of the last projection, or of attention. It has no activation.
    pub after: Epilogue<'a, B>,
}

/// Working memory of [`Backend::attend_within`], unspecified afterwards.
pub struct WithinScratch<B: Backend> {
    /// Queries, keys and values.
    pub joint: B::Rows,
    /// The output of attention.
    pub attended: B::Rows,
    /// Keys and values.
    pub cache: B::Cache,
}

impl<B: Backend> WithinScratch<B> {
    /// Empty working memory.
    pub fn new(backend: &B) -> Self {
        WithinScratch {
            joint: backend.rows(),
            attended: backend.rows(),
            cache: backend.working_cache(),
        }
    }
}

/// Where a step reads and writes recurrent states.
#[derive(Debug, Clone, Copy)]
pub struct Moves<'a> {
    /// What the state of each row is read from.
    pub from: &'a [Source],
    /// The state row that each row of the last step wrote.
    pub before: &'a [u32],
    /// The state row that each row writes.
    pub to: &'a [u32],
}

/// What a recurrent state is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A zero vector.
    Zero,
    /// A row of the states.
    State(u32),
    /// The state of the hypothesis at a place of the last top-k request
    /// ([`Origin::Place`](crate::Origin::Place)).
    Place(u32),
}

impl Moves<'_> {
    /// The row of the states that row `row` goes on from, if every row has one place, that of its best word.
    pub fn state(&self, row: usize) -> Option<usize> {
        match self.from[row] {
            Source::Zero => None,
            Source::State(state) => Some(state as usize),
            Source::Place(place) => Some(self.before[place as usize] as usize),
        }
    }
}

/// A summand of a recurrent cell, with the assignment of its rows to the rows of a step.
pub struct Term<'a, B: Backend> {
    /// The summand's rows.
    pub rows: &'a B::Rows,
    /// The row that belongs to each row of the step.
    pub of: Of<'a>,
}

/// Which row of a [`Term`] belongs to row `i` of a step.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// Row `i`.
    Same,
    /// Row `at[i]`.
    At(&'a [u32]),
    /// Row 0.
    First,
}

impl Of<'_> {
    /// The row that belongs to row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> usize {
        match self {
            Of::Same => i,
            Of::At(at) => at[i] as usize,
            Of::First => 0,
        }
    }
}

impl<'a, B: Backend> Term<'a, B> {
    /// Row `i` for row `i`.
    pub fn same(rows: &'a B::Rows) -> Self {
        Term { rows, of: Of::Same }
    }

    /// Row `at[i]` for row `i`.
    pub fn at(rows: &'a B::Rows, at: &'a [u32]) -> Self {
        Term { rows, of: Of::At(at) }
    }
}

impl<B: Backend> Clone for Term<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Term<'_, B> {}

/// The summands of a recurrent cell, each G·D wide; a missing one is zero.
pub struct Terms<'a, B: Backend> {
    /// The product of the input.
    pub x: Option<Term<'a, B>>,
    /// The product of the state.
    pub s: Option<Term<'a, B>>,
    /// The input itself, D wide, which SRU passes on.
    pub raw: Option<Term<'a, B>>,
}
