//! Hugging Face checkpoints of MarianMT, M2M-100, NLLB-200 and mBART: `config.json`, weights in
//! safetensors or PyTorch's own files, tokenizer files.
//!
//! | file | what it does |
//! |---|---|
//! | `class.rs` | the network classes |
//! | `config.rs` | fields of `config.json` |
//! | `generation.rs` | search settings of `generation_config.json` |
//! | `names.rs` | canonical names to tensors |
//! | `tensors.rs` | weight files |
//! | `text.rs` | tokenizers and languages |

mod class;
mod config;
mod generation;
pub(crate) mod names;
mod tensors;
mod text;

use std::path::Path;

use peregrine_formats::Tensors;
use peregrine_text::Tokenizer;

pub(crate) use tensors::shards;

use crate::check::{self, Lookup};
use crate::huggingface::class::{Class, MBART_FIRST_ROW};
use crate::huggingface::config::Config;
use crate::huggingface::text::Text;
use crate::tensors::{float_weight, rows_of};
use crate::{
    AlignmentHeads, Architecture, Autoregression, Dialect, Languages, Member, Model, ModelError,
    SourceFrame, Start, Transformer, files,
};

/// Whether a folder has a `config.json` of Hugging Face.
pub(crate) fn is_checkpoint(folder: &Path) -> bool {
    let config = Config::read(&folder.join("config.json"));
    config.is_ok_and(|config| matches!(config.text("model_type"), Ok(Some(_))))
}

/// The languages of a checkpoint. Weights are not read.
pub(crate) fn languages(folder: &Path) -> Result<Option<Languages>, ModelError> {
    let config = Config::read(&folder.join("config.json"))?;
    match Class::of(&config)? {
        Class::MarianMt => Ok(None),
        class => Ok(text::read(folder, class, &config, &mut Vec::new())?.languages),
    }
}

/// Opens a checkpoint directory.
pub(crate) fn open(folder: &Path) -> Result<Model, ModelError> {
    let config = Config::read(&folder.join("config.json"))?;
    let class = Class::of(&config)?;
    let generation = files::first_of(folder, &["generation_config.json"]);
    let generation = generation.map(|path| Config::read(&path)).transpose()?;
    let configs: Vec<&Config> = generation.iter().chain([&config]).collect();
    let mut notes = Vec::new();
    let Text { source, target, mut languages } = text::read(folder, class, &config, &mut notes)?;
    match (configs[0].id("forced_bos_token_id")?, &mut languages) {
        (Some(_), None) => {
            let name = configs[0].path().display();
            notes.push(format!("{name}: forced_bos_token_id is not followed"));
        }
        (forced, Some(languages)) => languages.default_target = forced,
        (None, None) => {}
    }
    let description = describe(class, &configs, &source, &target)?;
    let (path, tensors) = tensors::read(folder)?;
    if class == Class::MarianMt {
        tensors::refuse_trained_positions(&path, &tensors, description.width)?;
    }
    let weights =
        check::gather(&path, &description, |expected| look_up(&path, &tensors, &expected.name))?;
    tensors::refuse_unknown(&path, &tensors, &description, class)?;
    let search = generation::search(class, &configs, &description, &mut notes)?;
    let architecture = Architecture::Transformer(description);
    Ok(Model {
        dialect: Dialect::HuggingFace,
        members: vec![Member { path, architecture, weights }],
        member_weights: Vec::new(),
        source,
        target,
        search,
        shortlist: None,
        languages,
        notes,
    })
}

fn look_up(path: &Path, tensors: &Tensors, canonical: &str) -> Result<Lookup, ModelError> {
    let places = names::places(canonical);
    let stored = places.first().cloned().unwrap_or_else(|| canonical.into());
    for name in places {
        let Some(tensor) = tensors.get(&name) else { continue };
        let mut weight = float_weight(path, &name, tensor)?;
        if canonical.ends_with(".positions") {
            let rows = weight.rows().saturating_sub(MBART_FIRST_ROW);
            weight = rows_of(&weight, MBART_FIRST_ROW, rows).unwrap_or(weight);
        }
        return Ok(Lookup { weight: Some(weight), stored: name });
    }
    Ok(Lookup { stored, weight: None })
}

fn describe(
    class: Class,
    configs: &[&Config],
    source: &Tokenizer,
    target: &Tokenizer,
) -> Result<Transformer, ModelError> {
    let config = configs[configs.len() - 1];
    let first_id =
        |key: &str| configs.iter().find_map(|config| config.id(key).transpose()).transpose();
    let ends = configs.iter().find_map(|config| config.ids("eos_token_id").transpose());
    if let Some(ends) = ends.transpose()?
        && !ends.contains(&target.eos())
    {
        let ends = ends.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let problem = format!("eos_token_id {ends}, but the vocabulary's </s> is {}", target.eos());
        return Err(ModelError::invalid(config.path(), problem));
    }
    let width = config.count("d_model")?.unwrap_or(1024);
    let source_vocabulary = config.count("vocab_size")?.unwrap_or(58101);
    let target_vocabulary = config.count("decoder_vocab_size")?.unwrap_or(source_vocabulary);
    let pad = first_id("pad_token_id")?;
    let Some(start) = first_id("decoder_start_token_id")?.or(pad) else {
        return Err(ModelError::invalid(config.path(), "no decoder_start_token_id"));
    };
    let decoder = class.stack(config, "decoder", width)?;
    Ok(Transformer {
        width,
        source_vocabulary,
        target_vocabulary,
        source_frame: SourceFrame { end: Some(source.eos()), ..SourceFrame::default() },
        encoder: class.stack(config, "encoder", width)?,
        autoregression: Autoregression::SelfAttention,
        decoder_parameters: (0..decoder.layers.min(1 << 16)).collect(),
        start: Start::Token(start),
        alignment: AlignmentHeads { layer: decoder.layers.saturating_sub(1), heads: 1 },
        position_limit: Some(config.count("max_position_embeddings")?.unwrap_or(1024)),
        decoder,
    })
}
