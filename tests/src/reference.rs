//! The folder `shared` beside the repository, with reference models and texts. The tests of several
//! crates include this file.

#![allow(unreachable_pub, dead_code)] // Only the library of whole-program tests exports all of it.

use std::path::{Path, PathBuf};

/// A path in the folder of reference models and texts, which a fresh clone does not have.
///
/// # Panics
///
/// Panics where the path is missing and `PEREGRINE_REQUIRE_SHARED=1`.
pub fn shared(path: &str) -> Option<PathBuf> {
    let found = optional(path);
    let required = std::env::var("PEREGRINE_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(found.is_some() || !required, "PEREGRINE_REQUIRE_SHARED=1: no ../shared/{path}");
    found
}

/// The same for a model that the folder need not have.
pub fn optional(path: &str) -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").is_file());
    let found = root.map(|root| root.join("../shared").join(path)).filter(|path| path.exists());
    if found.is_none() {
        println!("skipped: no reference models ({path})");
    }
    found
}
