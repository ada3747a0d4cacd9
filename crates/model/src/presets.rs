//! Networks of well-known shapes, to be filled with random weights for benchmarks.

use crate::compat::{MARIAN_EPSILON, MARIAN_POSITIONS};
use crate::{
    Activation, AlignmentHeads, Architecture, Autoregression, CellKind, EncoderKind, FeedForward,
    Op, Positions, Recurrent, RecurrentDecoder, RecurrentEncoder, RecurrentNorm, RnnFc, SelfKeys,
    SourceFrame, Spacing, Stack, Start, StartCell, Top, Transformer,
};

/// Names of presets and their descriptions.
pub const PRESETS: [(&str, &str); 13] = [
    ("base", "transformer of 6+6 layers, 512/2048, 8 heads, 32k words"),
    ("student", "transformer of 6+3 layers, 256/1024, 8 heads, 32k words"),
    (
        "nllb",
        "NLLB-200's 600M: pre-norm transformer of 12+12 layers, 1024/4096, 16 heads, 256k words",
    ),
    ("gru", "shallow GRU of 1024, embeddings 512, 32k words"),
    (
        "bideep",
        "GRU of 4x2 alternating encoder cells and 4 decoder layers (4, 2, 2, 2), 1024, 32k words",
    ),
    ("mlstm", "mLSTM of 1024 with a GRU after attention, 32k words"),
    ("rnnfc-s1", "Devlin's S1: 1024-AttGRU, 80k words"),
    ("rnnfc-s2", "S2: S1 + 1024-GRU"),
    ("rnnfc-s3", "S3: S1 + 3 x 768-FC + 1024-FC-tanh"),
    ("rnnfc-s4", "S4: S1 + 7 x 768-FC + 1024-FC-tanh"),
    ("rnnfc-s5", "S5: S1 + 7 x 768-FC + 1024-GRU"),
    ("rnnfc-s6", "S6: S1 + 15 x 768-FC + 1024-FC-tanh"),
    ("rnnfc-s7", "S7: 8 LSTM layers on the source side, 1024-AttLSTM + 7 x 1024-LSTM"),
];

const END: SourceFrame = SourceFrame { begin: None, end: Some(0), after_end: None };

/// The description of a preset; `words` overrides its vocabulary size.
pub fn preset(name: &str, words: Option<usize>) -> Option<Architecture> {
    let size = |usual: usize| words.unwrap_or(usual);
    Some(match name {
        "base" => transformer(512, 6, size(32_000)),
        "student" => transformer(256, 3, size(32_000)),
        "nllb" => Architecture::Transformer(fairseq_transformer(TransformerSize {
            width: 1024,
            inner: 4096,
            heads: 16,
            encoder_layers: 12,
            decoder_layers: 12,
            words: size(256_206),
        })),
        "gru" | "bideep" | "mlstm" => Architecture::Recurrent(recurrent(name, size(32_000))),
        _ => {
            let (dense_layers, top) = match name.strip_prefix("rnnfc-")? {
                "s1" => (0, Top::None),
                "s2" => (0, Top::Recurrent(1)),
                "s3" => (3, Top::Tanh),
                "s4" => (7, Top::Tanh),
                "s5" => (7, Top::Recurrent(1)),
                "s6" => (15, Top::Tanh),
                "s7" => (0, Top::Recurrent(7)),
                _ => return None,
            };
            Architecture::RnnFc(rnnfc(name == "rnnfc-s7", dense_layers, top, size(80_000)))
        }
    })
}

fn transformer(width: usize, decoder_layers: usize, words: usize) -> Architecture {
    Architecture::Transformer(marian_transformer(TransformerSize {
        width,
        inner: 4 * width,
        heads: 8,
        encoder_layers: 6,
        decoder_layers,
        words,
    }))
}

fn rnnfc(lstm: bool, dense_layers: usize, top: Top, words: usize) -> RnnFc {
    RnnFc {
        source_vocabulary: words,
        target_vocabulary: words,
        source_frame: END,
        source_embedding: 512,
        target_embedding: 512,
        cell: if lstm { CellKind::Lstm } else { CellKind::Gru },
        source_width: 512,
        // Wu et al. (2016): one bidirectional layer, the others read left to right.
        source_layers: if lstm { 1 } else { 3 },
        source_single_layers: if lstm { 7 } else { 0 },
        width: 1024,
        attention_width: 512,
        dense_layers,
        dense_width: 768,
        top,
        top_width: 1024,
    }
}

fn recurrent(name: &str, words: usize) -> Recurrent {
    let deep = name == "bideep";
    let cell = if name == "mlstm" { CellKind::Mlstm } else { CellKind::Gru };
    let gru = CellKind::Gru;
    Recurrent {
        width: 1024,
        source_embedding: 512,
        target_embedding: 512,
        source_vocabulary: words,
        target_vocabulary: words,
        source_frame: END,
        encoder: RecurrentEncoder {
            kind: if deep { EncoderKind::Alternating } else { EncoderKind::Bidirectional },
            layers: if deep { 4 } else { 1 },
            forward: vec![cell; if deep { 2 } else { 1 }],
            backward: vec![cell; if deep { 2 } else { 1 }],
            skip: deep,
        },
        decoder: RecurrentDecoder {
            base: if deep { vec![gru; 4] } else { vec![cell, gru] },
            high_layers: if deep { 3 } else { 0 },
            high: vec![gru; 2],
            skip: deep,
            start_cell: StartCell::Zero,
        },
        attention_width: 2048,
        cell_norm: if deep { RecurrentNorm::Marian } else { RecurrentNorm::None },
        dense_norm: if deep { RecurrentNorm::Marian } else { RecurrentNorm::None },
    }
}

/// The size of a [`marian_transformer`].
#[derive(Debug, Clone, Copy)]
pub struct TransformerSize {
    /// Width of the vectors between layers.
    pub width: usize,
    /// Width of the dense layers.
    pub inner: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of encoder layers.
    pub encoder_layers: usize,
    /// Number of decoder layers.
    pub decoder_layers: usize,
    /// Words of each vocabulary.
    pub words: usize,
}

/// A post-norm transformer with Marian's conventions.
pub fn marian_transformer(size: TransformerSize) -> Transformer {
    let TransformerSize { width, inner, heads, encoder_layers, decoder_layers, words } = size;
    let stack = |layers| Stack {
        layers,
        heads,
        feed_forward: FeedForward { width: inner, depth: 2, activation: Activation::Relu },
        embedding_scale: (width as f32).sqrt(),
        positions: MARIAN_POSITIONS,
        after_embedding: Vec::new(),
        before_block: Vec::new(),
        after_block: vec![Op::Add, Op::Norm],
        after_stack: Vec::new(),
        norm_epsilon: MARIAN_EPSILON,
        attention_projection: true,
        self_keys: SelfKeys::Processed,
    };
    Transformer {
        width,
        source_vocabulary: words,
        target_vocabulary: words,
        source_frame: END,
        encoder: stack(encoder_layers),
        decoder: stack(decoder_layers),
        autoregression: Autoregression::SelfAttention,
        decoder_parameters: (0..decoder_layers).collect(),
        start: Start::Zero,
        alignment: AlignmentHeads { layer: decoder_layers.saturating_sub(1), heads: 1 },
        position_limit: None,
    }
}

/// A pre-norm transformer with the conventions of M2M-100 and NLLB-200.
pub fn fairseq_transformer(size: TransformerSize) -> Transformer {
    let plain = marian_transformer(size);
    let pre_norm = |stack| Stack {
        positions: Positions::Sinusoid { first: 2, spacing: Spacing::HalfLessOne },
        before_block: vec![Op::Norm],
        after_block: vec![Op::Add],
        after_stack: vec![Op::Norm],
        norm_epsilon: 1e-5,
        ..stack
    };
    Transformer {
        encoder: pre_norm(plain.encoder),
        decoder: pre_norm(plain.decoder),
        start: Start::Token(0),
        ..plain
    }
}

/// The same with the conventions of mBART: a table of `positions`, a norm after the embedding, GELU.
pub fn mbart_transformer(size: TransformerSize, positions: usize) -> Transformer {
    let plain = fairseq_transformer(size);
    let other = |stack: Stack| Stack {
        positions: Positions::Table,
        after_embedding: vec![Op::Norm],
        feed_forward: FeedForward { activation: Activation::Gelu, ..stack.feed_forward },
        ..stack
    };
    Transformer {
        encoder: other(plain.encoder),
        decoder: other(plain.decoder),
        position_limit: Some(positions),
        ..plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_described_and_makes_sense() {
        for (name, what) in PRESETS {
            assert!(!what.is_empty());
            let sound = match preset(name, Some(100)) {
                Some(Architecture::Recurrent(r)) => r.nonsense().is_none(),
                Some(Architecture::RnnFc(r)) => r.nonsense().is_none(),
                Some(Architecture::Transformer(_)) => true,
                None => false,
            };
            assert!(sound, "{name}");
        }
        assert!(preset("nothing", None).is_none());
    }
}
