//! The parts of blocks: processing around them, projections of attention, dense layers.

use peregrine_model::{Activation, FeedForward, SelfKeys, Stack};

use super::Ops;
use crate::backend::{Backend, Epilogue, WithinScratch};
use crate::prepare::{MissingWeight, Preparer};

/// Processing at the two ends of a stack.
pub(super) struct StackParts<B: Backend> {
    pub(super) after_embedding: Ops<B>,
    pub(super) after_stack: Ops<B>,
}

impl<B: Backend> StackParts<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        side: &str,
    ) -> Result<Self, MissingWeight> {
        let steps =
            |place, ops| preparer.steps(&format!("{side}.{place}"), ops, stack.norm_epsilon);
        Ok(StackParts {
            after_embedding: steps("embedding", &stack.after_embedding)?,
            after_stack: steps("top", &stack.after_stack)?,
        })
    }
}

/// Processing around a block.
pub(super) struct Around<B: Backend> {
    pub(super) before: Ops<B>,
    pub(super) after: Ops<B>,
}

impl<B: Backend> Around<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        block: &str,
    ) -> Result<Self, MissingWeight> {
        let epsilon = stack.norm_epsilon;
        Ok(Around {
            before: preparer.steps(&format!("{block}.pre"), &stack.before_block, epsilon)?,
            after: preparer.steps(&format!("{block}.post"), &stack.after_block, epsilon)?,
        })
    }

    /// The pre-processed input: `x` itself if there is no pre-processing.
    pub(super) fn before<'x>(
        &self,
        backend: &B,
        x: &'x B::Rows,
        scratch: &'x mut B::Rows,
    ) -> &'x B::Rows {
        if self.before.is_empty() {
            return x;
        }
        backend.process(x, &self.before, None, scratch);
        scratch
    }

    /// The epilogue of the block's last product.
    pub(super) fn after<'a>(&'a self, input: &'a B::Rows) -> Epilogue<'a, B> {
        Epilogue { activation: Activation::Identity, ops: &self.after, input: Some(input) }
    }

    /// Computes the end of a block: its last product, if it has one, and post-processing.
    pub(super) fn finish(
        &self,
        backend: &B,
        projection: Option<&B::Linear>,
        y: &B::Rows,
        input: &B::Rows,
        out: &mut B::Rows,
    ) {
        match projection {
            Some(projection) => backend.linear(y, projection, self.after(input), out),
            None => backend.process(y, &self.after, Some(input), out),
        }
    }
}

/// Self-attention's projections.
pub(super) struct SelfAttention<B: Backend> {
    pub(super) around: Around<B>,
    pub(super) inputs: SelfInputs<B>,
    pub(super) output: Option<B::Linear>,
}

/// How queries, keys and values are made from a block's input.
pub(super) enum SelfInputs<B: Backend> {
    /// All from the processed input: one product.
    Joint(B::Linear),
    /// Queries from the processed input, keys and values from what `keys` says.
    Apart { query: B::Linear, key_value: B::Linear, keys: SelfKeys },
}

impl<B: Backend> SelfAttention<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        block: &str,
    ) -> Result<Self, MissingWeight> {
        // Without pre-processing, raw and processed inputs are the same.
        let same = stack.before_block.is_empty();
        let keys = if same { SelfKeys::Processed } else { stack.self_keys };
        let inputs = if keys == SelfKeys::Processed && preparer.backend.joins_products() {
            SelfInputs::Joint(preparer.side_by_side(block, &["query", "key", "value"])?)
        } else {
            SelfInputs::Apart {
                query: preparer.linear(&format!("{block}.query"))?,
                key_value: preparer.side_by_side(block, &["key", "value"])?,
                keys,
            }
        };
        Ok(SelfAttention {
            around: Around::prepare(preparer, stack, block)?,
            inputs,
            output: attention_output(preparer, stack, block)?,
        })
    }
}

/// The last projection of attention, if it has one.
pub(super) fn attention_output<B: Backend>(
    preparer: &Preparer<'_, B>,
    stack: &Stack,
    block: &str,
) -> Result<Option<B::Linear>, MissingWeight> {
    let name = format!("{block}.output");
    stack.attention_projection.then(|| preparer.linear(&name)).transpose()
}

/// Dense layers with an activation between them.
pub(super) struct DenseLayers<B: Backend> {
    layers: Vec<B::Linear>,
    depth: usize,
    activation: Activation,
}

impl<B: Backend> DenseLayers<B> {
    /// The first `count` layers of a feed-forward block.
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        description: &FeedForward,
        count: usize,
        block: &str,
    ) -> Result<Self, MissingWeight> {
        let layers = (0..count)
            .map(|j| preparer.linear(&format!("{block}.{j}")))
            .collect::<Result<_, _>>()?;
        Ok(DenseLayers { layers, depth: description.depth, activation: description.activation })
    }

    /// All layers but the last one of the block.
    pub(super) fn inner(&self) -> impl Iterator<Item = (&B::Linear, Activation)> {
        let inner = self.layers.len().min(self.depth.saturating_sub(1));
        self.layers[..inner].iter().map(|layer| (layer, self.activation))
    }

    /// The last layer, which has no activation; none if it was not prepared.
    pub(super) fn last(&self) -> Option<&B::Linear> {
        self.layers.get(self.depth.saturating_sub(1))
    }

    /// Runs the inner layers and returns that of `x`, `a` and `b` which has the result.
    pub(super) fn run_inner<'x>(
        &self,
        backend: &B,
        x: &'x B::Rows,
        a: &'x mut B::Rows,
        b: &'x mut B::Rows,
    ) -> &'x B::Rows {
        let mut layers = self.inner();
        let Some((first, activation)) = layers.next() else { return x };
        backend.linear(x, first, Epilogue::activation(activation), a);
        let (mut current, mut other) = (a, b);
        for (layer, activation) in layers {
            backend.linear(current, layer, Epilogue::activation(activation), other);
            std::mem::swap(&mut current, &mut other);
        }
        current
    }
}

/// A feed-forward block.
pub(super) struct FeedForwardBlock<B: Backend> {
    around: Around<B>,
    dense: DenseLayers<B>,
}

impl<B: Backend> FeedForwardBlock<B> {
    pub(super) fn prepare(
        preparer: &Preparer<'_, B>,
        stack: &Stack,
        block: &str,
    ) -> Result<Self, MissingWeight> {
        let description = &stack.feed_forward;
        Ok(FeedForwardBlock {
            around: Around::prepare(preparer, stack, block)?,
            dense: DenseLayers::prepare(preparer, description, description.depth, block)?,
        })
    }

    /// `x` becomes the block's output.
    pub(super) fn run(&self, backend: &B, buffers: &mut Buffers<B>) {
        let Buffers { x, y, processed, a, b, .. } = buffers;
        let input = self.around.before(backend, x, processed);
        match (self.dense.layers.as_slice(), self.dense.depth) {
            ([first, second], 2) => {
                let second = (second, self.around.after(x));
                backend.feed_forward(input, (first, self.dense.activation), second, a, y);
            }
            _ => {
                let inner = self.dense.run_inner(backend, input, a, b);
                self.around.finish(backend, self.dense.last(), inner, x, y);
            }
        }
        std::mem::swap(x, y);
    }
}

/// Working memory of one worker, kept between steps.
pub(super) struct Buffers<B: Backend> {
    /// The current block's input.
    pub(super) x: B::Rows,
    /// The current block's output, swapped with `x` at its end.
    pub(super) y: B::Rows,
    /// The stack's input, for processing after the stack.
    pub(super) bottom: B::Rows,
    /// A block's pre-processed input.
    pub(super) processed: B::Rows,
    /// Results inside a block.
    pub(super) a: B::Rows,
    /// Further results inside a block.
    pub(super) b: B::Rows,
    /// The output of attention.
    pub(super) attended: B::Rows,
    /// For attention within the sentences being encoded.
    pub(super) within: WithinScratch<B>,
}

impl<B: Backend> Buffers<B> {
    pub(super) fn new(backend: &B) -> Self {
        Buffers {
            x: backend.rows(),
            y: backend.rows(),
            bottom: backend.rows(),
            processed: backend.rows(),
            a: backend.rows(),
            b: backend.rows(),
            attended: backend.rows(),
            within: WithinScratch::new(backend),
        }
    }
}
