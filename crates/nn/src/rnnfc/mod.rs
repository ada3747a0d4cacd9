//! Networks of a recurrent layer with attention under dense layers (Devlin's RNN+FC), over the verbs of a
//! backend. See [`RnnFc`](model::RnnFc) for the equations.
//!
//! With [`Speedups`], embeddings are pre-computed (memoised), attention is pre-computed once a source
//! word, and hypotheses that go on from the same one have merged states.

use std::sync::Arc;

use peregrine_model as model;
use peregrine_model::{CellPlace, RecurrentNorm, Top, Weights, names};

use crate::backend::{Backend, Epilogue, PreparedOp, Term};
use crate::network::Prepared;
use crate::prepare::{MissingWeight, Preparer};
use crate::recurrent::cell::{Cell, CellInput, CellScratch, Part, State};
use crate::recurrent::projection::{self, Projection, ProjectionScratch, Words};
use crate::recurrent::ragged::{LayerScratch, Ragged, run_dense_layer, run_projected_layer};
use crate::recurrent::session::{Base, Core, Encode, Runner, StepLayout};
use crate::speedups::Speedups;

/// A prepared network.
struct RnnFc<B: Backend> {
    base: Base<B>,
    description: model::RnnFc,
    source: Arc<B::Table>,
    /// The first layer's products of source embeddings, for both directions.
    source_inputs: [Projection<B>; 2],
    /// Layers that read both ways.
    pairs: Vec<[Cell<B>; 2]>,
    singles: Vec<Cell<B>>,
    start: Part<B>,
    cell: Cell<B>,
    /// The cell's product of the previous word.
    input: Projection<B>,
    /// Attention's product of the previous word.
    attention_input: Projection<B>,
    attention_state: Part<B>,
    key: Part<B>,
    /// The cell's product of the attended context.
    context: B::Linear,
    dense: Vec<DenseLayer<B>>,
    top: Head<B>,
    add: [PreparedOp<B>; 1],
    add_tanh: [PreparedOp<B>; 2],
}

struct DenseLayer<B: Backend> {
    linear: B::Linear,
    ops: Vec<PreparedOp<B>>,
}

enum Head<B: Backend> {
    None,
    Tanh(Part<B>),
    Cells(Vec<Cell<B>>),
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
    rows: B::Rows,
    input: B::Rows,
    query: B::Rows,
    attention: B::Rows,
    context: B::Rows,
    distinct: B::Rows,
    state: State<B>,
    top: B::Rows,
    next: B::Rows,
    skip: B::Rows,
}

/// Packs a network's weights.
pub(crate) fn prepare<B: Backend>(
    backend: B,
    description: &model::RnnFc,
    weights: &Weights,
    speedups: &Speedups,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    Ok(Runner::new(RnnFc::prepare(backend, description, weights, speedups)?))
}

impl<B: Backend> RnnFc<B> {
    fn prepare(
        backend: B,
        d: &model::RnnFc,
        weights: &Weights,
        speedups: &Speedups,
    ) -> Result<Self, MissingWeight> {
        let preparer = Preparer { backend: &backend, weights };
        let cell = |prefix: &str, inputs: usize, width: usize| {
            let place = CellPlace { prefix: prefix.into(), kind: d.cell, input: Some(inputs) };
            Cell::prepare(&preparer, &place, width, RecurrentNorm::None)
        };
        let part = |name: &str| Part::dense(&preparer, name, RecurrentNorm::None);
        let activated =
            |name: &str| part(name).map(|part| Part { ops: vec![PreparedOp::Tanh], ..part });
        let mut cells = Vec::new();
        for (prefix, inputs, width) in d.source_cells() {
            cells.push(cell(&prefix, inputs, width)?);
        }
        let singles = cells.split_off(2 * d.source_layers);
        let mut pairs = Vec::new();
        let mut rest = cells.into_iter();
        while let (Some(forward), Some(backward)) = (rest.next(), rest.next()) {
            pairs.push([forward, backward]);
        }
        let source = Arc::new(backend.prepare_table(preparer.weight(names::SOURCE_EMBEDDING)?));
        let target = Arc::new(backend.prepare_table(preparer.weight(names::TARGET_EMBEDDING)?));
        let project = |table: &Arc<B::Table>, part: Part<B>, words: usize| {
            Projection::new(&backend, Arc::clone(table), part, speedups.embeddings, words)
        };
        let source_input = |name| {
            let part = part(&format!("encoder.{name}.0.input"))?;
            Ok::<_, MissingWeight>(project(&source, part, d.source_vocabulary))
        };
        let dense = (0..d.dense_layers)
            .map(|k| DenseLayer::prepare(&preparer, k))
            .collect::<Result<_, _>>()?;
        let top = match d.top {
            Top::None => Head::None,
            Top::Tanh => Head::Tanh(activated("top")?),
            Top::Recurrent(layers) => {
                let inputs = |k| if k == 0 { d.inner_width() } else { d.top_width };
                let cells = (0..layers).map(|k| cell(&format!("top.{k}"), inputs(k), d.top_width));
                Head::Cells(cells.collect::<Result<_, _>>()?)
            }
        };
        Ok(RnnFc {
            source_inputs: [source_input("forward")?, source_input("backward")?],
            source,
            pairs,
            singles,
            start: activated("start")?,
            cell: cell("decoder", d.target_embedding, d.width)?,
            input: project(&target, part("decoder.input")?, d.target_vocabulary),
            attention_input: project(&target, part("attention.input")?, d.target_vocabulary),
            attention_state: part("attention.state")?,
            key: activated("attention.key")?,
            context: preparer.product("decoder.context")?,
            dense,
            top,
            add: [PreparedOp::Add],
            add_tanh: [PreparedOp::Add, PreparedOp::Tanh],
            description: d.clone(),
            base: Base {
                output: backend.prepare_output(preparer.dense("output")?),
                target_words: d.target_vocabulary,
                speedups: *speedups,
                backend,
            },
        })
    }

    /// Leaves the vector of every token in `work.below`.
    fn contexts(&self, ids: &[Option<u32>], batch: &mut Ragged, work: &mut Work<B>) {
        let (b, d) = (&self.base.backend, &self.description);
        projection::embed(b, &self.source, Words::known(ids), &mut work.embedded, &mut work.zeros);
        for (l, pair) in self.pairs.iter().enumerate() {
            b.resize(&mut work.above, ids.len(), d.context_width());
            for (direction, cell) in pair.iter().enumerate() {
                let cells = std::slice::from_ref(cell);
                let Work { embedded, below, above, layer, projection, .. } = &mut *work;
                let out = (direction * d.source_width, above);
                if l == 0 {
                    self.source_inputs[direction].run(
                        b,
                        Words::known(ids),
                        &mut layer.x,
                        projection,
                    );
                    run_projected_layer(b, cells, batch, direction == 1, embedded, out, layer);
                } else {
                    run_dense_layer(b, cells, batch, direction == 1, below, out, layer);
                }
            }
            std::mem::swap(&mut work.below, &mut work.above);
        }
        for cell in &self.singles {
            b.resize(&mut work.above, ids.len(), d.context_width());
            let Work { below, above, layer, .. } = &mut *work;
            let cells = std::slice::from_ref(cell);
            run_dense_layer(b, cells, batch, false, below, (0, above), layer);
            std::mem::swap(&mut work.below, &mut work.above);
        }
    }

    /// The attentional layer: `work.state` becomes its new state.
    fn attend(
        &self,
        layout: &StepLayout,
        memory: &[B::Rows],
        weights: &mut B::Weights,
        work: &mut Work<B>,
    ) {
        let b = &self.base.backend;
        self.input.run(b, layout.words(), &mut work.input, &mut work.projection);
        self.attention_input.run(b, layout.words(), &mut work.attention, &mut work.projection);
        let Work { input, attention, query, context, distinct, rows, state, .. } = work;
        // Attention reads the state before this step, so merged states share its product too.
        match layout.groups() {
            Some(groups) if groups.first.len() < groups.of.len() => {
                b.gather(&state.h, &groups.first, distinct);
                self.attention_state.run(b, distinct, rows);
                b.gather(rows, &groups.of, distinct);
                b.process(attention, &self.add_tanh, Some(distinct), query);
            }
            _ => {
                self.attention_state.run(b, &state.h, rows);
                b.process(attention, &self.add_tanh, Some(rows), query);
            }
        }
        b.align(query, &memory[0], &layout.source, None, weights);
        b.weigh(weights, &layout.source, &memory[1], context);
        if self.base.speedups.attention {
            b.process(context, &self.add, Some(input), rows);
        } else {
            let after = Epilogue { ops: &self.add, input: Some(&*input), ..Epilogue::nothing() };
            b.linear(context, &self.context, after, rows);
        }
        let input = CellInput { x: Some(Term::same(&work.rows)), multiply: None, raw: None };
        self.cell.step(b, input, layout.groups(), &mut work.state, &mut work.cell);
    }

    /// The dense layers, from `work.top` to `work.top`.
    fn dense(&self, work: &mut Work<B>) {
        let b = &self.base.backend;
        for (k, layer) in self.dense.iter().enumerate() {
            let Work { top, next, skip, .. } = &mut *work;
            let after = Epilogue { ops: &layer.ops, input: Some(&*skip), ..Epilogue::nothing() };
            b.linear(top, &layer.linear, after, next);
            std::mem::swap(top, next);
            // Counted from one, odd layers are added to the next but one.
            if k % 2 == 0 && k + 2 < self.dense.len() {
                b.process(top, &[], None, skip);
            }
        }
    }
}

impl<B: Backend> DenseLayer<B> {
    fn prepare(preparer: &Preparer<'_, B>, k: usize) -> Result<Self, MissingWeight> {
        let clamp = PreparedOp::Clamp { least: 0.0, most: 10.0 };
        let ops =
            if k >= 2 && k.is_multiple_of(2) { vec![PreparedOp::Add, clamp] } else { vec![clamp] };
        Ok(DenseLayer { linear: preparer.linear(&format!("dense.{k}"))?, ops })
    }
}

impl<B: Backend> Core<B> for RnnFc<B> {
    type Work = Work<B>;

    fn base(&self) -> &Base<B> {
        &self.base
    }

    fn states(&self) -> Vec<(usize, bool)> {
        let d = &self.description;
        let cell = d.cell.has_cell();
        std::iter::once(d.width)
            .chain((0..d.top_cells()).map(|_| d.top_width))
            .map(|width| (width, cell))
            .collect()
    }

    /// Widths of the keys and of the source vectors, or with pre-computed attention of the cell's products of them.
    fn memories(&self) -> Vec<usize> {
        let d = &self.description;
        let value = match self.base.speedups.attention {
            true => d.cell.parts() * d.width,
            false => d.context_width(),
        };
        vec![d.attention_width, value]
    }

    fn work(&self) -> Work<B> {
        let b = &self.base.backend;
        Work {
            embedded: b.rows(),
            zeros: Vec::new(),
            projection: ProjectionScratch::new(b),
            layer: LayerScratch::new(b),
            cell: CellScratch::new(b),
            below: b.rows(),
            above: b.rows(),
            rows: b.rows(),
            input: b.rows(),
            query: b.rows(),
            attention: b.rows(),
            context: b.rows(),
            distinct: b.rows(),
            state: State::new(b, self.description.cell.has_cell()),
            top: b.rows(),
            next: b.rows(),
            skip: b.rows(),
        }
    }

    fn precomputed_bytes(&self) -> usize {
        let projections = self.source_inputs.iter().chain([&self.input, &self.attention_input]);
        projections.map(|projection| projection.bytes(&self.base.backend)).sum()
    }

    fn encode(&self, batch: Encode<'_, B>, work: &mut Work<B>) {
        let b = &self.base.backend;
        let Encode { ids, batch, reads, memory, at, states, start } = batch;
        self.contexts(ids, batch, work);
        let Work { below, rows, top, .. } = work;
        self.key.run(b, below, rows);
        b.scatter(rows, at, 0, &mut memory[0]);
        if self.base.speedups.attention {
            b.linear(below, &self.context, Epilogue::nothing(), rows);
            b.scatter(rows, at, 0, &mut memory[1]);
        } else {
            b.scatter(below, at, 0, &mut memory[1]);
        }
        b.mean(below, reads, rows);
        self.start.run(b, rows, top);
        // Cell vectors and all states but the first layer's begin with zeros.
        for (layer, (cache, (width, _))) in states.iter_mut().zip(self.states()).enumerate() {
            b.resize(rows, 0, width);
            b.resize(rows, start.len(), width);
            b.scatter(if layer == 0 { &*top } else { &*rows }, start, 0, &mut cache.h);
            if let Some(c) = &mut cache.c {
                b.scatter(rows, start, 0, c);
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
        let b = &self.base.backend;
        work.state.load(b, &states[0], layout.moves());
        self.attend(layout, memory, weights, work);
        work.state.store(b, &mut states[0], &layout.to);
        std::mem::swap(&mut work.top, &mut work.state.h);
        self.dense(work);
        let Work { top, next, rows, state, cell, .. } = work;
        match &self.top {
            Head::None => {}
            Head::Tanh(part) => {
                part.run(b, top, next);
                std::mem::swap(top, next);
            }
            Head::Cells(cells) => {
                for (layer, cache) in cells.iter().zip(&mut states[1..]) {
                    state.load(b, cache, layout.moves());
                    if let Some(part) = &layer.input {
                        part.run(b, top, rows);
                    }
                    let x = Some(Term::same(&*rows));
                    let input = CellInput { x, multiply: None, raw: None };
                    layer.step(b, input, layout.groups(), state, cell);
                    state.store(b, cache, &layout.to);
                    std::mem::swap(top, &mut state.h);
                }
            }
        }
    }

    fn top<'w>(&self, work: &'w Work<B>) -> &'w B::Rows {
        &work.top
    }
}
