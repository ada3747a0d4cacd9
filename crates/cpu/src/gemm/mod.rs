//! Matrix products (GEMM) `x · Wᵀ + b` of dense layers.
//!
//! `x` has a row for each hypothesis or source word, `W` a row for each output. Weights are packed once, when a model is
//! loaded, into [`panels`] of sixteen outputs. A folder for each precision has the packed layer and its `multiply` in `mod.rs`
//! (the contract of its kernels) and a file for each instruction set; `portable.rs` is the reference. Kernels take a [`product`];
//! [`tiles`] cuts it into register tiles, [`amx`] drives the AMX tile registers, [`split`] divides its columns among threads, and
//! [`linear`] picks the precision.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod bfloat16;
pub(crate) mod float32;
pub(crate) mod int16;
pub(crate) mod int8;
pub(crate) mod linear;
pub(crate) mod panels;
pub(crate) mod parallel;
mod product;
pub(crate) mod split;
pub(crate) mod tiles;
