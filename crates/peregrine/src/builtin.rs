//! The model inside: English to Portuguese, so that the first command needs nothing else.

use peregrine_formats::Bytes;

/// Tensors are mapped at their own alignment, so the file must begin at a good one.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static EN_PT: &Aligned<[u8]> = &Aligned(*include_bytes!("../models/en-pt.peregrine"));

/// The built-in model's name in messages, and its bytes.
pub(crate) fn english_portuguese() -> (&'static str, Bytes) {
    ("built-in en-pt.peregrine", Bytes::from_static(&EN_PT.0))
}
