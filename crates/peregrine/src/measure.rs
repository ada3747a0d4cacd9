//! What only measuring needs: techniques and ways to compute that can be exchanged for comparison, and what tells
//! afterwards what they gave. Whoever just translates needs nothing from here, as the defaults are the fastest known.

pub use peregrine_cpu::{FAST_ERROR, Functions, Integers, Technique, Tuned, narrowed_rows};
#[cfg(feature = "cuda")]
pub use peregrine_cuda as cuda;
pub use peregrine_decode::TracedStep;

pub use crate::gpu::OutputLayer;
