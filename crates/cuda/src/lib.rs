//! The verbs of a network on an NVIDIA GPU.
//!
//! Nothing of CUDA is needed to build: the driver and the compiler of kernels are opened when a GPU
//! is asked for. `kernels/` has the device's side, one file a theme; `kernel` declares what kernels take;
//! `device` records work and sends it off; `memory` holds what networks keep there; `product` and `output` know the layers,
//! `logits` the papers' output layers, which `trial` tries and times; `backend` puts the verbs together.

mod backend;
mod compiler;
mod device;
mod device_beam;
mod device_beam_trial;
mod driver;
mod error;
#[cfg(test)]
mod fake;
mod kernel;
mod logits;
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
pub use logits::OutputLayer;
pub use memory::{Cache, Rows};
pub use output::{Output, Selection};
pub use past::Past;
pub use precision::GpuPrecision;
pub use product::Linear;
pub use trial::{OutputTimes, time_output_layers, try_output_layers};
