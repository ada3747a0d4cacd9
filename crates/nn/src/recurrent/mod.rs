//! Recurrent networks, once, over the verbs of a backend.
//!
//! `cell` is a cell with merged states, `ragged` runs layers of cells over ragged batches, `projection` has
//! the pre-computed embeddings, `session` allocates cache rows; these serve [RNN+FC](crate::rnnfc) too.
//! `encoder` (with the pre-computed attention) and `decoder` are the networks of Marian, Nematus and Amun, and
//! this file puts them together. All memoisation can be switched off: see [`Speedups`].

pub(crate) mod cell;
mod decoder;
mod encoder;
pub(crate) mod projection;
pub(crate) mod ragged;
pub(crate) mod session;

use std::sync::Arc;

use peregrine_model as model;
use peregrine_model::{StartCell, Weights, names};

use crate::backend::{Backend, PreparedOp};
use crate::network::Prepared;
use crate::prepare::{MissingWeight, Preparer};
use crate::speedups::Speedups;
use cell::{Cell, CellScratch, Part, State, vector_row};
use projection::{Projection, ProjectionScratch};
use ragged::LayerScratch;
use session::{Base, Core, Encode, Runner, StepLayout};

/// A prepared network of Marian's, Nematus' or Amun's kind.
struct Recurrent<B: Backend> {
    base: Base<B>,
    description: model::Recurrent,
    source: Arc<B::Table>,
    directions: [Vec<Vec<Cell<B>>>; 2],
    /// The first cells' products of source embeddings: input and factor of each direction.
    source_inputs: [Entry<B>; 2],
    top: Vec<Vec<Cell<B>>>,
    start: Part<B>,
    decoder: Vec<Vec<Cell<B>>>,
    target_input: Entry<B>,
    key: Part<B>,
    query: Part<B>,
    energy: B::Rows,
    previous: Projection<B>,
    state: Part<B>,
    state_ops: Vec<PreparedOp<B>>,
    context: Part<B>,
    context_ops: Vec<PreparedOp<B>>,
}

/// A first cell's products of embeddings.
struct Entry<B: Backend> {
    input: Projection<B>,
    multiply: Option<Projection<B>>,
}

/// Working memory.
struct Work<B: Backend> {
    embedded: B::Rows,
    zeros: Vec<u32>,
    projection: ProjectionScratch<B>,
    layer: LayerScratch<B>,
    cell: CellScratch<B>,
    below: B::Rows,
    above: B::Rows,
    contexts: B::Rows,
    rows: B::Rows,
    mean: B::Rows,
    input: B::Rows,
    factor: B::Rows,
    query: B::Rows,
    attended: B::Rows,
    attended_factor: B::Rows,
    deep: B::Rows,
    state: State<B>,
    x: B::Rows,
    y: B::Rows,
    z: B::Rows,
    top: B::Rows,
}

/// Packs a network's weights.
pub(crate) fn prepare<B: Backend>(
    backend: B,
    description: &model::Recurrent,
    weights: &Weights,
    speedups: &Speedups,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    Ok(Runner::new(Recurrent::prepare(backend, description, weights, speedups)?))
}

impl<B: Backend> Recurrent<B> {
    fn prepare(
        backend: B,
        description: &model::Recurrent,
        weights: &Weights,
        speedups: &Speedups,
    ) -> Result<Self, MissingWeight> {
        let d = description;
        let preparer = Preparer { backend: &backend, weights };
        let layers =
            |places: Vec<Vec<model::CellPlace>>| -> Result<Vec<Vec<Cell<B>>>, MissingWeight> {
                let cell = |place| Cell::prepare(&preparer, &place, d.width, d.cell_norm);
                places.into_iter().map(|layer| layer.into_iter().map(cell).collect()).collect()
            };
        let source = Arc::new(backend.prepare_table(preparer.weight(names::SOURCE_EMBEDDING)?));
        let target = Arc::new(backend.prepare_table(preparer.weight(names::TARGET_EMBEDDING)?));
        let mut directions =
            [layers(d.encoder_direction(false))?, layers(d.encoder_direction(true))?];
        let mut decoder = layers(d.decoder_cells())?;
        let projection = |table: &Arc<B::Table>, part: Part<B>, words: usize| {
            Projection::new(&backend, Arc::clone(table), part, speedups.embeddings, words)
        };
        // The first cells' inputs are embeddings: their products belong to the words.
        let entry = |cell: &mut Cell<B>, table: &Arc<B::Table>, words: usize| {
            let input = cell.input.take();
            let input = input.ok_or_else(|| MissingWeight("a first cell's input".into()))?;
            let multiply = cell.take_factor().map(|part| projection(table, part, words));
            Ok::<_, MissingWeight>(Entry { input: projection(table, input, words), multiply })
        };
        let [forward, backward] = &mut directions;
        let source_inputs = [
            entry(&mut forward[0][0], &source, d.source_vocabulary)?,
            entry(&mut backward[0][0], &source, d.source_vocabulary)?,
        ];
        let target_input = entry(&mut decoder[0][0], &target, d.target_vocabulary)?;
        let dense = |name: &str| Part::dense(&preparer, name, d.dense_norm);
        let (mut state, mut context) = (dense("deep.state")?, dense("deep.context")?);
        let mut state_ops = std::mem::take(&mut state.ops);
        state_ops.push(PreparedOp::Add);
        let mut context_ops = std::mem::take(&mut context.ops);
        context_ops.extend([PreparedOp::Add, PreparedOp::Tanh]);
        let mut start = dense("start")?;
        start.ops.push(PreparedOp::Tanh);
        Ok(Recurrent {
            previous: projection(&target, dense("deep.previous")?, d.target_vocabulary),
            source,
            source_inputs,
            directions,
            top: layers(d.top())?,
            start,
            decoder,
            target_input,
            key: dense("attention.key")?,
            query: dense("attention.query")?,
            energy: vector_row(&preparer, "attention.energy")?,
            state,
            state_ops,
            context,
            context_ops,
            description: d.clone(),
            base: Base {
                output: backend.prepare_output(preparer.dense("output")?),
                target_words: d.target_vocabulary,
                // A cell that passes its input on must see it.
                speedups: Speedups {
                    attention: speedups.attention && d.decoder.base[1].has_state_product(),
                    ..*speedups
                },
                backend,
            },
        })
    }

    /// Whether a layer needs a cell vector.
    fn has_cell(cells: &[Cell<B>]) -> bool {
        cells.iter().any(Cell::has_cell)
    }

    /// The decoder's cell that reads the attended context.
    fn second(&self) -> &Cell<B> {
        &self.decoder[0][1]
    }
}

impl<B: Backend> Core<B> for Recurrent<B> {
    type Work = Work<B>;

    fn base(&self) -> &Base<B> {
        &self.base
    }

    fn states(&self) -> Vec<(usize, bool)> {
        let width = self.description.width;
        self.decoder.iter().map(|cells| (width, Self::has_cell(cells))).collect()
    }

    /// Widths of the keys and of the contexts, or with pre-computed attention of their products: deep output, second
    /// cell's input and factor.
    fn memories(&self) -> Vec<usize> {
        let d = &self.description;
        let mut widths = vec![d.attention_width];
        if self.base.speedups.attention {
            widths.push(d.target_embedding);
            widths.push(d.decoder.base[1].parts() * d.width);
            widths.extend(self.second().multiply_input.is_some().then_some(d.width));
        } else {
            widths.push(d.context_width());
        }
        widths
    }

    fn work(&self) -> Work<B> {
        let b = &self.base.backend;
        let rows = || b.rows();
        Work {
            embedded: rows(),
            zeros: Vec::new(),
            projection: ProjectionScratch::new(b),
            layer: LayerScratch::new(b),
            cell: CellScratch::new(b),
            below: rows(),
            above: rows(),
            contexts: rows(),
            rows: rows(),
            mean: rows(),
            input: rows(),
            factor: rows(),
            query: rows(),
            attended: rows(),
            attended_factor: rows(),
            deep: rows(),
            state: State::new(b, true),
            x: rows(),
            y: rows(),
            z: rows(),
            top: rows(),
        }
    }

    fn precomputed_bytes(&self) -> usize {
        let entries = self.source_inputs.iter().chain([&self.target_input]);
        let projections = entries.flat_map(|e| std::iter::once(&e.input).chain(&e.multiply));
        projections.chain([&self.previous]).map(|p| p.bytes(&self.base.backend)).sum()
    }

    fn encode(&self, mut batch: Encode<'_, B>, work: &mut Work<B>) {
        self.contexts(batch.ids, batch.batch, work);
        let b = &self.base.backend;
        self.remember(&mut batch, work);
        b.mean(&work.contexts, batch.reads, &mut work.mean);
        self.start.run(b, &work.mean, &mut work.x);
        for cache in batch.states.iter_mut() {
            b.scatter(&work.x, batch.start, 0, &mut cache.h);
            if let Some(c) = &mut cache.c {
                if self.description.decoder.start_cell == StartCell::Zero {
                    b.resize(&mut work.y, 0, self.description.width);
                    b.resize(&mut work.y, batch.start.len(), self.description.width);
                    b.scatter(&work.y, batch.start, 0, c);
                } else {
                    b.scatter(&work.x, batch.start, 0, c);
                }
            }
        }
    }

    fn step(
        &self,
        layout: &StepLayout,
        memory: &[B::Rows],
        states: &mut [State<B>],
        weights: &mut B::Weights,
        work: &mut Work<B>,
    ) {
        self.decode(layout, memory, states, weights, work);
    }

    fn top<'w>(&self, work: &'w Work<B>) -> &'w B::Rows {
        &work.top
    }
}
