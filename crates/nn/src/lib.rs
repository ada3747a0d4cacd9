//! The networks, written once over the verbs of a [`Backend`].
//!
//! A network depends on no device and no file: [`prepare`] takes a description and named weights and packs
//! them for a backend. A [`Prepared`] network is shared by all workers. Each worker runs a
//! [`Network`] of its own, which is what search sees.

#![forbid(unsafe_code)]

mod architectures;
mod backend;
mod device_beam;
mod echo;
mod network;
mod past;
mod pending;
mod pool;
mod positions;
mod prepare;
pub mod profile;
mod reads;
mod recurrent;
mod rnnfc;
mod slots;
mod speedups;
mod top_k;
mod transformer;
mod word_lists;

pub use architectures::{prepare, prepare_with};
pub use backend::{
    Attention, AttentionWithin, Backend, Dense, Embed, Epilogue, Moves, NormWeights, Of,
    PreparedOp, Sentences, Source, Term, Terms, WithinScratch,
};
pub use device_beam::{DeviceBeam, MOST_PLACES, Origin, RunAhead};
pub use echo::Echo;
pub use network::{Fault, Network, Prepared, Row, Sentence, Slot};
pub use past::{PastExtension, PastReads};
pub use positions::{MOST_POSITIONS, PositionTable};
pub use prepare::MissingWeight;
pub use reads::Reads;
pub use speedups::Speedups;
pub use top_k::{Candidates, Choice, Choices, RowRequest, Scoring, TopKQuery, choose, log_sum_exp};
