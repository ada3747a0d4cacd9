//! The built-in model: English to Portuguese, so that the first command needs no other file. Builds without the
//! feature `builtin` leave it out.

use std::path::Path;

use peregrine_formats::Bytes;
use peregrine_model::Model;

use crate::Error;
use crate::registry::Pair;

/// Tensors are used where they are in the file, so the file must be aligned.
#[cfg(feature = "builtin")]
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

#[cfg(feature = "builtin")]
static EN_PT: Option<&[u8]> = {
    static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../models/en-pt.peregrine"));
    Some(&FILE.0)
};

#[cfg(not(feature = "builtin"))]
static EN_PT: Option<&[u8]> = None;

/// The name of the built-in model, in place of a path.
const NAME: &str = "built-in en-pt.peregrine";

/// What `peregrine calibrate` writes for the built-in model.
static TABLE: &[u8] = include_bytes!("../models/en-pt.quality.json");

/// The built-in model's table of quality, if the path is that model's.
pub(crate) fn table_of(path: &Path) -> Option<&'static [u8]> {
    (path == Path::new(NAME)).then_some(TABLE)
}

/// The built-in model's languages, if the path is that model's.
pub(crate) fn languages_of(path: &Path) -> Option<Pair> {
    (path == Path::new(NAME)).then(|| Pair::new("en", "pt"))
}

/// The built-in model as it is stored, or [`Error::NoBuiltin`] in a build without the feature `builtin`.
pub fn builtin_model() -> Result<Model, Error> {
    let bytes = EN_PT.ok_or(Error::NoBuiltin)?;
    Ok(peregrine_model::open_bytes(NAME, Bytes::from_static(bytes))?)
}
