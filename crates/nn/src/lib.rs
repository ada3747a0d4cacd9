//! The networks, written once over the verbs of a [`Backend`].
//!
//! A network knows no device and no file: [`prepare`] takes a description and named weights and hands
//! them to a backend; a [`Prepared`] network is shared by all workers, and each runs its own
//! [`Network`], which is what search sees.

#![forbid(unsafe_code)]

mod asked;
mod backend;
mod choose;
mod device_beam;
mod network;
mod past;
mod pool;
mod positions;
mod prepare;
pub mod profile;
mod recur;
mod recurrent;
mod rnnfc;
mod slots;
mod speedups;
mod transformer;
mod word_lists;

pub use backend::{
    Ask, Attention, Backend, Choice, Choices, Dense, Embed, Epilogue, Moves, NormWeights,
    PreparedOp, Question, Reads, Scoring, Source,
};
pub use choose::{Candidates, choose, log_sum_exp};
pub use device_beam::{DeviceBeam, MOST_PLACES, Origin, RunAhead};
pub use network::{Fault, Network, Prepared, Row, Sentence, Slot, prepare, prepare_with};
pub use past::{Grow, PastReads};
pub use positions::{MOST_POSITIONS, PositionTable};
pub use prepare::MissingWeight;
pub use recur::{Of, Term, Terms};
pub use speedups::Speedups;
