//! Replaces `gpu.rs` in builds without the feature `cuda`: there is never a GPU.

use std::str::FromStr;
use std::sync::Arc;

use peregrine_model::Model;
use peregrine_nn::Prepared;

use crate::{Compute, Device};

/// A GPU was asked for, and this build cannot use any.
#[derive(Debug, thiserror::Error)]
#[error("this build has no CUDA backend")]
pub struct Error;

/// The precision on a GPU: this build has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuPrecision {}

impl FromStr for GpuPrecision {
    type Err = Error;

    fn from_str(_: &str) -> Result<GpuPrecision, Error> {
        Err(Error)
    }
}

/// The top-k kernels of a GPU's output layer: this build has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLayer;

impl FromStr for OutputLayer {
    type Err = String;

    fn from_str(_: &str) -> Result<OutputLayer, String> {
        Err(Error.to_string())
    }
}

/// A model's networks, packed for a GPU.
pub(crate) struct OnGpu {
    pub(crate) networks: Vec<Arc<dyn Prepared>>,
    pub(crate) precision: &'static str,
    pub(crate) device: String,
}

/// Refuses to compute on a GPU.
pub(crate) fn prepare(_: &mut Model, compute: &Compute) -> Result<Option<OnGpu>, crate::Error> {
    match compute.device {
        Device::Cuda(_) => Err(Error.into()),
        Device::Cpu | Device::Auto => Ok(None),
    }
}
