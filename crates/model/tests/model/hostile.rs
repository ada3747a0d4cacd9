//! Files that are wrong: one clear line each, and never a panic.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::common::*;
use peregrine_formats::{Source, Tensor, Tensors, npz, safetensors};
use peregrine_model::*;

/// A folder with `model.npz` and `vocab.yml`.
struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let model = made_model(&small(), 1);
        export::marian_npz(&model.members[0], &folder.path().join("model.npz")).unwrap();
        std::fs::write(folder.path().join("vocab.yml"), vocabulary(WORDS)).unwrap();
        Folder { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Changes the tensors of the network.
    fn change(&self, change: impl FnOnce(&mut Tensors)) {
        let path = self.path("model.npz");
        // Read into memory: the file is about to be replaced.
        let source = Source::new(&path, std::fs::read(&path).unwrap());
        let mut tensors = npz::read(&source).unwrap();
        change(&mut tensors);
        npz::write(&path, &tensors).unwrap();
    }

    /// Changes the options inside the network.
    fn change_options(&self, from: &str, to: &str) {
        self.change(|tensors| {
            let old = String::from_utf8(tensors["special:model.yml"].data.to_vec()).unwrap();
            assert!(old.contains(from), "{old}");
            let new = old.replace(from, to);
            let bytes: Vec<i8> = new.bytes().map(|byte| byte as i8).collect();
            let options = Tensor::from_i8(vec![bytes.len()], &bytes);
            tensors.insert("special:model.yml".into(), options);
        });
    }

    fn message(&self) -> String {
        message(open_one(self.folder.path()))
    }
}

#[test]
fn all_missing_tensors_and_wrong_shapes_are_listed_in_one_line() {
    let folder = Folder::new();
    folder.change(|tensors| {
        tensors.remove("encoder_l1_self_Wq");
        tensors.remove("decoder_l3_ffn_b2");
        tensors.insert("encoder_l2_ffn_W1".into(), Tensor::from_f32(vec![8, 11], &[0.0; 88]));
        tensors.insert("encoder_l2_ffn_b1".into(), Tensor::from_f32(vec![1, 11], &[0.0; 11]));
    });
    let message = folder.message();
    for part in [
        "model.npz: ",
        "missing tensor encoder_l1_self_Wq (8, 8)",
        "missing tensor decoder_l3_ffn_b2 (8)",
        "tensor encoder_l2_ffn_W1 is (11, 8), expected (12, 8) (outputs, inputs)",
        "tensor encoder_l2_ffn_b1 is (11), expected (12)",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    for (from, to, part) in [
        ("type: transformer", "type: s2s", "missing tensor decoder_cell1_U"),
        ("type: transformer", "type: multi-transformer", "model type \"multi-transformer\" is not"),
        ("type: transformer", "type: transformer-new", "model type \"transformer-new\" is not"),
        ("type: transformer", "type: multi-s2s", "models with several encoders"),
        ("type: transformer", "type: transformer\nright-left: true", "right-left: \"true\" is not"),
        ("type: transformer", "type: transformer\nulr: true", "ulr"),
        ("type: transformer", "type: transformer\ntransformer-pool: true", "transformer-pool"),
        ("type: transformer", "type: transformer\nlemma-dim-emb: 8", "lemma-dim-emb"),
        ("type: transformer", "type: transformer\nfactors-combine: concat", "factors-combine"),
        ("type: transformer", "type: transformer\ninput-types: [class]", "input-types"),
        ("activation: relu", "activation: prelu", "transformer-ffn-activation: \"prelu\""),
        ("autoreg: self-attention", "autoreg: rnn", "dec-cell: \"gru\""),
        ("autoreg: self-attention", "autoreg: magic", "transformer-decoder-autoreg: \"magic\""),
        ("-preprocess: \"\"", "-preprocess: a", "letter 'a' is not one of dnr"),
        ("-postprocess: \"an\"", "-postprocess: anx", "letter 'x'"),
        ("-layer: 3", "-layer: 4", "expected \"last\" or 1 to 3"),
        ("-tied-layers: []", "-tied-layers: [1, 2]", "expected 3 layer numbers"),
        ("-tied-layers: []", "-tied-layers: [0, 1, 2]", "expected 3 layer numbers"),
        ("-heads: 2", "-heads: 3", "width 8 and 3 heads"),
        ("-heads: 2", "-heads: two", "transformer-heads: \"two\": expected a whole number"),
        ("dec-depth: 3", "dec-depth: 4000000000", "4000000000 layers are out of range"),
        ("enc-depth: 2", "enc-depth: 0", "0 layers are out of range"),
        ("dim-emb: 8", "dim-emb: 0", "model width 0"),
        ("dim-emb: 8", "dim-emb: 99999999999", "model width 99999999999"),
        ("dim-vocabs: [21, 21]", "dim-vocabs: [21, 21, 21]", "dim-vocabs"),
        ("dim-vocabs: [21, 21]", "dim-vocabs: [20, 20]", "Wemb is (21, 8), expected (20, 8)"),
        ("type: transformer", "type: [", "not a YAML configuration"),
    ] {
        let folder = Folder::new();
        folder.change_options(from, to);
        let message = folder.message();
        assert!(message.contains(part) && message.contains("model.npz"), "{to}: {message}");
    }
}

#[test]
fn trained_positions_and_other_types_are_refused() {
    let folder = Folder::new();
    folder.change(|tensors| {
        tensors.insert("Wpos".into(), Tensor::from_f32(vec![4, 8], &[0.0; 32]));
    });
    assert!(folder.message().contains("Wpos"));
    let folder = Folder::new();
    folder.change(|tensors| {
        tensors.insert("Wemb".into(), Tensor::from_i8(vec![WORDS, 8], &[0; WORDS * 8]));
    });
    assert!(folder.message().contains("tensor Wemb holds int8"));
    let folder = Folder::new();
    folder.change(|tensors| {
        tensors.remove("special:model.yml");
    });
    assert!(folder.message().contains("no special:model.yml"));
}

#[test]
fn doubles_and_old_output_matrices_are_read() {
    let folder = Folder::new();
    let before = open_one(folder.folder.path()).unwrap();
    folder.change(|tensors| {
        let bias = tensors["encoder_l1_self_bq"].to_f32().unwrap();
        let doubles: Vec<f64> = bias.iter().map(|&value| value.into()).collect();
        tensors.insert("encoder_l1_self_bq".into(), Tensor::from_f64(vec![1, 8], &doubles));
        let output: Vec<f32> = (0..WORDS * 8).map(|i| i as f32).collect();
        tensors.insert("decoder_ff_logit_out_W".into(), Tensor::from_f32(vec![8, WORDS], &output));
    });
    let after = open_one(folder.folder.path()).unwrap();
    let weight =
        |model: &Model, name| model.members[0].weights.get(name).unwrap().to_f32().to_vec();
    let bias = "encoder.0.self.query.bias";
    assert_eq!(weight(&before, bias), weight(&after, bias));
    // Stored (inputs, outputs), it wins over the tied table.
    assert_eq!(weight(&after, "output.weight")[..3], [0.0, 21.0, 42.0]);
}

#[test]
fn vocabularies_must_fit() {
    let folder = Folder::new();
    folder.write("vocab.yml", &vocabulary(WORDS + 1));
    // Marian reads source words beyond the embedding as unknown; target words must have rows.
    let message_ = folder.message();
    assert!(message_.contains("target vocabulary has 22 words, the model 21 rows"), "{message_}");
    folder.write("vocab.yml", &vocabulary(WORDS - 1));
    let model = open_one(folder.folder.path()).unwrap();
    assert!(model.notes.iter().any(|note| note.contains("21 target rows")), "{:?}", model.notes);
    folder.write("vocab.yml", "a: 0\nb: 1\n");
    assert!(folder.message().contains("vocab.yml"));
    std::fs::rename(folder.path("vocab.yml"), folder.path("vocab.fsv")).unwrap();
    assert!(folder.message().contains("factored vocabularies"));
    std::fs::remove_file(folder.path("vocab.fsv")).unwrap();
    assert!(folder.message().contains("--vocab"));
}

#[test]
fn source_words_beyond_the_embedding_are_unknown() {
    let folder = Folder::new();
    folder.write("long.yml", &vocabulary(WORDS + 5));
    let given = Some((folder.path("long.yml"), folder.path("vocab.yml")));
    let options = OpenOptions { vocabularies: given, ..OpenOptions::default() };
    let model = open(&[folder.path("model.npz")], &options).unwrap();
    assert_eq!(model.source.encode("\u{2581}w20 \u{2581}w21").ids, [20, 1]);
}

#[test]
fn configurations_name_what_is_wrong_with_them() {
    let base = "relative-paths: true\nmodels: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\n";
    for (config, part) in [
        (
            "relative-paths: true\nmodels: [gone.npz]\nvocabs: [vocab.yml]",
            "models: there is no file",
        ),
        ("relative-paths: true\nmodels: model.npz\nvocabs: [a, b]", "vocabs: there is no file"),
        ("models: [/nowhere/gone.npz]\nvocabs: vocab.yml", "/nowhere/gone.npz"),
        (&format!("{base}beam-size: -1"), "beam-size: \"-1\": expected a whole number"),
        (&format!("{base}beam-size: 0"), "at least 1"),
        (&format!("{base}beam-size: 1000000000"), "a beam of 1000000000"),
        (&format!("{base}normalize: .nan"), "normalize"),
        (&format!("{base}max-length-factor: 0"), "expected a positive number"),
        (&format!("{base}weights: [1, 2]"), "weights: [1, 2]: expected 1 numbers"),
        (&format!("{base}shortlist: [gone.bin, false]"), "shortlist: there is no file"),
        (&format!("{base}shortlist: [vocab.yml, x]"), "expected: path first best prune"),
        ("relative-paths: true\nmodels: model.npz", "--vocab"),
        ("relative-paths: true\nmodels: []\nvocabs: vocab.yml", "names no models"),
        ("relative-paths: true\nmodels: model.npz\nvocabs: [vocab.yml, a, b]", "vocabs"),
        ("interpolate-env-vars: true\nmodels: '${NO_SUCH_NAME}/m.npz'", "no NO_SUCH_NAME"),
    ] {
        let folder = Folder::new();
        folder.write("decoder.yml", config);
        let message = folder.message();
        assert!(message.contains(part), "{config}: {message}");
    }
}

#[test]
fn configurations_are_followed() {
    let folder = Folder::new();
    folder.write("config.yml", "train-sets: [a, b]\nmodel: model.npz\n"); // not for decoding
    folder.write(
        "model.npz.decoder.yml",
        "models: ['/moved/model.npz']\nvocabs: /moved/vocab.yml\nbeam-size: 6\nnormalize: true\n\
         word-penalty: 0.5\nmax-length: 77\nallow-unk: true\nmax-length-factor: ~\n\
         output-sampling: full\nno-spm-decode: false\n",
    );
    let model = open_one(folder.folder.path()).unwrap();
    let s = &model.search;
    assert_eq!((s.beam, s.normalize, s.word_penalty, s.max_source), (6, 1.0, 0.5, 77));
    assert!(s.allow_unk && s.max_length_factor == Some(3.0));
    let notes = model.notes.join("\n");
    assert!(notes.contains("/moved/model.npz not found, using"), "{notes}");
    assert!(notes.contains("output-sampling is not followed") && !notes.contains("no-spm"));
}

#[test]
fn paths_that_are_no_models() {
    let folder = tempfile::tempdir().unwrap();
    assert!(message(open_one(folder.path())).contains("no model in this directory"));
    let gone = folder.path().join("gone.npz");
    let told = message(open_one(&gone));
    assert_eq!(told, format!("{}: No such file or directory", gone.display()));
    let dangling = OpenOptions { config: Some(gone.clone()), ..OpenOptions::default() };
    let told = message(open(&[], &dangling));
    assert_eq!(told, format!("{}: No such file or directory", gone.display()));
    assert!(message(open(&[], &OpenOptions::default())).contains("no model was given"));
    for (name, bytes, part) in [
        ("a.txt", &b"hello"[..], "not a model file"),
        ("a.bin", b"xy", "not a model file"),
        ("a.bin", b"0123456789abcdef", "not a model file"),
        ("lex.bin", &0xF11A_48D5_0134_17F5_u64.to_le_bytes(), "a shortlist, not a model"),
        ("a.npz", b"", "a.npz"),
        ("a.peregrine", b"", "a.peregrine"),
        ("a.peregrine", b"\x02\0\0\0\0\0\0\0{}", "not a Peregrine model"),
        ("a.safetensors", b"\x02\0\0\0\0\0\0\0{}", "not a Peregrine model"),
        ("a.yml", b"beam-size: 1", "a.yml: names no models"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let message = message(open_one(&path));
        assert!(message.contains(part), "{name}: {message}");
    }
    let two = tempfile::tempdir().unwrap();
    for name in ["a.npz", "b.npz", "a.npz.optimizer.npz"] {
        std::fs::write(two.path().join(name), b"").unwrap();
    }
    assert!(message(open_one(two.path())).contains("several models (a.npz, b.npz)"));
}

/// Writes a `.peregrine` file whose header was changed.
fn with_header(change: impl FnOnce(&mut serde_json::Value)) -> Result<Model, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.peregrine");
    save(&made_model(&small(), 1), &path, Some(Precision::Int8)).unwrap();
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let file = safetensors::read(&source).unwrap();
    let mut header = serde_json::from_str(&file.metadata["peregrine"]).unwrap();
    change(&mut header);
    let tensors: Vec<_> = file.tensors.into_iter().collect();
    let metadata = BTreeMap::from([("peregrine".to_owned(), header.to_string())]);
    safetensors::write(&path, &tensors, &metadata).unwrap();
    open_one(&path)
}

#[test]
fn corrupt_peregrine_headers() {
    use serde_json::{Value, json};
    type Change = fn(&mut Value);
    assert!(with_header(|_| {}).is_ok());
    let changes: [(Change, &str); 17] = [
        (|h| *h = json!("x"), "metadata"),
        (|h| *h = json!({}), "format_version"),
        (|h| h["format_version"] = json!(2), "format version 2"),
        (|h| h["format_version"] = json!(-1), "metadata"),
        (|h| h["architecture"] = json!({"type": "mamba"}), "mamba"),
        (|h| h["architecture"]["width"] = json!(16), "expected (21, 16)"),
        (|h| h["architecture"]["width"] = json!(0), "model width 0"),
        (|h| h["architecture"]["decoder"]["layers"] = json!(1u64 << 60), "layers are out of range"),
        (|h| h["architecture"]["decoder_parameters"] = json!([0, 1, 1u64 << 40]), "tied layer"),
        (|h| h["architecture"]["encoder"]["feed_forward"]["depth"] = json!(0), "depth 0"),
        (|h| h["architecture"]["start"] = json!({"token": 21}), "start word 21"),
        (|h| h["architecture"]["source_frame"]["end"] = json!(99), "word 99"),
        (|h| h["aliases"]["output.weight"] = json!("nowhere"), "missing tensor nowhere"),
        (|h| h["aliases"]["output.bias"] = json!("text.0"), "text.0"),
        (|h| h["source"]["parts"][0][1] = json!("text.9"), "text.9"),
        (|h| h["source"]["description"] = json!({"kind": "tarot"}), "tarot"),
        (|h| h["search"]["beam"] = json!(0), "beam of 0"),
    ];
    for (change, part) in changes {
        let message = message(with_header(change));
        assert!(message.contains(part) && message.contains("m.peregrine"), "{part}: {message}");
    }
    let rules = json!({"first": 1, "target_size": 21, "end": 0, "include_source": false});
    let large = json!({"first": 1, "target_size": 1u64 << 60, "end": 0, "include_source": false});
    let said = message(with_header(|h| h["shortlist"] = large));
    assert!(said.contains("the network has 21"), "{said}");
    let message = message(with_header(|h| h["shortlist"] = rules));
    assert!(message.contains("shortlist.offsets"), "{message}");
}

#[test]
fn bad_json_and_missing_scales() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.peregrine");
    save(&made_model(&small(), 1), &path, Some(Precision::Int8)).unwrap();
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let mut file = safetensors::read(&source).unwrap();
    file.metadata.remove("checksums"); // damage would be told instead
    let tensors: Vec<_> = file.tensors.clone().into_iter().collect();
    let metadata = BTreeMap::from([("peregrine".to_owned(), "{".to_owned())]);
    safetensors::write(&path, &tensors, &metadata).unwrap();
    assert!(message(open_one(&path)).contains("metadata"));
    let name = "encoder.0.self.key.weight.scales";
    let few: Vec<_> = tensors.iter().filter(|(n, _)| n != name).cloned().collect();
    safetensors::write(&path, &few, &file.metadata).unwrap();
    assert!(message(open_one(&path)).contains(name));
    let mut wrong = few;
    wrong.push((name.into(), Tensor::from_f32(vec![3], &[1.0; 3])));
    safetensors::write(&path, &wrong, &file.metadata).unwrap();
    assert!(message(open_one(&path)).contains("3 scales for 8 rows"));
}

/// Cut short or with a byte changed, a file is refused or read, but nothing panics.
#[test]
fn damaged_files_do_not_panic() {
    let folder = Folder::new();
    let peregrine = folder.path("m.peregrine");
    save(&made_model(&small(), 1), &peregrine, Some(Precision::Int8)).unwrap();
    let whole = std::fs::read(&peregrine).unwrap();
    for length in (0..whole.len()).step_by(whole.len() / 60) {
        assert!(open_bytes("cut", whole[..length].to_vec().into()).is_err());
    }
    for at in (0..whole.len().min(6000)).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x15;
        if let Err(error) = open_bytes("changed", changed.into()) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    let network = std::fs::read(folder.path("model.npz")).unwrap();
    let vocabulary = folder.path("vocab.yml");
    let given = Some((vocabulary.clone(), vocabulary));
    let options = OpenOptions { vocabularies: given, ..OpenOptions::default() };
    for at in (0..network.len()).step_by(network.len() / 100) {
        let mut changed = network.clone();
        changed[at] = changed[at].wrapping_add(1);
        let path = folder.path("changed.npz");
        std::fs::write(&path, changed).unwrap();
        if let Err(error) = open(&[path], &options) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
