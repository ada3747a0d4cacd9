//! `peregrine bench gpu`: the time of a decoding step on a GPU by batch size.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use peregrine::measure::of_length;
use peregrine::model::{made_up_model, preset};
use peregrine::{BatchSize, Compute, Device, GpuPrecision, Request, Stats, Translator};
use serde_json::json;

use super::amun::{Amun, Part};
use peregrine_args::console::show;
use peregrine_args::search::Setup;
use peregrine_args::settings::SettingArgs;

/// Milliseconds of a step and tokens a second on a GPU, by network, batch and beam
///
/// Random weights; sentences of 25 source tokens, 25 target tokens each. Encoding and search are part
/// of the time, tokenisation is not.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Networks: see `make-model --list`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "base,student")]
    shapes: Vec<String>,

    /// Sentences translated together
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64,512,2048")]
    batch: Vec<usize>,

    /// Beams
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4")]
    beam: Vec<usize>,

    /// Precisions
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "float16", value_parser = |name: &str| name.parse::<GpuPrecision>())]
    precision: Vec<GpuPrecision>,

    /// The GPU
    #[arg(long, value_name = "cuda[:N]", default_value = "cuda", value_parser = |name: &str| name.parse::<Device>())]
    device: Device,

    /// Workers that share the batch: one searches while another's kernels run
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Runs; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeat: usize,

    /// The tables and figures of Amun's paper instead, all or some: on a GRU of 1024 with 30,000 words,
    /// sentences of all lengths
    #[arg(long, value_name = "PART,...", value_delimiter = ',', num_args = 0.., conflicts_with_all = ["shapes", "batch", "beam", "precision", "threads"])]
    amun: Option<Vec<Part>>,

    /// Write the figures of --amun there, as SVG
    #[arg(long, value_name = "DIR", requires = "amun")]
    plots: Option<PathBuf>,

    /// Print a JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingArgs,
}

/// Tokens of a sentence, the end symbol included, on both sides.
const LENGTH: usize = 25;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(parts) = &args.amun {
        let plots = args.plots.as_deref();
        let (device, rounds, json) = (args.device, args.repeat, args.json);
        return Amun { parts, device, rounds, plots, json }.run();
    }
    if !args.json {
        show!(
            "{:10} {:9} {:>5} {:>6} {:>10} {:>12} {:>16}",
            "network",
            "precision",
            "beam",
            "batch",
            "ms a step",
            "tokens/s",
            "range"
        );
    }
    for shape in &args.shapes {
        for &precision in &args.precision {
            let architecture = preset(shape, None)
                .with_context(|| format!("--shapes: no network is called {shape}"))?;
            let compute = Compute {
                device: args.device,
                gpu_precision: Some(precision),
                ..args.settings.settings().compute
            };
            let translator = Translator::prepare(made_up_model(architecture, 1)?, &compute)?;
            for &beam in &args.beam {
                for &batch in &args.batch {
                    report(
                        args,
                        (shape, precision, beam, batch),
                        &measure(args, &translator, beam, batch)?,
                    );
                }
            }
        }
    }
    Ok(())
}

/// Seconds of each run, shortest first.
fn measure(
    args: &Args,
    translator: &Translator,
    beam: usize,
    sentences: usize,
) -> anyhow::Result<Vec<f64>> {
    let line = |i: usize| {
        let words = (0..LENGTH - 1).map(|j| format!("w{}", 10 + (i * 7919 + j * 104_729) % 31_000));
        words.collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = (0..sentences).map(line).collect();
    let requests: Vec<Request<'_>> = lines.iter().map(|line| of_length(line, LENGTH)).collect();
    let threads = args.threads.clamp(1, sentences);
    let batch = BatchSize { sentences: sentences.div_ceil(threads), tokens: usize::MAX };
    let options = translator.options().with_beam(beam);
    let workers = args.settings.settings().apply_to(translator.workers());
    let workers = workers.with_batch(batch).with_threads(threads);
    let setup = Setup { options, workers };
    // Warm up twice: work seen a second time is recorded as a CUDA graph.
    for _ in 0..2 {
        setup.translate(translator, &requests)?;
    }
    let run = |_| {
        let mut stats = Stats::default();
        let start = Instant::now();
        setup.measure(translator, &requests, &mut stats)?;
        anyhow::Ok((start.elapsed() - stats.tokenise - stats.detokenise).as_secs_f64())
    };
    let seconds: anyhow::Result<Vec<f64>> = (0..args.repeat.max(1)).map(run).collect();
    let mut seconds = seconds?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

fn report(
    args: &Args,
    (shape, precision, beam, batch): (&str, GpuPrecision, usize, usize),
    seconds: &[f64],
) {
    let step = |seconds: f64| 1e3 * seconds / LENGTH as f64;
    let speed = |seconds: f64| (batch * LENGTH) as f64 / seconds;
    let median = seconds[seconds.len() / 2];
    let (least, most) = (seconds[0], seconds[seconds.len() - 1]);
    if args.json {
        let line = json!({
            "network": shape, "precision": precision.name(), "beam": beam, "batch": batch,
            "ms_per_step": step(median), "tokens_per_second": speed(median),
            "tokens_per_second_least": speed(most), "tokens_per_second_most": speed(least),
        });
        show!("{line}");
    } else {
        let range = format!("{:.0}-{:.0}", speed(most), speed(least));
        show!(
            "{shape:10} {:9} {beam:5} {batch:6} {:10.3} {:12.0} {range:>16}",
            precision.name(),
            step(median),
            speed(median)
        );
    }
}
