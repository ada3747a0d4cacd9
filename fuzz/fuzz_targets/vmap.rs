//! Bytes as a file of `peregrine_formats::vmap`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, vmap};

fuzz_target!(|bytes: &[u8]| {
    let source = Source::new("fuzz", bytes.to_vec());
    let Ok(entries) = vmap::read(&source) else { return };
    for entry in entries {
        assert!(entry.key.iter().chain(&entry.targets).all(|word| !word.is_empty()));
    }
});
