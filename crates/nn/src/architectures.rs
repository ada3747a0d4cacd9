//! Which network computes which architecture.

use std::sync::Arc;

use peregrine_model::{Architecture, Weights};

use crate::backend::Backend;
use crate::network::Prepared;
use crate::prepare::MissingWeight;
use crate::speedups::Speedups;
use crate::transformer::Transformer;
use crate::{recurrent, rnnfc};

/// Packs a network's weights for a backend.
pub fn prepare<B: Backend>(
    backend: B,
    architecture: &Architecture,
    weights: &Weights,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    prepare_with(backend, architecture, weights, &Speedups::default())
}

/// Packs a network's weights for a backend, with some of the recurrent networks' speedups off.
pub fn prepare_with<B: Backend>(
    backend: B,
    architecture: &Architecture,
    weights: &Weights,
    speedups: &Speedups,
) -> Result<Arc<dyn Prepared>, MissingWeight> {
    Ok(match architecture {
        Architecture::Transformer(t) => Arc::new(Transformer::prepare(backend, t, weights)?),
        Architecture::Recurrent(r) => recurrent::prepare(backend, r, weights, speedups)?,
        Architecture::RnnFc(r) => rnnfc::prepare(backend, r, weights, speedups)?,
    })
}
