//! Writes networks in other tools' formats, so that those tools can run the same weights and every
//! importer can be tested against the others.
//!
//! Marian files can hold every description with Marian's conventions; CTranslate2 and Hugging Face
//! files hold plain post-norm transformers. What a format cannot express is refused.

mod ctranslate2;
mod huggingface;
mod marian;
mod text;

pub use ctranslate2::ctranslate2;
pub use huggingface::huggingface;
pub use marian::{marian_bin, marian_npz};

use std::path::Path;

use crate::names::{OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};
use crate::{
    Architecture, Autoregression, Member, Model, ModelError, Op, Precision, Transformer, Weight,
    Weights,
};

/// A weight in a precision of `keep`: others, such as integers with scales, become float32.
fn as_float(weight: &Weight, keep: &[Precision]) -> Weight {
    match keep.contains(&weight.precision) {
        true => weight.clone(),
        false => weight.convert(Precision::Float32),
    }
}

fn refuse<T>(path: &Path, what: &str) -> Result<T, ModelError> {
    Err(ModelError::unsupported(path, format!("this format has no {what}")))
}

/// The only network of a model.
fn only_member<'a>(model: &'a Model, path: &Path) -> Result<&'a Member, ModelError> {
    match model.members.as_slice() {
        [member] => Ok(member),
        _ => refuse(path, "ensembles"),
    }
}

/// The description of a plain post-norm transformer; others are refused.
fn plain<'a>(member: &'a Member, path: &Path) -> Result<&'a Transformer, ModelError> {
    let Architecture::Transformer(t) = &member.architecture else {
        return refuse(path, "recurrent networks");
    };
    let is_plain = [&t.encoder, &t.decoder].iter().all(|stack| {
        stack.after_block == [Op::Add, Op::Norm]
            && stack.before_block.is_empty()
            && stack.after_embedding.is_empty()
            && stack.after_stack.is_empty()
            && stack.attention_projection
            && stack.feed_forward.depth == 2
    });
    if !is_plain {
        return refuse(path, "place for other than post-norm blocks of two dense layers");
    }
    if t.autoregression != Autoregression::SelfAttention {
        return refuse(path, "decoders without self-attention");
    }
    if !t.decoder_parameters.iter().copied().eq(0..t.decoder.layers) {
        return refuse(path, "tied layers");
    }
    Ok(t)
}

/// Whether tables share their bytes: (source and target, target and output).
fn tied(weights: &Weights) -> (bool, bool) {
    let same = |a: &str, b: &str| match (weights.get(a), weights.get(b)) {
        (Some(a), Some(b)) => a.shares_data_with(b),
        _ => false,
    };
    (same(SOURCE_EMBEDDING, TARGET_EMBEDDING), same(OUTPUT_WEIGHT, TARGET_EMBEDDING))
}
