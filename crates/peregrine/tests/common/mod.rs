//! A model of random numbers, so small that thousands of sentences take no time.

use std::path::PathBuf;
use std::sync::Arc;

use peregrine::model::{
    Activation, AlignmentHeads, Architecture, Autoregression, FeedForward, Member, Op, Positions,
    SelfKeys, SourceFrame, Spacing, Stack, Start, Transformer, random_transformer,
};
use peregrine::{Dialect, Model, Search, Translator};
use peregrine_text::Tokenizer;

/// Words of both vocabularies, the end symbol and the unknown word included.
const WORDS: usize = 60;

fn stack() -> Stack {
    Stack {
        layers: 1,
        heads: 2,
        feed_forward: FeedForward { width: 24, depth: 2, activation: Activation::Relu },
        embedding_scale: 4.0,
        positions: Positions::Sinusoid { first: 0, spacing: Spacing::HalfLessOne },
        after_embedding: Vec::new(),
        before_block: Vec::new(),
        after_block: vec![Op::Add, Op::Norm],
        after_stack: Vec::new(),
        norm_epsilon: 1e-6,
        attention_projection: true,
        self_keys: SelfKeys::Processed,
    }
}

/// A translator that speaks nonsense, always the same. Vocabularies are the words `w0`, `w1`, ...
pub(crate) fn nonsense(autoregression: Autoregression) -> Translator {
    let description = Transformer {
        width: 16,
        source_vocabulary: WORDS,
        target_vocabulary: WORDS,
        source_frame: SourceFrame { begin: None, end: Some(0) },
        encoder: stack(),
        decoder: stack(),
        autoregression,
        decoder_parameters: vec![0],
        start: Start::Zero,
        alignment: AlignmentHeads { layer: 0, heads: 1 },
        position_limit: None,
    };
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
