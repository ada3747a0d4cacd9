//! One worker's running state: which sentence owns which rows of the caches, and what each row of
//! a step reads and writes.
//!
//! A sentence's *memory* is a run of rows, one a source token. Its *past* belongs to lanes: the
//! n-th hypothesis of a sentence writes to lane n, whatever it descends from. Attention keeps a
//! list of the cache rows that made each hypothesis, so re-ordering a beam copies small lists of
//! row numbers and never a key or a value. Recurrent layers keep two rows a lane, one to read and
//! one to write.

use std::sync::Arc;

use peregrine_model::Autoregression;

use super::Transformer;
use super::block::Buffers;
use crate::asked::Asked;
use crate::backend::{Backend, Choices, Moves, Question, Reads, Source};
use crate::device_beam::{Origin, RunAhead};
use crate::network::{Network, Prepared, Row, Sentence, Slot};
use crate::pool::RowPool;
use crate::profile;
use crate::slots::Slots;

/// Positions of a cache are handed out in runs of this many, so that what one sentence gives back fits another.
const CHUNK: u32 = 16;

/// Positions to take for a source of that length.
pub(super) fn whole_blocks(length: usize) -> u32 {
    (length as u32).next_multiple_of(CHUNK)
}

/// A transformer with the state of one worker.
pub(super) struct Session<B: Backend> {
    network: Arc<Transformer<B>>,
    buffers: Buffers<B>,
    /// Others for encoding, where that is done beside steps.
    encoding: Option<Buffers<B>>,
    caches: Caches<B>,
    memory_pool: RowPool,
    past_pool: RowPool,
    slots: Slots<B, Past>,
    plan: Plan,
    alignment: Vec<f32>,
    asked: Asked<B::Pending>,
}

/// A cache a decoder layer.
pub(super) struct Caches<B: Backend> {
    /// Keys and values of the source.
    pub(super) memory: Vec<B::Cache>,
    /// Keys and values of the words so far, where layers attend to them,
    pub(super) past: Vec<B::Cache>,
    /// and what each row reads of them,
    pub(super) reads: B::Past,
    /// or else recurrent states.
    pub(super) states: Vec<B::Rows>,
}

/// Rows a sentence has in the past caches.
struct Past {
    /// Whether there will be several hypotheses.
    beam: bool,
    lanes: Vec<Lane>,
    /// Holds the first step's processed keys and values where a dialect wants them apart.
    first: Option<u32>,
}

/// Cache rows of one hypothesis number: runs of [`CHUNK`] rows, or one run of two.
#[derive(Default)]
struct Lane {
    runs: Vec<u32>,
}

/// What the rows of a step read and write.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) slots: Vec<Slot>,
    pub(super) tokens: Vec<Option<u32>>,
    /// Places of the last question whose words they are, where only the device knows them.
    pub(super) follows: Vec<Option<u32>>,
    /// What each row goes on from.
    pub(super) from: Vec<Origin>,
    pub(super) positions: Vec<u32>,
    /// Rows of the memory caches.
    pub(super) source: Reads,
    /// Where each row's keys and values go, or its states,
    pub(super) own: Vec<u32>,
    /// and where those of the last step went.
    pub(super) before: Vec<u32>,
    /// Where they go a second time, see [`Past::first`].
    pub(super) first: Vec<u32>,
    /// What the row reads first, see [`Grow::first`].
    pub(super) reads_first: Vec<Option<u32>>,
    /// What recurrent states are read from.
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
            encoding: backend.works_beside().then(|| Buffers::new(backend)),
            caches,
            memory_pool: RowPool::default(),
            past_pool: RowPool::default(),
            slots: Slots::new(),
            plan: Plan::default(),
            alignment: Vec::new(),
            asked: Asked::new(),
            network,
        }
    }

    fn attends_to_past(&self) -> bool {
        matches!(self.network.description.autoregression, Autoregression::SelfAttention)
    }

    /// The row in which lane `lane` keeps what it has at `position`.
    fn past_row(&mut self, slot: Slot, lane: usize, position: u32) -> u32 {
        let attends = self.attends_to_past();
        let lanes = &mut self.slots.past_mut(slot).lanes;
        if lanes.len() <= lane {
            lanes.resize_with(lane + 1, Lane::default);
        }
        let runs = &mut lanes[lane].runs;
        let (run, length, offset) = if attends {
            ((position / CHUNK) as usize, CHUNK, position % CHUNK)
        } else {
            (0, 2, position % 2)
        };
        // A lane that was empty for some steps has no rows for them, and nobody reads them.
        while runs.len() <= run {
            runs.push(self.past_pool.take(length));
        }
        runs[run] + offset
    }

    /// Works out what each row reads and writes.
    fn plan(&mut self, rows: &[Row]) {
        let mut plan = std::mem::take(&mut self.plan);
        std::mem::swap(&mut plan.own, &mut plan.before);
        plan.clear();
        let attends = self.attends_to_past();
        let mut lane = 0;
        for (i, row) in rows.iter().enumerate() {
            lane = if i > 0 && rows[i - 1].slot == row.slot { lane + 1 } else { 0 };
            let own = self.past_row(row.slot, lane, row.position);
            if matches!(row.from, Origin::Start) {
                self.network.backend.join(&self.slots.of(row.slot).encoded);
            }
            let first_token = self.network.start_token();
            plan.slots.push(row.slot);
            plan.tokens.push(row.from.token().or(first_token));
            plan.follows.push(row.from.place());
            plan.from.push(row.from);
            plan.positions.push(row.position);
            let sentence = self.slots.of(row.slot);
            match lane {
                0 if sentence.past.beam => plan.source.push_party(sentence.memory.clone()),
                0 => plan.source.push(sentence.memory.clone()),
                _ => plan.source.push_same(),
            }
            plan.own.push(own);
            if attends {
                self.plan_past(row, own, &mut plan);
            } else {
                plan.states.push(match row.from {
                    Origin::Start => Source::Zero,
                    Origin::Row { row, .. } => Source::State(plan.before[row as usize]),
                    Origin::Place(place) => Source::Place(place),
                });
            }
        }
        self.plan = plan;
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
    fn plan_past(&mut self, row: &Row, own: u32, plan: &mut Plan) {
        let sentence = &self.slots.of(row.slot).past;
        // Later steps write there too, which is simpler than not doing so: nobody reads it again.
        let first = sentence.first.unwrap_or(own);
        plan.first.push(first);
        plan.reads_first.push(match row.position {
            0 => Some(first),
            1 => Some(sentence.lanes[0].runs[0]),
            _ => None,
        });
    }
}

impl Plan {
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
        let encoded = network.backend.beside(|| {
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
            let past = Past { beam: sentence.beam, lanes: Vec::new(), first };
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
        for run in sentence.past.lanes.iter().flat_map(|lane| &lane.runs) {
            self.past_pool.give_back(*run, length);
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
        self.plan(rows);
        let network = Arc::clone(&self.network);
        let alignment = alignments.then_some(&mut self.alignment);
        network.decode_step(&self.plan, &mut self.caches, &mut self.buffers, alignment);
    }

    fn ask(&mut self, question: Question<'_>) {
        let Session { network, buffers, slots, plan, asked, .. } = self;
        slots.with_selections(&plan.slots, |selections| {
            asked.ask(|pending| {
                network.backend.ask(&buffers.x, &network.output, selections, question, pending);
            });
        });
    }

    fn answer(&mut self, answer: &mut Choices) {
        self.asked.answer(|pending| self.network.backend.answer(pending, answer));
    }

    fn run_ahead(&self) -> RunAhead {
        self.network.backend.run_ahead()
    }

    fn encodes_beside(&self) -> bool {
        self.network.backend.works_beside()
    }

    fn logits(&mut self, out: &mut Vec<f32>) {
        let (network, x) = (&self.network, &self.buffers.x);
        self.slots.with_selections(&self.plan.slots, |selections| {
            network.backend.logits(x, &network.output, selections, out);
        });
    }

    fn alignment(&self, row: usize) -> &[f32] {
        let length = |row| self.plan.source.of(row).len();
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
