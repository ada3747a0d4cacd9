//! The network classes of `transformers`: what each computes, and why others are refused.

use crate::huggingface::config::Config;
use crate::{Activation, FeedForward, ModelError, Op, Positions, SelfKeys, Spacing, Stack};

/// Epsilon of the norms of all classes.
const EPSILON: f32 = 1e-5;
/// The positions of MarianMT.
const MARIAN_MT_POSITIONS: Positions = Positions::Sinusoid { first: 0, spacing: Spacing::Half };
/// The rows before position 0 in mBART's position tables.
pub(crate) const MBART_FIRST_ROW: usize = 2;

/// A network class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `MarianMTModel`: post-norm, computed positions.
    MarianMt,
    /// `M2M100ForConditionalGeneration`, which NLLB-200 uses too: pre-norm, computed positions.
    M2m100,
    /// `MBartForConditionalGeneration`: pre-norm, a norm after the embedding, trained positions.
    Mbart,
}

/// Classes that are refused, by `model_type`, and the reason.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["t5", "mt5", "umt5", "longt5", "switch_transformers"],
        "T5's networks (relative position bias, norms without a bias) are not supported",
    ),
    (&["nllb-moe"], "mixtures of experts are not supported"),
    (
        &["whisper", "speech_to_text", "wav2vec2", "seamless_m4t", "seamless_m4t_v2"],
        "networks for speech are not supported",
    ),
    (
        &["bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2"],
        "an encoder alone cannot translate",
    ),
    (
        &[
            "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3",
            "qwen2", "qwen3", "phi3",
        ],
        "language models without an encoder are not supported",
    ),
];

impl Class {
    /// The class of a checkpoint.
    pub(crate) fn of(config: &Config) -> Result<Class, ModelError> {
        if let Some(method) = config.nested_text("quantization_config", "quant_method") {
            let what = format!("weights quantised by {method} are not supported");
            return Err(ModelError::unsupported(config.path(), what));
        }
        let kind = config.text("model_type")?.unwrap_or_default();
        let class = match kind {
            "marian" => Class::MarianMt,
            "m2m_100" => Class::M2m100,
            "mbart" => Class::Mbart,
            _ => {
                let reason = REFUSED.iter().find(|(kinds, _)| kinds.contains(&kind));
                return Err(match reason {
                    Some((_, reason)) => {
                        let what = format!("model_type {kind:?}: {reason}");
                        ModelError::unsupported(config.path(), what)
                    }
                    None => config.unsupported("model_type"),
                });
            }
        };
        class.refuse_variants(config)?;
        Ok(class)
    }

    /// The class's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::MarianMt => "MarianMTModel",
            Class::M2m100 => "M2M100ForConditionalGeneration",
            Class::Mbart => "MBartForConditionalGeneration",
        }
    }

    /// Refuses options that only old versions of MarianMT heeded.
    fn refuse_variants(self, config: &Config) -> Result<(), ModelError> {
        if self != Class::MarianMt {
            return Ok(());
        }
        if config.flag("normalize_before")? == Some(true) {
            return Err(config.unsupported("normalize_before"));
        }
        if config.flag("static_position_embeddings")? == Some(false) {
            return Err(config.unsupported("static_position_embeddings"));
        }
        Ok(())
    }

    fn positions(self, config: &Config) -> Result<Positions, ModelError> {
        Ok(match self {
            Class::MarianMt => MARIAN_MT_POSITIONS,
            Class::M2m100 => {
                // Positions begin behind that of the padding word.
                let first = config.id("pad_token_id")?.unwrap_or(1).saturating_add(1);
                Positions::Sinusoid { first, spacing: Spacing::HalfLessOne }
            }
            Class::Mbart => Positions::Table,
        })
    }

    /// The encoder or decoder.
    pub(crate) fn stack(
        self,
        config: &Config,
        side: &str,
        width: usize,
    ) -> Result<Stack, ModelError> {
        let count = |key: &str, default| {
            Ok::<_, ModelError>(config.count(&format!("{side}_{key}"))?.unwrap_or(default))
        };
        let scaled = config.flag("scale_embedding")?.unwrap_or(self == Class::M2m100);
        let activation = match self {
            Class::M2m100 => Activation::Relu,
            Class::MarianMt | Class::Mbart => Activation::Gelu,
        };
        let norm_if = |there: bool| if there { vec![Op::Norm] } else { Vec::new() };
        let pre_norm = self != Class::MarianMt;
        Ok(Stack {
            layers: count("layers", 12)?,
            heads: count("attention_heads", 16)?,
            feed_forward: FeedForward {
                width: count("ffn_dim", 4096)?,
                depth: 2,
                activation: config.activation(activation)?,
            },
            embedding_scale: if scaled { (width as f32).sqrt() } else { 1.0 },
            positions: self.positions(config)?,
            after_embedding: norm_if(self == Class::Mbart),
            before_block: norm_if(pre_norm),
            after_block: if pre_norm { vec![Op::Add] } else { vec![Op::Add, Op::Norm] },
            after_stack: norm_if(pre_norm),
            norm_epsilon: EPSILON,
            attention_projection: true,
            self_keys: SelfKeys::Processed,
        })
    }
}
