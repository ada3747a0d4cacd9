//! A model being run by one worker, as search sees it.

use std::sync::Arc;

use peregrine_model::{Architecture, Weights};

use crate::backend::{Backend, Choices, Question};
use crate::device_beam::{Origin, RunAhead};
use crate::prepare::MissingWeight;
use crate::speedups::Speedups;
use crate::transformer::Transformer;
use crate::{recurrent, rnnfc};

/// A sentence's place in a network's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// One hypothesis at one step.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its sentence.
    pub slot: Slot,
    /// What it goes on from. Places only where the network gets that [far ahead](Network::ahead).
    pub from: Origin,
    /// Number of words before this one.
    pub position: u32,
}

/// A sentence to be admitted.
#[derive(Debug, Clone, Copy)]
pub struct Sentence<'a> {
    /// Source ids with their frame.
    pub source: &'a [u32],
    /// The target words allowed, sorted; all if there is no list.
    pub words: Option<&'a [u32]>,
    /// Whether there will be several hypotheses.
    pub beam: bool,
}

/// A network with its state: what the sentences in the batch have seen so far.
///
/// [`Self::admit`] encodes sentences, [`Self::step`] runs the decoder over the rows alive, and
/// [`Self::ask`] or [`Self::logits`] reads the output layer for those rows.
pub trait Network: Send {
    /// Encodes sentences and gives each a slot, in order.
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot>;

    /// Gives a sentence's slot back.
    fn release(&mut self, slot: Slot);

    /// Gives all working memory back, where no sentence is in the batch: what a batch that was too large took
    /// would be missing for the next. Questions that were not answered are forgotten.
    fn reset(&mut self);

    /// One decoder step. The rows of a sentence stand together; its first step has one row.
    /// With `alignments`, [`Self::alignment`] can be asked afterwards for every row. Nothing else changes by that,
    /// not in the last bit.
    fn step(&mut self, rows: &[Row], alignments: bool);

    /// Begins to find the best words of each row of the last step.
    fn ask(&mut self, question: Question<'_>);

    /// The answer to the earliest question that has had none.
    fn answer(&mut self, answer: &mut Choices);

    /// Whether the next step may begin before the last question is answered, with rows that go on from
    /// its [places](Origin::Place).
    fn run_ahead(&self) -> RunAhead {
        RunAhead::No
    }

    /// Whether sentences are encoded beside the steps of others, so that it pays to admit them before there
    /// is a place for them.
    fn encodes_beside(&self) -> bool {
        false
    }

    /// The scores of all words (or the allowed ones) of each row of the last step, end to end.
    fn logits(&mut self, out: &mut Vec<f32>);

    /// Attention of row `row` of the last step to the source, frame included.
    fn alignment(&self, row: usize) -> &[f32];

    /// Number of target words.
    fn target_words(&self) -> usize;

    /// The most target positions the network can compute.
    fn position_limit(&self) -> usize;
}

/// What ends a worker when its device fails. Verbs return no errors, since nothing in a network can
/// answer one: a backend unwinds with this, and whoever runs the worker catches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub reason: String,
    /// Whether a smaller batch may help.
    pub out_of_memory: bool,
}

/// A prepared network, shared by all workers.
pub trait Prepared: Send + Sync {
    /// A worker with an empty batch.
    fn session(self: Arc<Self>) -> Box<dyn Network>;

    /// Bytes taken by what was computed ahead, see [`Speedups::embeddings`].
    fn precomputed_bytes(&self) -> usize {
        0
    }
}

/// Packs a network's weights for a backend.
pub fn prepare<B: Backend>(
    backend: B,
    architecture: &Architecture,
    weights: &Weights,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    prepare_with(backend, architecture, weights, &Speedups::default())
}

/// The same, with some of the recurrent networks' short cuts off.
pub fn prepare_with<B: Backend>(
    backend: B,
    architecture: &Architecture,
    weights: &Weights,
    speedups: &Speedups,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    Ok(match architecture {
        Architecture::Transformer(t) => Arc::new(Transformer::prepare(backend, t, weights)?),
        Architecture::Recurrent(r) => recurrent::prepare(backend, r, weights, speedups)?,
        Architecture::RnnFc(r) => rnnfc::prepare(backend, r, weights, speedups)?,
    })
}
