//! Bytes as a file of `peregrine_formats::safetensors`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, safetensors};

fuzz_target!(|bytes: &[u8]| {
    let _ = safetensors::read(&Source::new("fuzz", bytes.to_vec()));
});
