//! Bytes as the `config.json` of a Hugging Face checkpoint and, after a zero byte, as its
//! `generation_config.json`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_fuzz::{Folder, check};

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::huggingface);

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    FOLDER.write("config.json", parts.next().unwrap_or_default());
    FOLDER.write("generation_config.json", parts.next().unwrap_or(b"{}"));
    check(FOLDER.open(""));
});
