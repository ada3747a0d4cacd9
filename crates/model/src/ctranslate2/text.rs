//! The tokenizers of a CTranslate2 model. The library takes tokens, so packages keep the
//! SentencePiece model in different places.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine_text::{PieceOptions, Tokenizer};

use crate::{Languages, ModelError, belonging, files};

/// A file's path and content.
type Named = (PathBuf, Arc<[u8]>);
/// Source and target; one value where they share a vocabulary.
type Tokenizers = (Arc<Tokenizer>, Arc<Tokenizer>);

/// Usual names of SentencePiece models.
const SPM_NAMES: [&str; 7] = [
    "sentencepiece.model",
    "source.spm",
    "spm.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "flores200_sacrebleu_tokenizer_spm.model",
    "tokenizer.json",
];

/// Tokenizers of both sides.
pub(crate) fn tokenizers(
    folder: &Path,
    spm: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<Tokenizers, ModelError> {
    let spm = match spm {
        Some(path) => Some(path.to_path_buf()),
        None => find_spm(folder)?,
    };
    if spm.is_none() {
        let folder = folder.display();
        notes.push(format!("{folder}: no SentencePiece model; input is split at blanks"));
    }
    let (source, target) = (spm.map(named).transpose()?, find_target_spm(folder)?);
    let both = build(folder, source.as_ref(), target.as_ref())?;
    let sides = [(source, &both.0), (target.filter(|_| !Arc::ptr_eq(&both.0, &both.1)), &both.1)];
    for (spm, tokenizer) in sides {
        notes.extend(spm.and_then(|(path, _)| belonging::pieces(&path, tokenizer)));
    }
    Ok(both)
}

/// The same tokenizers, whose text does not show languages.
pub(crate) fn hiding_languages(both: Tokenizers, languages: Option<&Languages>) -> Tokenizers {
    let Some(languages) = languages.filter(|languages| languages.are_required()) else {
        return both;
    };
    // Multilingual models share a vocabulary.
    let hiding = Arc::new(Arc::unwrap_or_clone(both.1).hiding(languages.ids()));
    (hiding.clone(), hiding)
}

/// Tokenizers for lines of pieces. SentencePiece models are ignored.
pub(crate) fn without_spm(folder: &Path) -> Result<Tokenizers, ModelError> {
    build(folder, None, None)
}

fn build(
    folder: &Path,
    source: Option<&Named>,
    target: Option<&Named>,
) -> Result<Tokenizers, ModelError> {
    if let Some(shared) = vocabulary(folder, "shared_vocabulary") {
        let both = Arc::new(tokenizer(&shared, source)?);
        return Ok((both.clone(), both));
    }
    let needed = |stem: &str| {
        let problem = format!("no {stem} (.json or .txt) and no shared_vocabulary");
        vocabulary(folder, stem).ok_or_else(|| ModelError::invalid(folder, problem))
    };
    let source = tokenizer(&needed("source_vocabulary")?, source)?;
    let target = tokenizer(&needed("target_vocabulary")?, target)?;
    Ok((Arc::new(source), Arc::new(target)))
}

fn vocabulary(folder: &Path, stem: &str) -> Option<PathBuf> {
    files::first_of(folder, &[&format!("{stem}.json"), &format!("{stem}.txt")])
}

/// Finds a SentencePiece model in the model's folder or, as in Argos packages, in its parent.
fn find_spm(folder: &Path) -> Result<Option<PathBuf>, ModelError> {
    if let Some(path) = files::first_of(folder, &SPM_NAMES) {
        return Ok(Some(path));
    }
    let any: Vec<_> = files::list(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "spm"))
        .filter(|path| !files::name_of(path).starts_with("target"))
        .collect();
    if let [only] = &any[..] {
        return Ok(Some(only.clone()));
    }
    let above = folder.join("..");
    Ok(files::first_of(&above, &SPM_NAMES))
}

/// Finds the target's SentencePiece model. Only encoding of target text needs it; translations are
/// joined from the pieces themselves.
fn find_target_spm(folder: &Path) -> Result<Option<Named>, ModelError> {
    files::first_of(folder, &["target.spm"]).map(named).transpose()
}

fn named(path: PathBuf) -> Result<Named, ModelError> {
    files::read(&path).map(|bytes| (path, bytes))
}

fn tokenizer(path: &Path, spm: Option<&Named>) -> Result<Tokenizer, ModelError> {
    let name = path.display().to_string();
    let spm_name = spm.map(|(path, _)| path.display().to_string()).unwrap_or_default();
    let bytes = files::read(path)?;
    let build = |language_codes| {
        let options = PieceOptions { language_codes, drop_unknown: false };
        let spm = spm.map(|(_, bytes)| (spm_name.as_str(), bytes.clone()));
        Tokenizer::pieces(spm, (name.as_str(), bytes.clone()), options)
    };
    let plain = build(false)?;
    let is_code = |token: &str| token.starts_with(">>") && token.ends_with("<<") && token.len() > 4;
    let multilingual = (0..plain.size()).any(|id| is_code(plain.token(id as u32)));
    Ok(if multilingual { build(true)? } else { plain })
}
