//! Bytes as the `decoder.yml` of a Marian model, which may also be an Amun configuration.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_fuzz::{Folder, check};

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::marian);

fuzz_target!(|bytes: &[u8]| {
    FOLDER.write("decoder.yml", bytes);
    check(FOLDER.open("decoder.yml"));
});
