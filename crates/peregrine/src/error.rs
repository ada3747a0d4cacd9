//! What can go wrong before the first word is translated. Afterwards nothing can: whatever a line
//! holds, it has a translation.

use peregrine_model::ModelError;
use peregrine_nn::MissingWeight;

/// Why a model cannot be used. One line that names file and place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or does not fit.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A network that lacks a weight.
    #[error(transparent)]
    Weight(#[from] MissingWeight),
    /// Instructions this processor does not have.
    #[error("this processor has no {0} instructions")]
    Instructions(&'static str),
    /// A GPU that is not there or cannot be used; any in a build without the feature `cuda`.
    #[error(transparent)]
    Gpu(#[from] crate::gpu::Error),
    /// The built-in model in a build without the feature `builtin`.
    #[error("this build has no built-in model")]
    NoBuiltin,
}
