//! One decoder layer, and a step through all of them.
//!
//! A layer looks at the words so far in one of three ways: self-attention over a KV cache, an average
//! attention network (AAN, a running mean) or an SSRU (simpler simple recurrent unit). The last two keep a
//! state of one row a hypothesis, so their cost does not grow with the length.

use peregrine_model::{Autoregression, SelfKeys, Stack, Transformer as Description};

use super::Transformer;
use super::block::{
    Around, Buffers, DenseLayers, FeedForwardBlock, SelfAttention, SelfInputs, attention_output,
};
use super::session::{Caches, StepLayout};
use crate::backend::{Attention, Backend, Embed, Epilogue, NormWeights, PreparedOp};
use crate::past::PastExtension;
use crate::prepare::{MissingWeight, Preparer};
use crate::profile;
use crate::reads::Reads;

/// One decoder layer's parameters.
pub(super) struct DecoderLayer<B: Backend> {
    past: Past<B>,
    cross: CrossAttention<B>,
    feed_forward: FeedForwardBlock<B>,
}

/// How a layer looks at the words so far.
enum Past<B: Backend> {
    Attention(SelfAttention<B>),
    /// Average attention network (AAN).
    Average {
        around: Around<B>,
        dense: DenseLayers<B>,
        gate: Option<Gate<B>>,
    },
    Ssru(Ssru<B>),
}

struct Gate<B: Backend> {
    input: B::Linear,
    average: B::Linear,
}

struct Ssru<B: Backend> {
    around: Around<B>,
    candidate: B::Linear,
    candidate_norm: Vec<PreparedOp<B>>,
    forget: B::Linear,
    forget_norm: Vec<PreparedOp<B>>,
    projection: Option<B::Linear>,
}

/// Cross-attention to the source. Keys and values are projected once a sentence and kept in a KV cache.
struct CrossAttention<B: Backend> {
    around: Around<B>,
    query: B::Linear,
    key_value: B::Linear,
    output: Option<B::Linear>,
}

impl<B: Backend> DecoderLayer<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        description: &Description,
        set: usize,
    ) -> Result<Self, MissingWeight> {
        let stack = &description.decoder;
        let feed_forward = format!("decoder.{set}.ffn");
        Ok(DecoderLayer {
            past: Past::prepare(preparer, description, set)?,
            cross: CrossAttention::prepare(preparer, stack, &format!("decoder.{set}.cross"))?,
            feed_forward: FeedForwardBlock::prepare(preparer, stack, &feed_forward)?,
        })
    }
}

impl<B: Backend> Past<B> {
    fn prepare(
        preparer: &Preparer<'_, B>,
        description: &Description,
        set: usize,
    ) -> Result<Self, MissingWeight> {
        let stack = &description.decoder;
        match &description.autoregression {
            Autoregression::SelfAttention => {
                let block = format!("decoder.{set}.self");
                Ok(Past::Attention(SelfAttention::prepare(preparer, stack, &block)?))
            }
            Autoregression::Average { feed_forward, gate } => {
                let block = format!("decoder.{set}.average");
                let count = feed_forward.average_shapes(description.width).len();
                let gate = gate.then(|| Gate::prepare(preparer, &block)).transpose()?;
                Ok(Past::Average {
                    around: Around::prepare(preparer, stack, &block)?,
                    dense: DenseLayers::prepare(preparer, feed_forward, count, &block)?,
                    gate,
                })
            }
            Autoregression::Ssru { layer_norm, projection } => {
                let block = format!("decoder.{set}.ssru");
                Ok(Past::Ssru(Ssru::prepare(preparer, stack, &block, *layer_norm, *projection)?))
            }
        }
    }
}

impl<B: Backend> Gate<B> {
    fn prepare(preparer: &Preparer<'_, B>, block: &str) -> Result<Self, MissingWeight> {
        Ok(Gate {
            input: preparer.linear(&format!("{block}.input_gate"))?,
            average: preparer.linear(&format!("{block}.average_gate"))?,
        })
    }
}

impl<B: Backend> Ssru<B> {
    /// Packs the weights. With layer norm the forget gate's bias is added after normalising, so it moves from the
    /// product into the norm.
    fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        block: &str,
        layer_norm: bool,
        projection: bool,
    ) -> Result<Self, MissingWeight> {
        const CELL_EPSILON: f32 = 1e-9;
        let norm = |part: &str, bias| -> Result<Vec<PreparedOp<B>>, MissingWeight> {
            if !layer_norm {
                return Ok(Vec::new());
            }
            let scale = preparer.weight(&format!("{block}.{part}.norm.scale"))?;
            let weights = NormWeights { scale, bias, epsilon: CELL_EPSILON, centred: true };
            Ok(vec![PreparedOp::Norm(preparer.backend.prepare_norm(weights))])
        };
        let forget = format!("{block}.forget");
        let forget_bias = preparer.weights.get(&format!("{forget}.bias"));
        let projection_name = format!("{block}.projection");
        Ok(Ssru {
            around: Around::prepare(preparer, stack, block)?,
            candidate: preparer.product(&format!("{block}.candidate"))?,
            candidate_norm: norm("candidate", None)?,
            forget: if layer_norm {
                preparer.product(&forget)?
            } else {
                preparer.linear(&forget)?
            },
            forget_norm: norm("forget", forget_bias)?,
            projection: projection.then(|| preparer.linear(&projection_name)).transpose()?,
        })
    }
}

impl<B: Backend> CrossAttention<B> {
    fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        block: &str,
    ) -> Result<Self, MissingWeight> {
        Ok(CrossAttention {
            around: Around::prepare(preparer, stack, block)?,
            query: preparer.linear(&format!("{block}.query"))?,
            key_value: preparer.side_by_side(block, &["key", "value"])?,
            output: attention_output(preparer, stack, block)?,
        })
    }
}

impl<B: Backend> Transformer<B> {
    /// Projects encoded sentences (`buffers.x`) to every layer's keys and values and stores them in
    /// rows `at` of the caches.
    pub(super) fn remember(&self, at: &[u32], buffers: &mut Buffers<B>, memory: &mut [B::Cache]) {
        let Buffers { x, a, .. } = buffers;
        for (layer, cache) in self.decoder_layers().zip(memory) {
            self.backend.linear(x, &layer.cross.key_value, Epilogue::nothing(), a);
            self.backend.store(a, 0, at, cache);
        }
    }

    /// One step for all rows of `layout`. The result is in `buffers.x`; `alignment`, if given, gets the
    /// attention weights over the source.
    pub(super) fn decode_step(
        &self,
        layout: &StepLayout,
        caches: &mut Caches<B>,
        buffers: &mut Buffers<B>,
        mut alignment: Option<&mut Vec<f32>>,
    ) {
        self.embed_target(layout, buffers);
        if !layout.reads_first.is_empty() {
            let StepLayout { from, positions, own, reads_first: first, .. } = layout;
            self.backend
                .extend_past(PastExtension { from, positions, own, first }, &mut caches.reads);
        }
        profile::lap("decoder embedding");
        for (index, layer) in self.decoder_layers().enumerate() {
            match &layer.past {
                Past::Attention(attention) => {
                    let reads = caches.reads.as_ref();
                    self.attend_past(attention, layout, reads, &mut caches.past[index], buffers);
                }
                Past::Average { around, dense, gate } => {
                    let average = (around, dense, gate.as_ref());
                    self.average_past(average, layout, &mut caches.states[index], buffers);
                }
                Past::Ssru(cell) => self.recur(cell, layout, &mut caches.states[index], buffers),
            }
            profile::lap("decoder past words");
            let wanted = index == self.description.alignment.layer;
            let alignment = alignment.as_deref_mut().filter(|_| wanted);
            self.attend_source(&layer.cross, layout, &caches.memory[index], buffers, alignment);
            profile::lap("decoder source attention");
            layer.feed_forward.run(&self.backend, buffers);
            profile::lap("decoder feed-forward");
        }
        let Buffers { x, y, bottom, .. } = buffers;
        if !self.decoder_parts.after_stack.is_empty() {
            self.backend.process(x, &self.decoder_parts.after_stack, Some(bottom), y);
            std::mem::swap(x, y);
        }
    }

    fn embed_target(&self, layout: &StepLayout, buffers: &mut Buffers<B>) {
        let request = Embed {
            ids: &layout.tokens,
            follows: &layout.follows,
            at: &layout.positions,
            scale: self.target.scale,
            positions: self.target.positions.as_ref(),
        };
        let Buffers { x, bottom, .. } = buffers;
        let parts = &self.decoder_parts;
        // Without processing that reads the embeddings again they are the stack's input.
        if parts.after_embedding.is_empty() && parts.after_stack.is_empty() {
            return self.backend.embed(&self.target.table, request, x);
        }
        self.backend.embed(&self.target.table, request, bottom);
        self.backend.process(bottom, &parts.after_embedding, None, x);
    }

    fn attend_past(
        &self,
        attention: &SelfAttention<B>,
        layout: &StepLayout,
        reads: &Reads,
        cache: &mut B::Cache,
        buffers: &mut Buffers<B>,
    ) {
        let Buffers { x, y, processed, a, b, attended, .. } = buffers;
        let width = self.description.width;
        let backend = &self.backend;
        let input = attention.around.before(backend, x, processed);
        match &attention.inputs {
            SelfInputs::Joint(linear) => {
                backend.linear(input, linear, Epilogue::nothing(), a);
                backend.store(a, width, &layout.own, cache);
            }
            SelfInputs::Apart { query, key_value, keys } => {
                let of_keys = if *keys == SelfKeys::Processed { input } else { &*x };
                backend.linear(of_keys, key_value, Epilogue::nothing(), b);
                backend.store(b, 0, &layout.own, cache);
                if *keys == SelfKeys::RawAfterFirst {
                    backend.linear(input, key_value, Epilogue::nothing(), b);
                    backend.store(b, 0, &layout.first, cache);
                }
                backend.linear(input, query, Epilogue::nothing(), a);
            }
        }
        let heads = self.description.decoder.heads;
        backend.attend(a, Attention { cache, reads, heads, width }, attended);
        attention.around.finish(backend, attention.output.as_ref(), attended, x, y);
        std::mem::swap(x, y);
    }

    fn average_past(
        &self,
        (around, dense, gate): (&Around<B>, &DenseLayers<B>, Option<&Gate<B>>),
        layout: &StepLayout,
        state: &mut B::Rows,
        buffers: &mut Buffers<B>,
    ) {
        let Buffers { x, y, processed, a, b, attended, .. } = buffers;
        let backend = &self.backend;
        backend.average(x, layout.moves(), &layout.positions, state, attended);
        let input = around.before(backend, attended, processed);
        let inner = dense.run_inner(backend, input, a, b);
        match dense.last() {
            Some(last) => backend.linear(inner, last, Epilogue::nothing(), y),
            None => backend.process(inner, &[], None, y),
        }
        if let Some(gate) = gate {
            let sigmoid = || Epilogue::activation(peregrine_model::Activation::Sigmoid);
            backend.linear(x, &gate.input, sigmoid(), a);
            backend.linear(y, &gate.average, sigmoid(), b);
            backend.mix(a, x, b, y);
        }
        backend.process(y, &around.after, Some(x), attended);
        std::mem::swap(x, attended);
    }

    fn recur(
        &self,
        cell: &Ssru<B>,
        layout: &StepLayout,
        state: &mut B::Rows,
        buffers: &mut Buffers<B>,
    ) {
        let Buffers { x, y, processed, a, b, attended, .. } = buffers;
        let backend = &self.backend;
        let input = cell.around.before(backend, x, processed);
        let normed = |ops| Epilogue { ops, ..Epilogue::nothing() };
        backend.linear(input, &cell.candidate, normed(&cell.candidate_norm), a);
        backend.linear(input, &cell.forget, normed(&cell.forget_norm), b);
        backend.ssru(a, b, layout.moves(), state, attended);
        cell.around.finish(backend, cell.projection.as_ref(), attended, x, y);
        std::mem::swap(x, y);
    }

    fn attend_source(
        &self,
        attention: &CrossAttention<B>,
        layout: &StepLayout,
        cache: &B::Cache,
        buffers: &mut Buffers<B>,
        alignment: Option<&mut Vec<f32>>,
    ) {
        let Buffers { x, y, processed, a, attended, .. } = buffers;
        let width = self.description.width;
        let backend = &self.backend;
        let input = attention.around.before(backend, x, processed);
        backend.linear(input, &attention.query, Epilogue::nothing(), a);
        let heads = self.description.decoder.heads;
        let source = Attention { cache, reads: &layout.source, heads, width };
        backend.attend(a, source, attended);
        if let Some(weights) = alignment {
            backend.attention_weights(a, source, self.description.alignment.heads, weights);
        }
        attention.around.finish(backend, attention.output.as_ref(), attended, x, y);
        std::mem::swap(x, y);
    }
}
