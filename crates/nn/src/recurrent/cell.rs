//! A prepared cell, and one step of it for all rows. With merged states, rows of the same state share its product.

use peregrine_model::{CellKind, CellPlace, RecurrentNorm};

use crate::backend::{Backend, Embed, Epilogue, Moves, NormWeights, Of, PreparedOp, Term, Terms};
use crate::prepare::{MissingWeight, Preparer};

/// A dense layer and the norms after it.
pub(crate) struct Part<B: Backend> {
    pub(crate) linear: B::Linear,
    pub(crate) ops: Vec<PreparedOp<B>>,
}

impl<B: Backend> Part<B> {
    /// `name` with norms over groups of columns.
    pub(crate) fn prepare(
        preparer: &Preparer<'_, B>,
        name: &str,
        norm: RecurrentNorm,
        groups: &[usize],
    ) -> Result<Part<B>, MissingWeight> {
        let linear = preparer.linear(name)?;
        Ok(Part { linear, ops: norm_ops(preparer, name, norm, groups)? })
    }

    /// `name` with one norm over all columns.
    pub(crate) fn dense(
        preparer: &Preparer<'_, B>,
        name: &str,
        norm: RecurrentNorm,
    ) -> Result<Part<B>, MissingWeight> {
        let width = preparer.weight(&format!("{name}.weight"))?.rows();
        Part::prepare(preparer, name, norm, &[width])
    }

    pub(crate) fn run(&self, backend: &B, x: &B::Rows, out: &mut B::Rows) {
        backend.linear(x, &self.linear, Epilogue { ops: &self.ops, ..Epilogue::nothing() }, out);
    }
}

fn norm_ops<B: Backend>(
    preparer: &Preparer<'_, B>,
    name: &str,
    norm: RecurrentNorm,
    groups: &[usize],
) -> Result<Vec<PreparedOp<B>>, MissingWeight> {
    if norm == RecurrentNorm::None {
        return Ok(Vec::new());
    }
    let scale = preparer.weight(&format!("{name}.norm.scale"))?.to_f32();
    let bias = preparer.weights.get(&format!("{name}.norm.bias")).map(|bias| bias.to_f32());
    let mut start = 0;
    let mut norms = Vec::new();
    for &width in groups {
        let part = |all: &[f32]| {
            let end = (start + width).min(all.len());
            peregrine_model::Weight::from_f32(vec![end - start], &all[start..end])
        };
        let (scale, bias) = (part(&scale), bias.as_ref().map(|bias| part(bias)));
        norms.push(preparer.backend.prepare_norm(NormWeights {
            scale: &scale,
            bias: bias.as_ref(),
            epsilon: norm.epsilon(),
            centred: true,
        }));
        start += width;
    }
    Ok(match norms.len() {
        1 => norms.into_iter().map(PreparedOp::Norm).collect(),
        _ => vec![PreparedOp::Norms(norms)],
    })
}

/// A recurrent cell.
pub(crate) struct Cell<B: Backend> {
    kind: CellKind,
    pub(crate) width: usize,
    /// The layer of the input, which the caller runs, for many steps at once if it can.
    pub(crate) input: Option<Part<B>>,
    /// The factor a multiplicative cell makes of its input.
    pub(crate) multiply_input: Option<Part<B>>,
    /// One row in place of an input.
    constant: Option<B::Rows>,
    state: Option<Part<B>>,
    multiply_state: Option<Part<B>>,
}

/// The state of some rows.
pub(crate) struct State<B: Backend> {
    pub(crate) h: B::Rows,
    pub(crate) c: Option<B::Rows>,
}

/// A cell's input for the rows of a step.
pub(crate) struct CellInput<'a, B: Backend> {
    pub(crate) x: Option<Term<'a, B>>,
    pub(crate) multiply: Option<Term<'a, B>>,
    pub(crate) raw: Option<Term<'a, B>>,
}

impl<B: Backend> CellInput<'_, B> {
    pub(crate) fn none() -> Self {
        CellInput { x: None, multiply: None, raw: None }
    }
}

/// Merged states: groups of rows that have the same state.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// One row of each group.
    pub(crate) first: Vec<u32>,
    /// The group of each row.
    pub(crate) of: Vec<u32>,
}

/// Working memory of a step.
pub(crate) struct CellScratch<B: Backend> {
    s: B::Rows,
    distinct: B::Rows,
}

impl<B: Backend> CellScratch<B> {
    pub(crate) fn new(backend: &B) -> Self {
        CellScratch { s: backend.rows(), distinct: backend.rows() }
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn new(backend: &B, has_cell: bool) -> Self {
        State { h: backend.rows(), c: has_cell.then(|| backend.rows()) }
    }

    /// Zeros for `count` rows.
    pub(crate) fn clear(&mut self, backend: &B, count: usize, width: usize) {
        backend.resize(&mut self.h, 0, width);
        if let Some(c) = &mut self.c {
            backend.resize(c, 0, width);
        }
        self.resize(backend, count, width);
    }

    pub(crate) fn resize(&mut self, backend: &B, count: usize, width: usize) {
        backend.resize(&mut self.h, count, width);
        if let Some(c) = &mut self.c {
            backend.resize(c, count, width);
        }
    }

    /// Takes rows out of a cache of states.
    pub(crate) fn load(&mut self, backend: &B, cache: &State<B>, moves: Moves<'_>) {
        backend.load(&cache.h, moves, &mut self.h);
        if let (Some(c), Some(cache)) = (&mut self.c, &cache.c) {
            backend.load(cache, moves, c);
        }
    }

    /// Puts rows into a cache of states.
    pub(crate) fn store(&self, backend: &B, cache: &mut State<B>, to: &[u32]) {
        backend.scatter(&self.h, to, 0, &mut cache.h);
        if let (Some(c), Some(cache)) = (&self.c, &mut cache.c) {
            backend.scatter(c, to, 0, cache);
        }
    }
}

impl<B: Backend> Cell<B> {
    pub(crate) fn prepare(
        preparer: &Preparer<'_, B>,
        place: &CellPlace,
        width: usize,
        norm: RecurrentNorm,
    ) -> Result<Cell<B>, MissingWeight> {
        let CellPlace { prefix, kind, input } = place;
        let groups = norm.groups(*kind, width);
        let part = |name: &str, wanted: bool| {
            wanted
                .then(|| Part::prepare(preparer, &format!("{prefix}.{name}"), norm, &groups))
                .transpose()
        };
        let factor = |name: &str, wanted: bool| {
            wanted.then(|| Part::dense(preparer, &format!("{prefix}.{name}"), norm)).transpose()
        };
        let constant = match input {
            Some(_) => None,
            None => preparer.weights.get(&format!("{prefix}.input.bias")).map(|bias| {
                let row =
                    peregrine_model::Weight { shape: vec![1, bias.elements()], ..bias.clone() };
                one_row(preparer.backend, &row)
            }),
        };
        Ok(Cell {
            kind: *kind,
            width,
            input: part("input", input.is_some())?,
            multiply_input: factor("multiply.input", kind.is_multiplicative())?,
            constant,
            state: part("state", kind.has_state_product())?,
            multiply_state: factor("multiply.state", kind.is_multiplicative())?,
        })
    }

    /// Takes the factor of the input out, which the caller then runs.
    pub(crate) fn take_factor(&mut self) -> Option<Part<B>> {
        self.multiply_input.take()
    }

    pub(crate) fn has_cell(&self) -> bool {
        self.kind.has_cell()
    }

    /// One step of all rows of `state`. Rows of a group have the same state.
    pub(crate) fn step(
        &self,
        backend: &B,
        input: CellInput<'_, B>,
        groups: Option<&Groups>,
        state: &mut State<B>,
        scratch: &mut CellScratch<B>,
    ) {
        let mut groups = groups;
        let x = input.x.or(self.constant.as_ref().map(|rows| Term { rows, of: Of::First }));
        if let (Some(part), Some(factor)) = (&self.multiply_state, input.multiply) {
            let of = product(backend, part, &state.h, groups, scratch);
            backend.modulate(factor, Term { rows: &scratch.s, of }, &mut state.h);
            // The states of a group are no longer the same.
            groups = None;
        }
        let mut s = None;
        if let Some(part) = &self.state {
            let of = product(backend, part, &state.h, groups, scratch);
            s = Some(Term { rows: &scratch.s, of });
        }
        let base = match self.kind {
            CellKind::Mgru => CellKind::Gru,
            CellKind::Mlstm => CellKind::Lstm,
            kind => kind,
        };
        // A cell without a cell vector leaves that of its neighbours as it is.
        let c = state.c.as_mut().filter(|_| self.has_cell());
        backend.recur(base, Terms { x, s, raw: input.raw }, &mut state.h, c);
    }
}

/// The product of the state, computed once for each group of merged states.
fn product<'g, B: Backend>(
    backend: &B,
    part: &Part<B>,
    h: &B::Rows,
    groups: Option<&'g Groups>,
    scratch: &mut CellScratch<B>,
) -> Of<'g> {
    let CellScratch { s, distinct } = scratch;
    match groups {
        Some(groups) if groups.first.len() < groups.of.len() => {
            backend.gather(h, &groups.first, distinct);
            part.run(backend, distinct, s);
            Of::At(&groups.of)
        }
        _ => {
            part.run(backend, h, s);
            Of::Same
        }
    }
}

/// A weight of one row as rows.
pub(crate) fn one_row<B: Backend>(backend: &B, weight: &peregrine_model::Weight) -> B::Rows {
    let mut rows = backend.rows();
    let table = backend.prepare_table(weight);
    let request = Embed { ids: &[Some(0)], follows: &[], scale: 1.0, at: &[0], positions: None };
    backend.embed(&table, request, &mut rows);
    rows
}

/// A vector as one row.
pub(crate) fn vector_row<B: Backend>(
    preparer: &Preparer<'_, B>,
    name: &str,
) -> Result<B::Rows, MissingWeight> {
    let weight = preparer.weight(name)?;
    let row = peregrine_model::Weight { shape: vec![1, weight.elements()], ..weight.clone() };
    Ok(one_row(preparer.backend, &row))
}
