//! What the tests of this crate share: small descriptions, random models, reference models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine_model::*;
use peregrine_text::Tokenizer;

/// Words of the small models: a number of them that no padding rule divides.
pub(crate) const WORDS: usize = 21;

/// A reference model, which a fresh clone does not have.
pub(crate) fn reference(name: &str) -> Option<PathBuf> {
    crate::reference::shared(&format!("models/{name}"))
}

/// Opens one path with default options.
pub(crate) fn open_one(path: &Path) -> Result<Model, ModelError> {
    open(&[path.to_path_buf()], &OpenOptions::default())
}

pub(crate) fn transformer(model: &Model) -> &Transformer {
    let Architecture::Transformer(t) = &model.members[0].architecture else {
        panic!("a transformer")
    };
    t
}

/// The message of an error, which must be one line.
pub(crate) fn message<T>(result: Result<T, ModelError>) -> String {
    let message = result.err().expect("an error").to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// A small post-norm transformer with Marian's conventions.
pub(crate) fn small() -> Transformer {
    marian_transformer(TransformerSize {
        width: 8,
        inner: 12,
        heads: 2,
        encoder_layers: 2,
        decoder_layers: 3,
        words: WORDS,
    })
}

/// Variants of [`small`] that between them use every part a description has.
pub(crate) fn varied() -> Vec<(&'static str, Transformer)> {
    let base = small();
    let both = |change: &dyn Fn(&mut Stack)| {
        let mut t = small();
        change(&mut t.encoder);
        change(&mut t.decoder);
        t
    };
    let dense = |depth| FeedForward { width: 10, depth, activation: Activation::Swish };
    vec![
        ("post-norm", base.clone()),
        (
            "pre-norm",
            both(&|s| {
                s.before_block = vec![Op::Norm];
                s.after_block = vec![Op::Add];
                s.after_stack = vec![Op::Norm];
            }),
        ),
        (
            "old-pre-norm",
            both(&|s| {
                s.before_block = vec![Op::RmsNorm];
                s.after_block = vec![Op::Add];
                s.self_keys = SelfKeys::Raw;
            }),
        ),
        (
            "odd-ops",
            both(&|s| {
                s.after_embedding = vec![Op::Norm];
                s.after_block = vec![Op::Highway, Op::RmsNorm];
                s.after_stack = vec![Op::Add, Op::Norm];
                s.attention_projection = false;
            }),
        ),
        (
            "no-positions",
            both(&|s| {
                s.positions = Positions::None;
                s.embedding_scale = 1.0;
            }),
        ),
        (
            "average",
            Transformer {
                autoregression: Autoregression::Average { feed_forward: dense(3), gate: true },
                ..base.clone()
            },
        ),
        (
            "average-plain",
            Transformer {
                autoregression: Autoregression::Average { feed_forward: dense(1), gate: false },
                ..base.clone()
            },
        ),
        (
            "ssru",
            Transformer {
                autoregression: Autoregression::Ssru { layer_norm: true, projection: true },
                decoder_parameters: vec![0, 0, 1],
                alignment: AlignmentHeads { layer: 0, heads: 1 },
                ..base.clone()
            },
        ),
        (
            "deep-ffn",
            Transformer {
                decoder: Stack { feed_forward: dense(3), ..base.decoder.clone() },
                encoder: Stack { feed_forward: dense(1), ..base.encoder.clone() },
                ..base
            },
        ),
    ]
}

/// The text of a vocabulary of `size` words.
pub(crate) fn vocabulary(size: usize) -> String {
    let mut text = String::from("</s>: 0\n<unk>: 1\n");
    for id in 2..size {
        text.push_str(&format!("\u{2581}w{id}: {id}\n"));
    }
    text
}

/// A model of random numbers.
pub(crate) fn made_model(t: &Transformer, seed: u64) -> Model {
    let words = vocabulary(t.target_vocabulary);
    let tokenizer = Tokenizer::words("vocab.yml", words.as_bytes().into(), None).unwrap();
    let tokenizer = Arc::new(tokenizer);
    Model {
        dialect: Dialect::Marian,
        members: vec![Member {
            path: "random".into(),
            architecture: Architecture::Transformer(t.clone()),
            weights: random_transformer(t, seed),
        }],
        member_weights: vec![1.0],
        source: tokenizer.clone(),
        target: tokenizer,
        search: Search::of(Dialect::Marian),
        shortlist: None,
        languages: None,
        notes: vec![],
    }
}

/// The same names, shapes and numbers, to the bit.
pub(crate) fn assert_same_weights(a: &Weights, b: &Weights) {
    let names = |w: &Weights| w.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    for ((name, x), (_, y)) in a.iter().zip(b.iter()) {
        assert_eq!((&x.shape, x.precision), (&y.shape, y.precision), "{name}");
        assert!(x.scales == y.scales, "scales of {name}");
        assert!(*x.data == *y.data, "{name}");
    }
}

pub(crate) fn assert_same_model(a: &Model, b: &Model) {
    assert_eq!(a.dialect, b.dialect);
    assert_eq!(a.search, b.search);
    assert_eq!(a.shortlist, b.shortlist);
    assert_eq!(a.members[0].architecture, b.members[0].architecture);
    assert_same_weights(&a.members[0].weights, &b.members[0].weights);
    for (x, y) in [(&a.source, &b.source), (&a.target, &b.target)] {
        assert_eq!(x.recipe(), y.recipe());
    }
}
