//! What stands in for `gpu` in builds without the feature `cuda`: no options, no devices, and commands that say so.

use anyhow::bail;
use peregrine::{Compute, Device};

/// What whoever asks for a GPU is told.
const NO_CUDA: &str = "this build has no CUDA backend";

/// Options of a GPU: none.
#[derive(clap::Args)]
pub(crate) struct GpuArgs {}

impl GpuArgs {
    /// The same, as there are no options.
    pub(crate) fn apply(&self, compute: Compute) -> Compute {
        compute
    }
}

/// Reads the name of a device. GPUs are refused.
pub(crate) fn parse_device(name: &str) -> Result<Device, String> {
    match name.parse()? {
        Device::Cuda(_) => Err(NO_CUDA.into()),
        device => Ok(device),
    }
}

/// Needs a GPU, and this build has no CUDA backend
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<String>,
}

/// Says why there is nothing to run.
pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    bail!(NO_CUDA)
}

pub(crate) mod bench {
    pub(crate) use super::{Args, run};
}

pub(crate) mod selftest {
    pub(crate) use super::{Args, run};
}

pub(crate) mod doctor {
    use serde_json::{Value, json};

    use super::NO_CUDA;
    use crate::io::console::show;

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
}
