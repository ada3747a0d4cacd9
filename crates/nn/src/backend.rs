//! The verbs a device must know.
//!
//! A verb has the grain of a layer's part: a product comes with everything that happens to its
//! result before another part reads it. Networks ask for nothing smaller, so a backend is free to
//! fuse. Batches are ragged: rows laid end to end, and for attention a list of the rows each row
//! reads ([`Reads`]). No verb can let one row see another that it was not told to read.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use peregrine_model::{Activation, CellKind, Weight};

use crate::device_beam::{DeviceBeam, RunAhead};
use crate::past::Grow;
use crate::positions::PositionTable;
use crate::recur::{Term, Terms};

/// A device that can run networks.
pub trait Backend: Sized + Send + Sync + 'static {
    /// Rows of activations, or of recurrent states. The width is set when a verb writes it.
    type Rows: Send + Sync;
    /// Keys and values of many positions, laid out for the step that reads them.
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
    /// A question whose answer may still be on its way.
    type Pending: Default + Send;

    /// What rows read of their own past.
    type Past: AsRef<Reads> + Default + Send;

    /// The end of what is done [beside](Self::beside) other work.
    type Beside: Clone + Default + Send;

    /// Drops what this thread has begun, and gives the memory at rest back to the device: of both there may be
    /// too much where it has run out of memory.
    fn abandon(&self) {}

    /// Whether anything is done beside other work.
    fn works_beside(&self) -> bool {
        false
    }

    /// Does work beside what follows, as far as the device can. It sees all that was done before. What it
    /// writes nobody may read, and nobody else write, before it is [joined](Self::join), nor may rows and
    /// caches that others know grow in it.
    fn beside(&self, work: impl FnOnce()) -> Self::Beside {
        work();
        Self::Beside::default()
    }

    /// What follows sees what was done beside.
    fn join(&self, beside: &Self::Beside) {
        let _ = beside;
    }

    /// Whether [`Self::ask`] returns before the answer is known, and the next step may be begun
    /// meanwhile.
    fn run_ahead(&self) -> RunAhead;

    /// Whether queries, keys and values that are made of one input are to come out of one product.
    fn joins_products(&self) -> bool {
        true
    }

    /// Packs dense layers that share their input; their outputs stand side by side.
    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Self::Linear;
    /// The same for layers that see the source alone, once a sentence. What is lost there every word of the
    /// translation misses.
    fn prepare_source_linear(&self, parts: &[Dense<'_>]) -> Self::Linear {
        self.prepare_linear(parts)
    }
    /// Prepares an embedding table.
    fn prepare_table(&self, table: &Weight) -> Self::Table;
    /// Prepares a norm.
    fn prepare_norm(&self, norm: NormWeights<'_>) -> Self::Norm;
    /// Packs the output layer. `parts` as for [`Self::prepare_linear`], one part.
    fn prepare_output(&self, layer: Dense<'_>) -> Self::Output;
    /// Gathers the rows of some words, sorted ids.
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
    /// The same for keys and values that are read right after they are stored, and then forgotten: there
    /// is nothing to gain from keeping them in fewer bits.
    fn working_cache(&self) -> Self::Cache {
        self.cache()
    }
    /// Makes room for at least `positions` keys and values of that width and so many heads, which never change, keeping what
    /// is there.
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
    /// `out = ops(x)`, where a product has nothing to do with it. `input` is what [`PreparedOp::Add`] and
    /// [`PreparedOp::Highway`] see.
    fn process(
        &self,
        x: &Self::Rows,
        ops: &[PreparedOp<Self>],
        input: Option<&Self::Rows>,
        out: &mut Self::Rows,
    );
    /// Works out what each row of a step reads of its own past. Comes after the step's [`Self::embed`].
    fn grow(&self, step: Grow<'_>, past: &mut Self::Past);
    /// Puts keys (D columns of `x` from `key_column` on) and values (the D columns after) into
    /// positions `at` of a cache.
    fn store(&self, x: &Self::Rows, key_column: usize, at: &[u32], cache: &mut Self::Cache);
    /// Multi-head attention of the first D columns of `queries` to cached positions.
    fn attend(&self, queries: &Self::Rows, to: Attention<'_, Self>, out: &mut Self::Rows);
    /// The weights with which [`Self::attend`] reads: the mean over the first `heads` heads, row
    /// after row.
    fn attention_weights(
        &self,
        queries: &Self::Rows,
        to: Attention<'_, Self>,
        heads: usize,
        out: &mut Vec<f32>,
    );
    /// Running mean: `out[r] = state[to] = (state[from] · n + x[r]) / (n + 1)`, n = `before[r]`.
    fn average(
        &self,
        x: &Self::Rows,
        moves: Moves<'_>,
        before: &[u32],
        state: &mut Self::Rows,
        out: &mut Self::Rows,
    );
    /// Simple recurrent unit: `f = sigmoid(forget)`, `c = f∘state[from] + (1-f)∘candidate`,
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
    /// `out[r] = state[from]`. No row's state is zero.
    fn load(&self, state: &Self::Rows, moves: Moves<'_>, out: &mut Self::Rows);
    /// `out[i] = rows[at[i]]`.
    fn gather(&self, rows: &Self::Rows, at: &[u32], out: &mut Self::Rows);
    /// Copies row `i` of `x` to row `at[i]` of `out`, from column `column` on.
    fn scatter(&self, x: &Self::Rows, at: &[u32], column: usize, out: &mut Self::Rows);
    /// Makes it `count` rows of that width. Rows that were there stay, new ones are zero; another
    /// width forgets all.
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
    /// Begins to find the best words of every row, without handing out the scores of the others.
    fn ask(
        &self,
        x: &Self::Rows,
        output: &Self::Output,
        selections: &[Option<&Self::Selection>],
        question: Question<'_>,
        pending: &mut Self::Pending,
    );
    /// What was found.
    fn answer(&self, pending: &mut Self::Pending, answer: &mut Choices);
    /// The scores of all words of every row, one row after the other (of the selected words only
    /// where a row has a selection).
    fn logits(
        &self,
        x: &Self::Rows,
        output: &Self::Output,
        selections: &[Option<&Self::Selection>],
        out: &mut Vec<f32>,
    );
}

/// A dense layer's weights.
#[derive(Clone, Copy)]
pub struct Dense<'a> {
    /// (outputs, inputs)
    pub weight: &'a Weight,
    /// (outputs)
    pub bias: Option<&'a Weight>,
    /// A fixed multiplier for quantising the input, where the file has one.
    pub alpha: Option<f32>,
}

/// A norm's weights.
#[derive(Clone, Copy)]
pub struct NormWeights<'a> {
    /// Multiplied after normalising.
    pub scale: &'a Weight,
    /// Added at the end.
    pub bias: Option<&'a Weight>,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether the mean is taken off first (layer norm) or not (root-mean-square norm).
    pub centred: bool,
}

/// A prepared processing op.
pub enum PreparedOp<B: Backend> {
    /// Add the block's input.
    Add,
    /// Normalise.
    Norm(B::Norm),
    /// Normalise neighbouring groups of columns, each for itself.
    Norms(Vec<B::Norm>),
    /// Hyperbolic tangent.
    Tanh,
    /// Values outside go to the nearer end.
    Clamp {
        /// Least value.
        least: f32,
        /// Largest value.
        most: f32,
    },
    /// `g = sigmoid(input · W + b)`, `y = g∘y + (1-g)∘input`.
    Highway(B::Linear),
}

/// What happens to a product.
pub struct Epilogue<'a, B: Backend> {
    /// First this,
    pub activation: Activation,
    /// then these.
    pub ops: &'a [PreparedOp<B>],
    /// What [`PreparedOp::Add`] and [`PreparedOp::Highway`] see.
    pub input: Option<&'a B::Rows>,
}

impl<B: Backend> Epilogue<'_, B> {
    /// An activation and nothing else.
    pub fn activation(activation: Activation) -> Self {
        Epilogue { activation, ops: &[], input: None }
    }

    /// Nothing at all.
    pub fn nothing() -> Self {
        Epilogue::activation(Activation::Identity)
    }
}

/// What [`Backend::embed`] looks up.
#[derive(Clone, Copy)]
pub struct Embed<'a> {
    /// A word a row, or none for a zero vector.
    pub ids: &'a [Option<u32>],
    /// Multiplied with the embedding.
    pub scale: f32,
    /// Rows that take another word: that of a place of the last question ([`Origin::Place`](crate::Origin::Place)), whose
    /// answer may still be on its way. Empty, or one a row.
    pub follows: &'a [Option<u32>],
    /// The position of each row.
    pub at: &'a [u32],
    /// What is added for a position.
    pub positions: Option<&'a PositionTable>,
}

/// For each row the positions of a cache that it reads. Neighbouring rows may share a list.
#[derive(Debug, Default)]
pub struct Reads {
    positions: Vec<u32>,
    /// Where each list stands in `positions`,
    spans: Vec<Range<usize>>,
    /// and whether the rows that share it are a party.
    parties: Vec<bool>,
    /// The list of each row.
    lists: Vec<u32>,
    /// Zero until somebody asks.
    identity: AtomicU64,
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

impl Reads {
    /// A number no other lists have or had: while it stays the same, so do the lists.
    pub fn identity(&self) -> u64 {
        let known = self.identity.load(Relaxed);
        if known != 0 {
            return known;
        }
        let new = LAST_IDENTITY.fetch_add(1, Relaxed) + 1;
        self.identity.store(new, Relaxed);
        new
    }

    /// All lists end to end.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        *self.identity.get_mut() = 0;
        self.positions.clear();
        self.spans.clear();
        self.parties.clear();
        self.lists.clear();
    }

    /// The next row reads these positions.
    pub fn push(&mut self, positions: impl IntoIterator<Item = u32>) {
        let start = self.positions.len();
        self.positions.extend(positions);
        self.push_elsewhere(start..self.positions.len());
    }

    /// The same for the first row of a party: rows that share a list, even where there is only one of them. A
    /// device may serve a party in another way than single rows, with other last bits. So whether a row is in a
    /// party must depend on its own search alone, not on how many rows the party has just now, nor on who else is
    /// in the batch.
    pub fn push_party(&mut self, positions: impl IntoIterator<Item = u32>) {
        self.push(positions);
        if let Some(party) = self.parties.last_mut() {
            *party = true;
        }
    }

    /// The next row reads positions that only the device knows: what stands there in its lists. All
    /// rows are of that kind or none; nobody can ask what such rows [read](Self::of).
    pub fn push_elsewhere(&mut self, span: Range<usize>) {
        *self.identity.get_mut() = 0;
        self.lists.push(self.spans.len() as u32);
        self.spans.push(span);
        self.parties.push(false);
    }

    /// The next row reads what the one before it reads.
    pub fn push_same(&mut self) {
        *self.identity.get_mut() = 0;
        self.lists.extend(self.lists.last().copied());
    }

    /// What row `row` reads.
    pub fn of(&self, row: usize) -> &[u32] {
        &self.positions[self.range(row)]
    }

    /// Where the list of row `row` stands in all lists laid end to end.
    pub fn range(&self, row: usize) -> Range<usize> {
        self.spans[self.lists[row] as usize].clone()
    }

    /// Runs of rows that share a list, and the list.
    pub fn groups(&self) -> impl Iterator<Item = (Range<usize>, &[u32])> {
        self.runs().map(|rows| (rows.clone(), self.of(rows.start)))
    }

    /// The rows of each party.
    pub fn parties(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs().filter(|rows| self.is_in_party(rows.start))
    }

    /// Whether row `row` is in a party.
    pub fn is_in_party(&self, row: usize) -> bool {
        self.parties[self.lists[row] as usize]
    }

    /// Runs of rows that share a list.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        self.lists.chunk_by(|a, b| a == b).map(move |run| {
            let rows = start..start + run.len();
            start = rows.end;
            rows
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// What attention reads.
pub struct Attention<'a, B: Backend> {
    /// Keys and values.
    pub cache: &'a B::Cache,
    /// Who reads what.
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

/// Recurrent states on their way.
#[derive(Debug, Clone, Copy)]
pub struct Moves<'a> {
    /// What the state of each row is read from.
    pub from: &'a [Source],
    /// Where the rows of the last step left theirs.
    pub before: &'a [u32],
    /// Where each row leaves its own.
    pub to: &'a [u32],
}

/// What a recurrent state is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing: it is zero.
    Zero,
    /// This row of the states.
    State(u32),
    /// What was left by the row that is at this place of the last question
    /// ([`Origin::Place`](crate::Origin::Place)).
    Place(u32),
}

impl Moves<'_> {
    /// The row of the states that row `row` goes on from, where places are those of best words.
    pub fn state(&self, row: usize) -> Option<usize> {
        match self.from[row] {
            Source::Zero => None,
            Source::State(state) => Some(state as usize),
            Source::Place(place) => Some(self.before[place as usize] as usize),
        }
    }
}

/// How words are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// By logit: enough to find the best, and no exponential is computed.
    Logit,
    /// By log-probability over all words.
    LogProbability,
    /// By log-probability over the words that are not banned.
    LogProbabilityOfAllowed,
}

/// What is asked of the output layer for one row.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// How many of the best words.
    pub count: usize,
    /// Words out of the question, sorted.
    pub banned: &'a [u32],
    /// If set, this word's score is the whole answer.
    pub forced: Option<u32>,
    /// The sum of the scores so far, where it is known and there are [contests](Question::contests).
    pub path: f32,
    /// How its words are scored.
    pub scoring: Scoring,
}

/// What is asked of the output layer for all rows. Rows may ask for different things: each has the answer, to the
/// last bit, that it would have alone.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// One for each row.
    pub asks: &'a [Ask<'a>],
    /// How the rows of each sentence compete, in the order of their rows, where the next step may go on from the
    /// winners' places.
    pub device_beams: Option<&'a [DeviceBeam]>,
}

/// A word and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The word.
    pub token: u32,
    /// Its score, see [`Scoring`].
    pub score: f32,
}

/// The best words of each row, best first; of equals the one with the lower id first.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    choices: Vec<Choice>,
    ends: Vec<usize>,
}

impl Choices {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.choices.clear();
        self.ends.clear();
    }

    /// Adds the choices of the next row.
    pub fn push(&mut self, choices: impl IntoIterator<Item = Choice>) {
        self.choices.extend(choices);
        self.ends.push(self.choices.len());
    }

    /// The choices of row `row`.
    pub fn of(&self, row: usize) -> &[Choice] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.choices[start..self.ends[row]]
    }
}
