//! `peregrine doctor`

use peregrine::measure::cuda::{Cuda, Properties, Survey, survey};
use peregrine::{Level, Numbers};
use serde_json::json;

use crate::io::console::show;

/// Say what this machine has to compute with: what was looked for, found, and can be used
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let survey = survey();
    let instructions: Vec<_> = Level::ALL
        .into_iter()
        .map(|level| (level.name(), peregrine::has_instructions(level)))
        .collect();
    let usable = usable(&survey);
    if args.json {
        show!("{}", as_json(&survey, &instructions, &usable));
        return Ok(());
    }
    show!("peregrine {}", env!("CARGO_PKG_VERSION"));
    show!("\nProcessor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    show!("  cores            {cores}");
    for (name, there) in &instructions {
        show!("  {name:16} {}", if *there { "yes" } else { "no" });
    }
    show!("  used             {}", peregrine::instruction_set());
    show!("\nNVIDIA GPU");
    match &survey.devices {
        Err(reason) => show!("  none: {reason}"),
        Ok(devices) if devices.is_empty() => show!("  none: the driver sees no GPU"),
        Ok(devices) => devices.iter().for_each(print_device),
    }
    match &survey.compiler {
        Ok(version) => show!("  kernel compiler  NVRTC {version}"),
        Err(reason) => {
            show!("  kernel compiler  none: {reason}");
            show!("                   (kernels made ahead are used: docs/gpu.md)");
        }
    }
    match &survey.cache {
        Some(folder) => show!("  compiled kernels {}", folder.display()),
        None => {
            show!("  compiled kernels are not kept: no HOME, XDG_CACHE_HOME or PEREGRINE_CACHE")
        }
    }
    match usable {
        Ok(name) => show!("\n--device auto computes on {name}"),
        Err(reason) => show!("\n--device auto computes on the processor: {reason}"),
    }
    Ok(())
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

/// The GPU `auto` takes, its kernels compiled and loaded, or why it takes none.
fn usable(survey: &Survey) -> Result<String, String> {
    if let Err(reason) = &survey.devices {
        return Err(reason.to_string());
    }
    Cuda::open(0, Numbers::Float16)
        .map(|gpu| gpu.properties().name.clone())
        .map_err(|reason| reason.to_string())
}

fn as_json(
    survey: &Survey,
    instructions: &[(&'static str, bool)],
    usable: &Result<String, String>,
) -> serde_json::Value {
    let devices = survey.devices.as_ref().map(|devices| {
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
        devices.iter().map(device).collect::<Vec<_>>()
    });
    let sets: serde_json::Map<_, _> =
        instructions.iter().map(|&(name, there)| (name.to_owned(), json!(there))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instructions": sets,
        "instructions_used": peregrine::instruction_set(),
        "gpus": devices.as_ref().ok(),
        "gpus_missing": devices.err().map(ToString::to_string),
        "kernel_compiler": survey.compiler.as_ref().ok(),
        "kernel_compiler_missing": survey.compiler.as_ref().err().map(ToString::to_string),
        "kernel_cache": survey.cache,
        "auto": usable.as_ref().map_or("cpu", |_| "cuda:0"),
    })
}
