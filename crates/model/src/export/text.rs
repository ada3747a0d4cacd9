//! Vocabulary files from a model's tokenizers.

use std::path::Path;

use peregrine_formats::write_whole;
use peregrine_text::Tokenizer;
use serde_json::{Map, Value};

use crate::{Model, ModelError};

pub(super) fn write_json(path: &Path, value: &Value) -> Result<(), ModelError> {
    Ok(write_whole(path, value.to_string().as_bytes())?)
}

/// All words of a tokenizer in the order of their ids.
pub(super) fn words(tokenizer: &Tokenizer) -> Vec<String> {
    (0..tokenizer.size() as u32).map(|id| tokenizer.token(id).into()).collect()
}

/// The vocabulary as a JSON list.
pub(super) fn list(tokenizer: &Tokenizer) -> Value {
    words(tokenizer).into()
}

/// The vocabulary as a JSON map of words to ids, with a padding word at the end.
pub(super) fn map_with_pad(tokenizer: &Tokenizer) -> Value {
    let mut map = Map::new();
    for (id, word) in words(tokenizer).into_iter().chain(["<pad>".into()]).enumerate() {
        map.entry(word).or_insert_with(|| id.into());
    }
    map.into()
}

/// Writes the SentencePiece models of the tokenizers as `source.spm` and `target.spm`.
pub(super) fn write_spm(model: &Model, folder: &Path) -> Result<(), ModelError> {
    for (tokenizer, name) in [(&model.source, "source.spm"), (&model.target, "target.spm")] {
        let recipe = tokenizer.recipe();
        if let Some((_, bytes)) = recipe.parts.iter().find(|(part, _)| part.starts_with("spm/")) {
            write_whole(&folder.join(name), bytes)?;
        }
    }
    Ok(())
}
