//! The source side: all admitted sentences at once, their rows laid end to end.

use peregrine_model::{SelfKeys, Stack};

use super::Transformer;
use super::block::{Buffers, FeedForwardBlock, SelfAttention, SelfInputs};
use super::session::whole_blocks;
use crate::backend::{
    Attention, AttentionWithin, Backend, Embed, Epilogue, Sentences, WithinScratch,
};
use crate::prepare::{MissingWeight, Preparer};
use crate::profile;

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
        let sentences = sentences(sources);
        profile::lap("encoder embedding");
        for layer in &self.encoder {
            self.attend_within(&layer.attention, &sentences, buffers);
            profile::lap("encoder attention");
            layer.feed_forward.run(&self.backend, buffers);
            profile::lap("encoder feed-forward");
        }
        let Buffers { x, y, bottom, .. } = buffers;
        if !self.encoder_parts.after_stack.is_empty() {
            self.backend.process(x, &self.encoder_parts.after_stack, Some(bottom), y);
            std::mem::swap(x, y);
        }
    }

    fn embed_source(&self, ids: &[Option<u32>], at: &[u32], buffers: &mut Buffers<B>) {
        let request = Embed {
            ids,
            follows: &[],
            at,
            scale: self.source.scale,
            positions: self.source.positions.as_ref(),
        };
        let Buffers { x, bottom, .. } = buffers;
        self.backend.embed(&self.source.table, request, bottom);
        self.backend.process(bottom, &self.encoder_parts.after_embedding, None, x);
    }

    fn attend_within(
        &self,
        attention: &SelfAttention<B>,
        sentences: &Sentences,
        buffers: &mut Buffers<B>,
    ) {
        let Buffers { x, y, processed, b, within, .. } = buffers;
        let (width, heads) = (self.description.width, self.description.encoder.heads);
        let backend = &self.backend;
        let input = attention.around.before(backend, x, processed);
        let last = attention.output.as_ref();
        match &attention.inputs {
            SelfInputs::Joint(projection) => {
                let after = attention.around.after(x);
                let block = AttentionWithin { projection, sentences, heads, width, last, after };
                backend.attend_within(input, block, within, y);
            }
            SelfInputs::Apart { query, key_value, keys } => {
                let of_keys = if *keys == SelfKeys::Processed { input } else { &*x };
                let WithinScratch { joint: queries, attended, cache } = within;
                backend.linear(input, query, Epilogue::nothing(), queries);
                backend.linear(of_keys, key_value, Epilogue::nothing(), b);
                backend.reserve_cache(cache, sentences.positions, width, heads);
                backend.store(b, 0, &sentences.at, cache);
                let to = Attention { cache, reads: &sentences.reads, heads, width };
                backend.attend(queries, to, attended);
                attention.around.finish(backend, last, attended, x, y);
            }
        }
        std::mem::swap(x, y);
    }
}

/// Assigns positions to the rows of sentences. Sentences begin at whole blocks.
fn sentences<'s>(sources: impl Iterator<Item = &'s [u32]>) -> Sentences {
    let mut sentences = Sentences::default();
    for source in sources {
        let start = sentences.positions as u32;
        let own = start..start + source.len() as u32;
        sentences.at.extend(own.clone());
        sentences.reads.push_party(own);
        (1..source.len()).for_each(|_| sentences.reads.push_same());
        sentences.positions += whole_blocks(source.len()) as usize;
    }
    sentences
}
