//! What there is of GPUs, for `peregrine doctor`.

use peregrine::GpuPrecision;
use peregrine::measure::cuda::{Cuda, Properties, Survey, survey};
use serde_json::{Value, json};

use peregrine_args::console::show;

/// What was looked for and found.
pub(crate) struct Findings {
    survey: Survey,
    /// The GPU `--device auto` takes, or why it takes none.
    pub(crate) usable: Result<String, String>,
}

impl Findings {
    /// Looks for GPUs. The kernels of the first are compiled and loaded.
    pub(crate) fn new() -> Findings {
        let survey = survey();
        let usable = match &survey.devices {
            Err(reason) => Err(reason.to_string()),
            Ok(_) => Cuda::open(0, GpuPrecision::Float16)
                .map(|gpu| gpu.properties().name.clone())
                .map_err(|reason| reason.to_string()),
        };
        Findings { survey, usable }
    }

    /// Prints them.
    pub(crate) fn print(&self) {
        match &self.survey.devices {
            Err(reason) => show!("  none: {reason}"),
            Ok(devices) if devices.is_empty() => show!("  none: the driver sees no GPU"),
            Ok(devices) => devices.iter().for_each(print_device),
        }
        match &self.survey.compiler {
            Ok(version) => show!("  kernel compiler  NVRTC {version}"),
            Err(reason) => {
                show!("  kernel compiler  none: {reason}");
                show!("                   (kernels made ahead are used: docs/performance.md)");
            }
        }
        match &self.survey.cache {
            Some(folder) => show!("  compiled kernels {}", folder.display()),
            None => {
                show!("  compiled kernels are not kept: no HOME, XDG_CACHE_HOME or PEREGRINE_CACHE")
            }
        }
    }

    /// The fields of the report.
    pub(crate) fn json(&self) -> Value {
        let device = |d: &Properties| {
            json!({
                "number": d.number,
                "name": d.name,
                "compute_capability": [d.capability.0, d.capability.1],
                "memory_bytes": d.memory,
                "multiprocessors": d.processors,
                "driver": d.driver,
            })
        };
        let Survey { devices, compiler, cache, .. } = &self.survey;
        let devices = devices.as_ref().map(|devices| devices.iter().map(device));
        json!({
            "gpus": devices.as_ref().ok().map(|devices| devices.clone().collect::<Vec<_>>()),
            "gpus_missing": devices.as_ref().err().map(ToString::to_string),
            "kernel_compiler": compiler.as_ref().ok(),
            "kernel_compiler_missing": compiler.as_ref().err().map(ToString::to_string),
            "kernel_cache": cache,
        })
    }
}

fn print_device(device: &Properties) {
    let (major, minor) = device.capability;
    let gigabytes = device.memory as f64 / (1u64 << 30) as f64;
    show!("  cuda:{:<11} {}", device.number, device.name);
    show!(
        "                   compute capability {major}.{minor}, {gigabytes:.0} GiB, {} multiprocessors",
        device.processors
    );
    show!(
        "                   driver for CUDA {}.{}",
        device.driver / 1000,
        device.driver % 1000 / 10
    );
}
