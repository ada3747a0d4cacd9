//! What opening a model remarks on: choices it made, and files that do not seem to belong together.

use std::path::{Path, PathBuf};

use crate::common::*;
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

/// The same number of words, most of them others.
fn other_vocabulary() -> String {
    vocabulary(WORDS).replace("\u{2581}w1", "\u{2581}x1").replace("w2:", "y2:")
}

fn with_vocabularies(path: &Path, source: &Path, target: &Path) -> Vec<String> {
    let vocabularies = Some((source.to_path_buf(), target.to_path_buf()));
    let options = OpenOptions { vocabularies, ..OpenOptions::default() };
    open(&[path.to_path_buf()], &options).unwrap().notes
}

#[test]
fn vocabularies_of_another_model() {
    let folder = marian();
    let network = folder.path().join("model.npz");
    let own = folder.path().join("vocab.yml");
    let other = write(&folder, "other.yml", &other_vocabulary());
    let copy = write(&folder, "copy.yml", &vocabulary(WORDS));
    let words: Vec<String> = vocabulary(WORDS)
        .lines()
        .map(|line| format!("{:?}", line.split_once(": ").unwrap().0))
        .collect();
    let entries = words.iter().enumerate().map(|(id, word)| format!("{word}: {id}"));
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(", "));
    let json = write(&folder, "same.json", &json);
    // Nothing is known of a bare network's vocabulary.
    assert!(with_vocabularies(&network, &other, &other).is_empty());

    let text = "relative-paths: true\nmodels: model.npz\nvocabs: vocab.yml\n";
    let config = write(&folder, "decoder.yml", text);
    for path in [&network, &config, &folder.path().to_path_buf()] {
        for same in [&own, &copy, &json] {
            let notes = with_vocabularies(path, same, same);
            assert!(notes.is_empty(), "{notes:?}");
        }
        let notes = with_vocabularies(path, &other, &other);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("other.yml: 10 of 21 words are as in "), "{note}");
        assert!(note.contains("vocab.yml, which the model names"), "{note}");
        // Only the side that differs.
        let notes = with_vocabularies(path, &own, &other);
        assert!(notes.len() == 1 && notes[0].contains("other.yml: 10 of"), "{notes:?}");
    }
}

#[test]
fn vocabularies_a_network_was_not_trained_with() {
    let folder = marian();
    let network = folder.path().join("model.npz");
    let own = folder.path().join("vocab.yml");
    let other = write(&folder, "other.yml", &other_vocabulary());
    write(
        &folder,
        "model.npz.yml",
        "train-sets: [a, b]\nvocabs: [/there/vocab.yml, /there/v.yml]\n",
    );
    // One is found by its name and compared, one is only a name.
    let notes = with_vocabularies(&network, &other, &own);
    assert!(notes[0].contains("other.yml: 10 of 21 words are as in "), "{notes:?}");
    assert!(notes[1].contains("vocab.yml: another name than /there/v.yml"), "{notes:?}");
    write(&folder, "model.npz.yml", "train-sets: [a, b]\nvocabs: [/there/vocab.yml]\n");
    assert!(with_vocabularies(&network, &own, &own).is_empty());
    write(&folder, "model.npz.yml", "vocabs: {a: [}\n"); // nothing can be learned from this
    assert!(with_vocabularies(&network, &other, &other).is_empty());
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transformer-post")
}

#[test]
fn a_sentencepiece_model_of_another_ctranslate2_model() {
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&open_one(&fixture()).unwrap(), folder.path()).unwrap();
    assert!(folder.path().join("source.spm").is_file());
    let notes = notes(folder.path());
    assert!(notes.is_empty(), "{notes:?}");

    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&made_model(&small(), 6), folder.path()).unwrap();
    let spm = fixture().join("vocab.spm");
    let notes = with_vocabularies(folder.path(), &spm, &spm);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("vocab.spm: the model's vocabulary has 0 of its "), "{note}");
}

fn shortlist_notes(folder: &tempfile::TempDir, file: &Path) -> Result<Vec<String>, ModelError> {
    let shortlist = ShortlistChoice::File(ShortlistFile::new(file));
    let options = OpenOptions { shortlist, ..OpenOptions::default() };
    Ok(open(&[folder.path().join("model.npz")], &options)?.notes)
}

#[test]
fn shortlists_of_another_model() {
    let folder = marian();
    let notes = |file: &Path| shortlist_notes(&folder, file).unwrap();
    // Without the words of `NULL` lines, which stand for none.
    let right =
        "NULL x 0.1\n\u{2581}w3 \u{2581}w4 0.5\n\u{2581}w5 \u{2581}w4 0.4\nq \u{2581}w4 0.1\n";
    assert!(notes(&write(&folder, "lex.txt", right)).is_empty());
    let wrong = "\u{2581}w3 der 0.5\ndie \u{2581}w4 0.4\n\u{2581}w3 \u{2581}w4 0.1\n";
    let said = notes(&write(&folder, "lex.txt", wrong));
    let expected = "lex.txt: the vocabularies have the words of 1 of its 3 entries";
    assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
    let map = "\u{2581}w3\t\u{2581}w4 \u{2581}w5\nhouse\tHaus\ncat\tKatze\n";
    let said = notes(&write(&folder, "vmap.txt", map));
    assert!(said.len() == 1 && said[0].contains("1 of its 3 entries"), "{said:?}");

    use peregrine_formats::shortlist as binary;
    let file = folder.path().join("lex.bin");
    for (lists, remark) in [(WORDS, false), (WORDS - 2, false), (WORDS + 1, true), (3, true)] {
        let table = binary::Shortlist::new(2, 1, &vec![vec![4]; lists]);
        binary::write(&file, &table).unwrap();
        let said = notes(&file);
        let expected = format!("lists for {lists} source words, but the vocabulary has {WORDS}");
        assert_eq!(said.iter().any(|note| note.contains(&expected)), remark, "{said:?}");
        assert_eq!(!said.is_empty(), remark, "{said:?}");
    }
    let table = binary::Shortlist::new(2, 1, &vec![vec![WORDS as u32]; WORDS]);
    binary::write(&file, &table).unwrap();
    let error = message(shortlist_notes(&folder, &file));
    assert!(error.ends_with("the shortlist names target word 21, the model has 21"), "{error}");
}
