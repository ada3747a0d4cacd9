//! `peregrine bench gpu --amun`: the tables and figures of "Fast Neural Machine Translation
//! Implementation" (Hoang et al., 2018) on this machine's GPU.
//!
//! A GRU of 1024, embeddings of 512, 30,000 words, random weights; sentence lengths are distributed
//! as in news, and every translation is 1.1 times as long as its source. Contestants are measured
//! in turns.

use std::path::Path;

use anyhow::{Context, bail};
use peregrine::measure::OutputLayer;
use peregrine::measure::cuda::{Cuda, time_output_layers, try_output_layers};
use peregrine::model::{made_up_model, preset};
use peregrine::{BatchSize, Compute, Device, GpuPrecision, Model, Policy, Translator};
use serde_json::{Value, json};

use crate::measures::{Contestant, Measured, measure, plot_steps, requests, thirds};
use crate::plot::{Plot, Series};
use peregrine_args::console::show;
use peregrine_args::search::Setup;

/// A table or a figure of the paper.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Table3,
    Table4,
    Figure2,
    Figure3,
    Figure4,
}

const ALL: [Part; 5] = [Part::Table3, Part::Table4, Part::Figure2, Part::Figure3, Part::Figure4];

/// The options of the benchmark.
pub(crate) struct Amun<'a> {
    /// The parts to measure; empty means all.
    pub(crate) parts: &'a [Part],
    pub(crate) device: Device,
    pub(crate) rounds: usize,
    pub(crate) plots: Option<&'a Path>,
    pub(crate) json: bool,
}

const WORDS: usize = 30_000;
const BATCH: usize = 512;
/// Number of sentences of Table 4 and Figure 4.
const SENTENCES: usize = 1024;

impl Amun<'_> {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let model = made_up_model(preset("gru", Some(WORDS)).context("a known shape")?, 1)?;
        let mut report = json!({
            "words": WORDS,
            "rounds": self.rounds,
            "version": env!("CARGO_PKG_VERSION"),
        });
        for part in if self.parts.is_empty() { &ALL } else { self.parts } {
            let (name, figures) = match part {
                Part::Table3 => ("table3", self.table_3()?),
                Part::Table4 => ("table4", self.table_4(&model)?),
                Part::Figure2 => ("figure2", self.figure_2(&model)?),
                Part::Figure3 => ("figure3", self.figure_3(&model)?),
                Part::Figure4 => ("figure4", self.figure_4(&model)?),
            };
            report[name] = figures;
        }
        if self.json {
            show!("{report}");
        }
        Ok(())
    }

    fn say(&self, line: &str) {
        if !self.json {
            show!("{line}");
        }
    }

    fn translator(&self, model: &Model, compute: Compute) -> anyhow::Result<Translator> {
        Ok(Translator::prepare(model.clone(), &Compute { device: self.device, ..compute })?)
    }

    /// Table 3: the parts of the output layer, separate and fused.
    fn table_3(&self) -> anyhow::Result<Value> {
        const WIDTH: usize = 512;
        /// The beam, and the time that fusion saved in the paper, in percent.
        const PAPER: [(usize, f64); 3] = [(1, -86.6), (3, -87.1), (9, -72.1)];
        let Device::Cuda(number) = self.device else { bail!("--amun table3: needs a GPU") };
        let gpu = Cuda::open(number, GpuPrecision::Float16)?;
        let (questions, wrong) = try_output_layers(&gpu, false)?;
        if let Some(first) = wrong.first() {
            bail!("output layers disagree on {} of {questions} questions: {first}", wrong.len());
        }
        self.say(&format!(
            "Table 3: milliseconds of the output layer, batch {BATCH}, {WORDS} words, float16 (all layers \
             gave the same words in {questions} trials)\n{:>4} {:>14} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>9}",
            "beam", "multiplication", "bias", "softmax", "k-best", "separate", "fused", "saved", "paper", "best only"
        ));
        let mut report = json!({});
        let mut wholes = Vec::new();
        for (beam, paper) in PAPER {
            let times =
                time_output_layers(&gpu, (BATCH * beam, WIDTH, WORDS), beam, self.rounds.max(5))?;
            let separate = times.bias + times.softmax + times.k_best;
            let saved = 100.0 * (times.fused / separate - 1.0);
            let ms = |seconds: f64| format!("{:.3}", 1e3 * seconds);
            self.say(&format!(
                "{beam:4} {:>14} {:>8} {:>8} {:>8} {:>9} {:>8} {saved:7.1}% {paper:7.1}% {:>9}",
                ms(times.product),
                ms(times.bias),
                ms(times.softmax),
                ms(times.k_best),
                ms(separate),
                ms(times.fused),
                times.best.map_or("-".to_owned(), ms),
            ));
            let whole = times
                .whole
                .iter()
                .map(|(layer, seconds)| format!("{} {:.3}", layer.name(), 1e3 * seconds));
            wholes.push(format!("{beam:4} {}", whole.collect::<Vec<_>>().join(", ")));
            let whole: serde_json::Map<String, Value> = times
                .whole
                .iter()
                .map(|(layer, seconds)| (layer.name().to_owned(), json!(1e3 * seconds)))
                .collect();
            report[beam.to_string()] = json!({
                "multiplication_ms": 1e3 * times.product,
                "bias_ms": 1e3 * times.bias,
                "softmax_ms": 1e3 * times.softmax,
                "k_best_ms": 1e3 * times.k_best,
                "fused_ms": 1e3 * times.fused,
                "best_only_ms": times.best.map(|seconds| 1e3 * seconds),
                "saved_percent": saved,
                "whole_ms": whole,
            });
        }
        self.say("From activations to the host's answer, milliseconds:");
        wholes.iter().for_each(|line| self.say(line));
        Ok(report)
    }

    /// Table 4: tensor cores off and on.
    fn table_4(&self, model: &Model) -> anyhow::Result<Value> {
        const PAPER: [(usize, f64); 2] = [(1, -13.6), (9, -20.0)];
        const PRECISIONS: [GpuPrecision; 3] =
            [GpuPrecision::Float32, GpuPrecision::Tf32, GpuPrecision::Float16];
        let translator = |precision| {
            self.translator(model, Compute { gpu_precision: Some(precision), ..Compute::default() })
        };
        let translators =
            PRECISIONS.into_iter().map(translator).collect::<anyhow::Result<Vec<Translator>>>()?;
        let lines = Lines::new(SENTENCES);
        self.say(&format!(
            "Table 4: seconds for {SENTENCES} sentences, batch {BATCH}; tensor cores off, then on\n\
             {:>4} {:>8} {:>18} {:>18} {:>8}",
            "beam", "float32", "tf32", "float16", "paper"
        ));
        let mut report = json!({});
        for (beam, paper) in PAPER {
            let contestants =
                translators.iter().map(|translator| contestant(translator, beam, BATCH));
            let measured = self.measure(&contestants.collect::<Vec<_>>(), &lines)?;
            let seconds: Vec<f64> = measured.iter().map(Measured::median).collect();
            let against = |i: usize| 100.0 * (seconds[i] / seconds[0] - 1.0);
            let column = |i: usize| format!("{:.3} ({:+.1}%)", seconds[i], against(i));
            self.say(&format!(
                "{beam:4} {:8.3} {:>18} {:>18} {paper:7.1}%",
                seconds[0],
                column(1),
                column(2)
            ));
            for (precision, measured) in PRECISIONS.iter().zip(&measured) {
                report[beam.to_string()][precision.name()] = json!(measured.seconds);
            }
        }
        Ok(report)
    }

    /// Figure 2: the time of each step of one batch.
    fn figure_2(&self, model: &Model) -> anyhow::Result<Value> {
        const BATCH: usize = 1280;
        let translator = self.translator(model, Compute::default())?;
        let contestants =
            [Policy::Naive, Policy::Shrink].map(|policy| with(&translator, 1, BATCH, policy));
        let measured = self.measure(&contestants, &Lines::new(BATCH))?;
        self.say(&format!(
            "Figure 2: milliseconds of a step, a batch of {BATCH}, by thirds of its life"
        ));
        let mut report = json!({});
        for (contestant, measured) in contestants.iter().zip(&measured) {
            let steps = measured.step_times();
            let [first, second, last] = thirds(&steps);
            self.say(&format!(
                "{:8} {:3} steps: {first:.3} {second:.3} {last:.3}; {:.3} s in all",
                contestant.name,
                steps.len(),
                measured.median()
            ));
            report[contestant.name] = json!({ "steps_ms": steps, "seconds": measured.seconds });
        }
        self.say(&format!(
            "naive over shrink, in all: {:.2}",
            measured[0].median() / measured[1].median()
        ));
        let title = format!("Time of each decoding step, {BATCH} sentences");
        plot_steps(title, &contestants, &measured).write(self.plots, "amun-figure-2")?;
        Ok(report)
    }

    /// Figure 3: speed against batch size.
    fn figure_3(&self, model: &Model) -> anyhow::Result<Value> {
        const SIZES: [usize; 9] = [1, 4, 16, 64, 256, 1024, 2048, 4096, 8192];
        /// Amun on a V100, in seconds for 3,000 sentences (Marian's paper, Table 3).
        const AMUN: f64 = 1.6;
        let translator = self.translator(model, Compute::default())?;
        let in_turn = Compute { encode_in_turn: true, ..Compute::default() };
        let in_turn = self.translator(model, in_turn)?;
        let competitors = [
            ("naive", &translator, Policy::Naive),
            ("shrink", &translator, Policy::Shrink),
            ("top-up", &translator, Policy::TopUp),
            ("encoding in turn", &in_turn, Policy::TopUp),
        ];
        self.say("Figure 3: sentences a second by batch size, greedy");
        let names = competitors.map(|(name, ..)| format!("{name:>9}"));
        self.say(&format!("{:>6} {}", "batch", names.join(" ")));
        let mut report = json!({});
        let mut series =
            competitors.map(|(name, ..)| Series { name: name.to_owned(), points: Vec::new() });
        for size in SIZES {
            // Small batches translate fewer sentences: one by one, the whole text would take
            // minutes.
            let sentences = (4 * size).clamp(64, SIZES[SIZES.len() - 1]);
            let contestants =
                competitors.map(|(_, translator, policy)| with(translator, 1, size, policy));
            let measured = self.measure(&contestants, &Lines::new(sentences))?;
            let speeds: Vec<f64> =
                measured.iter().map(|measured| sentences as f64 / measured.median()).collect();
            let columns = names.iter().zip(&speeds);
            let columns = columns.map(|(name, speed)| format!("{speed:0$.0}", name.len()));
            self.say(&format!("{size:6} {}", columns.collect::<Vec<_>>().join(" ")));
            for (series, &speed) in series.iter_mut().zip(&speeds) {
                series.points.push((size as f64, speed));
                report[&series.name][size.to_string()] = json!(speed);
            }
            if size == 1024 {
                let best = speeds.iter().copied().fold(0.0, f64::max);
                self.say(&format!(
                    "       3,000 sentences in batches of {size}: {:.2} s (Amun on a V100: {AMUN} s)",
                    3000.0 / best
                ));
            }
        }
        let plot = Plot {
            title: "Speed against batch size".to_owned(),
            x_label: "sentences in a batch".to_owned(),
            y_label: "sentences a second".to_owned(),
            logarithmic: true,
            series: series.to_vec(),
        };
        plot.write(self.plots, "amun-figure-3")?;
        Ok(report)
    }

    /// Figure 4: translation speed by output layer.
    fn figure_4(&self, model: &Model) -> anyhow::Result<Value> {
        const BEAMS: [usize; 5] = [1, 2, 3, 5, 9];
        const LAYERS: [OutputLayer; 4] =
            [OutputLayer::Separate, OutputLayer::Fused, OutputLayer::Best, OutputLayer::Epilogue];
        let translator =
            |output_layer| self.translator(model, Compute { output_layer, ..Compute::default() });
        let translators =
            LAYERS.into_iter().map(translator).collect::<anyhow::Result<Vec<Translator>>>()?;
        let lines = Lines::new(SENTENCES);
        self.say(&format!(
            "Figure 4: sentences a second by beam and output layer, batch {BATCH} (best: as fused from \
             beam 2 on)\n{:>4} {:>9} {:>9} {:>9} {:>9} {:>20}",
            "beam", "separate", "fused", "best", "epilogue", "fused over separate"
        ));
        let mut report = json!({});
        let mut series =
            LAYERS.map(|layer| Series { name: layer.name().to_owned(), points: Vec::new() });
        for beam in BEAMS {
            let contestants =
                translators.iter().map(|translator| contestant(translator, beam, BATCH));
            let measured = self.measure(&contestants.collect::<Vec<_>>(), &lines)?;
            let speeds: Vec<f64> =
                measured.iter().map(|measured| SENTENCES as f64 / measured.median()).collect();
            let columns: Vec<String> = speeds.iter().map(|speed| format!("{speed:9.0}")).collect();
            let gain = 100.0 * (speeds[1] / speeds[0] - 1.0);
            self.say(&format!("{beam:4} {} {gain:+19.1}%", columns.join(" ")));
            for ((series, layer), &speed) in series.iter_mut().zip(LAYERS).zip(&speeds) {
                series.points.push((beam as f64, speed));
                report[layer.name()][beam.to_string()] = json!(speed);
            }
        }
        let plot = Plot {
            title: "Speed by beam and output layer".to_owned(),
            x_label: "beam".to_owned(),
            y_label: "sentences a second".to_owned(),
            logarithmic: false,
            series: series.to_vec(),
        };
        plot.write(self.plots, "amun-figure-4")?;
        Ok(report)
    }

    fn measure(
        &self,
        contestants: &[Contestant<'_>],
        lines: &Lines,
    ) -> anyhow::Result<Vec<Measured>> {
        let requests = requests(&lines.lines, &lines.lengths);
        measure(contestants, &requests, self.rounds, true)
    }
}

fn contestant(translator: &Translator, beam: usize, batch: usize) -> Contestant<'_> {
    with(translator, beam, batch, Policy::Shrink)
}

fn with(translator: &Translator, beam: usize, batch: usize, batching: Policy) -> Contestant<'_> {
    let batch = BatchSize { sentences: batch, tokens: usize::MAX };
    let options = translator.options().with_beam(beam);
    let workers = translator.workers().with_batch(batch).with_batching(batching);
    Contestant { name: batching.name(), translator, setup: Setup { options, workers } }
}

/// Random sentences, with the lengths of their translations.
struct Lines {
    lines: Vec<String>,
    lengths: Vec<usize>,
}

impl Lines {
    /// Makes sentences with lengths distributed as in news: 25 tokens on average, half of them
    /// between 15 and 32.
    fn new(sentences: usize) -> Lines {
        const MEAN: f64 = 25.0;
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) as f64 + 0.5) / (1_u64 << 31) as f64
        };
        let (mut lines, mut lengths) = (Vec::new(), Vec::new());
        for _ in 0..sentences {
            // A gamma distribution of shape 3: the sum of three exponential ones.
            let length = -MEAN / 3.0 * (random() * random() * random()).ln();
            let words = (length.round() as usize).clamp(1, 100);
            let line = (0..words).map(|_| format!("w{}", 10 + (random() * 29_000.0) as usize));
            lines.push(line.collect::<Vec<_>>().join(" "));
            lengths.push((1.1 * words as f64).round() as usize + 1);
        }
        Lines { lines, lengths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_spread_as_said() {
        let lines = Lines::new(4096);
        let mut words: Vec<usize> =
            lines.lines.iter().map(|line| line.split(' ').count()).collect();
        let mean = words.iter().sum::<usize>() as f64 / words.len() as f64;
        assert!((24.0..26.0).contains(&mean), "{mean}");
        words.sort_unstable();
        let (quarter, three) = (words[words.len() / 4], words[words.len() * 3 / 4]);
        assert!((14..=16).contains(&quarter) && (31..=33).contains(&three), "{quarter} {three}");
        let mut lengths = lines.lengths.iter().zip(&lines.lines);
        assert!(lengths.all(|(&length, line)| length > line.split(' ').count()));
    }
}
