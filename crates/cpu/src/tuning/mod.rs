//! Auto-tuning: the fastest kernel, or precision, for each shape of product, found by timing.

pub(crate) mod precision_trial;
pub(crate) mod tuner;
