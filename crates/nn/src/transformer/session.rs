//! One worker's state: which sentence owns which rows of the KV caches, and which rows each row of
//! a step reads and writes.
//!
//! A sentence's *memory* is a run of rows, one a source token. Its *past* is allocated by hypothesis number:
//! the n-th hypothesis of a sentence writes to the n-th runs, whatever it descends from. Attention keeps a
//! list of the cache rows of each hypothesis' words, so re-ordering a beam copies small lists of
//! row numbers and never a key or a value. Recurrent layers (AAN, SSRU) keep two rows a hypothesis number, one
//! to read and one to write.

use std::sync::Arc;

use peregrine_model::Autoregression;

use super::Transformer;
use super::block::Buffers;
use crate::backend::{Backend, Moves, Source};
use crate::device_beam::{Origin, RunAhead};
use crate::network::{Network, Prepared, Row, Sentence, Slot};
use crate::pending::PendingQueue;
use crate::pool::RowPool;
use crate::profile;
use crate::reads::Reads;
use crate::slots::Slots;
use crate::top_k::{Choices, TopKQuery};

/// Positions of a cache are allocated in runs of this many, so that the runs one sentence gives back fit another.
const CHUNK: u32 = 16;

/// The number of positions to allocate for a source of that length.
pub(super) fn whole_blocks(length: usize) -> u32 {
    (length as u32).next_multiple_of(CHUNK)
}

/// A transformer with the state of one worker.
pub(super) struct Session<B: Backend> {
    network: Arc<Transformer<B>>,
    buffers: Buffers<B>,
    /// The buffers for encoding on a side stream, if there is one.
    encoding: Option<Buffers<B>>,
    caches: Caches<B>,
    memory_pool: RowPool,
    past_pool: RowPool,
    slots: Slots<B, Past>,
    layout: StepLayout,
    alignment: Vec<f32>,
    pending: PendingQueue<B::Pending>,
}

/// The caches of each decoder layer.
pub(super) struct Caches<B: Backend> {
    /// KV caches of the source.
    pub(super) memory: Vec<B::Cache>,
    /// KV caches of the words so far, for layers that attend to them.
    pub(super) past: Vec<B::Cache>,
    /// The positions of `past` that each row reads.
    pub(super) reads: B::Past,
    /// Recurrent states, for layers that have them in place of `past`.
    pub(super) states: Vec<B::Rows>,
}

/// The rows of a sentence in the past caches.
///
/// A greedy step of thousands of sentences is bound by cache misses, so what it needs of each lies in one place: the runs of the
/// first hypothesis number, and of those the first.
struct Past {
    /// Whether there will be several hypotheses.
    beam: bool,
    best: PastRuns,
    others: Vec<PastRuns>,
    /// The row of the first step's processed keys and values, for dialects that keep them apart.
    first: Option<u32>,
}

impl Past {
    /// The runs of hypothesis number `index`.
    fn runs(&mut self, index: usize) -> &mut PastRuns {
        let Some(other) = index.checked_sub(1) else { return &mut self.best };
        if self.others.len() <= other {
            self.others.resize_with(other + 1, PastRuns::default);
        }
        &mut self.others[other]
    }

    /// All runs of all hypothesis numbers.
    fn all_runs(&self) -> impl Iterator<Item = u32> {
        std::iter::once(&self.best).chain(&self.others).flat_map(PastRuns::starts)
    }
}

/// Cache rows of one hypothesis number: runs of [`CHUNK`] rows, or one run of two.
#[derive(Default)]
struct PastRuns {
    first: Option<u32>,
    later: Vec<u32>,
}

impl PastRuns {
    fn starts(&self) -> impl Iterator<Item = u32> {
        self.first.into_iter().chain(self.later.iter().copied())
    }

    /// The start of run number `number`. Runs that are not there yet are taken from `pool`, `length` rows each. A hypothesis
    /// number that was unused for some steps gets rows for them all the same. They are never read.
    fn get(&mut self, number: usize, pool: &mut RowPool, length: u32) -> u32 {
        let first = *self.first.get_or_insert_with(|| pool.take(length));
        let Some(later) = number.checked_sub(1) else { return first };
        while self.later.len() <= later {
            self.later.push(pool.take(length));
        }
        self.later[later]
    }
}

/// What the rows of a step read and write.
#[derive(Default)]
pub(super) struct StepLayout {
    pub(super) slots: Vec<Slot>,
    pub(super) tokens: Vec<Option<u32>>,
    /// Places of the last top-k request whose words the rows take, if only the device has those words.
    pub(super) follows: Vec<Option<u32>>,
    /// What each row goes on from.
    pub(super) from: Vec<Origin>,
    pub(super) positions: Vec<u32>,
    /// The rows of the memory caches that each row reads.
    pub(super) source: Reads,
    /// The row of the caches to which each row's keys and values, or its states, are written.
    pub(super) own: Vec<u32>,
    /// The same of the last step's rows.
    pub(super) before: Vec<u32>,
    /// The row to which keys and values are written a second time, see [`Past::first`].
    pub(super) first: Vec<u32>,
    /// The first row each row reads, see [`PastExtension::first`](crate::past::PastExtension::first).
    pub(super) reads_first: Vec<Option<u32>>,
    /// The source of each row's recurrent state.
    pub(super) states: Vec<Source>,
}

impl<B: Backend> Session<B> {
    /// A worker with an empty batch.
    fn new(network: Arc<Transformer<B>>) -> Session<B> {
        let backend = &network.backend;
        let layers = network.description.decoder_parameters.len();
        let caches = Caches {
            memory: (0..layers).map(|_| backend.cache()).collect(),
            past: (0..layers).map(|_| backend.cache()).collect(),
            reads: B::Past::default(),
            states: (0..layers).map(|_| backend.rows()).collect(),
        };
        Session {
            buffers: Buffers::new(backend),
            encoding: backend.has_side_stream().then(|| Buffers::new(backend)),
            caches,
            memory_pool: RowPool::default(),
            past_pool: RowPool::default(),
            slots: Slots::new(),
            layout: StepLayout::default(),
            alignment: Vec::new(),
            pending: PendingQueue::new(),
            network,
        }
    }

    fn attends_to_past(&self) -> bool {
        matches!(self.network.description.autoregression, Autoregression::SelfAttention)
    }

    /// The row in which the hypothesis number `index` of a sentence keeps its `position`.
    fn past_row(&mut self, slot: Slot, index: usize, position: u32) -> u32 {
        let (run, length, offset) = if self.attends_to_past() {
            ((position / CHUNK) as usize, CHUNK, position % CHUNK)
        } else {
            (0, 2, position % 2)
        };
        let runs = self.slots.past_mut(slot).runs(index);
        runs.get(run, &mut self.past_pool, length) + offset
    }

    /// Works out what each row reads and writes.
    fn lay_out(&mut self, rows: &[Row]) {
        let mut layout = std::mem::take(&mut self.layout);
        std::mem::swap(&mut layout.own, &mut layout.before);
        layout.clear();
        let attends = self.attends_to_past();
        let mut index = 0;
        for (i, row) in rows.iter().enumerate() {
            index = if i > 0 && rows[i - 1].slot == row.slot { index + 1 } else { 0 };
            let own = self.past_row(row.slot, index, row.position);
            if matches!(row.from, Origin::Start(_)) {
                self.network.backend.join(&self.slots.of(row.slot).encoded);
            }
            let first_token = self.network.start_token();
            layout.slots.push(row.slot);
            layout.tokens.push(row.from.token().or(first_token));
            layout.follows.push(row.from.place());
            layout.from.push(row.from);
            layout.positions.push(row.position);
            let sentence = self.slots.of(row.slot);
            match index {
                0 if sentence.past.beam => layout.source.push_party(sentence.memory.clone()),
                0 => layout.source.push(sentence.memory.clone()),
                _ => layout.source.push_same(),
            }
            layout.own.push(own);
            if attends {
                self.lay_out_past(row, own, &mut layout);
            } else {
                layout.states.push(match row.from {
                    Origin::Start(_) => Source::Zero,
                    Origin::Row { row, .. } => Source::State(layout.before[row as usize]),
                    Origin::Place(place) => Source::Place(place),
                });
            }
        }
        self.layout = layout;
        let (size, network) = (self.past_pool.size(), &self.network);
        let (width, heads) = (network.description.width, network.description.decoder.heads);
        if self.attends_to_past() {
            for cache in &mut self.caches.past {
                network.backend.reserve_cache(cache, size, width, heads);
            }
        } else {
            for states in &mut self.caches.states {
                network.backend.reserve(states, size, width);
            }
        }
    }

    /// Where the first step has keys of its own it reads those, and the second step goes back to the
    /// common ones.
    fn lay_out_past(&mut self, row: &Row, own: u32, layout: &mut StepLayout) {
        let sentence = &self.slots.of(row.slot).past;
        // Later steps write there too, which is simpler than not doing so. It is not read again.
        let first = sentence.first.unwrap_or(own);
        layout.first.push(first);
        layout.reads_first.push(match row.position {
            0 => Some(first),
            1 => sentence.best.first,
            _ => None,
        });
    }
}

impl StepLayout {
    /// Recurrent states.
    pub(super) fn moves(&self) -> Moves<'_> {
        Moves { from: &self.states, before: &self.before, to: &self.own }
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.tokens.clear();
        self.follows.clear();
        self.from.clear();
        self.positions.clear();
        self.source.clear();
        self.own.clear();
        self.first.clear();
        self.reads_first.clear();
        self.states.clear();
    }
}

impl<B: Backend> Prepared for Transformer<B> {
    fn session(self: Arc<Self>) -> Box<dyn Network> {
        Box::new(Session::new(self))
    }
}

impl<B: Backend> Network for Session<B> {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        let network = Arc::clone(&self.network);
        let starts: Vec<u32> =
            sentences.iter().map(|s| self.memory_pool.take(whole_blocks(s.source.len()))).collect();
        for cache in &mut self.caches.memory {
            let (width, heads) = (network.description.width, network.description.decoder.heads);
            network.backend.reserve_cache(cache, self.memory_pool.size(), width, heads);
        }
        let runs = starts.iter().zip(sentences).map(|(&s, t)| s..s + t.source.len() as u32);
        let at: Vec<u32> = runs.clone().flatten().collect();
        let memory = &mut self.caches.memory;
        let buffers = self.encoding.as_mut().unwrap_or(&mut self.buffers);
        let encoded = network.backend.on_side_stream(|| {
            network.encode(sentences.iter().map(|s| s.source), buffers);
            network.remember(&at, buffers, memory);
        });
        profile::lap("source keys and values");
        let keys = network.description.decoder.self_keys;
        let needs_first =
            self.attends_to_past() && keys == peregrine_model::SelfKeys::RawAfterFirst;
        let select = |words: &[u32]| network.backend.select(&network.output, words);
        let mut slots = Vec::with_capacity(sentences.len());
        for (memory, sentence) in runs.zip(sentences) {
            let first = needs_first.then(|| self.past_pool.take(CHUNK));
            let (best, others) = Default::default();
            let past = Past { beam: sentence.beam, best, others, first };
            slots.push(self.slots.add(memory, past, encoded.clone(), sentence.words, select));
        }
        profile::lap("word lists");
        slots
    }

    fn release(&mut self, slot: Slot) {
        let Some(sentence) = self.slots.release(slot) else { return };
        self.network.backend.join(&sentence.encoded);
        let memory = sentence.memory;
        self.memory_pool.give_back(memory.start, whole_blocks(memory.len()));
        let length = if self.attends_to_past() { CHUNK } else { 2 };
        for run in sentence.past.all_runs() {
            self.past_pool.give_back(run, length);
        }
        if let Some(first) = sentence.past.first {
            self.past_pool.give_back(first, CHUNK);
        }
    }

    fn reset(&mut self) {
        *self = Session::new(Arc::clone(&self.network));
        self.network.backend.abandon();
    }

    fn step(&mut self, rows: &[Row], alignments: bool) {
        self.lay_out(rows);
        let network = Arc::clone(&self.network);
        let alignment = alignments.then_some(&mut self.alignment);
        network.decode_step(&self.layout, &mut self.caches, &mut self.buffers, alignment);
    }

    fn top_k(&mut self, query: TopKQuery<'_>) {
        let Session { network, buffers, slots, layout, pending, .. } = self;
        slots.with_selections(&layout.slots, |selections| {
            pending.begin(|pending| {
                network.backend.top_k(&buffers.x, &network.output, selections, query, pending);
            });
        });
    }

    fn take_top_k(&mut self, best: &mut Choices) {
        self.pending.take(|pending| self.network.backend.take_top_k(pending, best));
    }

    fn run_ahead(&self) -> RunAhead {
        self.network.backend.run_ahead()
    }

    fn encodes_on_side_stream(&self) -> bool {
        self.network.backend.has_side_stream()
    }

    fn logits(&mut self, wanted: &[bool], out: &mut Vec<f32>) {
        let (network, x) = (&self.network, &self.buffers.x);
        self.slots.with_selections(&self.layout.slots, |selections| {
            network.backend.logits(x, &network.output, selections, wanted, out);
        });
    }

    fn alignment(&self, row: usize) -> &[f32] {
        let length = |row| self.layout.source.of(row).len();
        let start: usize = (0..row).map(length).sum();
        &self.alignment[start..start + length(row)]
    }

    fn target_words(&self) -> usize {
        self.network.description.target_vocabulary
    }

    fn position_limit(&self) -> usize {
        self.network.target.limit()
    }
}
