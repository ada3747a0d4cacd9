//! Bytes as a file of `peregrine_formats::npz`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, npz};

fuzz_target!(|bytes: &[u8]| {
    let _ = npz::read(&Source::new("fuzz", bytes.to_vec()));
});
