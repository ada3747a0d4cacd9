//! A tokenizer as data, so that it can be stored inside a model file and built again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{PieceOptions, Tokenizer};
use crate::{Error, UserDefinedScore};

/// Everything needed to build a tokenizer again.
///
/// ```
/// use peregrine_text::{Recipe, Tokenizer};
///
/// let tokenizer = Tokenizer::words("vocab.txt", b"</s>\n<unk>\nhi\n"[..].into(), None)?;
/// let Recipe { description, parts } = tokenizer.recipe();
/// let again = Tokenizer::from_recipe(&Recipe { description, parts })?;
/// assert_eq!(again.encode("hi"), tokenizer.encode("hi"));
/// # Ok::<(), peregrine_text::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// What to build; refers to parts by name.
    pub description: Description,
    /// The files, byte for byte, by name.
    pub parts: Vec<(String, Arc<[u8]>)>,
}

/// Which tokenizer, from which parts, with which options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Description {
    /// See [`Tokenizer::sentencepiece`].
    SentencePiece {
        /// Part: the model.
        model: String,
        /// The rule for user-defined pieces.
        user_defined: UserDefinedScore,
    },
    /// See [`Tokenizer::words`].
    Words {
        /// Part: the vocabulary; the name's ending tells its format.
        vocabulary: String,
        /// Part: BPE codes.
        codes: Option<String>,
        /// Whether decoding undoes `@@ `.
        join_bpe: bool,
        /// See [`Tokenizer::limit_source`].
        limit: Option<usize>,
    },
    /// See [`Tokenizer::pieces`].
    Pieces {
        /// Part: the SentencePiece model.
        model: Option<String>,
        /// Part: the vocabulary; the name's ending tells its format.
        vocabulary: String,
        /// Options.
        options: PieceOptions,
        /// See [`Tokenizer::limit_source`].
        limit: Option<usize>,
        /// See [`Tokenizer::hiding`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hidden: Vec<u32>,
    },
}

impl Recipe {
    pub(super) fn sentencepiece(
        name: &str,
        bytes: Arc<[u8]>,
        user_defined: UserDefinedScore,
    ) -> Self {
        let mut parts = Vec::new();
        let model = add_part(&mut parts, "spm", name, bytes);
        Self { description: Description::SentencePiece { model, user_defined }, parts }
    }

    pub(super) fn words(
        name: &str,
        vocabulary: Arc<[u8]>,
        codes: Option<Arc<[u8]>>,
        join_bpe: bool,
    ) -> Self {
        let mut parts = Vec::new();
        let vocabulary = add_part(&mut parts, "vocabulary", name, vocabulary);
        let codes = codes.map(|bytes| add_part(&mut parts, "codes", "bpe", bytes));
        let description = Description::Words { vocabulary, codes, join_bpe, limit: None };
        Self { description, parts }
    }

    pub(super) fn pieces(
        spm: Option<(&str, Arc<[u8]>)>,
        (name, bytes): (&str, Arc<[u8]>),
        options: PieceOptions,
    ) -> Self {
        let mut parts = Vec::new();
        let model = spm.map(|(name, bytes)| add_part(&mut parts, "spm", name, bytes));
        let vocabulary = add_part(&mut parts, "vocabulary", name, bytes);
        let hidden = Vec::new();
        let description = Description::Pieces { model, vocabulary, options, limit: None, hidden };
        Self { description, parts }
    }

    pub(super) fn set_join_bpe(&mut self, join: bool) {
        if let Description::Words { join_bpe, .. } = &mut self.description {
            *join_bpe = join;
        }
    }

    pub(super) fn set_hidden(&mut self, ids: &[u32]) {
        if let Description::Pieces { hidden, .. } = &mut self.description {
            *hidden = ids.to_vec();
        }
    }

    /// Limits only ever shrink a vocabulary.
    pub(super) fn set_limit(&mut self, size: usize) {
        match &mut self.description {
            Description::SentencePiece { .. } => {}
            Description::Words { limit, .. } | Description::Pieces { limit, .. } => {
                *limit = Some(limit.map_or(size, |old| old.min(size)));
            }
        }
    }

    pub(super) fn build(&self) -> Result<Tokenizer, Error> {
        let (mut tokenizer, limit) = match &self.description {
            Description::SentencePiece { model, user_defined } => (
                Tokenizer::sentencepiece(base_name(model), self.part(model)?, *user_defined)?,
                None,
            ),
            Description::Words { vocabulary, codes, join_bpe, limit } => {
                let codes = codes.as_ref().map(|codes| self.part(codes)).transpose()?;
                let name = base_name(vocabulary);
                let tokenizer = Tokenizer::words(name, self.part(vocabulary)?, codes)?;
                (tokenizer.joining_bpe(*join_bpe), *limit)
            }
            Description::Pieces { model, vocabulary, options, limit, hidden } => {
                let model = match model {
                    Some(model) => Some((base_name(model), self.part(model)?)),
                    None => None,
                };
                let vocabulary = (base_name(vocabulary), self.part(vocabulary)?);
                (Tokenizer::pieces(model, vocabulary, *options)?.hiding(hidden.clone()), *limit)
            }
        };
        if let Some(size) = limit {
            tokenizer.limit_source(size);
        }
        Ok(tokenizer)
    }

    fn part(&self, name: &str) -> Result<Arc<[u8]>, Error> {
        let part = self.parts.iter().find(|part| part.0 == name);
        part.map(|part| part.1.clone())
            .ok_or_else(|| Error::new(name, "tokenizer", "this part of the tokenizer is missing"))
    }
}

/// Stores a file under `role/file name`: folders of the machine it came from stay behind.
fn add_part(
    parts: &mut Vec<(String, Arc<[u8]>)>,
    role: &str,
    path: &str,
    bytes: Arc<[u8]>,
) -> String {
    let name = format!("{role}/{}", base_name(path));
    parts.push((name.clone(), bytes));
    name
}

fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
