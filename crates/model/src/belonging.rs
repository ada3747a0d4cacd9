//! Checks whether a model's files belong together.
//!
//! A vocabulary or shortlist of another model often has a fitting size, and then the translations
//! are nonsense without an error. Contents rarely agree by chance, so they are compared where
//! possible. A mismatch is a note, not an error: vocabularies are retrained, cut and extended for
//! good reasons.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine_text::Tokenizer;

use crate::{files, marian};

/// The vocabulary files of source and target.
type Pair = (PathBuf, PathBuf);

/// Notes on vocabularies chosen by the user that differ from those the model or its configuration
/// names.
pub(crate) fn vocabularies(given: &Pair, own: &Pair) -> Vec<String> {
    let sides = [(&given.0, &own.0), (&given.1, &own.1)];
    let different = if sides[0] == sides[1] { &sides[..1] } else { &sides };
    different.iter().filter_map(|(given, own)| vocabulary(given, own)).collect()
}

fn vocabulary(given: &Path, own: &Path) -> Option<String> {
    let named = format!("{}, which the model names as its vocabulary", own.display());
    let difference = match (own.is_file(), files::read(given).ok(), files::read(own).ok()) {
        (false, ..) if given.file_name() == own.file_name() => return None,
        (false, ..) => format!("another name than {named}"),
        (true, given, own) if given == own => return None,
        _ => match (words(given), words(own)) {
            (Some(given), Some(own)) => {
                let total = given.size().max(own.size());
                let both = 0..given.size().min(own.size()) as u32;
                let same = both.filter(|&id| given.token(id) == own.token(id)).count();
                if same == total {
                    return None;
                }
                format!("{same} of {total} words are as in {named}")
            }
            _ => format!("not the same as {named}"),
        },
    };
    Some(format!("{}: {difference}", given.display()))
}

fn words(path: &Path) -> Option<Arc<Tokenizer>> {
    Some(marian::pair(path, path).ok()?.tokenizers(0).ok()?.1)
}

/// A note if a vocabulary lacks many pieces of its SentencePiece model. It should lack only those
/// that never occurred in its training text.
pub(crate) fn pieces(spm: &Path, tokenizer: &Tokenizer) -> Option<String> {
    let (known, total) = tokenizer.known_pieces()?;
    let spm = spm.display();
    (known * 10 < total * 9).then(|| {
        format!(
            "{spm}: the model's vocabulary has {known} of its {total} pieces: is it this model's?"
        )
    })
}

/// A note if few entries of a shortlist name words of the vocabularies.
pub(crate) fn shortlist(file: &Path, known: usize, total: usize) -> Option<String> {
    let file = file.display();
    (known * 2 < total).then(|| {
        format!(
            "{file}: the vocabularies have the words of {known} of its {total} entries: is it this \
             model's shortlist?"
        )
    })
}

/// A note if a shortlist by ids has lists for fewer or more words than the source vocabulary has. A
/// few at the end may be missing.
pub(crate) fn numbered_shortlist(file: &Path, lists: usize, words: usize) -> Option<String> {
    let file = file.display();
    (lists > words || lists * 10 < words * 9).then(|| {
        format!(
            "{file}: lists for {lists} source words, but the vocabulary has {words}: is it this \
             model's shortlist?"
        )
    })
}
