//! Reference outputs in JSON, and checkpoints with other settings.

use std::path::Path;

use serde_json::{Map, Value};
use tempfile::TempDir;

/// The objects of a file with one a line.
pub fn jsonl(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A list of ids.
pub fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A list of scores.
pub fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|id| id.as_f64().unwrap() as f32).collect()
}

/// Log-probabilities of tokens agree to four digits.
pub fn assert_scores(what: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{what}: {a} {b}");
    }
}

/// A copy of a folder with other fields in one of its JSON files.
pub fn changed_copy(folder: &Path, name: &str, fields: &Value) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap();
        // Files of reference models are read-only, and a copy of theirs would be.
        std::fs::write(copy.path().join(name), std::fs::read(&path).unwrap()).unwrap();
    }
    change_json(&copy.path().join(name), fields);
    copy
}

/// Puts fields into a JSON file.
pub fn change_json(path: &Path, fields: &Value) {
    let mut object: Map<String, Value> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    object.extend(fields.as_object().unwrap().clone());
    std::fs::write(path, Value::from(object).to_string()).unwrap();
}
