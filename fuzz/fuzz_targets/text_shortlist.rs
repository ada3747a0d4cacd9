//! Bytes as a text shortlist, read by Marian's rules, by Amun's, and as a CTranslate2 vocabulary map.

#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use peregrine_fuzz::{Folder, check};
use peregrine_model::{Model, ShortlistChoice, ShortlistFile, choose_shortlist};

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::marian);

thread_local! {
    static MODEL: RefCell<Model> = RefCell::new(FOLDER.open("model.npz").expect("a model"));
}

fuzz_target!(|bytes: &[u8]| {
    for (name, amun) in [("lex.s2t", false), ("lex.s2t", true), ("vmap.txt", false)] {
        FOLDER.write(name, bytes);
        // Few words are always selected, so that the table decides.
        let file =
            ShortlistFile { first: 2, best: 3, amun, ..ShortlistFile::new(FOLDER.path(name)) };
        let mut model = MODEL.with_borrow(Clone::clone);
        let chosen = choose_shortlist(&mut model, &ShortlistChoice::File(file));
        check(chosen.map(|()| model));
    }
});
