//! Hugging Face MarianMT checkpoints: `config.json`, weights in safetensors or PyTorch's own files,
//! `vocab.json` and SentencePiece models.
//!
//! The class has one form: post-norm, computed sinusoidal positions, biases everywhere. Everything
//! else in a checkpoint is refused.

mod config;
pub(crate) mod names;
mod tensors;

use std::path::Path;
use std::sync::Arc;

use peregrine_formats::Tensors;
use peregrine_text::{PieceOptions, Tokenizer};

pub(crate) use tensors::shards;

use crate::check::{self, Lookup};
use crate::huggingface::config::Config;
use crate::tensors::float_weight;
use crate::{
    AlignmentHeads, Architecture, Autoregression, Dialect, FeedForward, Member, Model, ModelError,
    Op, Positions, Search, SelfKeys, SourceFrame, Spacing, Stack, Start, Transformer, files,
};

/// Epsilon of the class's norms.
pub(crate) const EPSILON: f32 = 1e-5;
/// The class's positions.
pub(crate) const POSITIONS: Positions = Positions::Sinusoid { first: 0, spacing: Spacing::Half };

/// Whether a folder has a `config.json` of Hugging Face.
pub(crate) fn is_checkpoint(folder: &Path) -> bool {
    let config = Config::read(&folder.join("config.json"));
    config.is_ok_and(|config| matches!(config.text("model_type"), Ok(Some(_))))
}

/// Opens a checkpoint directory.
pub(crate) fn open(folder: &Path) -> Result<Model, ModelError> {
    let config = Config::read(&folder.join("config.json"))?;
    refuse_other_models(&config)?;
    let generation = files::first_of(folder, &["generation_config.json"]);
    let generation = generation.map(|path| Config::read(&path)).transpose()?;
    let configs: Vec<&Config> = generation.iter().chain([&config]).collect();
    let mut notes = Vec::new();
    let (source, target) = tokenizers(folder)?;
    let description = describe(&config, &configs, &source, &target)?;
    let (path, tensors) = tensors::read(folder)?;
    tensors::refuse_trained_positions(&path, &tensors, description.width)?;
    let weights =
        check::gather(&path, &description, |expected| look_up(&path, &tensors, &expected.name))?;
    tensors::refuse_unknown(&path, &tensors, &description)?;
    let search = search(&configs, &description, &mut notes)?;
    let architecture = Architecture::Transformer(description);
    Ok(Model {
        dialect: Dialect::HuggingFace,
        members: vec![Member { path, architecture, weights }],
        member_weights: Vec::new(),
        source,
        target,
        search,
        shortlist: None,
        notes,
    })
}

fn look_up(path: &Path, tensors: &Tensors, canonical: &str) -> Result<Lookup, ModelError> {
    let places = names::places(canonical);
    let stored = places.first().cloned().unwrap_or_else(|| canonical.into());
    for name in places {
        if let Some(tensor) = tensors.get(&name) {
            return Ok(Lookup { weight: Some(float_weight(path, &name, tensor)?), stored: name });
        }
    }
    Ok(Lookup { stored, weight: None })
}

fn refuse_other_models(config: &Config) -> Result<(), ModelError> {
    if config.text("model_type")? != Some("marian") {
        return Err(config.unsupported("model_type"));
    }
    if config.flag("normalize_before")? == Some(true) {
        return Err(config.unsupported("normalize_before"));
    }
    if config.flag("static_position_embeddings")? == Some(false) {
        return Err(config.unsupported("static_position_embeddings"));
    }
    Ok(())
}

/// Tokenizers of the SentencePiece models, with ids from `vocab.json`, and from `target_vocab.json`
/// for the target if it exists.
fn tokenizers(folder: &Path) -> Result<(Arc<Tokenizer>, Arc<Tokenizer>), ModelError> {
    let vocabulary = folder.join("vocab.json");
    let target = files::first_of(folder, &["target_vocab.json"]);
    let target = target.as_deref().unwrap_or(&vocabulary);
    let options = PieceOptions { language_codes: true, drop_unknown: true };
    Ok((
        Arc::new(pieces(&folder.join("source.spm"), &vocabulary, options)?),
        Arc::new(pieces(&folder.join("target.spm"), target, options)?),
    ))
}

fn pieces(spm: &Path, vocabulary: &Path, options: PieceOptions) -> Result<Tokenizer, ModelError> {
    let (spm_name, name) = (spm.display().to_string(), vocabulary.display().to_string());
    let spm = match spm.is_file() {
        true => Some((spm_name.as_str(), files::read(spm)?)),
        false => None,
    };
    Ok(Tokenizer::pieces(spm, (name.as_str(), files::read(vocabulary)?), options)?)
}

fn describe(
    config: &Config,
    configs: &[&Config],
    source: &Tokenizer,
    target: &Tokenizer,
) -> Result<Transformer, ModelError> {
    let first_id =
        |key: &str| configs.iter().find_map(|config| config.id(key).transpose()).transpose();
    if let Some(eos) = first_id("eos_token_id")?
        && eos != target.eos()
    {
        let problem = format!("eos_token_id {eos}, but the vocabulary's </s> is {}", target.eos());
        return Err(ModelError::invalid(config.path(), problem));
    }
    let width = config.count("d_model")?.unwrap_or(1024);
    let source_vocabulary = config.count("vocab_size")?.unwrap_or(58101);
    let target_vocabulary = config.count("decoder_vocab_size")?.unwrap_or(source_vocabulary);
    let pad = first_id("pad_token_id")?;
    let Some(start) = first_id("decoder_start_token_id")?.or(pad) else {
        return Err(ModelError::invalid(config.path(), "no decoder_start_token_id"));
    };
    let decoder = stack(config, "decoder", width)?;
    Ok(Transformer {
        width,
        source_vocabulary,
        target_vocabulary,
        source_frame: SourceFrame { begin: None, end: Some(source.eos()) },
        encoder: stack(config, "encoder", width)?,
        autoregression: Autoregression::SelfAttention,
        decoder_parameters: (0..decoder.layers.min(1 << 16)).collect(),
        start: Start::Token(start),
        alignment: AlignmentHeads { layer: decoder.layers.saturating_sub(1), heads: 1 },
        position_limit: Some(config.count("max_position_embeddings")?.unwrap_or(1024)),
        decoder,
    })
}

fn stack(config: &Config, side: &str, width: usize) -> Result<Stack, ModelError> {
    let count = |key: &str, default| {
        Ok::<_, ModelError>(config.count(&format!("{side}_{key}"))?.unwrap_or(default))
    };
    let scaled = config.flag("scale_embedding")?.unwrap_or(false);
    Ok(Stack {
        layers: count("layers", 12)?,
        heads: count("attention_heads", 16)?,
        feed_forward: FeedForward {
            width: count("ffn_dim", 4096)?,
            depth: 2,
            activation: config.activation()?,
        },
        embedding_scale: if scaled { (width as f32).sqrt() } else { 1.0 },
        positions: POSITIONS,
        after_embedding: Vec::new(),
        before_block: Vec::new(),
        after_block: vec![Op::Add, Op::Norm],
        after_stack: Vec::new(),
        norm_epsilon: EPSILON,
        attention_projection: true,
        self_keys: SelfKeys::Processed,
    })
}

/// The search settings of the checkpoint, limited to its positions and without the padding word.
fn search(
    configs: &[&Config],
    description: &Transformer,
    notes: &mut Vec<String>,
) -> Result<Search, ModelError> {
    let mut search = config::search(configs, notes)?;
    if let Some(limit) = description.position_limit {
        search.max_source = limit;
        search.max_length = search.max_length.map(|most| most.min(limit));
    }
    for config in configs {
        if let Some(pad) = config.id("pad_token_id")?
            && !search.suppress.contains(&pad)
        {
            search.suppress.push(pad);
        }
    }
    Ok(search)
}
