//! A model being run by one worker, as search sees it.

use std::sync::Arc;

use crate::device_beam::{Origin, RunAhead};
use crate::top_k::{Choices, TopKQuery};

/// The number by which a network knows a sentence and its rows of the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// One hypothesis at one step.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its sentence.
    pub slot: Slot,
    /// What it goes on from. Places are allowed as far as [`Network::run_ahead`] says.
    pub from: Origin,
    /// Number of words before this one.
    pub position: u32,
}

/// A sentence to admit.
#[derive(Debug, Clone, Copy)]
pub struct Sentence<'a> {
    /// Source ids with their frame.
    pub source: &'a [u32],
    /// The shortlist: target words allowed, sorted. Without one all words are allowed.
    pub words: Option<&'a [u32]>,
    /// Whether there will be several hypotheses.
    pub beam: bool,
}

/// A network with the state of one worker: the caches of the sentences in its batch.
///
/// [`Self::admit`] encodes sentences, [`Self::step`] runs the decoder over the rows alive, and
/// [`Self::top_k`] or [`Self::logits`] runs the output layer for those rows.
pub trait Network: Send {
    /// Encodes sentences and gives each a slot, in order.
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot>;

    /// Gives a sentence's slot back.
    fn release(&mut self, slot: Slot);

    /// Frees all working memory and drops pending top-k requests. Called when the batch is empty, after one that
    /// was too large for the device.
    fn reset(&mut self);

    /// One decoder step. The rows of a sentence stand together; its first step has one row.
    /// With `alignments`, [`Self::alignment`] may be called afterwards for every row. That changes no other
    /// result, not in the last bit.
    fn step(&mut self, rows: &[Row], alignments: bool);

    /// Begins the output layer and top-k of each row of the last step.
    fn top_k(&mut self, query: TopKQuery<'_>);

    /// Collects the result of the earliest pending top-k request.
    fn take_top_k(&mut self, best: &mut Choices);

    /// Whether the next step may begin before the last top-k result is collected, with rows that go on from
    /// its [places](Origin::Place).
    fn run_ahead(&self) -> RunAhead {
        RunAhead::No
    }

    /// Whether sentences are encoded on a side stream while others are stepped, so that it pays to admit them
    /// before the batch has room for them.
    fn encodes_on_side_stream(&self) -> bool {
        false
    }

    /// The scores of all words, or of the shortlist, of each row of the last step that is wanted, end to end.
    fn logits(&mut self, wanted: &[bool], out: &mut Vec<f32>);

    /// Attention of row `row` of the last step to the source, frame included.
    fn alignment(&self, row: usize) -> &[f32];

    /// Number of target words.
    fn target_words(&self) -> usize;

    /// The most target positions the network can compute.
    fn position_limit(&self) -> usize;
}

/// What ends a worker when its device fails. Verbs return no errors, since a network cannot handle one:
/// a backend unwinds with this value, and the worker's loop catches it.
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

    /// Bytes of pre-computed embeddings, see [`Speedups::embeddings`](crate::Speedups::embeddings).
    fn precomputed_bytes(&self) -> usize {
        0
    }
}
