//! The same weights as npz, `.bin`, CTranslate2, Hugging Face and `.peregrine`: the same translations
//! and scores, once the conventions of the formats are set alike (positions, epsilon, the padding word,
//! one rule of search).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine::model::*;
use peregrine::{Compute, Options, Request, Translation, Translator};
use peregrine_text::Tokenizer;

/// A number of words that no padding rule divides.
const WORDS: usize = 83;
/// How far scores may be apart, as a share of them (of 1 if they are smaller).
const TOLERANCE: f32 = 1e-4;

/// What makes a converted model follow Marian.
const AS_MARIAN: [&str; 4] = ["marian-positions", "marian-epsilon", "search-marian", "drop-pad"];

/// A small post-norm transformer with Marian's conventions.
fn post_norm() -> Transformer {
    marian_transformer(TransformerSize {
        width: 32,
        inner: 48,
        heads: 4,
        encoder_layers: 2,
        decoder_layers: 2,
        words: WORDS,
    })
}

fn with_activation(activation: Activation) -> Transformer {
    let mut t = post_norm();
    t.encoder.feed_forward.activation = activation;
    t.decoder.feed_forward.activation = activation;
    t
}

fn with_autoregression(autoregression: Autoregression) -> Transformer {
    Transformer { autoregression, ..post_norm() }
}

fn pre_norm() -> Transformer {
    let mut t = post_norm();
    for stack in [&mut t.encoder, &mut t.decoder] {
        stack.before_block = vec![Op::Norm];
        stack.after_block = vec![Op::Add];
        stack.after_stack = vec![Op::Norm];
    }
    t
}

/// Architectures that every format can hold, and some that only Marian's and our own can.
fn architectures() -> Vec<(&'static str, Transformer, bool)> {
    let average = |depth| FeedForward { width: 40, depth, activation: Activation::Swish };
    vec![
        ("post-norm, relu", post_norm(), true),
        ("post-norm, swish", with_activation(Activation::Swish), true),
        ("post-norm, gelu", with_activation(Activation::Gelu), true),
        ("pre-norm", pre_norm(), false),
        (
            "average attention",
            with_autoregression(Autoregression::Average { feed_forward: average(2), gate: true }),
            false,
        ),
        (
            "recurrent (SSRU)",
            with_autoregression(Autoregression::Ssru { layer_norm: false, projection: false }),
            false,
        ),
        (
            "tied layers, three dense layers",
            {
                let mut t = post_norm();
                t.decoder_parameters = vec![0, 0];
                t.alignment.layer = 0;
                t.decoder.feed_forward.depth = 3;
                t
            },
            false,
        ),
    ]
}

fn random_model(t: &Transformer, seed: u64) -> Model {
    let tokenizer = Tokenizer::words("vocab.yml", vocabulary().as_bytes().into(), None).unwrap();
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

fn vocabulary() -> String {
    let words = (2..WORDS).map(|id| format!("\u{2581}w{id}: {id}\n"));
    format!("</s>: 0\n<unk>: 1\n{}", words.collect::<String>())
}

/// Sentences of known words.
fn sentences() -> Vec<String> {
    let sentence = |i: usize| {
        let words =
            (0..1 + i % 9).map(|j| format!("\u{2581}w{}", 2 + (31 * i + 17 * j) % (WORDS - 2)));
        words.collect::<Vec<_>>().join(" ")
    };
    (0..40).map(sentence).collect()
}

/// Writes a model in every format that can hold it.
fn write(model: &Model, folder: &Path, plain: bool) -> Vec<(&'static str, PathBuf)> {
    std::fs::write(folder.join("vocab.yml"), vocabulary()).unwrap();
    let at = |name: &str| folder.join(name);
    export::marian_npz(&model.members[0], &at("model.npz")).unwrap();
    export::marian_bin(&model.members[0], &at("other.bin")).unwrap();
    save(model, &at("model.peregrine"), Some(Precision::Float32)).unwrap();
    let mut written = vec![
        ("npz", at("model.npz")),
        ("bin", at("other.bin")),
        ("peregrine", at("model.peregrine")),
    ];
    if plain {
        export::ctranslate2(model, &at("ctranslate2")).unwrap();
        export::huggingface(model, &at("huggingface")).unwrap();
        written.push(("CTranslate2", at("ctranslate2")));
        written.push(("Hugging Face", at("huggingface")));
    }
    written
}

fn open_alike(path: &Path, folder: &Path) -> Translator {
    let is_marian = path.extension().is_some_and(|ending| ending == "npz" || ending == "bin");
    let vocabulary = folder.join("vocab.yml");
    let options = OpenOptions {
        vocabularies: is_marian.then(|| (vocabulary.clone(), vocabulary)),
        compat: match path.is_dir() {
            true => AS_MARIAN.map(|name| name.parse().unwrap()).to_vec(),
            false => vec![],
        },
        ..OpenOptions::default()
    };
    let model = open(&[path.to_path_buf()], &options).unwrap_or_else(|e| panic!("{e}"));
    Translator::prepare(model, &Compute::float32()).unwrap()
}

fn search_alike(translator: &Translator, beam: usize) -> Options {
    let mut options = peregrine_tests::beam(translator, beam, 0.6);
    let search = &mut options.search;
    search.max_length = Some(14);
    search.max_length_factor = None;
    search.min_length = 0;
    search.allow_unk = true;
    options
}

fn assert_alike(what: &str, ours: &[Translation], theirs: &[Translation]) -> f32 {
    let mut worst: f32 = 0.0;
    for (line, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(a.alternatives.len(), b.alternatives.len(), "{what}, line {line}");
        for (a, b) in a.alternatives.iter().zip(&b.alternatives) {
            assert_eq!(a.tokens, b.tokens, "{what}, line {line}");
            let scores = a.token_scores.iter().zip(&b.token_scores);
            for (&x, &y) in scores.chain([(&a.score, &b.score)]) {
                let off = (x - y).abs() / y.abs().max(1.0);
                assert!(off <= TOLERANCE, "{what}, line {line}: {x} and {y}");
                worst = worst.max(off);
            }
        }
    }
    worst
}

#[test]
fn every_format_gives_the_same() {
    let sentences = sentences();
    let requests: Vec<Request<'_>> = sentences.iter().map(|line| Request::new(line)).collect();
    for (seed, (what, description, plain)) in architectures().into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let model = random_model(&description, seed as u64);
        let written = write(&model, folder.path(), plain);
        for beam in [1, 4] {
            let run = |path: &Path| {
                let translator = open_alike(path, folder.path());
                translator.translate_batch(&requests, &search_alike(&translator, beam)).unwrap()
            };
            let expected = run(&written[0].1);
            let tokens: usize = expected.iter().map(|t| t.alternatives[0].tokens.len()).sum();
            assert!(tokens > 2 * sentences.len(), "{what}: random weights say something");
            for (format, path) in &written[1..] {
                let what = format!("{what}, {format}, beam {beam}");
                let worst = assert_alike(&what, &run(path), &expected);
                println!("{what}: {} lines, scores within {worst:.1e}", sentences.len());
            }
        }
    }
}

/// Scoring given translations too: no rule of a search (here CTranslate2's least length) may change it.
#[test]
fn every_format_scores_the_same() {
    let sentences = sentences();
    let folder = tempfile::tempdir().unwrap();
    let written = write(&random_model(&post_norm(), 7), folder.path(), true);
    let targets: Vec<&String> = sentences.iter().rev().collect();
    let pairs: Vec<(&str, &str)> =
        sentences.iter().zip(&targets).map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let run = |path: &Path| {
        let translator = open_alike(path, folder.path());
        translator.score(&pairs, &translator.options()).unwrap()
    };
    let expected = run(&written[0].1);
    for (format, path) in &written[1..] {
        for (line, (a, b)) in run(path).iter().zip(&expected).enumerate() {
            assert_eq!(a.token_scores.len(), b.token_scores.len(), "{format}, line {line}");
            for (x, y) in a.token_scores.iter().zip(&b.token_scores) {
                assert!((x - y).abs() <= TOLERANCE * y.abs().max(1.0), "{format}, line {line}");
            }
        }
    }
}

/// Left to its own conventions a converted model is another model: otherwise the switches above
/// would prove nothing.
#[test]
fn conventions_matter() {
    let sentences = sentences();
    let requests: Vec<Request<'_>> = sentences.iter().map(|line| Request::new(line)).collect();
    let folder = tempfile::tempdir().unwrap();
    let written = write(&random_model(&post_norm(), 0), folder.path(), true);
    let marian = open_alike(&written[0].1, folder.path());
    let expected = marian.translate_batch(&requests, &search_alike(&marian, 4)).unwrap();
    let huggingface =
        Translator::open(&[folder.path().join("huggingface")], &OpenOptions::default());
    let huggingface = huggingface.unwrap();
    let own = huggingface.translate_batch(&requests, &search_alike(&huggingface, 4)).unwrap();
    let same = own.iter().zip(&expected).filter(|(a, b)| {
        a.alternatives[0].tokens == b.alternatives[0].tokens
            && (a.alternatives[0].score - b.alternatives[0].score).abs() < 1e-4
    });
    assert!(same.count() < sentences.len() / 2);
}
