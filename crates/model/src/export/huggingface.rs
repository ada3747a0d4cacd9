//! A Hugging Face MarianMT checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use peregrine_formats::{Bytes, Tensor, safetensors};
use serde_json::json;

use super::{as_float, only_member, plain, refuse, text, tied};
use crate::huggingface::names::places;
use crate::names::{OUTPUT_BIAS, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};
use crate::tensors::stored;
use crate::{
    Activation, Member, Model, ModelError, Positions, Precision, Start, Transformer, Weight,
};

/// The number of positions if the description has no limit.
const POSITIONS: usize = 512;
/// Precisions that both safetensors and the class support.
const FLOATS: [Precision; 3] = [Precision::Float32, Precision::Float16, Precision::Bfloat16];

/// Writes a plain post-norm transformer as a MarianMT checkpoint, like Hugging Face's converter of
/// Marian models: a padding word, with rows of zeros, is added to both vocabularies and starts the
/// decoder.
///
/// The class computes with its own positions and epsilon, whatever the description says.
pub fn huggingface(model: &Model, folder: &Path) -> Result<(), ModelError> {
    let member = only_member(model, folder)?;
    let t = plain(member, folder)?;
    if t.start != Start::Zero {
        return refuse(folder, "start words of its own");
    }
    if !matches!(t.encoder.positions, Positions::Sinusoid { .. }) {
        return refuse(folder, "positions but computed ones");
    }
    std::fs::create_dir_all(folder).map_err(ModelError::io(folder))?;
    let tensors = tensors(member, t, folder)?;
    let metadata = BTreeMap::from([("format".into(), "pt".into())]);
    safetensors::write(&folder.join("model.safetensors"), &tensors, &metadata)?;
    write_configs(model, member, t, folder)?;
    text::write_json(&folder.join("vocab.json"), &text::map_with_pad(&model.source))?;
    if text::words(&model.source) != text::words(&model.target) {
        text::write_json(&folder.join("target_vocab.json"), &text::map_with_pad(&model.target))?;
    }
    text::write_spm(model, folder)
}

fn tensors(
    member: &Member,
    t: &Transformer,
    folder: &Path,
) -> Result<Vec<(String, Tensor)>, ModelError> {
    let (shared, tied_output) = tied(&member.weights);
    let mut tensors = Vec::new();
    for (name, weight) in member.weights.iter() {
        let places = places(name);
        let place = match name {
            SOURCE_EMBEDDING if shared => continue,
            OUTPUT_WEIGHT if tied_output => continue,
            TARGET_EMBEDDING if shared => places.last(),
            _ if name.ends_with(".alpha") => continue,
            _ => places.first(),
        };
        let Some(place) = place else { return refuse(folder, name) };
        let has_rows_of_words =
            [SOURCE_EMBEDDING, TARGET_EMBEDDING, OUTPUT_WEIGHT, OUTPUT_BIAS].contains(&name);
        let weight = as_float(weight, &FLOATS);
        let mut tensor = if has_rows_of_words { with_pad(&weight) } else { stored(&weight) };
        if name == OUTPUT_BIAS {
            tensor.shape.insert(0, 1);
        }
        tensors.push((place.clone(), tensor));
    }
    if member.weights.get(OUTPUT_BIAS).is_none() {
        let words = t.target_vocabulary + 1;
        let zeros = Tensor::from_f32(vec![1, words], &vec![0.0; words]);
        tensors.push(("final_logits_bias".into(), zeros));
    }
    Ok(tensors)
}

/// Appends a row of zeros, or an element to a vector.
fn with_pad(weight: &Weight) -> Tensor {
    let mut tensor = stored(weight);
    let row = weight.columns() * weight.precision.size();
    let mut data = tensor.data.to_vec();
    data.resize(data.len() + row, 0);
    tensor.data = Bytes::from(data);
    tensor.shape[0] += 1;
    tensor
}

fn write_configs(
    model: &Model,
    member: &Member,
    t: &Transformer,
    folder: &Path,
) -> Result<(), ModelError> {
    let (shared, tied_output) = tied(&member.weights);
    let pad = t.target_vocabulary;
    let scaled = match t.encoder.embedding_scale {
        1.0 => false,
        scale if scale == (t.width as f32).sqrt() => true,
        _ => return refuse(folder, "such scale of embeddings"),
    };
    let config = json!({
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "d_model": t.width,
        "encoder_layers": t.encoder.layers,
        "decoder_layers": t.decoder.layers,
        "encoder_attention_heads": t.encoder.heads,
        "decoder_attention_heads": t.decoder.heads,
        "encoder_ffn_dim": t.encoder.feed_forward.width,
        "decoder_ffn_dim": t.decoder.feed_forward.width,
        "activation_function": activation(t.encoder.feed_forward.activation, folder)?,
        "scale_embedding": scaled,
        "vocab_size": t.source_vocabulary + 1,
        "decoder_vocab_size": pad + 1,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied_output,
        "max_position_embeddings": t.position_limit.unwrap_or(POSITIONS),
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": model.target.eos(),
        "forced_eos_token_id": model.target.eos(),
    });
    text::write_json(&folder.join("config.json"), &config)?;
    let generation = json!({
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": model.target.eos(),
        "forced_eos_token_id": model.target.eos(),
        "bad_words_ids": [[pad]],
        "num_beams": model.search.beam,
        "max_length": 512,
    });
    text::write_json(&folder.join("generation_config.json"), &generation)
}

fn activation(activation: Activation, folder: &Path) -> Result<&'static str, ModelError> {
    match activation {
        Activation::Swish => Ok("swish"),
        Activation::Relu => Ok("relu"),
        Activation::Gelu => Ok("gelu"),
        Activation::GeluTanh => Ok("gelu_new"),
        Activation::GeluSigmoid => Ok("quick_gelu"),
        Activation::Tanh => Ok("tanh"),
        Activation::Sigmoid => Ok("sigmoid"),
        Activation::Identity => refuse(folder, "identity activation"),
    }
}
