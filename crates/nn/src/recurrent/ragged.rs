//! Recurrent layers over sentences of different lengths, without padding.
//!
//! All tokens stand end to end. At time t a layer works on the sentences that have a t-th token:
//! they are kept longest first, so that those that ended are the last rows of the state.

use super::cell::{Cell, CellInput, CellScratch, State};
use crate::backend::{Backend, PreparedOp, Term};

/// A ragged batch: where its sentences are.
#[derive(Debug, Default)]
pub(crate) struct Ragged {
    /// First token and length of each sentence, longest first.
    sentences: Vec<(u32, u32)>,
    /// All tokens.
    pub(crate) all: Vec<u32>,
    at: Vec<u32>,
}

impl Ragged {
    pub(crate) fn set(&mut self, lengths: impl Iterator<Item = usize>) {
        self.sentences.clear();
        let mut start = 0;
        for length in lengths {
            self.sentences.push((start, length as u32));
            start += length as u32;
        }
        self.sentences.sort_by_key(|&(_, length)| std::cmp::Reverse(length));
        self.all.clear();
        self.all.extend(0..start);
    }

    /// The tokens at time `time`, of the sentences that have one.
    fn at(&mut self, time: u32, reversed: bool) -> &[u32] {
        let alive = self.sentences.iter().take_while(|(_, length)| *length > time);
        self.at.clear();
        self.at.extend(alive.map(|&(start, length)| match reversed {
            false => start + time,
            true => start + length - 1 - time,
        }));
        &self.at
    }

    fn longest(&self) -> u32 {
        self.sentences.first().map_or(0, |&(_, length)| length)
    }
}

/// What the first cell of a layer reads, for all tokens.
pub(crate) struct LayerInput<'a, B: Backend> {
    pub(crate) x: &'a B::Rows,
    pub(crate) multiply: Option<&'a B::Rows>,
    pub(crate) raw: &'a B::Rows,
}

/// Working memory of a layer.
pub(crate) struct LayerScratch<B: Backend> {
    state: State<B>,
    cell: CellScratch<B>,
    pub(crate) x: B::Rows,
    pub(crate) multiply: B::Rows,
}

impl<B: Backend> LayerScratch<B> {
    pub(crate) fn new(backend: &B) -> Self {
        LayerScratch {
            state: State::new(backend, true),
            cell: CellScratch::new(backend),
            x: backend.rows(),
            multiply: backend.rows(),
        }
    }
}

/// Runs the cells of a layer over all sentences. The states go to `out`, from column `column` on.
pub(crate) fn run_layer<B: Backend>(
    backend: &B,
    cells: &[Cell<B>],
    batch: &mut Ragged,
    reversed: bool,
    input: &LayerInput<'_, B>,
    (column, out): (usize, &mut B::Rows),
    (state, scratch): (&mut State<B>, &mut CellScratch<B>),
) {
    let width = cells.first().map_or(0, |cell| cell.width);
    state.clear(backend, batch.sentences.len(), width);
    for time in 0..batch.longest() {
        let at = batch.at(time, reversed);
        state.resize(backend, at.len(), width);
        for (j, cell) in cells.iter().enumerate() {
            let cell_input = match j {
                0 => CellInput {
                    x: Some(Term::at(input.x, at)),
                    multiply: input.multiply.map(|rows| Term::at(rows, at)),
                    raw: Some(Term::at(input.raw, at)),
                },
                _ => CellInput::none(),
            };
            cell.step(backend, cell_input, None, state, scratch);
        }
        backend.scatter(&state.h, at, column, out);
    }
}

/// Runs a layer without memoised inputs: the products of all tokens first, then the recurrence.
pub(crate) fn run_dense_layer<B: Backend>(
    backend: &B,
    cells: &[Cell<B>],
    batch: &mut Ragged,
    reversed: bool,
    input: &B::Rows,
    out: (usize, &mut B::Rows),
    scratch: &mut LayerScratch<B>,
) {
    let LayerScratch { state, cell, x, multiply } = scratch;
    let Some(first) = cells.first() else { return };
    if let Some(part) = &first.input {
        part.run(backend, input, x);
    }
    if let Some(part) = &first.multiply_input {
        part.run(backend, input, multiply);
    }
    let multiply = first.multiply_input.is_some().then_some(&*multiply);
    let layer = LayerInput { x, multiply, raw: input };
    run_layer(backend, cells, batch, reversed, &layer, out, (state, cell));
}

/// Runs a layer whose products of the input are in `scratch` already.
pub(crate) fn run_projected_layer<B: Backend>(
    backend: &B,
    cells: &[Cell<B>],
    batch: &mut Ragged,
    reversed: bool,
    raw: &B::Rows,
    out: (usize, &mut B::Rows),
    scratch: &mut LayerScratch<B>,
) {
    let LayerScratch { state, cell, x, multiply } = scratch;
    // Cells that are not multiplicative ignore `multiply`.
    let layer = LayerInput { x, multiply: Some(&*multiply), raw };
    run_layer(backend, cells, batch, reversed, &layer, out, (state, cell));
}

/// `y += x`, by way of `scratch`.
pub(crate) fn add<B: Backend>(backend: &B, x: &B::Rows, y: &mut B::Rows, scratch: &mut B::Rows) {
    backend.process(y, &[PreparedOp::Add], Some(x), scratch);
    std::mem::swap(y, scratch);
}
