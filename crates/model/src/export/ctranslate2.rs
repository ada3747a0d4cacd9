//! A CTranslate2 directory, binary version 6.

use std::collections::BTreeMap;
use std::path::Path;

use peregrine_formats::{Bytes, Tensor, ctranslate2 as format};
use serde_json::json;

use super::{as_float, only_member, plain, refuse, text, tied};
use crate::ctranslate2::names::place;
use crate::tensors::stored;
use crate::{
    Activation, Member, Model, ModelError, Positions, Precision, Spacing, Stack, Start,
    Transformer, Weight,
};

/// The rows of the position table if the description has no limit.
const POSITIONS: usize = 1024;

/// Writes a plain post-norm transformer as a CTranslate2 directory, which is created if it does not
/// exist.
///
/// Positions other than the library's own are stored as a table; epsilon and embedding scale too, so
/// that the library computes what the description says.
pub fn ctranslate2(model: &Model, folder: &Path) -> Result<(), ModelError> {
    let member = only_member(model, folder)?;
    let t = plain(member, folder)?;
    std::fs::create_dir_all(folder).map_err(ModelError::io(folder))?;
    let mut variables = weights(member, folder)?;
    for (side, stack) in [("encoder", &t.encoder), ("decoder", &t.decoder)] {
        stack_variables(side, stack, t, folder, &mut variables)?;
    }
    if t.start == Start::Zero {
        let flag = Tensor::from_i8(vec![], &[1]);
        variables.insert("decoder/start_from_zero_embedding".into(), flag);
    }
    let layer = Tensor::from_i16(vec![], &[t.alignment.layer as i16]);
    variables.insert("decoder/alignment_layer".into(), layer);
    let heads = Tensor::from_i16(vec![], &[t.alignment.heads as i16]);
    variables.insert("decoder/alignment_heads".into(), heads);
    let file = format::Model {
        version: 6,
        spec: "TransformerSpec".into(),
        revision: 7,
        aliases: aliases(member),
        variables,
    };
    format::write(&folder.join("model.bin"), &file)?;
    write_text(model, t, folder)
}

/// Weights by variable, fused where the library fuses them. Tied tables become aliases.
fn weights(member: &Member, folder: &Path) -> Result<BTreeMap<String, Tensor>, ModelError> {
    let aliases = aliases(member);
    let mut groups: BTreeMap<String, BTreeMap<usize, Weight>> = BTreeMap::new();
    for (name, weight) in member.weights.iter() {
        if name.ends_with(".alpha") {
            continue;
        }
        let Some(place) = place(name) else { return refuse(folder, name) };
        if !aliases.contains_key(&place.name) {
            let weight = as_float(weight, &[Precision::Float32]);
            groups.entry(place.name).or_default().insert(place.part, weight);
        }
    }
    Ok(groups.into_iter().map(|(name, parts)| (name, fused(parts))).collect())
}

/// Concatenates the rows of several weights.
fn fused(parts: BTreeMap<usize, Weight>) -> Tensor {
    let mut parts = parts.into_values();
    let mut whole =
        parts.next().map(|first| stored(&first)).unwrap_or_else(|| Tensor::from_i8(vec![0], &[]));
    let mut data = whole.data.to_vec();
    for part in parts {
        data.extend_from_slice(&part.data);
        whole.shape[0] += part.rows();
    }
    whole.data = Bytes::from(data);
    whole
}

fn aliases(member: &Member) -> BTreeMap<String, String> {
    const TARGET: &str = "decoder/embeddings/weight";
    let (source, output) = tied(&member.weights);
    let mut aliases = BTreeMap::new();
    if source {
        aliases.insert("encoder/embeddings_0/weight".into(), TARGET.into());
    }
    if output {
        aliases.insert("decoder/projection/weight".into(), TARGET.into());
    }
    aliases
}

fn stack_variables(
    side: &str,
    stack: &Stack,
    t: &Transformer,
    folder: &Path,
    variables: &mut BTreeMap<String, Tensor>,
) -> Result<(), ModelError> {
    let activation = match stack.feed_forward.activation {
        Activation::Relu => 0,
        Activation::GeluTanh => 1,
        Activation::Swish => 2,
        Activation::Gelu => 3,
        Activation::GeluSigmoid => 4,
        Activation::Tanh => 5,
        Activation::Sigmoid => 6,
        Activation::Identity => return refuse(folder, "identity activation"),
    };
    let mut add = |name: &str, tensor| variables.insert(format!("{side}/{name}"), tensor);
    add("num_heads", Tensor::from_i16(vec![], &[stack.heads as i16]));
    add("pre_norm", Tensor::from_i8(vec![], &[0]));
    add("activation", Tensor::from_i8(vec![], &[activation]));
    add("scale_embeddings", Tensor::from_f32(vec![], &[stack.embedding_scale]));
    match stack.positions {
        Positions::Table | Positions::Sinusoid { first: 1, spacing: Spacing::HalfLessOne } => {}
        Positions::None => return refuse(folder, "networks without positions"),
        Positions::Sinusoid { first, spacing } => {
            let table = sinusoids(t.position_limit.unwrap_or(POSITIONS), t.width, first, spacing);
            add("position_encodings/encodings", table);
        }
    }
    Ok(())
}

fn sinusoids(rows: usize, width: usize, first: u32, spacing: Spacing) -> Tensor {
    let half = width / 2;
    let divisor = match spacing {
        Spacing::HalfLessOne => half as f64 - 1.0,
        Spacing::Half => half as f64,
    };
    let mut values = Vec::with_capacity(rows * width);
    for position in 0..rows {
        let angles = (0..half)
            .map(|i| (position as f64 + f64::from(first)) * 10000f64.powf(-(i as f64) / divisor));
        values.extend(angles.clone().map(|angle| angle.sin() as f32));
        values.extend(angles.map(|angle| angle.cos() as f32));
    }
    Tensor::from_f32(vec![rows, half * 2], &values)
}

fn write_text(model: &Model, t: &Transformer, folder: &Path) -> Result<(), ModelError> {
    let (source, target) = (&model.source, &model.target);
    let frame = t.source_frame;
    let start = match t.start {
        Start::Zero => target.eos(),
        Start::Token(id) => id,
    };
    let config = json!({
        "add_source_bos": frame.begin.is_some(),
        "add_source_eos": frame.end.is_some(),
        "bos_token": frame.begin.map_or("<s>", |id| source.token(id)),
        "eos_token": target.token(target.eos()),
        "unk_token": target.unk().map_or("<unk>", |id| target.token(id)),
        "decoder_start_token": target.token(start),
        "layer_norm_epsilon": t.encoder.norm_epsilon,
    });
    text::write_json(&folder.join("config.json"), &config)?;
    if text::words(source) == text::words(target) {
        text::write_json(&folder.join("shared_vocabulary.json"), &text::list(source))?;
    } else {
        text::write_json(&folder.join("source_vocabulary.json"), &text::list(source))?;
        text::write_json(&folder.join("target_vocabulary.json"), &text::list(target))?;
    }
    text::write_spm(model, folder)
}
