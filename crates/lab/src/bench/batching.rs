//! `peregrine bench batching`: the papers' figures about batching, measured on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::measure::TracedStep;
use peregrine::{Policy, Request, Translator};
use serde_json::{Value, json};

use crate::measures::{
    Contestant, Measured, measure, milliseconds, plot_steps, quantile, read_lengths, requests,
    thirds,
};
use crate::plot::{Plot, Series};
use peregrine_args::console::show;
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::Lines;
use peregrine_args::model::ModelArgs;
use peregrine_args::search::{SearchArgs, Setup};

/// Compare batching policies on texts: time of each step over a batch's life, speed against batch
/// size, policies against each other, how full the batch is, what a step of so many rows costs
///
/// Policies are measured in turns, several rounds; speeds are target tokens a second of processor
/// time (of wall time with several threads), ratios are medians over the rounds with the least and the
/// most beside them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    languages: PairArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Texts to translate
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    source: Vec<PathBuf>,

    /// Target lengths for each text, a number a line: real lengths for random weights
    #[arg(long, value_name = "FILE", num_args = 1..)]
    lengths: Vec<PathBuf>,

    /// Lines taken from each text
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,

    /// Sizes for speed against batch size; none leaves that out
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', num_args = 0..)]
    batch_sizes: Vec<u32>,

    /// Tokens encoded in one go, for the encoder's speed; none leaves that out
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', num_args = 0..)]
    encode_tokens: Vec<u32>,

    /// Times each policy is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Write the figures there, as SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,

    /// Write all numbers there, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A text to translate, with target lengths if they are given.
struct Text {
    name: String,
    lines: Vec<String>,
    lengths: Vec<usize>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.lengths.is_empty() && args.lengths.len() != args.source.len() {
        bail!("--lengths: {} files for {} texts", args.lengths.len(), args.source.len());
    }
    let translator = args.languages.apply(args.model.open()?)?;
    let setup = args.search.setup(&translator, &args.model.settings());
    let mut report = json!({
        "precision": translator.precision(),
        "device": translator.device(),
        "version": env!("CARGO_PKG_VERSION"),
        "beam": setup.options.search.beam,
        "batch_sentences": setup.workers.batch.sentences,
        "threads": setup.workers.threads,
        "rounds": args.rounds,
    });
    for (i, path) in args.source.iter().enumerate() {
        let text = Text::read(path, args.lengths.get(i).map(PathBuf::as_path), args.lines)?;
        show!("# {}: {} lines", text.name, text.lines.len());
        let mut figures = json!({ "lines": text.lines.len() });
        figures["life_of_a_batch"] = life_of_a_batch(args, &translator, &text, &setup)?;
        figures["policies"] = policies(args, &translator, &text, &setup)?;
        if !args.batch_sizes.is_empty() {
            figures["batch_sizes"] = batch_sizes(args, &translator, &text, &setup)?;
        }
        if !args.encode_tokens.is_empty() {
            figures["encode_tokens"] = encode_tokens(args, &translator, &text, &setup)?;
        }
        report[&text.name] = figures;
    }
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{report:#}\n")).context(path.display().to_string())?;
    }
    Ok(())
}

impl Text {
    fn read(path: &Path, lengths: Option<&Path>, most: u32) -> anyhow::Result<Text> {
        let mut lines = Lines::read_all(path)?;
        let lengths = lengths.map(read_lengths).transpose()?;
        if let Some(lengths) = lengths.as_ref().filter(|l| l.len() < lines.len()) {
            bail!("{}: {} lines and {} lengths", path.display(), lines.len(), lengths.len());
        }
        lines.truncate(most as usize);
        if lines.is_empty() {
            bail!("{}: there is nothing to translate", path.display());
        }
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Text { name, lines, lengths: lengths.unwrap_or_default() })
    }

    fn requests(&self) -> Vec<Request<'_>> {
        requests(&self.lines, &self.lengths)
    }
}

fn contestant<'a>(
    name: &'static str,
    translator: &'a Translator,
    policy: Policy,
    setup: &Setup,
) -> Contestant<'a> {
    let workers = setup.workers.clone().with_batching(policy);
    Contestant { name, translator, setup: Setup { workers, ..setup.clone() } }
}

/// Amun's Figure 2: the time of each step of one batch.
fn life_of_a_batch(
    args: &Args,
    translator: &Translator,
    text: &Text,
    setup: &Setup,
) -> anyhow::Result<Value> {
    let requests = text.requests();
    let batch = &requests[..requests.len().min(setup.workers.batch.sentences)];
    let contestants = [Policy::Naive, Policy::Shrink]
        .map(|policy| contestant(policy.name(), translator, policy, setup));
    let measured = args.measure(&contestants, batch)?;
    let mut report = json!({});
    for (contestant, measured) in contestants.iter().zip(&measured) {
        let steps = measured.step_times();
        let [first, second, last] = thirds(&steps);
        show!(
            "step over a batch's life, {:8} {:4} steps; thirds {first:.2} {second:.2} {last:.2} ms",
            contestant.name,
            steps.len()
        );
        report[contestant.name] = json!(steps);
    }
    let title = format!("Time of each decoding step, {} sentences of {}", batch.len(), text.name);
    let plot = plot_steps(title, &contestants, &measured);
    plot.write(args.plots.as_deref(), &format!("step-time-{}", text.name))?;
    Ok(report)
}

/// The draft's Figures 6, 7, 9 and 10: policies against each other, and the cost of a step.
fn policies(
    args: &Args,
    translator: &Translator,
    text: &Text,
    setup: &Setup,
) -> anyhow::Result<Value> {
    let mut contestants: Vec<Contestant<'_>> =
        Policy::ALL.map(|policy| contestant(policy.name(), translator, policy, setup)).into();
    let mut half = contestant("top-up at half", translator, Policy::TopUp, setup);
    half.setup.workers.top_up_threshold = Some(0.5);
    contestants.push(half);
    let measured = args.measure(&contestants, &text.requests())?;
    let against = |name: &str| {
        let place = contestants.iter().position(|c| c.name == name);
        place.map(|place| &measured[place])
    };
    show!(
        "{:16} {:>9} {:>24} {:>24} {:>10} {:>6} {:>8}",
        "policy",
        "tokens/s",
        "over naive",
        "over shrink",
        "sentences",
        "full",
        "few"
    );
    let mut report = json!({});
    for (contestant, result) in contestants.iter().zip(&measured) {
        let ratio = |name| against(name).map(|other| ratios(other, result)).unwrap_or_default();
        let stats = &result.stats;
        let a_step = stats.sentences as f64 / stats.steps.max(1) as f64;
        let full = stats.sentences as f64 / stats.places.max(1) as f64;
        // The draft counts the steps with fewer than 8 of 128 sentences left.
        let few_sentences = (setup.workers.batch.sentences / 16).max(1);
        let few: u64 = stats.occupancy.iter().take(few_sentences).sum();
        let few = few as f64 / stats.steps.max(1) as f64;
        show!(
            "{:16} {:9.0} {:>24} {:>24} {:10.1} {:5.0}% {:7.0}%",
            contestant.name,
            result.speed(),
            show(&ratio("naive")),
            show(&ratio("shrink")),
            a_step,
            100.0 * full,
            100.0 * few
        );
        report[contestant.name] = json!({
            "tokens_per_second": result.speed(),
            "seconds": result.seconds,
            "over_naive": ratio("naive"),
            "over_shrink": ratio("shrink"),
            "over_sorted": ratio("sorted"),
            "sentences_a_step": a_step,
            "full": full,
            "few": few,
            "encode": stats.encode.as_secs_f64(),
            "decode": stats.decode.as_secs_f64(),
            "output": stats.output.as_secs_f64(),
            "tokenise": (stats.tokenise + stats.detokenise).as_secs_f64(),
        });
    }
    if let (Some(top_up), Some(sorted)) = (against("top-up"), against("sorted")) {
        show!("top-up over sorted {}", show(&ratios(sorted, top_up)));
    }
    if let Some(auto) = against("auto") {
        let others = contestants.iter().zip(&measured).filter(|(c, _)| c.name != "auto");
        let least = others
            .map(|(contestant, other)| (ratios(other, auto), contestant.name))
            .min_by(|(a, _), (b, _)| a[0].total_cmp(&b[0]));
        if let Some((ratio, best)) = least {
            show!("auto over the best other, {best}: {}", show(&ratio));
        }
    }
    occupancy(args, text, &contestants, &measured)?;
    report["step_cost_ms"] = step_cost(args, text, &measured)?;
    Ok(report)
}

/// The draft's Figure 8: the number of sentences in the batch.
fn occupancy(
    args: &Args,
    text: &Text,
    contestants: &[Contestant<'_>],
    measured: &[Measured],
) -> anyhow::Result<()> {
    let series = contestants.iter().zip(measured).map(|(contestant, result)| {
        // The share of the steps with at most so many sentences.
        let steps = result.stats.steps.max(1) as f64;
        let mut sum = 0;
        let counts = result.stats.occupancy.iter().enumerate();
        let points = counts.map(|(sentences, count)| {
            sum += count;
            (sentences as f64, 100.0 * sum as f64 / steps)
        });
        Series { name: contestant.name.to_owned(), points: points.collect() }
    });
    let plot = Plot {
        title: format!("Sentences in the batch, {}", text.name),
        x_label: "sentences".to_owned(),
        y_label: "% of the steps with at most so many".to_owned(),
        logarithmic: false,
        series: series.collect(),
    };
    plot.write(args.plots.as_deref(), &format!("occupancy-{}", text.name))
}

/// The cost of a step by its number of rows, which is the same for all policies.
fn step_cost(args: &Args, text: &Text, measured: &[Measured]) -> anyhow::Result<Value> {
    let steps: Vec<TracedStep> =
        measured.iter().flat_map(|m| m.stats.trace.iter().copied()).collect();
    let most = steps.iter().map(|s| s.rows).max().unwrap_or(0);
    let mut points = Vec::new();
    let mut rows = 1;
    while rows <= most {
        let close = |s: &&TracedStep| s.rows >= rows && 10 * s.rows <= 11 * rows;
        let times: Vec<f64> = steps.iter().filter(close).map(|s| milliseconds(s.time)).collect();
        // Other programs only ever make a step slower: the lower quartile is little disturbed.
        if times.len() >= 3 {
            points.push((rows as f64, quantile(&times, 4)));
        }
        rows += rows.div_ceil(4);
    }
    let show: Vec<String> = points.iter().map(|(rows, ms)| format!("{rows}: {ms:.2}")).collect();
    show!("milliseconds of a step by its rows: {}", show.join(", "));
    let plot = Plot {
        title: format!("Cost of a decoding step, {}", text.name),
        x_label: "rows".to_owned(),
        y_label: "milliseconds".to_owned(),
        logarithmic: false,
        series: vec![Series { name: "all policies".to_owned(), points: points.clone() }],
    };
    plot.write(args.plots.as_deref(), &format!("step-cost-{}", text.name))?;
    Ok(json!(points))
}

/// Amun's Figure 3: speed against batch size.
fn batch_sizes(
    args: &Args,
    translator: &Translator,
    text: &Text,
    setup: &Setup,
) -> anyhow::Result<Value> {
    const POLICIES: [Policy; 3] = [Policy::Naive, Policy::Shrink, Policy::TopUp];
    let mut contestants = Vec::new();
    for &size in &args.batch_sizes {
        for policy in POLICIES {
            let mut contestant = contestant(policy.name(), translator, policy, setup);
            contestant.setup.workers.batch.sentences = size.max(1) as usize;
            contestant.setup.workers.batch.tokens = usize::MAX;
            contestants.push(contestant);
        }
    }
    let measured = args.measure(&contestants, &text.requests())?;
    let mut report = json!({});
    let mut series: Vec<Series> = POLICIES
        .iter()
        .map(|policy| Series { name: policy.name().to_owned(), points: Vec::new() })
        .collect();
    for (i, (contestant, result)) in contestants.iter().zip(&measured).enumerate() {
        let size = contestant.setup.workers.batch.sentences;
        show!("batch of {size:5} {:8} {:9.0} tokens/s", contestant.name, result.speed());
        series[i % POLICIES.len()].points.push((size as f64, result.speed()));
        report[contestant.name][size.to_string()] = json!(result.speed());
    }
    let plot = Plot {
        title: format!("Speed against batch size, {}", text.name),
        x_label: "sentences in a batch".to_owned(),
        y_label: "target tokens a second".to_owned(),
        logarithmic: true,
        series,
    };
    plot.write(args.plots.as_deref(), &format!("batch-size-{}", text.name))?;
    Ok(report)
}

/// The cost of a source token by the size of encoder batches, which is the same for all policies.
fn encode_tokens(
    args: &Args,
    translator: &Translator,
    text: &Text,
    setup: &Setup,
) -> anyhow::Result<Value> {
    let contestants: Vec<Contestant<'_>> = args
        .encode_tokens
        .iter()
        .map(|&tokens| {
            let mut contestant = contestant("auto", translator, Policy::Auto, setup);
            contestant.setup.workers.encode_tokens = tokens.max(1) as usize;
            contestant
        })
        .collect();
    let measured = args.measure(&contestants, &text.requests())?;
    let mut report = json!({});
    for (contestant, result) in contestants.iter().zip(&measured) {
        let tokens = contestant.setup.workers.encode_tokens;
        let each =
            1e6 * result.stats.encode.as_secs_f64() / result.stats.source_tokens.max(1) as f64;
        show!(
            "encoder batches of {tokens:5} tokens {each:7.1} µs a token, {:6.0} tokens/s in all",
            result.speed()
        );
        report[tokens.to_string()] = json!({ "microseconds": each, "speed": result.speed() });
    }
    Ok(report)
}

impl Args {
    fn measure(
        &self,
        contestants: &[Contestant<'_>],
        requests: &[Request<'_>],
    ) -> anyhow::Result<Vec<Measured>> {
        measure(contestants, requests, self.rounds as usize, false)
    }
}

/// The speed of `one` relative to `other`: median, minimum and maximum of the rounds.
fn ratios(other: &Measured, one: &Measured) -> [f64; 3] {
    let ratio = |(other, one): (&f64, &f64)| other / one;
    let mut ratios: Vec<f64> = other.seconds.iter().zip(&one.seconds).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    match ratios.as_slice() {
        [] => [f64::NAN; 3],
        all => [all[all.len() / 2], all[0], all[all.len() - 1]],
    }
}

fn show([median, least, most]: &[f64; 3]) -> String {
    format!("{median:.3} ({least:.3}-{most:.3})")
}
