//! The verbs of a [`Backend`](peregrine_nn::Backend) on a CPU.
//!
//! | module | what is in it |
//! |---|---|
//! | `isa` | instruction sets and their detection, vectors of sixteen lanes, float16 |
//! | `memory` | the arena of packed weights, matrices, software prefetch |
//! | `gemm` | matrix products in float32, bfloat16, int16 and int8, one file an instruction set; packing into panels, register tiles, AMX tiles |
//! | `attention` | the KV cache and attention over it, in float32, float16, bfloat16 and int8 |
//! | `output` | the output layer: fused top-k and log-sum-exp, shortlists, screening |
//! | `tuning` | auto-tuning: the fastest kernel for a shape, found by timing |
//! | `elementwise`, `recurrent_cells` | norms, activations and sums; GRU and LSTM cells |
//! | `technique` | speed-ups that can be turned off to measure them |
//! | `emulated` | AMX and VNNI instructions in software, for tests on machines without them |
//!
//! `backend` puts the verbs together.

mod attention;
mod backend;
mod elementwise;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod emulated;
mod gemm;
mod isa;
mod memory;
mod output;
mod recurrent_cells;
mod technique;
mod tuning;

pub use attention::kv_cache::{Cache, CachePrecision};
pub use backend::{Cpu, Int8Options};
pub use elementwise::Norm;
pub use gemm::bfloat16::PackedBfloat16;
pub use gemm::float32::PackedFloat32;
pub use gemm::int8::PackedInt8;
pub use gemm::int16::{PackedInt16, fits_int16, narrowed_rows};
pub use gemm::linear::Linear;
pub use gemm::panels::Panels;
pub use gemm::split::split_products;
pub use isa::{Isa, Level};
pub use memory::matrix::Matrix;
pub use output::{Output, Selection};
pub use recurrent_cells::{FAST_ERROR, Functions};
pub use technique::Technique;
pub use tuning::precision_trial::PrecisionTrial;
pub use tuning::tuner::{Tuned, Tuner};
