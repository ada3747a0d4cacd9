//! The source side, and the pre-computed attention: products of every source word's context, memoised once a
//! sentence, so that a decoder step only sums them with the attention weights.

use peregrine_model::EncoderKind;

use super::projection::Words;
use super::ragged::{Ragged, add, run_dense_layer, run_projected_layer};
use super::session::Encode;
use super::{Recurrent, Work, projection};
use crate::backend::{Backend, Epilogue};

impl<B: Backend> Recurrent<B> {
    /// Leaves the context of every token in `work.contexts`.
    pub(super) fn contexts(&self, ids: &[Option<u32>], batch: &mut Ragged, work: &mut Work<B>) {
        let (b, d) = (&self.base.backend, &self.description);
        projection::embed(b, &self.source, Words::known(ids), &mut work.embedded, &mut work.zeros);
        b.resize(&mut work.contexts, ids.len(), 2 * d.width);
        for (direction, (layers, entry)) in
            self.directions.iter().zip(&self.source_inputs).enumerate()
        {
            entry.input.run(b, Words::known(ids), &mut work.layer.x, &mut work.projection);
            if let Some(factor) = &entry.multiply {
                factor.run(b, Words::known(ids), &mut work.layer.multiply, &mut work.projection);
            }
            for (l, cells) in layers.iter().enumerate() {
                let turned = d.encoder.kind == EncoderKind::Alternating && l % 2 == 1;
                let reversed = (direction == 1) != turned;
                b.resize(&mut work.above, ids.len(), d.width);
                let out = (0, &mut work.above);
                let Work { embedded, below, layer, .. } = work;
                match l {
                    0 => run_projected_layer(b, cells, batch, reversed, embedded, out, layer),
                    _ => run_dense_layer(b, cells, batch, reversed, below, out, layer),
                }
                if l > 0 && d.encoder.skip {
                    add(b, below, &mut work.above, &mut work.rows);
                }
                std::mem::swap(&mut work.below, &mut work.above);
            }
            b.scatter(&work.below, &batch.all, direction * d.width, &mut work.contexts);
        }
        for (l, cells) in self.top.iter().enumerate() {
            b.resize(&mut work.above, ids.len(), d.width);
            let out = (0, &mut work.above);
            run_dense_layer(b, cells, batch, false, &work.contexts, out, &mut work.layer);
            if l > 0 && d.encoder.skip {
                add(b, &work.contexts, &mut work.above, &mut work.rows);
            }
            std::mem::swap(&mut work.contexts, &mut work.above);
        }
    }

    /// Stores what the decoder reads of every token: keys, and contexts or their pre-computed products.
    pub(super) fn remember(&self, batch: &mut Encode<'_, B>, work: &mut Work<B>) {
        let b = &self.base.backend;
        let Work { contexts, x, .. } = work;
        self.key.run(b, contexts, x);
        b.scatter(x, batch.at, 0, &mut batch.memory[0]);
        if !self.base.speedups.attention {
            b.scatter(contexts, batch.at, 0, &mut batch.memory[1]);
            return;
        }
        // Norms follow the weighted sum. Biases may be inside it, as the weights add up to one.
        b.linear(contexts, &self.context.linear, Epilogue::nothing(), x);
        b.scatter(x, batch.at, 0, &mut batch.memory[1]);
        let second = self.second();
        let parts = [&second.input, &second.multiply_input];
        for (part, cache) in parts.into_iter().flatten().zip(&mut batch.memory[2..]) {
            b.linear(contexts, &part.linear, Epilogue::nothing(), x);
            b.scatter(x, batch.at, 0, cache);
        }
    }
}
