//! Marian's `.npz` and `.bin`.

use std::fmt::Write;
use std::path::Path;

use peregrine_formats::marian_bin::{self, Item, Kind};
use peregrine_formats::{Bytes, DType, Tensor, Tensors, npz};

use super::{as_float, refuse, tied};
use crate::compat::{MARIAN_EPSILON, MARIAN_POSITIONS};
use crate::marian::names::place;
use crate::marian::options::Tied;
use crate::marian::stored::OPTIONS;
use crate::tensors::{stored, transposed};
use crate::{
    Activation, Architecture, Autoregression, Member, ModelError, Op, Positions, Precision,
    SelfKeys, Stack, Start, Transformer,
};

/// Writes a network as Marian's `.npz`. Vocabularies are not part of it.
pub fn marian_npz(member: &Member, path: &Path) -> Result<(), ModelError> {
    Ok(npz::write(path, &tensors(member, path)?)?)
}

/// Writes a network as Marian's `.bin`, in floating point. Vocabularies are not part of it.
pub fn marian_bin(member: &Member, path: &Path) -> Result<(), ModelError> {
    let mut tensors: Vec<(String, Tensor)> = tensors(member, path)?.into_iter().collect();
    // Put the options last, as in Marian's own files.
    tensors.sort_by_key(|(name, _)| name == OPTIONS);
    let items: Vec<Item> = tensors
        .into_iter()
        .map(|(name, Tensor { dtype, shape, data })| Item {
            name,
            kind: Kind::Plain(dtype),
            dialect: None,
            shape,
            data,
        })
        .collect();
    Ok(marian_bin::write(path, &items)?)
}

fn tensors(member: &Member, path: &Path) -> Result<Tensors, ModelError> {
    let Architecture::Transformer(t) = &member.architecture else {
        return refuse(path, "way to write recurrent networks yet");
    };
    let (source, output) = tied(&member.weights);
    let tied = Tied { source, output };
    let mut tensors = Tensors::new();
    for (name, weight) in member.weights.iter() {
        if name.ends_with(".alpha") {
            continue;
        }
        let Some(place) = place(name, tied) else { return refuse(path, name) };
        let weight = as_float(weight, &[Precision::Float32, Precision::Float16]);
        let mut tensor = stored(&if place.transposed { transposed(&weight) } else { weight });
        if tensor.shape.len() == 1 {
            tensor.shape.insert(0, 1);
        }
        tensors.insert(place.name, tensor);
    }
    let mut text = options(t, tied, path)?.into_bytes();
    text.push(0);
    let shape = vec![text.len()];
    let tensor = Tensor { dtype: DType::I8, shape, data: Bytes::from(text) };
    tensors.insert(OPTIONS.into(), tensor);
    Ok(tensors)
}

/// The description as `special:model.yml`.
fn options(t: &Transformer, tied: Tied, path: &Path) -> Result<String, ModelError> {
    check_conventions(t, path)?;
    let mut lines = Lines::default();
    lines.add("type", "transformer");
    lines.add("dim-emb", t.width);
    lines.add("dim-vocabs", format!("[{}, {}]", t.source_vocabulary, t.target_vocabulary));
    lines.add("tied-embeddings-src", tied.source);
    lines.add("tied-embeddings", tied.output);
    lines.add("tied-embeddings-all", false);
    lines.add("enc-depth", t.encoder.layers);
    lines.add("dec-depth", t.decoder.layers);
    stack_options(t, path, &mut lines)?;
    autoregression_options(t, path, &mut lines)?;
    let sets: Vec<_> = t.decoder_parameters.iter().map(|set| (set + 1).to_string()).collect();
    let own = t.decoder_parameters.iter().copied().eq(0..t.decoder.layers);
    let sets = if own { String::new() } else { sets.join(", ") };
    lines.add("transformer-tied-layers", format!("[{sets}]"));
    lines.add("transformer-guided-alignment-layer", t.alignment.layer + 1);
    // The date tells importers which input the keys of pre-norm models are computed from.
    let old = t.encoder.self_keys == SelfKeys::Raw;
    let date = if old { "v1.9.0 00000000 2020-01-01" } else { "v1.12.0 00000000 2023-01-01" };
    lines.add("version", format!("{date} 00:00:00 +0000"));
    Ok(lines.0)
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key}: {value}");
    }
}

/// Checks that Marian's options can express the description: encoder and decoder share nearly all
/// of them.
fn check_conventions(t: &Transformer, path: &Path) -> Result<(), ModelError> {
    if t.start != Start::Zero {
        return refuse(path, "start words");
    }
    let (e, d) = (&t.encoder, &t.decoder);
    let alike = Stack {
        layers: e.layers,
        feed_forward: e.feed_forward.clone(),
        self_keys: e.self_keys,
        ..d.clone()
    };
    if alike != *e || e.feed_forward.activation != d.feed_forward.activation {
        return refuse(path, "encoders and decoders that differ");
    }
    let scale = match e.positions {
        Positions::None => 1.0,
        positions if positions == MARIAN_POSITIONS => (t.width as f32).sqrt(),
        _ => return refuse(path, "such positions"),
    };
    if e.embedding_scale != scale || e.norm_epsilon != MARIAN_EPSILON {
        return refuse(path, "such scale of embeddings or epsilon of norms");
    }
    Ok(())
}

fn stack_options(t: &Transformer, path: &Path, lines: &mut Lines) -> Result<(), ModelError> {
    let (e, d) = (&t.encoder, &t.decoder);
    lines.add("transformer-heads", e.heads);
    lines.add("transformer-dim-ffn", e.feed_forward.width);
    lines.add("transformer-ffn-depth", e.feed_forward.depth);
    lines.add("transformer-ffn-activation", activation(e.feed_forward.activation, path)?);
    lines.add("transformer-decoder-dim-ffn", d.feed_forward.width);
    lines.add("transformer-decoder-ffn-depth", d.feed_forward.depth);
    lines.add("transformer-preprocess", letters(&e.before_block));
    lines.add("transformer-postprocess", letters(&e.after_block));
    lines.add("transformer-postprocess-emb", letters(&e.after_embedding));
    lines.add("transformer-postprocess-top", letters(&e.after_stack));
    lines.add("transformer-no-projection", !e.attention_projection);
    let disabled = e.positions == Positions::None;
    lines.add("transformer-disable-position-embeddings", disabled);
    Ok(())
}

fn autoregression_options(
    t: &Transformer,
    path: &Path,
    lines: &mut Lines,
) -> Result<(), ModelError> {
    let kind = match &t.autoregression {
        Autoregression::SelfAttention => "self-attention",
        Autoregression::Average { feed_forward, gate } => {
            lines.add("transformer-dim-aan", feed_forward.width);
            lines.add("transformer-aan-depth", feed_forward.depth);
            lines.add("transformer-aan-activation", activation(feed_forward.activation, path)?);
            lines.add("transformer-aan-nogate", !gate);
            "average-attention"
        }
        Autoregression::Ssru { layer_norm, projection } => {
            lines.add("dec-cell", "ssru");
            lines.add("layer-normalization", layer_norm);
            lines.add("transformer-rnn-projection", projection);
            "rnn"
        }
    };
    lines.add("transformer-decoder-autoreg", kind);
    Ok(())
}

fn activation(activation: Activation, path: &Path) -> Result<&'static str, ModelError> {
    match activation {
        Activation::Swish => Ok("swish"),
        Activation::Relu => Ok("relu"),
        Activation::Gelu => Ok("gelu"),
        Activation::Sigmoid => Ok("sigmoid"),
        _ => refuse(path, "such activation"),
    }
}

fn letters(ops: &[Op]) -> String {
    let letter = |op: &Op| match op {
        Op::Add => 'a',
        Op::Highway => 'h',
        Op::Norm => 'n',
        Op::RmsNorm => 'r',
    };
    format!("{:?}", ops.iter().map(letter).collect::<String>())
}
