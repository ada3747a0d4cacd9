//! Bytes as a file of `peregrine_formats::ctranslate2`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, ctranslate2};

fuzz_target!(|bytes: &[u8]| {
    let _ = ctranslate2::read(&Source::new("fuzz", bytes.to_vec()));
});
