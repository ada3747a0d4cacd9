//! Commands that need a GPU. Builds without the feature `cuda` have `no_gpu.rs` instead.

mod amun;
pub(crate) mod bench;
pub mod selftest;
mod shared_batch;
