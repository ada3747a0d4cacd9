//! Text in and out: lines, files, the two streams of a terminal, signals.

pub(crate) mod clash;
pub(crate) mod console;
pub(crate) mod feed;
mod hash;
pub(crate) mod lines;
pub(crate) mod output;
pub(crate) mod resume;
pub(crate) mod signals;

pub(crate) use hash::Hash;
