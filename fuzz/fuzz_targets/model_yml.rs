//! Bytes as the options inside a Marian network (`special:model.yml`).

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, Tensor, Tensors, npz};
use peregrine_fuzz::{Folder, check};

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::marian);
static TENSORS: LazyLock<Tensors> = LazyLock::new(|| {
    let bytes = std::fs::read(FOLDER.path("model.npz")).expect("a file");
    npz::read(&Source::new("model.npz", bytes)).expect("a network")
});

fuzz_target!(|bytes: &[u8]| {
    let mut tensors = TENSORS.clone();
    let options: Vec<i8> = bytes.iter().map(|&byte| byte as i8).collect();
    tensors.insert("special:model.yml".into(), Tensor::from_i8(vec![options.len()], &options));
    npz::write(&FOLDER.path("model.npz"), &tensors).expect("a network");
    check(FOLDER.open("model.npz"));
});
