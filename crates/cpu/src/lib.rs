//! The verbs of a [`Backend`](peregrine_nn::Backend) on a CPU, in float32.
//!
//! Kernels are in `product` (matrix products, one file an instruction set) and in `elementwise`,
//! `attention` and `output`, which are plain Rust over `lanes`, compiled once for each instruction
//! set. `isa` decides at start which of them run.

mod attention;
mod backend;
mod elementwise;
mod isa;
mod lanes;
mod linear;
mod matrix;
mod output;
mod product;
mod recurrent;

pub use backend::Cpu;
pub use elementwise::Norm;
pub use isa::{Isa, Level};
pub use linear::Linear;
pub use matrix::Matrix;
pub use output::{Output, Selection};
pub use product::Packed;
pub use recurrent::{FAST_ERROR, Functions};
