//! One worker's state, the same for every recurrent network: which sentence owns which rows
//! of the caches, and which rows each row of a step reads and writes.
//!
//! A sentence's *memory* is a run of rows, one a source token. The n-th hypothesis of a sentence
//! owns two rows of every state cache and writes to them in turn: the state of the step before is
//! still there for all that go on from it. The start state is written where step −1 would have written.

use std::sync::Arc;

use super::cell::{Groups, State};
use super::projection::Words;
use super::ragged::Ragged;
use crate::backend::{Backend, Moves, Source};
use crate::device_beam::{Origin, RunAhead};
use crate::network::{Network, Prepared, Row, Sentence, Slot};
use crate::pending::PendingQueue;
use crate::pool::RowPool;
use crate::reads::Reads;
use crate::slots::Slots;
use crate::speedups::Speedups;
use crate::top_k::{Choices, TopKQuery};

/// A recurrent network as a [`Session`] runs it.
pub(crate) trait Core<B: Backend>: Send + Sync + 'static {
    /// Working memory of one worker.
    type Work: Send;

    fn base(&self) -> &Base<B>;
    /// For each recurrent decoder layer its width and whether it has a cell vector.
    fn states(&self) -> Vec<(usize, bool)>;
    /// The widths of the rows that are kept of each source token.
    fn memories(&self) -> Vec<usize>;
    fn work(&self) -> Self::Work;
    /// Bytes of pre-computed embeddings.
    fn precomputed_bytes(&self) -> usize;

    /// Encodes sentences. Their tokens' memory goes to rows `at`, the start states to rows `start`
    /// of the state caches.
    fn encode(&self, batch: Encode<'_, B>, work: &mut Self::Work);

    /// One decoder step; the rows for the output layer are in [`Self::top`] afterwards, and the
    /// attention weights in `weights`.
    fn step(
        &self,
        layout: &StepLayout,
        memory: &[B::Rows],
        states: &mut [State<B>],
        weights: &mut B::Weights,
        work: &mut Self::Work,
    );

    fn top<'w>(&self, work: &'w Self::Work) -> &'w B::Rows;
}

/// What every recurrent network has beside its layers.
pub(crate) struct Base<B: Backend> {
    pub(crate) backend: B,
    pub(crate) speedups: Speedups,
    pub(crate) output: B::Output,
    pub(crate) target_words: usize,
}

/// Sentences to encode.
pub(crate) struct Encode<'a, B: Backend> {
    /// All tokens, end to end.
    pub(crate) ids: &'a [Option<u32>],
    pub(crate) batch: &'a mut Ragged,
    /// The tokens of each sentence.
    pub(crate) reads: &'a Reads,
    pub(crate) memory: &'a mut [B::Rows],
    pub(crate) at: &'a [u32],
    pub(crate) states: &'a mut [State<B>],
    pub(crate) start: &'a [u32],
}

/// What the rows of a step read and write.
#[derive(Default)]
pub(crate) struct StepLayout {
    slots: Vec<Slot>,
    tokens: Vec<Option<u32>>,
    /// Places of the last top-k request whose words the rows take, if only the device has those words.
    follows: Vec<Option<u32>>,
    /// The rows of the memories that each row reads.
    pub(crate) source: Reads,
    /// The source of each row's state.
    from: Vec<Source>,
    /// The row to which each row of the last step wrote its state.
    before: Vec<u32>,
    /// The row to which each row writes its state.
    pub(crate) to: Vec<u32>,
    /// Merged states: rows that go on from the same state.
    groups: Groups,
    merge: bool,
}

impl StepLayout {
    /// The words before.
    pub(crate) fn words(&self) -> Words<'_> {
        Words { ids: &self.tokens, follows: &self.follows }
    }

    /// Recurrent states.
    pub(crate) fn moves(&self) -> Moves<'_> {
        Moves { from: &self.from, before: &self.before, to: &self.to }
    }

    /// Rows with the same state, if states are merged.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        self.merge.then_some(&self.groups)
    }
}

/// A recurrent network with the state of one worker.
pub(crate) struct Session<B: Backend, N: Core<B>> {
    network: Arc<N>,
    work: N::Work,
    /// The working memory for encoding on a side stream, if there is one.
    encoding: Option<N::Work>,
    memory: Vec<B::Rows>,
    states: Vec<State<B>>,
    memory_pool: RowPool,
    state_pool: RowPool,
    /// For each hypothesis of a sentence the first of its two state rows.
    slots: Slots<B, Vec<u32>>,
    layout: StepLayout,
    batch: Ragged,
    weights: B::Weights,
    /// The attention weights on the host, if alignments are wanted.
    alignment: Vec<f32>,
    pending: PendingQueue<B::Pending>,
}

impl<B: Backend, N: Core<B>> Session<B, N> {
    pub(crate) fn new(network: Arc<N>) -> Self {
        let backend = &network.base().backend;
        let states = network.states();
        Session {
            work: network.work(),
            encoding: backend.has_side_stream().then(|| network.work()),
            memory: network.memories().iter().map(|_| backend.rows()).collect(),
            states: states.iter().map(|&(_, cell)| State::new(backend, cell)).collect(),
            memory_pool: RowPool::default(),
            state_pool: RowPool::default(),
            slots: Slots::new(),
            layout: StepLayout { merge: network.base().speedups.merge, ..StepLayout::default() },
            batch: Ragged::default(),
            weights: backend.weights(),
            alignment: Vec::new(),
            pending: PendingQueue::new(),
            network,
        }
    }

    fn reserve_states(&mut self) {
        let rows = self.state_pool.size();
        let widths = self.network.states();
        for (cache, (width, _)) in self.states.iter_mut().zip(widths) {
            let backend = &self.network.base().backend;
            backend.reserve(&mut cache.h, rows, width);
            if let Some(c) = &mut cache.c {
                backend.reserve(c, rows, width);
            }
        }
    }

    /// The first of the two state rows of the hypothesis number `index` of a sentence.
    fn state_rows(&mut self, slot: Slot, index: usize) -> u32 {
        let starts = self.slots.past_mut(slot);
        while starts.len() <= index {
            starts.push(self.state_pool.take(2));
        }
        starts[index]
    }

    /// Works out what each row reads and writes.
    fn lay_out(&mut self, rows: &[Row]) {
        let mut layout = std::mem::take(&mut self.layout);
        // The rows just written become those to read.
        std::mem::swap(&mut layout.before, &mut layout.to);
        layout.clear();
        let known = self.state_pool.size();
        let mut index = 0;
        for (i, row) in rows.iter().enumerate() {
            index = if i > 0 && rows[i - 1].slot == row.slot { index + 1 } else { 0 };
            let own = self.state_rows(row.slot, index);
            let sentence = self.slots.of(row.slot);
            if matches!(row.from, Origin::Start(_)) {
                self.network.base().backend.join(&sentence.encoded);
            }
            let start = sentence.past[0] + 1;
            layout.from.push(match row.from {
                Origin::Start(_) => Source::State(start),
                Origin::Row { row, .. } => Source::State(layout.before[row as usize]),
                Origin::Place(place) => Source::Place(place),
            });
            layout.to.push(own + row.position % 2);
            layout.slots.push(row.slot);
            layout.tokens.push(row.from.token());
            layout.follows.push(row.from.place());
            layout.source.push(sentence.memory.clone());
        }
        layout.group();
        self.layout = layout;
        if self.state_pool.size() > known {
            self.reserve_states();
        }
    }
}

impl StepLayout {
    fn clear(&mut self) {
        self.slots.clear();
        self.tokens.clear();
        self.follows.clear();
        self.source.clear();
        self.from.clear();
        self.to.clear();
    }

    /// Merges states: finds rows that go on from the same one, as far as the host can tell. Places are taken to
    /// differ. A sentence has few rows and they stand together, so a linear search is fast.
    fn group(&mut self) {
        let StepLayout { from, slots, groups, .. } = self;
        groups.first.clear();
        groups.of.clear();
        let mut sentence = 0;
        for (i, state) in from.iter().enumerate() {
            if i > 0 && slots[i] != slots[i - 1] {
                sentence = groups.first.len();
            }
            let twin = groups.first[sentence..].iter().position(|&g| from[g as usize] == *state);
            let group = twin.map_or(groups.first.len(), |place| sentence + place);
            if group == groups.first.len() {
                groups.first.push(i as u32);
            }
            groups.of.push(group as u32);
        }
    }
}

impl<B: Backend, N: Core<B>> Network for Session<B, N> {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        let network = Arc::clone(&self.network);
        let backend = &network.base().backend;
        let mut owned = Vec::with_capacity(sentences.len());
        let (mut at, mut start, mut reads) = (Vec::new(), Vec::new(), Reads::default());
        let mut tokens = 0;
        for sentence in sentences {
            let length = sentence.source.len() as u32;
            let first = self.memory_pool.take(length);
            let state = self.state_pool.take(2);
            at.extend(first..first + length);
            start.push(state + 1);
            reads.push(tokens..tokens + length);
            tokens += length;
            owned.push((first..first + length, vec![state]));
        }
        for (cache, width) in self.memory.iter_mut().zip(network.memories()) {
            backend.reserve(cache, self.memory_pool.size(), width);
        }
        self.reserve_states();
        self.batch.set(sentences.iter().map(|s| s.source.len()));
        let ids: Vec<Option<u32>> =
            sentences.iter().flat_map(|s| s.source).map(|&id| Some(id)).collect();
        let encode = Encode {
            ids: &ids,
            batch: &mut self.batch,
            reads: &reads,
            memory: &mut self.memory,
            at: &at,
            states: &mut self.states,
            start: &start,
        };
        let work = self.encoding.as_mut().unwrap_or(&mut self.work);
        let encoded = backend.on_side_stream(|| network.encode(encode, work));
        let select = |words: &[u32]| backend.select(&network.base().output, words);
        let add = |((memory, states), sentence): (_, &Sentence<'_>)| {
            self.slots.add(memory, states, encoded.clone(), sentence.words, select)
        };
        owned.into_iter().zip(sentences).map(add).collect()
    }

    fn release(&mut self, slot: Slot) {
        let Some(sentence) = self.slots.release(slot) else { return };
        self.network.base().backend.join(&sentence.encoded);
        self.memory_pool.give_back(sentence.memory.start, sentence.memory.len() as u32);
        for rows in sentence.past {
            self.state_pool.give_back(rows, 2);
        }
    }

    fn reset(&mut self) {
        *self = Session::new(Arc::clone(&self.network));
        self.network.base().backend.abandon();
    }

    fn step(&mut self, rows: &[Row], alignments: bool) {
        self.lay_out(rows);
        let network = Arc::clone(&self.network);
        let backend = &network.base().backend;
        if !network.base().speedups.reuse {
            self.work = network.work();
            self.weights = backend.weights();
        }
        let Session { layout, memory, states, weights, work, alignment, .. } = self;
        network.step(layout, memory, states, weights, work);
        if alignments {
            backend.read_weights(weights, alignment);
        }
    }

    fn top_k(&mut self, query: TopKQuery<'_>) {
        let Session { network, work, slots, layout, pending, .. } = self;
        slots.with_selections(&layout.slots, |selections| {
            let top = network.top(work);
            pending.begin(|pending| {
                network.base().backend.top_k(
                    top,
                    &network.base().output,
                    selections,
                    query,
                    pending,
                );
            });
        });
    }

    fn take_top_k(&mut self, best: &mut Choices) {
        self.pending.take(|pending| self.network.base().backend.take_top_k(pending, best));
    }

    fn run_ahead(&self) -> RunAhead {
        self.network.base().backend.run_ahead()
    }

    fn encodes_on_side_stream(&self) -> bool {
        self.network.base().backend.has_side_stream()
    }

    fn logits(&mut self, wanted: &[bool], out: &mut Vec<f32>) {
        let Session { network, work, slots, layout, .. } = self;
        slots.with_selections(&layout.slots, |selections| {
            let top = network.top(work);
            network.base().backend.logits(top, &network.base().output, selections, wanted, out);
        });
    }

    fn alignment(&self, row: usize) -> &[f32] {
        &self.alignment[self.layout.source.range(row)]
    }

    fn target_words(&self) -> usize {
        self.network.base().target_words
    }

    fn position_limit(&self) -> usize {
        usize::MAX
    }
}

/// A prepared recurrent network.
pub(crate) struct Runner<B: Backend, N: Core<B>> {
    network: Arc<N>,
    backend: std::marker::PhantomData<fn() -> B>,
}

impl<B: Backend, N: Core<B>> Runner<B, N> {
    pub(crate) fn new(network: N) -> Arc<Self> {
        Arc::new(Runner { network: Arc::new(network), backend: std::marker::PhantomData })
    }
}

impl<B: Backend, N: Core<B>> Prepared for Runner<B, N> {
    fn session(self: Arc<Self>) -> Box<dyn Network> {
        Box::new(Session::new(Arc::clone(&self.network)))
    }

    fn precomputed_bytes(&self) -> usize {
        self.network.precomputed_bytes()
    }
}
