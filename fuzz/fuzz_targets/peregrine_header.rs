//! Bytes as a `.peregrine` file, and as the header of one whose tensors are sound.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_fuzz::{check, small_model};
use peregrine_model::{Shortlist, open_bytes, save};
use serde_json::Value;

/// The JSON at the front of a sound file, and the tensors after it.
static SOUND: LazyLock<(Value, Vec<u8>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.peregrine");
    let mut model = small_model();
    model.shortlist = Some(Shortlist::new(vec![vec![2, 3]; 12], 2, 12, 0));
    save(&model, &path, None).expect("a file");
    let bytes = std::fs::read(path).expect("a file");
    let (length, rest) = bytes.split_first_chunk().expect("a length");
    let (json, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut json: Value = serde_json::from_slice(json).expect("JSON");
    // A file without checksums is sound, and one with wrong checksums is refused before its header is read.
    json["__metadata__"].as_object_mut().expect("metadata").remove("checksums");
    (json, data.to_vec())
});

fuzz_target!(|bytes: &[u8]| {
    check(open_bytes("fuzz.peregrine", bytes.to_vec().into()));
    let Ok(header) = std::str::from_utf8(bytes) else { return };
    let (mut json, data) = SOUND.clone();
    json["__metadata__"]["peregrine"] = header.into();
    let mut json = json.to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let length = (json.len() as u64).to_le_bytes();
    check(open_bytes("fuzz.peregrine", [&length[..], &json, &data].concat().into()));
});
