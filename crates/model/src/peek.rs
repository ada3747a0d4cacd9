//! The languages of a multilingual model, without opening the model.

use std::path::Path;

use crate::discover::{Kind, discover};
use crate::{ctranslate2, huggingface, peregrine_file};

/// The codes of a multilingual model's languages, by its files. `None` for models of one pair, and for what is no
/// model. Weights are not read.
pub fn peek_languages(path: &Path) -> Option<Vec<String>> {
    let languages = match discover(path, &mut Vec::new()).ok()? {
        Kind::HuggingFace(folder) => huggingface::languages(&folder).ok()?,
        Kind::Ctranslate2(folder) => ctranslate2::languages(&folder).ok()?,
        Kind::Peregrine(file) => peregrine_file::languages(&file).ok()?,
        _ => None,
    };
    let languages = languages.filter(|languages| languages.are_required())?;
    Some(languages.list.into_iter().map(|language| language.code).collect())
}
