//! Memory of kernels: aligned buffers on huge pages, matrices, software prefetch.

pub(crate) mod arena;
pub(crate) mod matrix;
#[cfg(target_arch = "x86_64")]
pub(crate) mod prefetch;
