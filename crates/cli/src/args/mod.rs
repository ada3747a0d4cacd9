//! Options that several commands share, and how they are read.

pub(crate) mod model;
pub(crate) mod numbers;
pub(crate) mod search;
pub(crate) mod speedups;
pub(crate) mod values;
