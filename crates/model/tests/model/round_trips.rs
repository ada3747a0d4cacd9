//! The same numbers through every format and back.

use std::path::Path;

use crate::common::*;
use peregrine_model::*;

/// A folder with a vocabulary in it, in which a bare network finds all it needs.
fn folder_with_vocabulary() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vocab.yml"), vocabulary(WORDS)).unwrap();
    folder
}

#[test]
fn marian_files_hold_every_description() {
    let folder = folder_with_vocabulary();
    for (name, description) in varied() {
        let model = made_model(&description, 7);
        let npz = folder.path().join(format!("{name}.npz"));
        let bin = folder.path().join(format!("{name}.bin"));
        export::marian_npz(&model.members[0], &npz).unwrap();
        export::marian_bin(&model.members[0], &bin).unwrap();
        for path in [&npz, &bin] {
            let again = open_one(path).unwrap();
            assert_eq!(transformer(&again), &description, "{name}");
            assert_same_weights(&again.members[0].weights, &model.members[0].weights);
            let tables = |w: &Weights| {
                let (a, b) = (w.get("source.embedding").unwrap(), w.get("output.weight").unwrap());
                a.shares_data_with(b)
            };
            assert!(tables(&again.members[0].weights));
        }
    }
}

#[test]
fn peregrine_files_hold_every_description_and_precision() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.peregrine");
    for (_, description) in varied() {
        let model = made_model(&description, 8);
        save(&model, &path, None).unwrap();
        assert_same_model(&open_one(&path).unwrap(), &model);
    }
    use Precision::*;
    for precision in [Float32, Float16, Bfloat16, Int16, Int8] {
        let model = made_model(&small(), 9);
        save(&model, &path, Some(precision)).unwrap();
        let again = open_one(folder.path()).unwrap();
        for (name, weight) in model.members[0].weights.iter() {
            let stored = again.members[0].weights.get(name).unwrap();
            let wanted = if weight.shape.len() == 2 { precision } else { Float32 };
            assert_eq!(stored.precision, wanted);
            assert_eq!(stored.to_f32(), weight.convert(wanted).to_f32(), "{name}");
        }
        assert_eq!(again.parameters(), model.parameters());
    }
}

#[test]
fn opening_a_peregrine_file_copies_no_weight() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.peregrine");
    save(&made_model(&small(), 1), &path, Some(Precision::Int8)).unwrap();
    let bytes = peregrine_formats::Bytes::from(std::fs::read(&path).unwrap());
    let range = bytes.as_ptr_range();
    let model = open_bytes("memory", bytes.clone()).unwrap();
    for (name, weight) in model.members[0].weights.iter() {
        assert!(range.contains(&weight.data.as_ptr()), "{name}");
    }
}

/// A target side of its own makes all three tables differ.
fn untied() -> Model {
    let mut description = small();
    description.source_vocabulary = WORDS;
    let mut model = made_model(&description, 11);
    let member = &mut model.members[0];
    let fresh = random_transformer(&description, 12);
    let other = random_transformer(&description, 13);
    member.weights.insert("source.embedding", fresh.get("source.embedding").unwrap().clone());
    member.weights.insert("output.weight", other.get("output.weight").unwrap().clone());
    model
}

#[test]
fn ctranslate2_directories() {
    for model in [made_model(&small(), 3), untied()] {
        let folder = tempfile::tempdir().unwrap();
        export::ctranslate2(&model, folder.path()).unwrap();
        let again = open_one(folder.path()).unwrap();
        assert_eq!(again.dialect, Dialect::Ctranslate2);
        assert!(again.notes.iter().any(|note| note.contains("no SentencePiece model")));
        // The exporter stores Marian's positions as tables; everything else reads back as it was.
        let mut weights = model.members[0].weights.clone();
        for table in ["encoder.positions", "decoder.positions"] {
            let table_weight = again.members[0].weights.get(table).unwrap();
            assert_eq!(table_weight.shape, [1024, 8]);
            assert_eq!(&table_weight.to_f32()[..8], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
            weights.insert(table, table_weight.clone());
        }
        assert_same_weights(&again.members[0].weights, &weights);
        let mut t = transformer(&again).clone();
        assert_eq!((t.encoder.positions, t.position_limit), (Positions::Table, Some(1024)));
        let ours = transformer(&model);
        t.encoder.positions = ours.encoder.positions;
        t.decoder.positions = ours.decoder.positions;
        t.position_limit = None;
        assert_eq!(&t, ours);
        assert_eq!(again.source.eos(), 0);
    }
}

#[test]
fn the_librarys_own_positions_need_no_table() {
    let mut description = small();
    let own = Positions::Sinusoid { first: 1, spacing: Spacing::HalfLessOne };
    description.encoder.positions = own;
    description.decoder.positions = own;
    let model = made_model(&description, 3);
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&model, folder.path()).unwrap();
    let again = open_one(folder.path()).unwrap();
    assert_eq!(transformer(&again), &description);
}

#[test]
fn hugging_face_checkpoints() {
    for model in [made_model(&small(), 4), untied()] {
        let folder = tempfile::tempdir().unwrap();
        export::huggingface(&model, folder.path()).unwrap();
        let again = open_one(folder.path()).unwrap();
        assert_eq!(again.dialect, Dialect::HuggingFace);
        let t = transformer(&again);
        assert_eq!((t.source_vocabulary, t.target_vocabulary), (WORDS + 1, WORDS + 1));
        assert_eq!((t.start, t.position_limit), (Start::Token(WORDS as u32), Some(512)));
        let positions = Positions::Sinusoid { first: 0, spacing: Spacing::Half };
        assert_eq!((t.encoder.positions, t.encoder.norm_epsilon), (positions, 1e-5));
        assert_eq!(again.search.suppress, [WORDS as u32]);
        assert_eq!((again.search.beam, again.search.max_length), (12, Some(511)));
        assert_eq!(again.search.at_limit, AtLimit::ForceEnd);
        for (name, weight) in model.members[0].weights.iter() {
            let read = again.members[0].weights.get(name).unwrap();
            let (ours, theirs) = (weight.to_f32(), read.to_f32());
            assert_eq!(theirs[..ours.len()], *ours, "{name}");
            assert!(theirs[ours.len()..].iter().all(|pad| *pad == 0.0));
        }
        assert_eq!(again.source.id("<pad>"), Some(WORDS as u32));
    }
}

#[test]
fn a_converted_checkpoint_can_follow_marian() {
    let folder = tempfile::tempdir().unwrap();
    export::huggingface(&made_model(&small(), 4), folder.path()).unwrap();
    let compat = ["marian-positions", "marian-epsilon", "search-marian", "drop-pad"];
    let compat = compat.iter().map(|name| name.parse().unwrap()).collect();
    let options = OpenOptions { compat, ..OpenOptions::default() };
    let model = open(&[folder.path().into()], &options).unwrap();
    let (t, marian) = (transformer(&model), small());
    assert_eq!(t.encoder, marian.encoder);
    assert_eq!(t.decoder, marian.decoder);
    assert_eq!((model.search.finish, model.search.at_limit), (Finish::Shrink, AtLimit::Cut));
    assert_eq!(model.search.suppression, Suppression::BeforeSoftmax);
}

#[test]
fn half_precision_stays_half_precision() {
    let folder = folder_with_vocabulary();
    let mut model = made_model(&small(), 5);
    let mut halves = Weights::default();
    for (name, weight) in model.members[0].weights.iter() {
        halves.insert(name, weight.convert(Precision::Float16));
    }
    model.members[0].weights = halves;
    let path = folder.path().join("half.npz");
    export::marian_npz(&model.members[0], &path).unwrap();
    let again = open_one(&path).unwrap();
    assert_same_weights(&again.members[0].weights, &model.members[0].weights);
}

#[test]
fn exporters_refuse_what_a_format_cannot_say() {
    let folder = tempfile::tempdir().unwrap();
    for (name, description) in varied().iter().skip(1) {
        let model = made_model(description, 1);
        assert!(message(export::huggingface(&model, folder.path())).contains("has no"), "{name}");
        assert!(message(export::ctranslate2(&model, folder.path())).contains("has no"), "{name}");
    }
    let mut started = small();
    started.start = Start::Token(0);
    let member = &made_model(&started, 1).members[0];
    assert!(message(export::marian_npz(member, Path::new("x.npz"))).contains("start words"));
    let mut ensemble = made_model(&small(), 1);
    ensemble.members.push(ensemble.members[0].clone());
    let path = folder.path().join("x.peregrine");
    assert!(message(save(&ensemble, &path, None)).contains("2 networks"));
    for name in ["model.npz", "model", "model.peregrine.old"] {
        let path = folder.path().join(name);
        let message = message(save(&made_model(&small(), 1), &path, None));
        assert!(message.contains(name) && message.contains("end in .peregrine"), "{message}");
        assert!(!path.exists());
    }
}

#[test]
fn random_models_repeat() {
    let (a, b) = (random_transformer(&small(), 1), random_transformer(&small(), 1));
    assert_same_weights(&a, &b);
    let other = random_transformer(&small(), 2);
    let name = "encoder.0.self.query.weight";
    assert_ne!(a.get(name).unwrap().to_f32(), other.get(name).unwrap().to_f32());
    let description = made_model(&small(), 1).describe();
    assert_eq!(description["members"][0]["architecture"]["type"], "transformer");
}
