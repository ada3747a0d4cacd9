//! What a network computes, as data.
//!
//! Every convention in which tools differ (position tables, epsilons, the first decoder input,
//! pre-norm or post-norm, symbols around the source) is a field here. The importer of a dialect
//! fills it in; no code above this crate depends on the tool that wrote a file.
//!
//! The weights that go with a description have canonical names, see [`names`](crate::names).

use serde::{Deserialize, Serialize};

use crate::{Recurrent, RnnFc};

/// A network's description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "a model has one")]
pub enum Architecture {
    /// Attention encoder, and a decoder of self-attention, average attention network (AAN) or SSRU layers.
    Transformer(Transformer),
    /// Recurrent encoder and decoder with additive attention.
    Recurrent(Recurrent),
    /// A recurrent layer with attention, and dense layers above it.
    RnnFc(RnnFc),
}

impl Architecture {
    /// Number of words the output layer scores.
    pub fn target_vocabulary(&self) -> usize {
        match self {
            Architecture::Transformer(t) => t.target_vocabulary,
            Architecture::Recurrent(r) => r.target_vocabulary,
            Architecture::RnnFc(r) => r.target_vocabulary,
        }
    }

    /// Number of words of the source embedding.
    pub fn source_vocabulary(&self) -> usize {
        match self {
            Architecture::Transformer(t) => t.source_vocabulary,
            Architecture::Recurrent(r) => r.source_vocabulary,
            Architecture::RnnFc(r) => r.source_vocabulary,
        }
    }

    /// How a source sentence is framed before it is encoded.
    pub fn source_frame(&self) -> &SourceFrame {
        match self {
            Architecture::Transformer(t) => &t.source_frame,
            Architecture::Recurrent(r) => &r.source_frame,
            Architecture::RnnFc(r) => &r.source_frame,
        }
    }

    /// The longest source the network can encode, end symbol included, if there is a limit.
    pub fn position_limit(&self) -> Option<usize> {
        match self {
            Architecture::Transformer(t) => t.position_limit,
            Architecture::Recurrent(_) | Architecture::RnnFc(_) => None,
        }
    }
}

/// A transformer: an encoder and a decoder of the same width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transformer {
    /// Width of embeddings and of every block's input and output (D).
    pub width: usize,
    /// Rows of the source embedding.
    pub source_vocabulary: usize,
    /// Rows of the target embedding and of the output layer.
    pub target_vocabulary: usize,
    /// The ids added around the source ids.
    pub source_frame: SourceFrame,
    /// The encoder.
    pub encoder: Stack,
    /// The decoder.
    pub decoder: Stack,
    /// The sub-layer by which a decoder layer reads the words already produced.
    pub autoregression: Autoregression,
    /// The parameter set of each decoder layer (0-based; tied layers share one).
    pub decoder_parameters: Vec<usize>,
    /// The first decoder input.
    pub start: Start,
    /// The cross-attention heads that give the word alignment.
    pub alignment: AlignmentHeads,
    /// The maximum number of positions: the rows of stored tables, or the limit of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position_limit: Option<usize>,
}

/// The settings that encoder and decoder have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// Number of layers.
    pub layers: usize,
    /// Attention heads (H); each owns D / H neighbouring columns.
    pub heads: usize,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
    /// The factor that embeddings are multiplied by before positions are added.
    pub embedding_scale: f32,
    /// The position vectors.
    pub positions: Positions,
    /// The ops on embedding + position.
    pub after_embedding: Vec<Op>,
    /// The ops on a block's input (pre-norm).
    pub before_block: Vec<Op>,
    /// The ops on a block's output (post-norm); [`Op::Add`] and [`Op::Highway`] read the block's input.
    pub after_block: Vec<Op>,
    /// The ops after the last layer; [`Op::Add`] reads the stack's input.
    pub after_stack: Vec<Op>,
    /// Epsilon of every norm in the stack.
    pub norm_epsilon: f32,
    /// Whether attention ends in an output projection.
    pub attention_projection: bool,
    /// The input of self-attention's keys and values.
    pub self_keys: SelfKeys,
}

/// One letter of Marian's processing strings, dropout left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// `a`: add the block's input.
    Add,
    /// `h`: a gate between the block's input and its output.
    Highway,
    /// `n`: layer normalisation.
    Norm,
    /// `r`: root-mean-square normalisation.
    RmsNorm,
}

/// A stack of dense layers with an activation between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeedForward {
    /// Inner width.
    pub width: usize,
    /// Number of dense layers, at least 1.
    pub depth: usize,
    /// The activation after every dense layer but the last.
    pub activation: Activation,
}

/// An element-wise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `x`
    Identity,
    /// `max(0, x)`
    Relu,
    /// `x · sigmoid(x)`
    Swish,
    /// `x/2 · (1 + erf(x / √2))`, the exact gelu.
    Gelu,
    /// The tanh approximation of gelu.
    GeluTanh,
    /// `x · sigmoid(1.702 x)`
    GeluSigmoid,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

/// The position vector that is added to an embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// Nothing.
    None,
    /// Row `p` of the stored table `encoder.positions` / `decoder.positions`.
    Table,
    /// All sines, then all cosines, of `(p + first) · 10000^(-i / n)`, i = 0 .. D/2-1.
    Sinusoid {
        /// Number of the first position.
        first: u32,
        /// The divisor `n`.
        spacing: Spacing,
    },
}

/// The divisor in the exponent of a sinusoid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// `D/2 - 1`: Marian, and CTranslate2 where the file has no table.
    HalfLessOne,
    /// `D/2`: Hugging Face.
    Half,
}

/// Which input self-attention's keys and values are computed from when blocks are pre-processed.
/// Without pre-processing the three are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelfKeys {
    /// The pre-processed input, as the queries.
    Processed,
    /// The raw input, always: Marian before February 2022.
    Raw,
    /// The pre-processed input at the first decoder step, the raw inputs of all steps later:
    /// how Marian 1.12 decodes (it trains and scores as [`SelfKeys::Processed`]).
    RawAfterFirst,
}

/// The first sub-layer of a decoder layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Autoregression {
    /// Self-attention over the words produced so far, with a KV cache.
    SelfAttention,
    /// Average attention network (AAN): a running mean of the inputs through a dense block and a gate.
    Average {
        /// The dense block; it has no last layer if that layer's input already has width D.
        feed_forward: FeedForward,
        /// Whether input and average are gated.
        gate: bool,
    },
    /// A simpler simple recurrent unit (SSRU) in place of attention.
    Ssru {
        /// Whether the cell has layer norm (epsilon 1e-9).
        layer_norm: bool,
        /// Whether a dense layer follows the cell.
        projection: bool,
    },
}

/// The first decoder input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// A zero vector in place of an embedding; the position is added as usual.
    Zero,
    /// The embedding of this word.
    Token(u32),
}

/// The cross-attention weights that are reported as alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignmentHeads {
    /// Decoder layer, 0-based.
    pub layer: usize,
    /// The number of first heads whose mean is taken.
    pub heads: usize,
}

/// The ids added around a source sentence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFrame {
    /// The id in front.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u32>,
    /// The id behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// The id behind the end symbol: a language token in mBART-25 and in NLLB's first port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_end: Option<u32>,
}

impl SourceFrame {
    /// Number of ids the frame adds.
    pub fn len(&self) -> usize {
        [self.begin, self.end, self.after_end].iter().flatten().count()
    }

    /// Whether nothing is added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The framed sentence.
    ///
    /// ```
    /// let frame = peregrine_model::SourceFrame { end: Some(0), ..Default::default() };
    /// assert_eq!(frame.frame(&[5, 6]), [5, 6, 0]);
    /// ```
    pub fn frame(&self, ids: &[u32]) -> Vec<u32> {
        let behind = self.end.into_iter().chain(self.after_end);
        self.begin.into_iter().chain(ids.iter().copied()).chain(behind).collect()
    }
}

impl FeedForward {
    /// The (input, output) widths of the dense layers between blocks of width `outer`.
    pub fn dense_shapes(&self, outer: usize) -> Vec<(usize, usize)> {
        (0..self.depth)
            .map(|i| {
                let input = if i == 0 { outer } else { self.width };
                let output = if i + 1 == self.depth { outer } else { self.width };
                (input, output)
            })
            .collect()
    }

    /// Like [`Self::dense_shapes`], without a last layer whose input already has width `outer`, as
    /// in an average attention network (AAN).
    pub fn average_shapes(&self, outer: usize) -> Vec<(usize, usize)> {
        let mut shapes = self.dense_shapes(outer);
        if shapes.last().is_some_and(|&(input, _)| input == outer) {
            shapes.pop();
        }
        shapes
    }
}
