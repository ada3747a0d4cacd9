//! Networks on a GPU. In builds without the feature `cuda`, `no_gpu.rs` stands in for it.

use std::sync::Arc;

use peregrine_cuda::Cuda;
use peregrine_model::Model;
use peregrine_nn::{Prepared, prepare_with};

use crate::{Compute, Device};

pub(crate) use peregrine_cuda::Error;
pub use peregrine_cuda::{GpuPrecision, OutputLayer};

/// A model's networks, packed for a GPU.
pub(crate) struct OnGpu {
    pub(crate) networks: Vec<Arc<dyn Prepared>>,
    pub(crate) precision: &'static str,
    pub(crate) device: String,
}

/// Packs a model's weights for a GPU, if it is to be computed on one. They are no longer in the model then.
pub(crate) fn prepare(model: &mut Model, compute: &Compute) -> Result<Option<OnGpu>, crate::Error> {
    let Some(gpu) = open(compute)? else { return Ok(None) };
    let gpu = gpu.with_output_layer(compute.output_layer).in_turn(compute.encode_in_turn);
    let gpu = gpu.with_fp8_cache(compute.fp8_cache)?;
    let mut networks = Vec::new();
    for member in &mut model.members {
        let weights = std::mem::take(&mut member.weights);
        let (architecture, speedups) = (&member.architecture, &compute.speedups);
        networks.push(prepare_with(gpu.clone(), architecture, &weights, speedups)?);
    }
    gpu.finish()?;
    let (precision, device) = (gpu.precision().name(), gpu.properties().name.clone());
    Ok(Some(OnGpu { networks, precision, device }))
}

/// The GPU to compute on, if it is to be one.
fn open(compute: &Compute) -> Result<Option<Cuda>, Error> {
    let precision = compute.gpu_precision.unwrap_or(GpuPrecision::Float16);
    match compute.device {
        Device::Cpu => Ok(None),
        Device::Cuda(number) => Cuda::open(number, precision).map(Some),
        Device::Auto => Ok(Cuda::open(0, precision).ok()),
    }
}
