//! Bytes as the `config.json` of a CTranslate2 model.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_fuzz::{Folder, check};

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::ctranslate2);

fuzz_target!(|bytes: &[u8]| {
    FOLDER.write("config.json", bytes);
    check(FOLDER.open(""));
});
