//! One worker's running state, the same for every recurrent network: which sentence owns which rows
//! of the caches, and what each row of a step reads and writes.
//!
//! A sentence's *memory* is a run of rows, one a source token. The n-th hypothesis of a sentence
//! owns two rows of every state cache and writes to them in turn: what the step before wrote is
//! still there for all that go on from it. The start state is written where step −1 would have.

use std::sync::Arc;

use super::cell::{Groups, State};
use super::projection::Words;
use super::ragged::Ragged;
use crate::asked::Asked;
use crate::backend::{Backend, Choices, Moves, Question, Reads, Source};
use crate::device_beam::{Origin, RunAhead};
use crate::network::{Network, Prepared, Row, Sentence, Slot};
use crate::pool::RowPool;
use crate::slots::Slots;
use crate::speedups::Speedups;

/// What a recurrent network must know to be run by a [`Session`].
pub(crate) trait Core<B: Backend>: Send + Sync + 'static {
    /// Working memory of one worker.
    type Work: Send;

    fn backend(&self) -> &B;
    fn speedups(&self) -> &Speedups;
    fn output(&self) -> &B::Output;
    fn target_words(&self) -> usize;
    /// For each recurrent decoder layer its width and whether it has a cell vector.
    fn states(&self) -> Vec<(usize, bool)>;
    /// Widths of what is kept of each source token.
    fn memories(&self) -> Vec<usize>;
    fn work(&self) -> Self::Work;
    /// Bytes computed ahead.
    fn precomputed_bytes(&self) -> usize;

    /// Encodes sentences. Their tokens' memory goes to rows `at`, the start states to rows `start`
    /// of the state caches.
    fn encode(&self, batch: Encode<'_, B>, work: &mut Self::Work);

    /// One decoder step; the rows for the output layer are in [`Self::top`] afterwards, and the
    /// attention weights in `weights`.
    fn step(
        &self,
        plan: &Plan,
        memory: &[B::Rows],
        states: &mut [State<B>],
        weights: &mut B::Weights,
        work: &mut Self::Work,
    );

    fn top<'w>(&self, work: &'w Self::Work) -> &'w B::Rows;
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
pub(crate) struct Plan {
    slots: Vec<Slot>,
    tokens: Vec<Option<u32>>,
    /// Places of the last question whose words they are, where only the device knows them.
    follows: Vec<Option<u32>>,
    /// Rows of the memories.
    pub(crate) source: Reads,
    /// What states are read from,
    from: Vec<Source>,
    /// where the last step left them,
    before: Vec<u32>,
    /// and where this one does.
    pub(crate) to: Vec<u32>,
    /// Rows that go on from the same state.
    groups: Groups,
    merge: bool,
}

impl Plan {
    /// The words before.
    pub(crate) fn words(&self) -> Words<'_> {
        Words { ids: &self.tokens, follows: &self.follows }
    }

    /// Recurrent states.
    pub(crate) fn moves(&self) -> Moves<'_> {
        Moves { from: &self.from, before: &self.before, to: &self.to }
    }

    /// Rows with the same state, if that is to be made use of.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        self.merge.then_some(&self.groups)
    }
}

/// A recurrent network with the state of one worker.
pub(crate) struct Session<B: Backend, N: Core<B>> {
    network: Arc<N>,
    work: N::Work,
    /// Another for encoding, where that is done beside steps.
    encoding: Option<N::Work>,
    memory: Vec<B::Rows>,
    states: Vec<State<B>>,
    memory_pool: RowPool,
    state_pool: RowPool,
    /// For each hypothesis of a sentence the first of its two state rows.
    slots: Slots<B, Vec<u32>>,
    plan: Plan,
    batch: Ragged,
    weights: B::Weights,
    /// The same where somebody wants to see them.
    alignment: Vec<f32>,
    asked: Asked<B::Pending>,
}

impl<B: Backend, N: Core<B>> Session<B, N> {
    pub(crate) fn new(network: Arc<N>) -> Self {
        let backend = network.backend();
        let states = network.states();
        Session {
            work: network.work(),
            encoding: backend.works_beside().then(|| network.work()),
            memory: network.memories().iter().map(|_| backend.rows()).collect(),
            states: states.iter().map(|&(_, cell)| State::new(backend, cell)).collect(),
            memory_pool: RowPool::default(),
            state_pool: RowPool::default(),
            slots: Slots::new(),
            plan: Plan { merge: network.speedups().merge, ..Plan::default() },
            batch: Ragged::default(),
            weights: backend.weights(),
            alignment: Vec::new(),
            asked: Asked::new(),
            network,
        }
    }

    fn reserve_states(&mut self) {
        let rows = self.state_pool.size();
        let widths = self.network.states();
        for (cache, (width, _)) in self.states.iter_mut().zip(widths) {
            let backend = self.network.backend();
            backend.reserve(&mut cache.h, rows, width);
            if let Some(c) = &mut cache.c {
                backend.reserve(c, rows, width);
            }
        }
    }

    /// The first of a lane's two rows.
    fn lane(&mut self, slot: Slot, lane: usize) -> u32 {
        let lanes = self.slots.past_mut(slot);
        while lanes.len() <= lane {
            lanes.push(self.state_pool.take(2));
        }
        lanes[lane]
    }

    /// Works out what each row reads and writes.
    fn plan(&mut self, rows: &[Row]) {
        let mut plan = std::mem::take(&mut self.plan);
        // The rows just written become those to read.
        std::mem::swap(&mut plan.before, &mut plan.to);
        plan.clear();
        let known = self.state_pool.size();
        let mut lane = 0;
        for (i, row) in rows.iter().enumerate() {
            lane = if i > 0 && rows[i - 1].slot == row.slot { lane + 1 } else { 0 };
            let own = self.lane(row.slot, lane);
            let sentence = self.slots.of(row.slot);
            if matches!(row.from, Origin::Start) {
                self.network.backend().join(&sentence.encoded);
            }
            let start = sentence.past[0] + 1;
            plan.from.push(match row.from {
                Origin::Start => Source::State(start),
                Origin::Row { row, .. } => Source::State(plan.before[row as usize]),
                Origin::Place(place) => Source::Place(place),
            });
            plan.to.push(own + row.position % 2);
            plan.slots.push(row.slot);
            plan.tokens.push(row.from.token());
            plan.follows.push(row.from.place());
            plan.source.push(sentence.memory.clone());
        }
        plan.group();
        self.plan = plan;
        if self.state_pool.size() > known {
            self.reserve_states();
        }
    }
}

impl Plan {
    fn clear(&mut self) {
        self.slots.clear();
        self.tokens.clear();
        self.follows.clear();
        self.source.clear();
        self.from.clear();
        self.to.clear();
    }

    /// Finds rows that go on from the same one, as far as that is known: places are taken to differ. There are
    /// few rows of a sentence, and they stand together, so looking back from the end finds a twin soon.
    fn group(&mut self) {
        let Plan { from, slots, groups, .. } = self;
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
        let backend = network.backend();
        let mut owned = Vec::with_capacity(sentences.len());
        let (mut at, mut start, mut reads) = (Vec::new(), Vec::new(), Reads::default());
        let mut tokens = 0;
        for sentence in sentences {
            let length = sentence.source.len() as u32;
            let first = self.memory_pool.take(length);
            let lane = self.state_pool.take(2);
            at.extend(first..first + length);
            start.push(lane + 1);
            reads.push(tokens..tokens + length);
            tokens += length;
            owned.push((first..first + length, vec![lane]));
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
        let encoded = backend.beside(|| network.encode(encode, work));
        let select = |words: &[u32]| backend.select(network.output(), words);
        let add = |((memory, lanes), sentence): (_, &Sentence<'_>)| {
            self.slots.add(memory, lanes, encoded.clone(), sentence.words, select)
        };
        owned.into_iter().zip(sentences).map(add).collect()
    }

    fn release(&mut self, slot: Slot) {
        let Some(sentence) = self.slots.release(slot) else { return };
        self.network.backend().join(&sentence.encoded);
        self.memory_pool.give_back(sentence.memory.start, sentence.memory.len() as u32);
        for lane in sentence.past {
            self.state_pool.give_back(lane, 2);
        }
    }

    fn reset(&mut self) {
        *self = Session::new(Arc::clone(&self.network));
        self.network.backend().abandon();
    }

    fn step(&mut self, rows: &[Row], alignments: bool) {
        self.plan(rows);
        let network = Arc::clone(&self.network);
        let backend = network.backend();
        if !network.speedups().reuse {
            self.work = network.work();
            self.weights = backend.weights();
        }
        let Session { plan, memory, states, weights, work, alignment, .. } = self;
        network.step(plan, memory, states, weights, work);
        if alignments {
            backend.read_weights(weights, alignment);
        }
    }

    fn ask(&mut self, question: Question<'_>) {
        let Session { network, work, slots, plan, asked, .. } = self;
        slots.with_selections(&plan.slots, |selections| {
            let top = network.top(work);
            asked.ask(|pending| {
                network.backend().ask(top, network.output(), selections, question, pending);
            });
        });
    }

    fn answer(&mut self, answer: &mut Choices) {
        self.asked.answer(|pending| self.network.backend().answer(pending, answer));
    }

    fn run_ahead(&self) -> RunAhead {
        self.network.backend().run_ahead()
    }

    fn encodes_beside(&self) -> bool {
        self.network.backend().works_beside()
    }

    fn logits(&mut self, out: &mut Vec<f32>) {
        let Session { network, work, slots, plan, .. } = self;
        slots.with_selections(&plan.slots, |selections| {
            let top = network.top(work);
            network.backend().logits(top, network.output(), selections, out);
        });
    }

    fn alignment(&self, row: usize) -> &[f32] {
        &self.alignment[self.plan.source.range(row)]
    }

    fn target_words(&self) -> usize {
        self.network.target_words()
    }

    fn position_limit(&self) -> usize {
        usize::MAX
    }
}

/// A prepared recurrent network: what hands out sessions.
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
