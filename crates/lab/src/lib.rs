//! The laboratory: benchmarks, and checks of the engine on a GPU. Its commands are `peregrine
//! bench`, `peregrine selftest` and `peregrine make-model`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bench;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
pub mod gpu;
pub mod make_model;
mod measures;
mod plot;
