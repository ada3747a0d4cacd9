//! Text in and out: files, checkpoints, signals.

pub(crate) mod clash;
pub(crate) mod feed;
pub(crate) mod output;
pub(crate) mod resume;
pub(crate) mod signals;
