//! Tokenisers, sentence splitting and all that keeps text whole.

mod bpe;
mod carry;
mod common;
mod glossary;
#[cfg(feature = "detect")]
mod languages;
mod properties;
mod ranges;
#[path = "../../../../tests/src/reference.rs"]
mod reference;
mod sentencepiece;
mod split_cases;
mod tokenizer;
mod tokenizer_json;
mod vocabulary;
