//! The verbs of a [`Backend`](peregrine_nn::Backend) on a CPU.
//!
//! Kernels are in `product`, `int8`, `int16` and `bfloat16` (matrix products, one file an instruction set) and in `elementwise`,
//! `attention` and `output`, which are plain Rust over `lanes`, compiled once for each instruction
//! set. `isa` decides at start which of them run.

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
mod arena;
mod attention;
mod backend;
mod bfloat16;
mod cache;
mod either;
mod elementwise;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod emulated;
mod half;
mod int16;
mod int8;
mod isa;
mod lanes;
mod linear;
mod matrix;
mod output;
mod panels;
mod parallel;
mod product;
mod recurrent;
mod split;
mod technique;
mod tiles;
mod tuner;
mod vectors;

pub use backend::{Cpu, Integers};
pub use bfloat16::PackedHalf;
pub use cache::{Cache, Keeping};
pub use either::Either;
pub use elementwise::Norm;
pub use int8::Packed8;
pub use int16::{Packed16, fits_int16, narrowed_rows};
pub use isa::{Isa, Level};
pub use linear::Linear;
pub use matrix::Matrix;
pub use output::{Output, Selection};
pub use panels::Panels;
pub use product::Packed;
pub use recurrent::{FAST_ERROR, Functions};
pub use split::split_products;
pub use technique::Technique;
pub use tuner::{Tuned, Tuner};
