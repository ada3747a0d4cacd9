//! What `peregrine doctor` says of GPUs in builds without the feature `cuda`.

use peregrine_args::console::show;
use serde_json::{Value, json};

const NO_CUDA: &str = "this build has no CUDA backend";

/// That nothing was looked for.
pub(crate) struct Findings {
    /// Why `--device auto` takes no GPU.
    pub(crate) usable: Result<String, String>,
}

impl Findings {
    /// Looks for nothing.
    pub(crate) fn new() -> Findings {
        Findings { usable: Err(NO_CUDA.into()) }
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        show!("  none: {NO_CUDA}");
    }

    /// The fields of the report.
    pub(crate) fn json(&self) -> Value {
        json!({
            "gpus": null,
            "gpus_missing": NO_CUDA,
            "kernel_compiler": null,
            "kernel_compiler_missing": NO_CUDA,
            "kernel_cache": null,
        })
    }
}
