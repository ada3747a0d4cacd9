//! `peregrine doctor`

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;

use gpu::Findings;
use peregrine::Level;
use serde_json::{Map, Value, json};

use peregrine_args::console::show;

/// Say what this machine has to compute with: what was looked for, found, and can be used
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let gpus = Findings::new();
    let instructions = Level::ALL.map(|level| (level.name(), peregrine::has_instructions(level)));
    if args.json {
        show!("{}", as_json(&instructions, &gpus));
        return Ok(());
    }
    show!("peregrine {}", env!("CARGO_PKG_VERSION"));
    show!("\nProcessor");
    show!("  cores            {} (--threads auto)", peregrine::cores());
    for (name, there) in instructions {
        show!("  {name:16} {}", if there { "yes" } else { "no" });
    }
    show!("  used             {}", peregrine::instruction_set());
    show!("\nNVIDIA GPU");
    gpus.print();
    match gpus.usable {
        Ok(name) => show!("\n--device auto computes on {name}"),
        Err(reason) => show!("\n--device auto computes on the processor: {reason}"),
    }
    Ok(())
}

fn as_json(instructions: &[(&'static str, bool)], gpus: &Findings) -> Value {
    let sets: Map<_, _> =
        instructions.iter().map(|&(name, there)| (name.to_owned(), json!(there))).collect();
    let mut report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instructions": sets,
        "instructions_used": peregrine::instruction_set(),
        "auto": gpus.usable.as_ref().map_or("cpu", |_| "cuda:0"),
    });
    if let (Some(report), Value::Object(gpus)) = (report.as_object_mut(), gpus.json()) {
        report.extend(gpus);
    }
    report
}
