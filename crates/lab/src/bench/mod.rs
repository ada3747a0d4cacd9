//! `peregrine bench`: the speed of one model, and further benchmarks as subcommands.

mod ablate;
mod batching;
mod devlin;
mod service;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use peregrine::{Stats, Translator};
use serde_json::json;

use crate::gpu;
use crate::measures::{count_tokens, cpu_time, read_lengths, requests};
use ablate::Ablation;
use peregrine_args::console::show;
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::Lines;
use peregrine_args::model::ModelArgs;
use peregrine_args::search::{SearchArgs, Setup};
use peregrine_args::stats::{describe, peak_memory_mb};
use peregrine_args::tuning_file;

/// Measure speed: tokens and sentences a second, time to load, peak memory
///
/// Tokens are those of the best translation, end symbol included. Tokenisation is part of the time,
/// loading is not. Compare engines in one run, in turns; see bench/README.md.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    languages: PairArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Text to translate
    #[arg(long, value_name = "FILE", required = true)]
    source: Option<PathBuf>,

    /// Give every sentence exactly this many target tokens, so that engines can be compared on random
    /// weights
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    output_length: Option<u32>,

    /// Give every sentence as many target tokens as the same line of this file has blank-separated
    /// words, or as the number it holds says: real lengths for random weights
    #[arg(long, value_name = "FILE", conflicts_with = "output_length")]
    lengths: Option<PathBuf>,

    /// Say where the time went: by phase, with who was in the batch at each step
    #[arg(long)]
    profile: bool,

    /// Say which kernels the tuner has settled on (with `--set tune=on`, or a file of `peregrine tune`)
    #[arg(long)]
    explain: bool,

    /// Compute scores even where the search does without
    #[arg(long)]
    scores: bool,

    /// Measure each technique alone and on top of those before it (float32, int8, weights packed once,
    /// shortlist, sorted and refilled batches, auto-tuning), and all of them without what `--set without` turns off, one
    /// by one, in turns: --repeat rounds
    #[arg(long, conflicts_with_all = ["profile", "lengths"])]
    ablate: bool,

    /// Write the ladder of --ablate there, as SVG
    #[arg(long, value_name = "FILE", requires = "ablate")]
    plot: Option<PathBuf>,

    /// Runs over the text; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Something else to measure.
#[derive(clap::Subcommand)]
enum What {
    Batching(Box<batching::Args>),
    Devlin(devlin::Args),
    Gpu(gpu::bench::Args),
    Service(Box<service::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.what, &args.source) {
        (Some(What::Batching(args)), _) => batching::run(args),
        (Some(What::Devlin(args)), _) => devlin::run(args),
        (Some(What::Gpu(args)), _) => gpu::bench::run(args),
        (Some(What::Service(args)), _) => service::run(args),
        (None, Some(source)) => run_text(args, source),
        (None, None) => bail!("--source: which text?"),
    }
}

fn run_text(args: &Args, source: &Path) -> anyhow::Result<()> {
    let lines = Lines::read_all(source)?;
    if lines.is_empty() {
        bail!("{}: there is nothing to translate", source.display());
    }
    if args.ablate {
        if args.model.sets("without") {
            bail!("--ablate: turns techniques off itself; leave --set without out");
        }
        return ablate(args, &lines);
    }
    let start = Instant::now();
    let tuner = args.model.tuner()?;
    let translator = args.model.open_tuned(tuner.clone())?;
    let load_seconds = start.elapsed().as_secs_f64();
    let setup = args.setup(&translator);
    let Setup { options, workers } = &setup;
    let lengths = args.lengths.as_deref().map(read_lengths).transpose()?.unwrap_or_default();
    if args.lengths.is_some() && lengths.len() != lines.len() {
        bail!("there are {} lines and {} lengths", lines.len(), lengths.len());
    }
    let requests = requests(&lines, &lengths);
    let warm_up = requests.len().min(workers.batch.sentences);
    setup.translate(&translator, &requests[..warm_up])?;
    let mut seconds = Vec::new();
    let mut cpu_seconds = Vec::new();
    let mut tokens = 0;
    for _ in 0..args.repeat {
        let (start, cpu_start) = (Instant::now(), cpu_time());
        let translations = setup.translate(&translator, &requests)?;
        seconds.push(start.elapsed().as_secs_f64());
        cpu_seconds.extend(cpu_time().zip(cpu_start).map(|(end, start)| end - start));
        tokens = translations.iter().map(count_tokens).sum();
    }
    seconds.sort_by(f64::total_cmp);
    cpu_seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let mut report = json!({
        "tokens_per_second": tokens as f64 / median,
        "sentences_per_second": lines.len() as f64 / median,
        "seconds": median,
        "seconds_least": seconds.first(),
        "seconds_most": seconds.last(),
        "cpu_seconds": cpu_seconds.get(cpu_seconds.len() / 2),
        "tokens": tokens,
        "sentences": lines.len(),
        "load_seconds": load_seconds,
        "peak_memory_mb": peak_memory_mb(),
        "beam": options.search.beam,
        "batch_sentences": workers.batch.sentences,
        "batching": workers.batching.name(),
        "threads": workers.threads,
        "threads_per_sentence": workers.threads_per_sentence,
        "precision": translator.precision(),
        "device": translator.device(),
        "isa": args.model.isa(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    if args.profile {
        let mut stats = Stats::default();
        let start = Instant::now();
        setup.measure(&translator, &requests, &mut stats)?;
        report["profile"] = describe(&stats, start.elapsed());
    }
    if args.explain {
        let choices = tuner.map(|tuner| tuner.choices()).unwrap_or_default();
        report["kernels"] = tuning_file::table(&choices).lines().map(str::trim).collect();
    }
    if args.json {
        show!("{report}");
    } else {
        let fields = report.as_object().into_iter().flatten();
        for (name, value) in fields {
            show!("{name:22} {value:#}");
        }
    }
    Ok(())
}

impl Args {
    fn setup(&self, translator: &Translator) -> Setup {
        let mut setup = self.search.setup(translator, &self.model.settings());
        let options = &mut setup.options;
        options.scores = self.scores;
        self.languages.set(options);
        if let Some(length) = self.output_length {
            options.search.min_length = length as usize;
            options.search.max_length = Some(length as usize);
            options.search.max_length_factor = None;
        }
        setup
    }
}

fn ablate(args: &Args, lines: &[String]) -> anyhow::Result<()> {
    let requests = requests(lines, &[]);
    let ablation = Ablation {
        model: args.model.read()?,
        compute: args.model.compute()?,
        setup: &|translator| args.setup(translator),
        requests: &requests,
        rounds: args.repeat as usize,
        plot: args.plot.as_deref(),
        json: args.json,
    };
    ablation.run()
}
