//! A model of random numbers, so small that thousands of sentences take no time.

use std::path::PathBuf;
use std::sync::Arc;

use peregrine::model::{
    Architecture, Autoregression, Member, Transformer, TransformerSize, marian_transformer,
    random_transformer,
};
use peregrine::{Dialect, Model, Search, Translator};
use peregrine_text::Tokenizer;

/// Words of both vocabularies, the end symbol and the unknown word included.
const WORDS: usize = 60;

/// A translator that speaks nonsense, always the same. Vocabularies are the words `w0`, `w1`, ...
pub(crate) fn nonsense(autoregression: Autoregression) -> Translator {
    let size = TransformerSize {
        width: 16,
        inner: 24,
        heads: 2,
        encoder_layers: 1,
        decoder_layers: 1,
        words: WORDS,
    };
    let description = Transformer { autoregression, ..marian_transformer(size) };
    let words: String = (0..WORDS - 2).map(|i| format!("w{i}\n")).collect();
    let vocabulary = format!("</s>\n<unk>\n{words}");
    let tokenizer = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None);
    let tokenizer = Arc::new(tokenizer.expect("a list of words"));
    let member = Member {
        path: PathBuf::from("nonsense"),
        weights: random_transformer(&description, 7),
        architecture: Architecture::Transformer(description),
    };
    let search = Search { max_length_factor: Some(2.0), ..Search::of(Dialect::Marian) };
    let model = Model {
        dialect: Dialect::Marian,
        members: vec![member],
        member_weights: vec![1.0],
        source: Arc::clone(&tokenizer),
        target: tokenizer,
        search,
        shortlist: None,
        notes: Vec::new(),
    };
    Translator::new(model).expect("a complete model")
}
