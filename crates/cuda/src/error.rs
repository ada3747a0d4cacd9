/// What can go wrong with a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver, so there can be no GPU.
    #[error("no NVIDIA driver found (looked for {looked_for}): {reason}")]
    NoDriver {
        /// Names tried.
        looked_for: String,
        /// What the system said of the last.
        reason: String,
    },
    /// There is a driver, but not that GPU.
    #[error("there is no GPU number {wanted}: the driver sees {found}")]
    NoDevice {
        /// Number asked for.
        wanted: usize,
        /// Number of GPUs.
        found: usize,
    },
    /// Nothing here can run on it.
    #[error("{name} is too old: compute capability {found}, needed is {needed}")]
    TooOld {
        /// The GPU.
        name: String,
        /// Its capability.
        found: String,
        /// The least that will do.
        needed: &'static str,
    },
    /// The kernels could not be compiled.
    #[error("the GPU's kernels could not be compiled: {0}")]
    Compiler(String),
    /// The device's memory is full.
    #[error("the GPU's memory is full: use a smaller batch (--batch-sentences, --batch-tokens)")]
    OutOfMemory,
    /// A call failed.
    #[error("{call}: {reason} (CUDA error {code})")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// What the driver says of it.
        reason: String,
        /// Its number.
        code: i32,
    },
    /// The network asks for something no kernel does.
    #[error("not possible on a GPU: {0}")]
    Unsupported(String),
}
