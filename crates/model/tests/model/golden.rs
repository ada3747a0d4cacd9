//! Models that Marian, Bergamot and CTranslate2 wrote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use peregrine_formats::{Source, npz};
use peregrine_model::*;

fn golden(name: &str) -> Option<Model> {
    let model = open_one(&reference("golden")?.join(name)).unwrap();
    assert_eq!(model.dialect, Dialect::Marian);
    assert_eq!((model.search.beam, model.search.normalize), (4, 1.0));
    assert_eq!(model.search.max_length_factor, Some(3.0));
    assert_eq!(
        transformer(&model).source_frame,
        SourceFrame { begin: None, end: Some(0), after_end: None }
    );
    assert_eq!(transformer(&model).start, Start::Zero);
    Some(model)
}

fn ffn(width: usize, depth: usize, activation: Activation) -> FeedForward {
    FeedForward { width, depth, activation }
}

#[test]
fn post_norm() {
    let Some(model) = golden("transformer-post") else { return };
    let t = transformer(&model);
    assert_eq!((t.width, t.source_vocabulary, t.target_vocabulary), (64, 2000, 2000));
    assert_eq!((t.encoder.layers, t.decoder.layers, t.encoder.heads), (2, 2, 4));
    assert_eq!(t.encoder.feed_forward, ffn(256, 2, Activation::Relu));
    assert_eq!(t.decoder.after_block, [Op::Add, Op::Norm]);
    assert!(t.encoder.before_block.is_empty() && t.encoder.after_stack.is_empty());
    assert_eq!((t.encoder.embedding_scale, t.encoder.norm_epsilon), (8.0, 1e-6));
    assert_eq!(t.autoregression, Autoregression::SelfAttention);
    assert_eq!((t.alignment.layer, t.alignment.heads), (1, 1));
    let weights = &model.members[0].weights;
    let table = |name| weights.get(name).unwrap();
    assert!(table("source.embedding").shares_data_with(table("output.weight")));
    assert!(Arc::ptr_eq(&model.source, &model.target));
    assert!(model.notes.is_empty(), "{:?}", model.notes);
    assert_eq!(model.parameters(), numbers_in(&model.members[0].path));
}

/// All numbers of an `.npz` but the options.
fn numbers_in(path: &Path) -> usize {
    let tensors = npz::read(&Source::open(path).unwrap()).unwrap();
    let parameters = tensors.iter().filter(|(name, _)| !name.starts_with("special:"));
    parameters.map(|(_, tensor)| tensor.elements()).sum()
}

#[test]
fn pre_norm() {
    let Some(model) = golden("transformer-pre") else { return };
    let t = transformer(&model);
    assert_eq!((t.source_vocabulary, t.target_vocabulary), (1828, 2000));
    assert_eq!(t.encoder.feed_forward, ffn(128, 3, Activation::Swish));
    assert_eq!(t.encoder.before_block, [Op::Norm]);
    assert_eq!(t.encoder.after_block, [Op::Add]);
    assert_eq!(t.decoder.after_stack, [Op::Norm]);
    assert_eq!(
        (t.encoder.self_keys, t.decoder.self_keys),
        (SelfKeys::Processed, SelfKeys::Processed)
    );
    assert!(model.notes[0].contains("normalised keys"), "{:?}", model.notes);
    let weights = &model.members[0].weights;
    let table = |name| weights.get(name).unwrap();
    assert!(table("target.embedding").shares_data_with(table("output.weight")));
    assert!(!table("source.embedding").shares_data_with(table("output.weight")));
}

#[test]
fn the_pre_norm_rule_can_be_chosen() {
    let Some(folder) = reference("golden") else { return };
    let path = [folder.join("transformer-pre")];
    let keys = |compat| {
        let options = OpenOptions { compat: vec![compat], ..OpenOptions::default() };
        let model = open(&path, &options).unwrap();
        (transformer(&model).encoder.self_keys, transformer(&model).decoder.self_keys)
    };
    use SelfKeys::*;
    assert_eq!(keys(Compat::Marian112Prenorm), (Processed, RawAfterFirst));
    assert_eq!(keys(Compat::RawKeys), (Raw, Raw));
    assert_eq!(keys(Compat::NormalisedKeys), (Processed, Processed));
}

#[test]
fn average_attention() {
    let Some(model) = golden("transformer-aan") else { return };
    let dense = ffn(128, 2, Activation::Swish);
    let average = Autoregression::Average { feed_forward: dense, gate: true };
    assert_eq!(transformer(&model).autoregression, average);
    let Some(model) = golden("transformer-aan-plain") else { return };
    let dense = ffn(2048, 1, Activation::Swish);
    let plain = Autoregression::Average { feed_forward: dense, gate: false };
    assert_eq!(transformer(&model).autoregression, plain);
    assert_eq!(transformer(&model).decoder.heads, 2);
}

#[test]
fn recurrent_decoder_with_tied_layers() {
    let Some(model) = golden("transformer-ssru") else { return };
    let t = transformer(&model);
    assert_eq!(t.autoregression, Autoregression::Ssru { layer_norm: false, projection: false });
    assert_eq!((t.encoder.layers, t.decoder.layers), (3, 2));
    assert_eq!(t.decoder_parameters, [0, 0]);
    assert!(model.members[0].weights.get("decoder.1.ssru.forget.weight").is_none());
}

#[test]
fn mixed_options() {
    let Some(model) = golden("transformer-options") else { return };
    let t = transformer(&model);
    assert_eq!((t.width, t.encoder.heads, t.encoder.layers, t.decoder.layers), (48, 3, 2, 3));
    assert_eq!(t.encoder.feed_forward, ffn(160, 2, Activation::Gelu));
    assert_eq!(t.decoder.feed_forward, ffn(96, 2, Activation::Gelu));
    assert_eq!(t.encoder.after_embedding, [Op::Norm]);
    assert_eq!(t.decoder_parameters, [0, 1, 0]);
    let positions = Positions::Sinusoid { first: 0, spacing: Spacing::HalfLessOne };
    assert_eq!(t.encoder.positions, positions); // the train-position flag has no effect
    let weights = &model.members[0].weights;
    let table = |name| weights.get(name).unwrap();
    assert!(!table("target.embedding").shares_data_with(table("output.weight")));
}

#[test]
fn ensembles_by_configuration_and_by_path() {
    let Some(folder) = reference("golden") else { return };
    let configured = open_one(&folder.join("ensemble")).unwrap();
    assert_eq!(configured.members.len(), 2);
    assert_eq!(configured.member_weights, [1.0, 1.0]);
    let paths = ["transformer-post", "transformer-aan"].map(|name| folder.join(name));
    let options = OpenOptions { member_weights: vec![0.6, 0.4], ..OpenOptions::default() };
    let named = open(&paths, &options).unwrap();
    assert_eq!(named.member_weights, [0.6, 0.4]);
    for (a, b) in configured.members.iter().zip(&named.members) {
        assert_eq!(a.architecture, b.architecture);
    }
    let other = [folder.join("transformer-post"), folder.join("transformer-pre")];
    let mixed = message(open(&other, &OpenOptions::default()));
    assert!(mixed.contains("source vocabulary has 2000 words, the model 1828 rows"), "{mixed}");
    let wrong = OpenOptions { member_weights: vec![1.0], ..OpenOptions::default() };
    assert!(message(open(&paths, &wrong)).contains("2 networks"));
}

#[test]
fn recurrent_models_are_described() {
    let Some(folder) = reference("golden") else { return };
    for name in ["gru", "lstm", "mlstm", "bideep", "gru/theano"] {
        let model = open_one(&folder.join(name)).unwrap();
        let Architecture::Recurrent(r) = &model.members[0].architecture else {
            panic!("{name} is recurrent");
        };
        assert_eq!(r.width, if name == "bideep" { 64 } else { 96 });
        let layers = if name == "bideep" { 2 } else { 1 };
        assert_eq!((r.encoder.layers, r.decoder.high_layers + 1), (layers, layers));
    }
}

#[test]
fn a_bare_file_uses_the_configuration_beside_it_or_asks() {
    let Some(folder) = reference("golden") else { return };
    let file = folder.join("transformer-post/model.npz");
    assert_eq!(open_one(&file).unwrap().search.beam, 4);
    let copy = tempfile::tempdir().unwrap();
    let bare = copy.path().join("model.npz");
    std::fs::copy(&file, &bare).unwrap();
    assert!(message(open_one(&bare)).contains("--vocab"));
    let vocabulary = folder.join("vocab/vocab.joint.spm");
    let given = Some((vocabulary.clone(), vocabulary));
    let options = OpenOptions { vocabularies: given, ..OpenOptions::default() };
    let model = open(std::slice::from_ref(&bare), &options).unwrap();
    assert_eq!((model.search.beam, model.search.normalize), (12, 0.0));
    let config = Some(folder.join("transformer-post/decoder.yml"));
    let options = OpenOptions { config, ..OpenOptions::default() };
    assert_eq!(open(&[bare], &options).unwrap().search.beam, 4);
    assert_eq!(open(&[], &options).unwrap().members.len(), 1);
}

/// Marian's rules, written as plainly as they are said.
fn naive(file: &Path, source: &[u32], size: u32) -> Vec<u32> {
    let bytes = std::fs::read(file).unwrap();
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (first, offsets) = (long(16) as u32, long(32));
    let lists = 48 + 8 * offsets;
    let mut selected: BTreeSet<u32> = (0..first).collect();
    for &word in source {
        selected.insert(word);
        for i in long(48 + 8 * word as usize)..long(56 + 8 * word as usize) {
            let at = lists + 4 * i;
            selected.insert(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        }
    }
    for id in first..size {
        if selected.len().is_multiple_of(8) {
            break;
        }
        selected.insert(id);
    }
    selected.into_iter().collect()
}

#[test]
fn bergamot_int8_with_shortlist() {
    let Some(folder) = reference("enpt") else { return };
    let model = open_one(&folder).unwrap();
    let t = transformer(&model);
    assert_eq!((t.width, t.encoder.layers, t.decoder.layers, t.encoder.heads), (256, 6, 2, 8));
    assert_eq!(t.encoder.feed_forward, ffn(1536, 2, Activation::Relu));
    assert_eq!(t.autoregression, Autoregression::Ssru { layer_norm: false, projection: false });
    assert_eq!((model.search.beam, model.search.max_length_factor), (1, Some(2.5)));
    let weights = &model.members[0].weights;
    let weight = |name| weights.get(name).unwrap();
    let embedding = weight("source.embedding");
    assert_eq!((&embedding.shape[..], embedding.precision), (&[32000, 256][..], Precision::Int8));
    assert_eq!(embedding.scales.as_deref(), Some(&[1.0 / 153.830_02_f32][..]));
    assert!(embedding.shares_data_with(weight("output.weight")));
    let first = weight("decoder.0.ffn.0.weight");
    assert_eq!((&first.shape[..], first.precision), (&[1536, 256][..], Precision::Int8));
    assert_eq!(weight("decoder.0.ffn.0.alpha").to_f32()[0], 22.774_672);
    assert_eq!(weight("encoder.0.self.query.alpha").to_f32()[0], 11.843_823);
    assert!((weight("output.alpha").to_f32()[0] - 8.778_423).abs() < 1e-5);

    let shortlist = model.shortlist.as_ref().unwrap();
    let file = folder.join("lex.50.50.enpt.s2t.bin");
    for text in ["Where is the nearest train station?", "", "Hello world", "31999 words"] {
        let ids = t.source_frame.frame(&model.source.encode(text).ids);
        assert_eq!(shortlist.select(&ids), naive(&file, &ids, 32000), "{text}");
    }
    let off = OpenOptions { shortlist: ShortlistChoice::Off, ..OpenOptions::default() };
    assert!(open(std::slice::from_ref(&folder), &off).unwrap().shortlist.is_none());

    let saved = tempfile::tempdir().unwrap();
    let path = saved.path().join("enpt.peregrine");
    save(&model, &path, None).unwrap();
    assert_same_model(&open_one(&path).unwrap(), &model);
}

#[test]
fn text_shortlists() {
    let Some(folder) = reference("golden") else { return };
    let temporary = tempfile::tempdir().unwrap();
    let lex = temporary.path().join("lex.txt");
    let text = "NULL a 0.9\n\u{2581}a \u{2581}a 0.5\n\u{2581}b \u{2581}a 0.5\n\u{2581}c \u{2581}a 0.1\n\
                \u{2581}a \u{2581}a 0.05\nnot-a-piece \u{2581}a 0.4\n";
    std::fs::write(&lex, text).unwrap();
    let file = ShortlistFile { path: lex.clone(), first: 2, best: 2, prune: 0.07, amun: false };
    let choice =
        |file| OpenOptions { shortlist: ShortlistChoice::File(file), ..OpenOptions::default() };
    let path = [folder.join("transformer-post")];
    let model = open(&path, &choice(file.clone())).unwrap();
    let id = |word| model.target.id(word).unwrap();
    let list = model.shortlist.as_ref().unwrap().list(id("\u{2581}a"));
    // `a` fell to 0.05 in its last line and is pruned; best two of b 0.5, unknown 0.4, c 0.1 (if it
    // is a piece).
    assert_eq!(list, [id("\u{2581}b"), model.target.unk().unwrap()]);
    std::fs::write(&lex, "a b 0.5\na b\n").unwrap();
    assert!(message(open(&path, &choice(file.clone()))).contains("line 2"));
    let renamed = temporary.path().join("lex.bin");
    std::fs::copy(&lex, &renamed).unwrap();
    let refused = message(open(&path, &choice(ShortlistFile { path: renamed, ..file })));
    assert!(refused.contains("lex.bin"), "{refused}");
}

#[test]
fn the_built_in_model_in_int8() {
    let Some(folder) = reference("builtin") else { return };
    let model = open_one(&folder).unwrap();
    let t = transformer(&model);
    assert_eq!((t.width, t.source_vocabulary, t.encoder.layers), (256, 8000, 6));
    let query = model.members[0].weights.get("encoder.0.self.query.weight").unwrap();
    assert_eq!(query.precision, Precision::Float16);
    assert!((10_600_000..10_800_000).contains(&model.parameters()), "{}", model.parameters());
    let control: Vec<u32> =
        (0..32).map(|b| model.target.id(&format!("<0x{b:02X}>")).unwrap()).collect();
    assert_eq!(model.search.suppress, control);

    let temporary = tempfile::tempdir().unwrap();
    let path: PathBuf = temporary.path().join("builtin.peregrine");
    save(&model, &path, Some(Precision::Int8)).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < 12_000_000, "{size} bytes");
    let bytes = std::fs::read(&path).unwrap();
    let again = open_bytes("built-in", bytes.into()).unwrap();
    assert_eq!(transformer(&again), t);
    assert_eq!(again.search, model.search);
    assert_eq!(again.parameters(), model.parameters());
    for (name, weight) in model.members[0].weights.iter() {
        let stored = again.members[0].weights.get(name).unwrap();
        let precision = if weight.shape.len() == 2 { Precision::Int8 } else { weight.precision };
        let expected = weight.convert(precision);
        assert!(stored.precision == precision && *stored.data == *expected.data, "{name}");
        assert!(stored.scales == expected.scales, "{name}");
    }
    let text = "Hello, how are you?";
    assert_eq!(again.source.encode(text).ids, model.source.encode(text).ids);
    assert!(Arc::ptr_eq(&again.source, &again.target));
    // Saving what was opened changes nothing.
    let second = temporary.path().join("second.peregrine");
    save(&again, &second, None).unwrap();
    assert!(std::fs::read(&second).unwrap() == std::fs::read(&path).unwrap());
}

/// `PEREGRINE_ZHEN` is the path of the Argos package `translate-zh_en-1_9`.
#[test]
fn a_real_ctranslate2_model() {
    let Some(folder) = std::env::var_os("PEREGRINE_ZHEN").map(PathBuf::from) else {
        println!("skipped: PEREGRINE_ZHEN is not set");
        return;
    };
    let model = open_one(&folder).unwrap();
    assert_eq!(model.dialect, Dialect::Ctranslate2);
    let t = transformer(&model);
    assert_eq!(
        (t.width, t.source_vocabulary, t.encoder.layers, t.decoder.layers),
        (512, 65000, 6, 6)
    );
    assert_eq!(t.encoder.feed_forward, ffn(2048, 2, Activation::Swish));
    assert_eq!((t.encoder.positions, t.position_limit), (Positions::Table, Some(2048)));
    assert_eq!((t.start, t.source_frame.end, t.encoder.norm_epsilon), (Start::Zero, Some(0), 1e-5));
    assert_eq!(t.alignment, AlignmentHeads { layer: 5, heads: 1 });
    let weights = &model.members[0].weights;
    let key = weights.get("encoder.0.self.key.weight").unwrap();
    assert_eq!((&key.shape[..], key.precision), (&[512, 512][..], Precision::Int8));
    assert_eq!(key.scales.as_ref().unwrap().len(), 512);
    assert_eq!((model.search.finish, model.search.max_length), (Finish::Full, Some(256)));
    assert!(!model.source.encode("你好，世界").ids.contains(&1));
    let within = open_one(&folder.join("model")).unwrap();
    assert_same_weights(&within.members[0].weights, weights);
    let options = OpenOptions { compat: vec![Compat::MarianPositions], ..OpenOptions::default() };
    let marian = open(&[folder], &options).unwrap();
    assert_eq!(transformer(&marian).position_limit, None);
}
