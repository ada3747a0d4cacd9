//! The built-in model: English to Portuguese, so that the first command needs no other file. Builds without the
//! feature `builtin` leave it out.

use peregrine_formats::Bytes;
use peregrine_model::Model;

use crate::Error;

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

/// The built-in model as it is stored, or [`Error::NoBuiltin`] in a build without the feature `builtin`.
pub fn builtin_model() -> Result<Model, Error> {
    let bytes = EN_PT.ok_or(Error::NoBuiltin)?;
    Ok(peregrine_model::open_bytes("built-in en-pt.peregrine", Bytes::from_static(bytes))?)
}
