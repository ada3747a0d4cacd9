//! A step of the target side, with pre-computed attention and merged states if [`Speedups`](crate::Speedups)
//! has them.

use super::cell::{Cell, CellInput, State};
use super::session::StepLayout;
use super::{Recurrent, Work};
use crate::backend::{Backend, Epilogue, Term};
use crate::recurrent::ragged::add;

impl<B: Backend> Recurrent<B> {
    /// From the previous words to the rows of the output layer, in `work.top`.
    pub(super) fn decode(
        &self,
        layout: &StepLayout,
        memory: &[B::Rows],
        states: &mut [State<B>],
        weights: &mut B::Weights,
        work: &mut Work<B>,
    ) {
        let b = &self.base.backend;
        self.previous.run(b, layout.words(), &mut work.deep, &mut work.projection);
        self.first_layer(layout, memory, &mut states[0], weights, work);
        for (cells, cache) in self.decoder.iter().zip(states).skip(1) {
            self.high_layer(cells, layout, cache, work);
        }
        let Work { x, y, deep, top, attended, .. } = work;
        let after = Epilogue { ops: &self.state_ops, input: Some(&*deep), ..Epilogue::nothing() };
        b.linear(x, &self.state.linear, after, y);
        if self.base.speedups.attention {
            b.weigh(weights, &layout.source, &memory[1], attended);
            b.process(attended, &self.context_ops, Some(y), top);
        } else {
            let after =
                Epilogue { ops: &self.context_ops, input: Some(&*y), ..Epilogue::nothing() };
            b.linear(attended, &self.context.linear, after, top);
        }
    }

    /// The layer that attends. Its output is in `work.x`, and without pre-computed attention the attended
    /// context is in `work.attended`.
    fn first_layer(
        &self,
        layout: &StepLayout,
        memory: &[B::Rows],
        cache: &mut State<B>,
        weights: &mut B::Weights,
        work: &mut Work<B>,
    ) {
        let b = &self.base.backend;
        let entry = &self.target_input;
        entry.input.run(b, layout.words(), &mut work.input, &mut work.projection);
        if let Some(factor) = &entry.multiply {
            factor.run(b, layout.words(), &mut work.factor, &mut work.projection);
        }
        let Work { input, factor, state, cell, query, attended, attended_factor, z, .. } = work;
        state.load(b, cache, layout.moves());
        let cells = &self.decoder[0];
        let first = CellInput {
            x: Some(Term::same(&*input)),
            multiply: entry.multiply.as_ref().map(|_| Term::same(&*factor)),
            raw: None,
        };
        cells[0].step(b, first, layout.groups(), state, cell);
        self.query.run(b, &state.h, query);
        b.align(query, &memory[0], &layout.source, Some(&self.energy), weights);
        let second = self.second();
        if self.base.speedups.attention {
            let parts = [(&second.input, input), (&second.multiply_input, attended_factor)];
            let parts = parts.into_iter().filter_map(|(part, out)| Some((part.as_ref()?, out)));
            for ((part, out), values) in parts.zip(&memory[2..]) {
                b.weigh(weights, &layout.source, values, z);
                b.process(z, &part.ops, None, out);
            }
        } else {
            b.weigh(weights, &layout.source, &memory[1], attended);
            if let Some(part) = &second.input {
                part.run(b, attended, input);
            }
            if let Some(part) = &second.multiply_input {
                part.run(b, attended, attended_factor);
            }
        }
        let Work { input, attended_factor, attended, .. } = work;
        let input = CellInput {
            x: Some(Term::same(&*input)),
            multiply: second.multiply_input.as_ref().map(|_| Term::same(&*attended_factor)),
            // Only a network without pre-computed attention can have a cell that passes its input on.
            raw: (!self.base.speedups.attention).then(|| Term::same(&*attended)),
        };
        second.step(b, input, None, &mut work.state, &mut work.cell);
        for cell in &cells[2..] {
            cell.step(b, CellInput::none(), None, &mut work.state, &mut work.cell);
        }
        work.state.store(b, cache, &layout.to);
        std::mem::swap(&mut work.x, &mut work.state.h);
    }

    /// `work.x` becomes the layer's output.
    fn high_layer(
        &self,
        cells: &[Cell<B>],
        layout: &StepLayout,
        cache: &mut State<B>,
        work: &mut Work<B>,
    ) {
        let b = &self.base.backend;
        let Work { input, factor, state, cell, x, y, .. } = work;
        state.load(b, cache, layout.moves());
        if let Some(part) = &cells[0].input {
            part.run(b, x, input);
        }
        if let Some(part) = &cells[0].multiply_input {
            part.run(b, x, factor);
        }
        let first = CellInput {
            x: Some(Term::same(&*input)),
            multiply: cells[0].multiply_input.as_ref().map(|_| Term::same(&*factor)),
            raw: Some(Term::same(&*x)),
        };
        cells[0].step(b, first, layout.groups(), state, cell);
        for transition in &cells[1..] {
            transition.step(b, CellInput::none(), None, state, cell);
        }
        state.store(b, cache, &layout.to);
        if self.description.decoder.skip {
            add(b, x, &mut state.h, y);
        }
        std::mem::swap(x, &mut state.h);
    }
}
