//! Errors of the GPU.

/// An error of the GPU, of its driver, or of the compiler of its kernels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no NVIDIA driver.
    #[error("no NVIDIA driver found (looked for {looked_for}): {reason}")]
    NoDriver {
        /// The names that were tried.
        looked_for: String,
        /// The system's error for the last name.
        reason: String,
    },
    /// The driver does not see this GPU.
    #[error("there is no GPU number {wanted}: the driver sees {found}")]
    NoDevice {
        /// The number asked for.
        wanted: usize,
        /// The number of GPUs.
        found: usize,
    },
    /// The GPU's compute capability is too low for the precision.
    #[error("{name} is too old: compute capability {found}, needed is {needed}")]
    TooOld {
        /// The name of the GPU.
        name: String,
        /// Its compute capability.
        found: String,
        /// The least compute capability that will do.
        needed: &'static str,
    },
    /// The kernels could not be compiled.
    #[error("the GPU's kernels could not be compiled: {0}")]
    Compiler(String),
    /// The device's memory is full.
    #[error("the GPU's memory is full: use a smaller batch (--batch-sentences, --batch-tokens)")]
    OutOfMemory,
    /// A call of the driver failed.
    #[error("{call}: {reason} (CUDA error {code})")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The driver's text for the error.
        reason: String,
        /// The CUDA error code.
        code: i32,
    },
    /// The network needs something that no kernel does.
    #[error("not possible on a GPU: {0}")]
    Unsupported(String),
}
