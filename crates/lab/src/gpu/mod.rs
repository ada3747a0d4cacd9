//! What needs a GPU. In builds without the feature `cuda`, `no_gpu.rs` stands in for it.

mod amun;
pub(crate) mod bench;
mod company;
pub mod selftest;
