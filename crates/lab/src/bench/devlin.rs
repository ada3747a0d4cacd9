//! `peregrine bench devlin`: the tables of "Sharp Models on Dull Hardware" on this machine.
//!
//! Random weights of the paper's sizes, one sentence at a time, one thread, beam 6, candidate lists
//! of about 500 words. Every translation has as many words as its source, so that all networks do
//! the same work. Whether outputs stay the same is not measured here;
//! bench/runs/2026-11-17-notebook/recurrent.md has that for trained models.

use std::time::Instant;

use anyhow::Context;
use peregrine::measure::Functions;
use peregrine::model::{Shortlist, made_up_model, preset};
use peregrine::{BatchSize, Compute, Model, Precision, Speedups, Translator};

use crate::measures::{count_tokens, cpu_time, requests};
use peregrine_args::console::show;
use peregrine_args::search::Setup;

/// The tables of "Sharp Models on Dull Hardware" (Devlin, 2017), on random weights
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Words of the vocabularies
    #[arg(long, value_name = "N", default_value_t = 80_000, value_parser = clap::value_parser!(u32).range(1000..))]
    words: u32,

    /// Sentences to translate
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    sentences: u32,

    /// Words of a sentence
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    length: u32,

    /// Rounds in which everything is measured in turn; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Only the table of techniques (1) or of networks (2)
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u32).range(1..=2))]
    table: Option<u32>,
}

/// A line of a table.
struct Line {
    name: &'static str,
    paper: f64,
    shape: &'static str,
    members: usize,
    compute: Compute,
    speeds: Vec<f64>,
    ahead: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    show!(
        "beam 6, one sentence of {} words at a time, one thread, {} words, {}, words a processor second",
        args.length,
        args.words,
        peregrine::instruction_set()
    );
    if args.table != Some(2) {
        let mut ladder = ladder();
        measure(args, &mut ladder)?;
        print("Table 1: techniques, S1", &ladder, 95.0);
    }
    if args.table != Some(1) {
        let mut networks = networks();
        measure(args, &mut networks)?;
        print("Table 2: networks, all techniques", &networks, 418.0);
    }
    Ok(())
}

/// The paper's baseline, and each technique added in turn.
fn ladder() -> Vec<Line> {
    let off = Speedups { reuse: true, ..Speedups::OFF };
    let mut compute = Compute {
        precision: Some(Precision::Float32),
        speedups: off,
        functions: Functions::Library,
        ..Compute::default()
    };
    let mut lines = Vec::new();
    let line = |name, paper, compute: &Compute| Line {
        name,
        paper,
        shape: "rnnfc-s1",
        members: 1,
        compute: compute.clone(),
        speeds: Vec::new(),
        ahead: 0,
    };
    lines.push(line("baseline (float32)", 95.0, &compute));
    compute.precision = Some(Precision::Int16);
    lines.push(line("+ 16-bit products", 248.0, &compute));
    compute.speedups.embeddings = Speedups::default().embeddings;
    lines.push(line("+ embeddings ahead", 311.0, &compute));
    compute.speedups.attention = true;
    lines.push(line("+ attention ahead", 342.0, &compute));
    compute.functions = Functions::Fast;
    lines.push(line("+ fast functions", 386.0, &compute));
    compute.speedups.merge = true;
    lines.push(line("+ merged states", 418.0, &compute));
    lines
}

/// The paper's networks with all techniques.
fn networks() -> Vec<Line> {
    let shapes = [
        ("S1", 418.0, "rnnfc-s1", 1),
        ("S2", 242.0, "rnnfc-s2", 1),
        ("S3", 271.0, "rnnfc-s3", 1),
        ("S4", 229.0, "rnnfc-s4", 1),
        ("S5", 157.0, "rnnfc-s5", 1),
        ("S6", 163.0, "rnnfc-s6", 1),
        ("S7", 28.0, "rnnfc-s7", 1),
        ("E1 = 2 x S4", 102.0, "rnnfc-s4", 2),
        ("E2 = 3 x S4", 65.0, "rnnfc-s4", 3),
    ];
    let line = |(name, paper, shape, members)| Line {
        name,
        paper,
        shape,
        members,
        compute: Compute::int16(),
        speeds: Vec::new(),
        ahead: 0,
    };
    shapes.into_iter().map(line).collect()
}

fn measure(args: &Args, lines: &mut [Line]) -> anyhow::Result<()> {
    let text = sentences(args);
    let requests = requests(&text, &[]);
    for _ in 0..args.rounds {
        for line in &mut *lines {
            let model = model(args, line.shape, line.members)?;
            let translator = Translator::prepare(model, &line.compute)?;
            let setup = setup(&translator, args.length as usize);
            setup.translate(&translator, &requests[..1])?;
            let (start, cpu_start) = (Instant::now(), cpu_time());
            let translations = setup.translate(&translator, &requests)?;
            let cpu = cpu_time().zip(cpu_start).map(|(end, start)| end - start);
            let seconds = cpu.unwrap_or(start.elapsed().as_secs_f64());
            let tokens: usize = translations.iter().map(count_tokens).sum();
            line.speeds.push(tokens as f64 / seconds);
            line.ahead = translator.precomputed_bytes();
        }
    }
    for line in lines {
        line.speeds.sort_by(f64::total_cmp);
    }
    Ok(())
}

fn print(title: &str, lines: &[Line], paper_first: f64) {
    let median = |line: &Line| line.speeds[line.speeds.len() / 2];
    let Some(first) = lines.first().map(median) else { return };
    show!("\n{title}");
    show!(
        "{:22} {:>9} {:>7} {:>15} {:>9} {:>7} {:>10}",
        "",
        "words/s",
        "factor",
        "range",
        "paper",
        "factor",
        "ahead MB"
    );
    for line in lines {
        let (speed, paper) = (median(line), line.paper);
        let range = format!("{:.0}-{:.0}", line.speeds[0], line.speeds[line.speeds.len() - 1]);
        let ahead = line.ahead as f64 / 1e6;
        show!(
            "{:22} {speed:9.0} {:6.2}x {range:>15} {paper:9.0} {:6.2}x {ahead:10.1}",
            line.name,
            speed / first,
            paper / paper_first
        );
    }
}

fn setup(translator: &Translator, length: usize) -> Setup {
    let mut options = translator.options().with_beam(6);
    options.search.min_length = length - 1;
    options.search.max_length = Some(length);
    options.search.max_length_factor = None;
    options.search.early_stop = Some(3.0);
    let batch = BatchSize { sentences: 1, tokens: 1 };
    Setup { options, workers: translator.workers().with_batch(batch) }
}

/// Random networks with candidate lists of about 500 words for a sentence of 25.
fn model(args: &Args, shape: &str, members: usize) -> anyhow::Result<Model> {
    let words = args.words as usize;
    let architecture = preset(shape, Some(words)).context("a known shape")?;
    let mut model = made_up_model(architecture.clone(), 1)?;
    for seed in 1..members {
        let other = made_up_model(architecture.clone(), 1 + seed as u64)?;
        model.members.extend(other.members);
    }
    model.member_weights = vec![1.0 / members as f32; members];
    let mut random = Random(7);
    let list = |_| (0..20).map(|_| random.word(words as u32)).collect();
    let lists = (0..words).map(list).collect();
    model.shortlist = Some(Shortlist::new(lists, 50, words, 0));
    Ok(model)
}

/// Lines of words with a Zipf distribution, as in natural text.
fn sentences(args: &Args) -> Vec<String> {
    let mut random = Random(3);
    let mut line = |_| {
        let words: Vec<String> =
            (0..args.length).map(|_| format!("w{}", random.word(args.words))).collect();
        words.join(" ")
    };
    (0..args.sentences).map(&mut line).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A random word id; the r-th word has a probability proportional to 1/r.
    fn word(&mut self, words: u32) -> u32 {
        let rank = f64::from(words - 2).powf(self.even());
        (1 + rank as u32).clamp(2, words - 1)
    }
}
