//! The commands, one file each. Those of the laboratory are in the crate `peregrine-lab`.

pub(crate) mod calibrate;
pub(crate) mod completions;
pub(crate) mod convert;
#[cfg(feature = "detect")]
pub(crate) mod detect;
pub(crate) mod doctor;
pub(crate) mod help;
pub(crate) mod inspect;
pub(crate) mod man;
pub(crate) mod score;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod shortlist;
pub(crate) mod translate;
pub(crate) mod tune;
