//! The operations of a network on an NVIDIA GPU.
//!
//! Nothing of CUDA is needed to build: the driver and NVRTC are loaded when a GPU is opened. `kernels/` has
//! the CUDA sources, one file a theme; `kernel` declares their parameters; `device` records launches and submits them
//! to CUDA streams; `memory` holds buffers and the KV cache; `product` has the dense layers and `output` the output
//! layers, which `trial` compares and times; `backend` implements [`peregrine_nn::Backend`] with all of them.

mod backend;
mod compiler;
mod device;
mod device_beam_trial;
mod driver;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod kernel;
mod memory;
mod output;
mod past;
mod portable;
mod precision;
mod product;
#[cfg(test)]
mod tests;
mod trial;

pub use backend::{Cuda, Norm, Table, Weights};
pub use device::{Properties, Survey, devices, survey};
pub use device_beam_trial::try_device_beams;
pub use error::Error;
pub use memory::{Cache, Rows};
pub use output::{Output, OutputLayer, Selection};
pub use past::Past;
pub use precision::GpuPrecision;
pub use product::Linear;
pub use trial::{OutputTimes, time_output_layers, try_output_layers};
