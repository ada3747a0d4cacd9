//! Damaged files are noticed.

use std::path::Path;

use crate::common::*;
use peregrine_formats::{Source, safetensors};
use peregrine_model::*;

fn checked(path: &Path) -> Result<Vec<String>, ModelError> {
    let model = open_one(path)?;
    Ok([verify::checksums(&model)?, verify::numbers(&model)?].concat())
}

#[test]
fn every_byte_of_a_peregrine_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.peregrine");
    save(&made_model(&small(), 1), &path, Some(Precision::Int8)).unwrap();
    let good = std::fs::read(&path).unwrap();
    let lines = checked(&path).unwrap();
    let name = path.display().to_string();
    assert!(lines[0].starts_with(&format!("{name}: the checksums of ")), "{lines:?}");
    assert!(lines[0].ends_with(" tensors are right"), "{lines:?}");
    assert!(lines[1].ends_with(" parameters are finite numbers"), "{lines:?}");

    // Without its key the list of checksums is not found, as in files that have none.
    let key = b"\"checksums\"";
    let key = good.windows(key.len()).position(|window| window == key).unwrap();
    for at in (0..good.len()).step_by(29).filter(|at| !(key..key + 11).contains(at)) {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let error = message(checked(&path));
        assert!(error.starts_with(&name), "byte {at}: {error}");
    }

    // The last tensor is the vocabulary's text, and its own errors do not say what the cause is.
    let mut damaged = good;
    *damaged.last_mut().unwrap() ^= 0x10;
    std::fs::write(&path, damaged).unwrap();
    let error = message(open_one(&path));
    assert!(error.starts_with(&format!("{name}: text.0: checksum ")), "{error}");
    assert!(error.ends_with(": the data is damaged"), "{error}");
}

#[test]
fn files_without_checksums_are_as_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.peregrine");
    let model = made_model(&small(), 2);
    save(&model, &path, None).unwrap();
    let file = safetensors::read(&Source::open(&path).unwrap()).unwrap();
    let mut metadata = file.metadata.clone();
    assert!(metadata.remove("checksums").is_some());
    let tensors: Vec<_> = file.tensors.into_iter().collect();
    safetensors::write(&path, &tensors, &metadata).unwrap();
    assert_same_model(&open_one(&path).unwrap(), &model);
    assert!(checked(&path).unwrap()[0].ends_with("model.peregrine: has no checksums"));
    // A model in memory has no file at all.
    assert!(verify::checksums(&model).unwrap().is_empty());
}

#[test]
fn archives_tell_how_much_was_compared() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vocab.yml"), vocabulary(WORDS)).unwrap();
    let path = folder.path().join("model.npz");
    export::marian_npz(&made_model(&small(), 3).members[0], &path).unwrap();
    let lines = checked(&path).unwrap();
    assert!(lines[0].ends_with(" members are right"), "{lines:?}");
    let model = open_one(&path).unwrap();
    let part = &model.members[0].weights.get("source.embedding").unwrap().data[..16];
    let mut damaged = std::fs::read(&path).unwrap();
    let at = damaged.windows(16).position(|window| window == part).unwrap();
    damaged[at + 5] ^= 4;
    drop(model); // its file is written to in place
    std::fs::write(&path, damaged).unwrap();
    // Here without being asked.
    assert!(message(open_one(&path)).ends_with(": the data is damaged"));
    let bin = folder.path().join("model.bin");
    export::marian_bin(&made_model(&small(), 3).members[0], &bin).unwrap();
    assert!(checked(&bin).unwrap()[0].ends_with("model.bin: has no checksums"));
}

#[test]
fn weights_must_be_numbers() {
    for precision in [Precision::Float32, Precision::Float16, Precision::Bfloat16] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut model = made_model(&small(), 4);
            let weights = &mut model.members[0].weights;
            let (name, weight) = weights.iter().find(|(_, w)| w.shape.len() == 2).unwrap();
            let (name, shape, columns) = (name.to_owned(), weight.shape.clone(), weight.columns());
            let mut values = weight.to_f32().into_owned();
            values[columns + 2] = bad;
            weights.insert(&name, Weight::from_f32(shape, &values).convert(precision));
            let error = message(verify::numbers(&model));
            assert!(error.contains(&format!("{name}, row 1, column 2: not a finite")), "{error}");
        }
    }
    verify::numbers(&made_model(&small(), 4)).unwrap();
}
