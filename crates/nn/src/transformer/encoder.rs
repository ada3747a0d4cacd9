//! The source side: all admitted sentences at once, their rows laid end to end.

use peregrine_model::Stack;

use super::Transformer;
use super::block::{Buffers, FeedForwardBlock, SelfAttention, SelfInputs};
use crate::backend::{After, Backend, Embed, Memory, Reads};
use crate::prepare::{MissingWeight, Preparer};

/// One encoder layer.
pub(super) struct EncoderLayer<B: Backend> {
    attention: SelfAttention<B>,
    feed_forward: FeedForwardBlock<B>,
}

impl<B: Backend> EncoderLayer<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        layer: usize,
    ) -> Result<Self, MissingWeight> {
        Ok(EncoderLayer {
            attention: SelfAttention::prepare(preparer, stack, &format!("encoder.{layer}.self"))?,
            feed_forward: FeedForwardBlock::prepare(
                preparer,
                stack,
                &format!("encoder.{layer}.ffn"),
            )?,
        })
    }
}

impl<B: Backend> Transformer<B> {
    /// Encodes sentences; the result is in `buffers.x`, a row a source token.
    pub(super) fn encode<'s>(
        &self,
        sources: impl Iterator<Item = &'s [u32]> + Clone,
        buffers: &mut Buffers<B>,
    ) {
        let ids: Vec<Option<u32>> = sources.clone().flatten().map(|&id| Some(id)).collect();
        let at: Vec<u32> = sources.clone().flat_map(|s| 0..s.len() as u32).collect();
        self.embed_source(&ids, &at, buffers);
        let reads = reads_within(sources);
        for layer in &self.encoder {
            self.attend_within(&layer.attention, &reads, buffers);
            layer.feed_forward.run(&self.backend, buffers);
        }
        let Buffers { x, y, bottom, .. } = buffers;
        if !self.encoder_parts.after_stack.is_empty() {
            self.backend.process(x, &self.encoder_parts.after_stack, Some(bottom), y);
            std::mem::swap(x, y);
        }
    }

    fn embed_source(&self, ids: &[Option<u32>], at: &[u32], buffers: &mut Buffers<B>) {
        let request =
            Embed { ids, at, scale: self.source.scale, positions: self.source.positions.as_ref() };
        let Buffers { x, bottom, .. } = buffers;
        self.backend.embed(&self.source.table, request, bottom);
        self.backend.process(bottom, &self.encoder_parts.after_embedding, None, x);
    }

    fn attend_within(&self, attention: &SelfAttention<B>, reads: &Reads, buffers: &mut Buffers<B>) {
        let Buffers { x, y, processed, a, b, attended, .. } = buffers;
        let width = self.description.width;
        let backend = &self.backend;
        let input = attention.around.before(backend, x, processed);
        let (memory, key_column) = match &attention.inputs {
            SelfInputs::Joint(linear) => {
                backend.linear(input, linear, After::nothing(), a);
                (&*a, width)
            }
            SelfInputs::Apart { query, key_value, .. } => {
                backend.linear(input, query, After::nothing(), a);
                backend.linear(x, key_value, After::nothing(), b);
                (&*b, 0)
            }
        };
        let heads = self.description.encoder.heads;
        let memory = Memory { rows: memory, key_column, reads, heads, width };
        backend.attend(a, memory, attended);
        attention.around.finish(backend, attention.output.as_ref(), attended, x, y);
        std::mem::swap(x, y);
    }
}

/// Every row of a sentence reads all rows of its sentence.
fn reads_within<'s>(sources: impl Iterator<Item = &'s [u32]>) -> Reads {
    let mut reads = Reads::default();
    let mut start = 0;
    for source in sources {
        let end = start + source.len() as u32;
        for _ in source {
            reads.push(start..end);
        }
        start = end;
    }
    reads
}
