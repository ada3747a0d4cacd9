//! Model files as named tensors, and back.
//!
//! This crate handles bytes, names, types and shapes, independent of networks. There is one
//! module a format, and each begins with a description of its layout:
//!
//! | module | files |
//! |---|---|
//! | [`npz`] | Marian and numpy `.npz` |
//! | [`marian_bin`] | Marian `.bin`, with the integer matrices of mainline Marian and of Bergamot |
//! | [`ctranslate2`] | CTranslate2 `model.bin` |
//! | [`safetensors`] | `.safetensors` |
//! | [`pytorch`] | `pytorch_model.bin`, zipped or legacy |
//! | [`shortlist`] | binary lexical shortlists |
//! | [`vmap`] | CTranslate2's `vmap.txt` |
//!
//! # Hostile files
//!
//! A reader returns tensors or one [`Error`] that names file and place, whatever the bytes are: it
//! does not panic, hang, read out of bounds or run code, and the memory it takes is bounded by a
//! small multiple of the file's size plus a few megabytes. Three rules ensure that: every binary
//! field is read through one bounded cursor, every tensor is made by one function that checks its
//! shape against its bytes, and everything that can grow (inflated members, pickles, copied views)
//! has a budget.
//!
//! # No copies
//!
//! A [`Source`] is a memory map of its file, and tensors are views into the map wherever the format
//! allows: a model of gigabytes is opened in milliseconds, and its pages are read when they are
//! used. Views may start at any byte, so a tensor's data need not be aligned to its elements.
//! Formats with a checksum for each member (npz, PyTorch) are read once when they are opened, to
//! verify it.

#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!(
    "every format here is little-endian and is used in place: big-endian is unsupported"
);

pub mod checksum;
pub mod ctranslate2;
pub mod marian_bin;
pub mod npz;
pub mod pytorch;
pub mod safetensors;
pub mod shortlist;
pub mod vmap;

mod error;
mod npy;
mod pickle;
mod reader;
mod source;
mod tensor;
mod writer;
mod zip;

pub use error::{Error, reason};
pub use source::{Bytes, Source};
pub use tensor::{DType, Tensor, Tensors};
pub use writer::{write_whole, write_whole_from};
pub use zip::verify_archive;
