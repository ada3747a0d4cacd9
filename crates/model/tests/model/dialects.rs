//! What sets the dialects' files apart: their options, refusals and storage.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::*;
use peregrine_formats::{Source, Tensor, safetensors};
use peregrine_model::*;

fn change_json(path: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

#[test]
fn hugging_face_checkpoints_of_another_kind() {
    use serde_json::json;
    for (key, value, part) in [
        ("model_type", json!("t5"), "model_type \"t5\": T5's networks"),
        ("model_type", json!("llama"), "without an encoder"),
        ("model_type", json!("odd"), "model_type: \"odd\" is not supported"),
        ("quantization_config", json!({"quant_method": "awq"}), "quantised by awq"),
        ("normalize_before", json!(true), "normalize_before"),
        ("static_position_embeddings", json!(false), "static_position_embeddings"),
        ("activation_function", json!("mish"), "activation_function"),
        ("decoder_layers", json!(4_000_000_000u64), "4000000000 layers"),
        ("decoder_layers", json!(-1), "expected a whole number"),
        ("encoder_layers", json!(1), "is not part of MarianMTModel"),
        ("d_model", json!("wide"), "d_model"),
        ("vocab_size", json!(5), "expected (5, 8)"),
        ("eos_token_id", json!(3), "eos_token_id 3"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        export::huggingface(&made_model(&small(), 4), folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("generation_config.json")).unwrap();
        change_json(&folder.path().join("config.json"), |config| config[key] = value);
        let message = message(open_one(folder.path()));
        assert!(message.contains(part), "{key}: {message}");
    }
}

#[test]
fn generation_settings_are_followed() {
    use serde_json::json;
    let folder = tempfile::tempdir().unwrap();
    export::huggingface(&made_model(&small(), 4), folder.path()).unwrap();
    change_json(&folder.path().join("config.json"), |config| {
        // These count only where there is no generation_config.json.
        config["num_beams"] = json!(9);
        config["length_penalty"] = json!(0.6);
    });
    let path = folder.path().join("generation_config.json");
    change_json(&path, |config| {
        config["num_beams"] = json!(6);
        config["max_length"] = json!(100);
        config["early_stopping"] = json!(true);
        config["suppress_tokens"] = json!([5]);
        config["forced_eos_token_id"] = json!(null);
        config["bad_words_ids"] = json!([[WORDS], [3], [4, 5]]);
        config["renormalize_logits"] = json!(true);
        config["repetition_penalty"] = json!(1.2);
    });
    let model = open_one(folder.path()).unwrap();
    let s = &model.search;
    assert_eq!((s.beam, s.normalize, s.max_length), (6, 1.0, Some(99)));
    assert_eq!((s.finish, s.bound, s.at_limit), (Finish::FullBounded, Bound::List, AtLimit::Cut));
    assert_eq!(s.suppress, [WORDS as u32, 3, 5]);
    assert_eq!(s.suppression, Suppression::BeforeSoftmax);
    let notes = model.notes.join("\n");
    for part in ["repetition_penalty", "several words"] {
        assert!(notes.contains(part), "{notes}");
    }
    change_json(&path, |config| {
        config["early_stopping"] = json!("never");
        config["max_new_tokens"] = json!(40);
        config["min_new_tokens"] = json!(2);
        config["eos_token_id"] = json!([0, 7]);
        config["begin_suppress_tokens"] = json!([1]);
    });
    let model = open_one(folder.path()).unwrap();
    assert_eq!((model.search.bound, model.search.max_length), (Bound::LengthLimit, Some(40)));
    assert_eq!(model.search.min_length, 2);
    assert!(model.notes.join("\n").contains("begin_suppress_tokens is not followed"));
    std::fs::rename(&path, folder.path().join("none.json")).unwrap();
    let search = open_one(folder.path()).unwrap().search;
    assert_eq!((search.beam, search.normalize), (9, 0.6));
    std::fs::rename(folder.path().join("none.json"), &path).unwrap();
    // Without a number of beams the class is greedy.
    change_json(&path, |config| config["num_beams"] = json!(null));
    assert_eq!(open_one(folder.path()).unwrap().search.beam, 1);
    change_json(&path, |config| config["bad_words_ids"] = json!([[99]]));
    assert!(message(open_one(folder.path())).contains("word 99 is to be suppressed"));
}

#[test]
fn ctranslate2_models_of_another_kind() {
    use peregrine_formats::ctranslate2::{self, Model as File};
    type Change = fn(&mut File);
    let scalar = |value| Tensor::from_i8(vec![], &[value]);
    let changes: [(Change, &str); 8] = [
        (|f| f.spec = "WhisperSpec".into(), "WhisperSpec"),
        (|f| f.revision = 9, "revision 9"),
        (|f| _ = f.variables.remove("decoder/embeddings/weight"), "decoder/embeddings/weight"),
        (
            |f| _ = f.variables.remove("decoder/layer_2/ffn/linear_1/bias"),
            "decoder/layer_2/ffn/linear_1/bias",
        ),
        (
            |f| {
                let weight = f.variables["encoder/layer_0/ffn/linear_0/weight"].clone();
                f.variables.insert("encoder/layer_0/ffn/linear_0_noact/weight".into(), weight);
            },
            "linear_0_noact",
        ),
        (
            |f| {
                let keys = Tensor::from_f32(vec![3, 4], &[0.0; 12]);
                f.variables
                    .insert("encoder/layer_0/self_attention/relative_position_keys".into(), keys);
            },
            "Shaw's relative positions",
        ),
        (
            |f| {
                let scale = Tensor::from_f32(vec![8], &[1.0; 8]);
                f.variables.insert("encoder/layer_norm/gamma".into(), scale);
            },
            "T5's networks",
        ),
        (
            |f| {
                let odd = Tensor::from_f32(vec![23, 8], &[0.0; 184]);
                f.variables.insert("encoder/layer_0/self_attention/linear_0/weight".into(), odd);
            },
            "23 rows, not 3 equal groups",
        ),
    ];
    let with = |change: &dyn Fn(&mut File)| {
        let folder = tempfile::tempdir().unwrap();
        export::ctranslate2(&made_model(&small(), 4), folder.path()).unwrap();
        let path = folder.path().join("model.bin");
        let source = Source::new(&path, std::fs::read(&path).unwrap());
        let mut file = ctranslate2::read(&source).unwrap();
        change(&mut file);
        file.aliases.retain(|_, target| file.variables.contains_key(target));
        ctranslate2::write(&path, &file).unwrap();
        open_one(folder.path())
    };
    for (change, part) in changes {
        let message = message(with(&change));
        assert!(message.contains(part) && message.contains("model.bin"), "{message}");
    }
    for name in ["decoder/alibi", "encoder/multi_query_attention", "decoder/unheard_of"] {
        let message = message(with(&|f| _ = f.variables.insert(name.into(), scalar(1))));
        assert!(message.contains(name), "{message}");
    }
    let message =
        message(with(&|f| _ = f.variables.insert("decoder/activation".into(), scalar(9))));
    assert!(message.contains("activation 9"), "{message}");
    assert!(with(&|f| _ = f.variables.insert("decoder/unheard_of".into(), scalar(0))).is_ok());
}

#[test]
fn old_ctranslate2_files_keep_their_options_inside() {
    use peregrine_formats::ctranslate2;
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&made_model(&small(), 4), folder.path()).unwrap();
    let path = folder.path().join("model.bin");
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let mut file = ctranslate2::read(&source).unwrap();
    (file.version, file.revision) = (3, 4);
    for key in ["num_heads", "pre_norm", "activation"] {
        let value = file.variables.remove(&format!("decoder/{key}")).unwrap();
        file.variables.remove(&format!("encoder/{key}"));
        file.variables.insert(key.into(), value);
    }
    file.variables.insert("with_source_eos".into(), Tensor::from_i8(vec![], &[1]));
    ctranslate2::write(&path, &file).unwrap();
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let model = open_one(folder.path()).unwrap();
    let t = transformer(&model);
    assert_eq!((t.encoder.heads, t.source_frame.end), (2, Some(0)));
    assert_eq!(t.encoder.norm_epsilon, 1e-5);
    assert!(t.encoder.before_block.is_empty());
}

#[test]
fn integer_ctranslate2_weights_come_apart_with_their_scales() {
    use peregrine_formats::ctranslate2;
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&made_model(&small(), 4), folder.path()).unwrap();
    let path = folder.path().join("model.bin");
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let mut file = ctranslate2::read(&source).unwrap();
    let name = "encoder/layer_0/self_attention/linear_0/weight";
    let integers: Vec<i8> = (0..24 * 8).map(|i| (i % 100) as i8).collect();
    let scales: Vec<f32> = (0..24).map(|row| 1.0 + row as f32).collect();
    file.variables.insert(name.into(), Tensor::from_i8(vec![24, 8], &integers));
    file.variables.insert(format!("{name}_scale"), Tensor::from_f32(vec![24], &scales));
    let wide: Vec<i16> = (0..96).collect();
    let name = "encoder/layer_0/ffn/linear_0/weight"; // no scale: 1000
    file.variables.insert(name.into(), Tensor::from_i16(vec![12, 8], &wide));
    ctranslate2::write(&path, &file).unwrap();
    let model = open_one(folder.path()).unwrap();
    let weight = |name| model.members[0].weights.get(name).unwrap();
    let value = weight("encoder.0.self.value.weight");
    assert_eq!((&value.shape[..], value.precision), (&[8, 8][..], Precision::Int8));
    assert_eq!(value.to_f32()[0], (128 % 100) as f32 * (1.0 / 17.0));
    assert_eq!(weight("encoder.0.ffn.0.weight").to_f32()[5], 5.0 * (1.0 / 1000.0));
}

#[test]
fn position_tables_of_different_length() {
    use peregrine_formats::ctranslate2;
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&made_model(&small(), 4), folder.path()).unwrap();
    let path = folder.path().join("model.bin");
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let mut file = ctranslate2::read(&source).unwrap();
    let table = Tensor::from_f32(vec![30, 8], &[0.5; 240]);
    file.variables.insert("decoder/position_encodings/encodings".into(), table);
    ctranslate2::write(&path, &file).unwrap();
    let model = open_one(folder.path()).unwrap();
    assert_eq!(transformer(&model).position_limit, Some(30));
    assert_eq!((model.search.max_source, model.search.max_length), (30, Some(30)));
    let encoder = model.members[0].weights.get("encoder.positions").unwrap();
    assert_eq!(encoder.shape, [30, 8]);
}

#[test]
fn sharded_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    export::huggingface(&made_model(&small(), 4), folder.path()).unwrap();
    let whole = open_one(folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let mut map = serde_json::Map::new();
    let mut shards = [Vec::new(), Vec::new()];
    for (i, (name, tensor)) in safetensors::read(&source).unwrap().tensors.into_iter().enumerate() {
        map.insert(name.clone(), format!("shard-{}.safetensors", i % 2).into());
        shards[i % 2].push((name, tensor));
    }
    for (i, shard) in shards.iter().enumerate() {
        let path = folder.path().join(format!("shard-{i}.safetensors"));
        safetensors::write(&path, shard, &BTreeMap::new()).unwrap();
    }
    let index = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
    let sharded = open_one(folder.path()).unwrap();
    assert_same_weights(&sharded.members[0].weights, &whole.members[0].weights);
    let outside = serde_json::json!({ "weight_map": { "x": "../x.safetensors" } });
    std::fs::write(&index, outside.to_string()).unwrap();
    assert!(message(open_one(folder.path())).contains("is not a file name"));
}

/// A `.bin` whose first query matrix is stored as intgemm does: (inputs, outputs) by its shape,
/// but laid out transposed.
fn with_intgemm(width: usize, heads: usize) -> Result<Model, ModelError> {
    use peregrine_formats::marian_bin::{self, Dialect::Mainline, Kind};
    let mut description = small();
    description.width = width;
    for stack in [&mut description.encoder, &mut description.decoder] {
        stack.heads = heads;
        stack.embedding_scale = (width as f32).sqrt();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    std::fs::write(folder.path().join("vocab.yml"), vocabulary(WORDS)).unwrap();
    export::marian_bin(&made_model(&description, 1).members[0], &path).unwrap();
    let source = Source::new(&path, std::fs::read(&path).unwrap());
    let mut items = marian_bin::read(&source).unwrap();
    let item = items.iter_mut().find(|item| item.name == "encoder_l1_self_Wq").unwrap();
    item.kind = Kind::IntGemm8 { multiplier: 4.0 };
    item.dialect = Some(Mainline);
    let integers: Vec<u8> = (0..width * width).map(|i| (i % 120) as u8).collect();
    item.data = integers.into();
    marian_bin::write(&path, &items).unwrap();
    open_one(&path)
}

#[test]
fn mainline_intgemm_matrices_are_used_as_they_lie() {
    let model = with_intgemm(16, 2).unwrap();
    let query = model.members[0].weights.get("encoder.0.self.query.weight").unwrap();
    assert_eq!((&query.shape[..], query.precision), (&[16, 16][..], Precision::Int8));
    assert_eq!(query.to_f32()[17], 17.0 / 4.0);
    let refused = message(with_intgemm(24, 2));
    assert!(refused.contains("encoder_l1_self_Wq (24, 24) is corrupt"), "{refused}");
}
