//! What a model file *means*: an architecture in which every convention is data, weights under
//! canonical names, two tokenizers, search settings and perhaps a shortlist.
//!
//! [`open`] finds out which tool wrote a file or directory and hands it to that dialect's importer.
//! Nothing in this crate computes anything.

#![forbid(unsafe_code)]

mod amun;
mod architecture;
mod belonging;
mod check;
mod compat;
mod ctranslate2;
mod digest;
mod discover;
mod error;
pub mod export;
mod files;
mod huggingface;
mod languages;
mod marian;
mod model;
pub mod names;
mod nematus;
mod open;
mod peek;
mod peregrine_file;
mod presets;
mod random;
mod recurrent;
mod rnnfc;
mod rnnfc_file;
mod search;
pub mod shortlist;
mod tensors;
pub mod verify;
mod weights;

pub use architecture::*;
pub use compat::Compat;
pub use error::ModelError;
pub use languages::{LanguageToken, Languages, SourcePlace, TargetPlace};
pub use model::{Member, Model};
pub use open::{OpenOptions, choose_shortlist, open, open_bytes, save};
pub use peek::peek_languages;
pub use peregrine_formats::{reason, write_whole, write_whole_from};
pub use presets::{
    PRESETS, TransformerSize, fairseq_transformer, marian_transformer, mbart_transformer, preset,
};
pub use random::{made_up_model, random_transformer, random_weights};
pub use recurrent::{
    CellKind, CellPlace, EncoderKind, Recurrent, RecurrentDecoder, RecurrentEncoder, RecurrentNorm,
    StartCell, recurrent_weights,
};
pub use rnnfc::{RnnFc, Top, rnnfc_weights};
pub use search::{AtLimit, Bound, Dialect, Finish, Search, Suppression};
pub use shortlist::{Shortlist, ShortlistChoice, ShortlistFile};
pub use weights::{Precision, Weight, Weights, quantise_row};
