//! Text to token ids and back.
//!
//! A translation model reads and writes token ids. This crate turns a line into
//! ids, with the bytes of the line each id came from, and ids into a line, with the bytes each id became. It supports the three
//! kinds of tokens of Marian-family models:
//!
//! * [`SentencePiece`]: a `.spm` file that normalises and segments by itself, or Hugging Face's
//!   [`tokenizer.json`](TokenizerJson) made from one;
//! * [`Vocabulary`]: a list or map of tokens, with optional [`BpeCodes`] that split words beforehand;
//! * both together (Hugging Face, CTranslate2): a `.spm` segments, a vocabulary numbers the pieces.
//!
//! [`Tokenizer`] is one side of a model, whichever of these it uses. [`sentences`] finds the sentences
//! of a text, [`Language`] knows codes and names of languages, and with the feature `detect` a text's language is
//! told. [`multilingual`] numbers the words of models with many languages. [`carry`] keeps what a model cannot spell, a [`Glossary`] tells how terms are translated. The crate opens no files: callers hand over bytes and a name, which error messages repeat.
//!
//! ```
//! use peregrine_text::Tokenizer;
//!
//! let vocabulary = "</s>: 0\n<unk>: 1\nhello: 2\nworld: 3\n";
//! let tokenizer = Tokenizer::words("vocab.yml", vocabulary.as_bytes().into(), None)?;
//! let encoded = tokenizer.encode("hello new world");
//! assert_eq!(encoded.ids, [2, 1, 3]);
//! assert_eq!(encoded.spans[2], 10..15);
//! assert_eq!(tokenizer.decode(&[2, 3, 0]), "hello world");
//! # Ok::<(), peregrine_text::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bpe;
pub mod carry;
pub mod check;
mod decoded;
mod encoded;
mod error;
pub mod glossary;
mod language;
pub mod multilingual;
mod offsets;
mod sentencepiece;
mod split;
mod tokenizer;
mod trie;
mod utf8;
mod vocabulary;
mod words;

pub use bpe::BpeCodes;
pub use decoded::Decoded;
pub use encoded::Encoded;
pub use error::Error;
pub use glossary::{Entry, Glossary};
#[cfg(feature = "detect")]
pub use language::{Detection, detect, is_rather};
pub use language::{Language, main_script, pair_from_name};
pub use offsets::{Offsets, Unit};
pub use sentencepiece::{AddedToken, SentencePiece, TokenizerJson, UserDefinedScore};
pub use split::{LONGEST, Piece, Split, cut_place, encode_pieces, join, sentences, separator};
pub use tokenizer::{Description, PieceOptions, Recipe, Tokenizer};
pub use vocabulary::Vocabulary;
pub use words::{Words, is_unspaced, trim_range};
