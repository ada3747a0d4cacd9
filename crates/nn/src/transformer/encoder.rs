//! The source side: all admitted sentences at once, their rows laid end to end.

use peregrine_model::{SelfKeys, Stack};

use super::Transformer;
use super::block::{Buffers, FeedForwardBlock, SelfAttention, SelfInputs};
use super::session::whole_blocks;
use crate::backend::{Attention, Backend, Embed, Epilogue};
use crate::prepare::{MissingWeight, Preparer};
use crate::profile;
use crate::reads::Reads;

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
        let places = Places::new(sources);
        profile::lap("encoder embedding");
        for layer in &self.encoder {
            self.attend_within(&layer.attention, &places, buffers);
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
        places: &Places,
        buffers: &mut Buffers<B>,
    ) {
        let Buffers { x, y, processed, a, b, attended, within, .. } = buffers;
        let (width, heads) = (self.description.width, self.description.encoder.heads);
        let backend = &self.backend;
        let input = attention.around.before(backend, x, processed);
        backend.reserve_cache(within, places.size, width, heads);
        match &attention.inputs {
            SelfInputs::Joint(linear) => {
                backend.linear(input, linear, Epilogue::nothing(), a);
                backend.store(a, width, &places.at, within);
            }
            SelfInputs::Apart { query, key_value, keys } => {
                let of_keys = if *keys == SelfKeys::Processed { input } else { &*x };
                backend.linear(input, query, Epilogue::nothing(), a);
                backend.linear(of_keys, key_value, Epilogue::nothing(), b);
                backend.store(b, 0, &places.at, within);
            }
        }
        backend.attend(
            a,
            Attention { cache: within, reads: &places.reads, heads, width },
            attended,
        );
        attention.around.finish(backend, attention.output.as_ref(), attended, x, y);
        std::mem::swap(x, y);
    }
}

/// Positions of the KV cache of the sentences being encoded.
#[derive(Default)]
struct Places {
    /// The position each row stores.
    at: Vec<u32>,
    /// The positions each row reads: all of its sentence.
    reads: Reads,
    /// The number of positions in all.
    size: usize,
}

impl Places {
    /// Assigns positions. Sentences begin at whole blocks.
    fn new<'s>(sources: impl Iterator<Item = &'s [u32]>) -> Places {
        let mut places = Places::default();
        for source in sources {
            let start = places.size as u32;
            let own = start..start + source.len() as u32;
            places.at.extend(own.clone());
            places.reads.push_party(own);
            (1..source.len()).for_each(|_| places.reads.push_same());
            places.size += whole_blocks(source.len()) as usize;
        }
        places
    }
}
