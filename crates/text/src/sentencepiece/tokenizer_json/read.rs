//! What `tokenizer.json` says, as far as it is used.
//!
//! Vocabulary and merges are most of its 17 MB (NLLB): their strings are borrowed from the file wherever they have no
//! escapes. Sizes grow with what is read, never with what is announced.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::Error;

/// How much of a message about malformed JSON is shown: it may quote a string of any length and with any characters.
const LONGEST_MESSAGE: usize = 200;

#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow, default)]
    pub(super) added_tokens: Vec<Added<'a>>,
    #[serde(borrow)]
    pub(super) normalizer: Option<Stage<'a>>,
    #[serde(borrow)]
    pub(super) pre_tokenizer: Option<Stage<'a>>,
    #[serde(borrow)]
    pub(super) model: Model<'a>,
}

#[derive(Deserialize)]
pub(super) struct Added<'a> {
    pub(super) id: u64,
    #[serde(borrow)]
    pub(super) content: Word<'a>,
    #[serde(default)]
    pub(super) special: bool,
}

/// Fields of `Unigram` and `BPE`. One structure for both, because `type` may stand behind the vocabulary.
#[derive(Deserialize)]
pub(super) struct Model<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) vocab: Vocab<'a>,
    #[serde(borrow, default)]
    pub(super) merges: Vec<Merge<'a>>,
    #[serde(borrow)]
    pub(super) unk_token: Option<Word<'a>>,
    pub(super) unk_id: Option<u64>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    #[serde(borrow)]
    pub(super) continuing_subword_prefix: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) end_of_word_suffix: Option<Word<'a>>,
}

/// A step of `normalizer` or `pre_tokenizer`, with the fields of all that are known.
#[derive(Deserialize)]
pub(super) struct Stage<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Word<'a>,
    #[serde(borrow, default)]
    pub(super) normalizers: Vec<Stage<'a>>,
    #[serde(borrow, default)]
    pub(super) pretokenizers: Vec<Stage<'a>>,
    #[serde(borrow)]
    pub(super) precompiled_charsmap: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) pattern: Option<Pattern<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) prepend: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) replacement: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) prepend_scheme: Option<Word<'a>>,
    pub(super) add_prefix_space: Option<bool>,
}

/// What `Replace` looks for.
#[derive(Deserialize)]
pub(super) enum Pattern<'a> {
    #[serde(borrow)]
    String(Word<'a>),
    #[serde(borrow)]
    Regex(Word<'a>),
}

impl<'a> File<'a> {
    pub(super) fn parse(name: &str, bytes: &'a [u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            let message = error.to_string();
            let message =
                message.rsplit_once(" at line ").map_or(&*message, |(problem, _)| problem);
            let printable = |c: char| if c.is_control() { ' ' } else { c };
            let message = message.chars().take(LONGEST_MESSAGE).map(printable);
            Error::new(name, place, message.collect::<String>())
        })
    }
}

/// The model's pieces.
pub(super) enum Vocab<'a> {
    /// BPE: with ids.
    Ids(Vec<(Word<'a>, u64)>),
    /// Unigram: with scores, in order of their ids.
    Scores(Vec<(Word<'a>, f64)>),
}

impl Vocab<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Vocab::Ids(pieces) => pieces.len(),
            Vocab::Scores(pieces) => pieces.len(),
        }
    }

    /// The pieces and their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        let (ids, scores) = match self {
            Vocab::Ids(pieces) => (pieces.as_slice(), [].as_slice()),
            Vocab::Scores(pieces) => ([].as_slice(), pieces.as_slice()),
        };
        let listed = scores.iter().map(|(word, _)| &**word).zip(0..);
        ids.iter().map(|(word, id)| (&**word, *id)).chain(listed)
    }
}

/// A string, borrowed from the file if it has no escapes. (Inside of lists and maps `Cow` itself is always owned.)
pub(super) struct Word<'a>(Cow<'a, str>);

/// Two pieces that BPE joins: `["a", "b"]`, or `"a b"` in older files.
pub(super) struct Merge<'a>(pub(super) Word<'a>, pub(super) Word<'a>);

impl Deref for Word<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor)
    }
}

struct WordVisitor;

impl<'de> Visitor<'de> for WordVisitor {
    type Value = Word<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Word<'de>, E> {
        Ok(Word(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Word<'de>, E> {
        Ok(Word(text.to_owned().into()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = Vocab<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of pieces and ids, or a list of pieces and scores")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = map.next_entry()? {
            pieces.push(piece);
        }
        Ok(Vocab::Ids(pieces))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = list.next_element()? {
            pieces.push(piece);
        }
        Ok(Vocab::Scores(pieces))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("two pieces: [\"a\", \"b\"] or \"a b\"")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Merge<'de>, E> {
        let (left, right) = halves(text)?;
        Ok(Merge(Word(left.into()), Word(right.into())))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge<'de>, E> {
        let (left, right) = halves(text)?;
        Ok(Merge(Word(left.to_owned().into()), Word(right.to_owned().into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge<'de>, A::Error> {
        let mut next = || list.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self));
        let merge = Merge(next()?, next()?);
        match list.next_element()? {
            None::<Word<'_>> => Ok(merge),
            Some(_) => Err(A::Error::invalid_length(3, &self)),
        }
    }
}

fn halves<E: serde::de::Error>(text: &str) -> Result<(&str, &str), E> {
    let halves = text.split_once(' ').filter(|(_, right)| !right.contains(' '));
    halves.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &MergeVisitor))
}
