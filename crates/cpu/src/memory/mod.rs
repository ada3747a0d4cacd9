//! Memory of kernels: aligned buffers on huge pages, matrices, software prefetch and when it pays.

pub(crate) mod arena;
pub(crate) mod matrix;
#[cfg(target_arch = "x86_64")]
pub(crate) mod prefetch;
pub(crate) mod working_set;
