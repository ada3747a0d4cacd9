//! The transformer, once, over the verbs of a backend.
//!
//! [`Transformer`] is the prepared network, shared by all workers; a session is one worker's
//! state. Blocks are in `block`, the source side in `encoder`, a step of the target side (self-attention
//! with a KV cache, average attention network or SSRU) in `decoder`, and the allocation of cache rows in
//! `session`.

mod block;
mod decoder;
mod encoder;
mod session;

use peregrine_model as model;
use peregrine_model::{Start, Weights, names};

use crate::backend::{Backend, PreparedOp};
use crate::positions::PositionTable;
use crate::prepare::{MissingWeight, Preparer};
use block::StackParts;
use decoder::DecoderLayer;
use encoder::EncoderLayer;

/// A prepared transformer.
pub(crate) struct Transformer<B: Backend> {
    backend: B,
    description: model::Transformer,
    source: Embedding<B>,
    target: Embedding<B>,
    encoder_parts: StackParts<B>,
    encoder: Vec<EncoderLayer<B>>,
    decoder_parts: StackParts<B>,
    /// Parameter sets; `description.decoder_parameters` says which layer uses which.
    decoder: Vec<Option<DecoderLayer<B>>>,
    output: B::Output,
}

/// An embedding table, the factor of its rows, and position vectors.
struct Embedding<B: Backend> {
    table: B::Table,
    scale: f32,
    positions: Option<PositionTable>,
}

impl<B: Backend> Transformer<B> {
    /// Packs the weights for `backend`.
    pub(crate) fn prepare(
        backend: B,
        description: &model::Transformer,
        weights: &Weights,
    ) -> Result<Transformer<B>, MissingWeight> {
        let preparer = Preparer { backend: &backend, weights };
        let d = description;
        let encoder = (0..d.encoder.layers)
            .map(|layer| EncoderLayer::prepare(&preparer, &d.encoder, layer))
            .collect::<Result<_, _>>()?;
        let sets = d.decoder_parameters.iter().max().map_or(0, |&last| last + 1);
        let decoder = (0..sets)
            .map(|set| {
                let used = d.decoder_parameters.contains(&set);
                used.then(|| DecoderLayer::prepare(&preparer, d, set)).transpose()
            })
            .collect::<Result<_, _>>()?;
        Ok(Transformer {
            source: Embedding::prepare(&preparer, &d.encoder, names::SOURCE_EMBEDDING, "encoder")?,
            target: Embedding::prepare(&preparer, &d.decoder, names::TARGET_EMBEDDING, "decoder")?,
            encoder_parts: StackParts::prepare(&preparer, &d.encoder, "encoder")?,
            decoder_parts: StackParts::prepare(&preparer, &d.decoder, "decoder")?,
            output: backend.prepare_output(preparer.dense("output")?),
            encoder,
            decoder,
            description: description.clone(),
            backend,
        })
    }

    /// The decoder's layers in order, each with its parameters.
    fn decoder_layers(&self) -> impl Iterator<Item = &DecoderLayer<B>> {
        self.description.decoder_parameters.iter().filter_map(|&set| self.decoder[set].as_ref())
    }

    /// The word that is looked up at a sentence's first step, where there is no previous word.
    fn start_token(&self) -> Option<u32> {
        match self.description.start {
            Start::Zero => None,
            Start::Token(token) => Some(token),
        }
    }
}

impl<B: Backend> Embedding<B> {
    fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &model::Stack,
        table: &str,
        side: &str,
    ) -> Result<Self, MissingWeight> {
        let table = preparer.weight(table)?;
        let width = table.columns();
        let positions = match stack.positions {
            model::Positions::None => None,
            model::Positions::Sinusoid { first, spacing } => {
                Some(PositionTable::sinusoid(width, first, spacing))
            }
            model::Positions::Table => {
                let rows = preparer.weight(&format!("{side}.positions"))?;
                Some(PositionTable::stored(rows.clone()))
            }
        };
        let table = preparer.backend.prepare_table(table);
        Ok(Embedding { table, scale: stack.embedding_scale, positions })
    }

    /// The number of positions with vectors.
    fn limit(&self) -> usize {
        self.positions.as_ref().map_or(usize::MAX, PositionTable::limit)
    }
}

/// Shorthand for a list of prepared processing ops.
type Ops<B> = Vec<PreparedOp<B>>;
