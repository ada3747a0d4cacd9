//! Auto-tuning: kernels, or precisions, compete by their times for each shape of product.

pub(crate) mod precision_trial;
pub(crate) mod tuner;
