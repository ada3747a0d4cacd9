//! Bytes as a file of `peregrine_formats::pytorch`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, pytorch};

fuzz_target!(|bytes: &[u8]| {
    let _ = pytorch::read(&Source::new("fuzz", bytes.to_vec()));
});
