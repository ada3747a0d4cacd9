//! Bytes as a file of `peregrine_formats::marian_bin`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, marian_bin};

fuzz_target!(|bytes: &[u8]| {
    let _ = marian_bin::read(&Source::new("fuzz", bytes.to_vec()));
});
