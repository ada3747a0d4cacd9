//! What opening a model remarks on: choices it made, and files that do not seem to belong together.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use peregrine_model::*;

/// A folder with the files of a Marian model.
fn marian() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "vocab.yml", &vocabulary(WORDS));
    let network = folder.path().join("model.npz");
    export::marian_npz(&made_model(&small(), 5).members[0], &network).unwrap();
    folder
}

fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn notes(path: &Path) -> Vec<String> {
    open_one(path).unwrap().notes
}

#[test]
fn one_of_several_configurations() {
    let folder = marian();
    let config = |beam| {
        format!("relative-paths: true\nmodels: model.npz\nvocabs: vocab.yml\nbeam-size: {beam}\n")
    };
    let first = write(&folder, "config.a.yml", &config(3));
    assert!(notes(folder.path()).is_empty());
    let second = write(&folder, "config.b.yml", &config(5));
    // Neither of these is of the same kind: one is for training, one comes behind in any case.
    write(&folder, "config.c.yml", "train-sets: [a, b]\nmodel: model.npz\n");
    write(&folder, "model.decoder.yml", &config(7));
    for path in [folder.path().to_path_buf(), folder.path().join("model.npz")] {
        let model = open_one(&path).unwrap();
        assert_eq!(model.search.beam, 3);
        let [note] = &model.notes[..] else { panic!("{:?}", model.notes) };
        let first = first.display().to_string();
        assert!(note.starts_with(&first) && note.contains("config.b.yml: name"), "{note}");
    }
    assert_eq!(open_one(&second).unwrap().search.beam, 5);
    assert!(notes(&second).is_empty());

    // A network takes the one that names it.
    let other = folder.path().join("other.npz");
    std::fs::copy(folder.path().join("model.npz"), &other).unwrap();
    write(&folder, "config.b.yml", &config(5).replace("model.npz", "other.npz"));
    let model = open_one(&other).unwrap();
    assert_eq!(model.search.beam, 5);
    assert!(model.notes.is_empty(), "{:?}", model.notes);
}
