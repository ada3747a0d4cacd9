//! `peregrine bench --ablate`: the speed of each technique, alone and on top of those before it,
//! and the speed of all techniques without each one that `--set without` can turn off.
//!
//! The steps are those of Marian's Table 2 ("Cost-effective High-Quality Neural Machine
//! Translation": shortlist, integer products, memoised packing, auto-tuning) and of OpenNMT's Table
//! 5 (int8, sorting, packing, vocabulary reduction), as far as this engine has them as switches.
//! The baseline is float32, weights packed again for every product, all target words, and batches
//! in the order of the text in which finished sentences are still computed.

use std::path::Path;

use anyhow::{Context, bail};
use peregrine::measure::Technique;
use peregrine::{Compute, Model, Policy, Precision, Request, Translator, Tuner};
use serde_json::{Value, json};

use crate::measures::{count_tokens, cpu_time};
use crate::plot::{Bar, Bars};
use peregrine_args::console::show;
use peregrine_args::search::Setup;

/// A technique that can be turned on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    Int8,
    Packed,
    Shortlist,
    Sorted,
    TopUp,
    Tuned,
}

impl Rung {
    fn name(self) -> &'static str {
        match self {
            Rung::Int8 => "int8",
            Rung::Packed => "packed once",
            Rung::Shortlist => "shortlist",
            Rung::Sorted => "sorted batches",
            Rung::TopUp => "refilled batches",
            Rung::Tuned => "auto-tuning",
        }
    }
}

/// A line of the table.
struct Line {
    name: String,
    /// The rungs that are on.
    on: Vec<Rung>,
    /// The technique that is turned off, in lines that leave one out.
    off: Option<Technique>,
    speeds: Vec<f64>,
    texts: Vec<String>,
}

/// The precision of a prepared model, whether the auto-tuner times its kernels, and the techniques
/// that are turned off.
type Preparation = (Precision, bool, Vec<Technique>);

impl Line {
    fn new(name: String, on: &[Rung], off: Option<Technique>) -> Line {
        Line { name, on: on.to_vec(), off, speeds: Vec::new(), texts: Vec::new() }
    }

    fn has(&self, rung: Rung) -> bool {
        self.on.contains(&rung)
    }

    fn preparation(&self) -> Preparation {
        let packing = (!self.has(Rung::Packed)).then_some(Technique::PackedOnce);
        let without = packing.into_iter().chain(self.off).collect();
        match self.has(Rung::Int8) {
            true => (Precision::Int8, self.has(Rung::Tuned), without),
            // Float32 has no kernels for the auto-tuner to choose from.
            false => (Precision::Float32, false, without),
        }
    }
}

/// The options of an ablation.
pub(crate) struct Ablation<'a> {
    pub(crate) model: Model,
    pub(crate) compute: Compute,
    pub(crate) setup: &'a (dyn Fn(&Translator) -> Setup + 'a),
    pub(crate) requests: &'a [Request<'a>],
    pub(crate) rounds: usize,
    pub(crate) plot: Option<&'a Path>,
    pub(crate) json: bool,
}

impl Ablation<'_> {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if self.requests.is_empty() {
            bail!("there is nothing to translate");
        }
        let (ladder, without) = (self.ladder(), self.without());
        let last = ladder.len() - 1;
        let mut lines: Vec<Line> = ladder.into_iter().chain(without).collect();
        let mut translators: Vec<(Preparation, Translator)> = Vec::new();
        // The index of each line's translator. Many lines share one.
        let mut of_line = Vec::new();
        for line in &lines {
            let preparation = line.preparation();
            let known = translators.iter().position(|(known, _)| *known == preparation);
            of_line.push(known.unwrap_or(translators.len()));
            if known.is_none() {
                let translator = self.prepare(&preparation)?;
                translators.push((preparation, translator));
            }
        }
        // The last line of the ladder has all techniques. A warm-up lets the auto-tuner choose its
        // kernels, as by `peregrine tune`.
        self.measure(&translators[of_line[last]].1, &mut lines[last])?;
        lines[last].speeds.clear();
        for _ in 0..self.rounds {
            for (line, &translator) in lines.iter_mut().zip(&of_line) {
                self.measure(&translators[translator].1, line)?;
            }
        }
        self.report(&mut lines)
    }

    fn prepare(
        &self,
        (precision, tuned, off): &Preparation,
    ) -> Result<Translator, peregrine::Error> {
        let compute = Compute {
            precision: Some(*precision),
            tuner: tuned.then(Tuner::default),
            without: off.clone(),
            ..self.compute.clone()
        };
        Translator::prepare(self.model.clone(), &compute)
    }

    /// The baseline, each technique alone, and each on top of those before it.
    fn ladder(&self) -> Vec<Line> {
        let rungs = self.rungs();
        let mut lines = vec![Line::new("float32".into(), &[], None)];
        let alone = |rung: &Rung| Line::new(format!("{} alone", rung.name()), &[*rung], None);
        lines.extend(rungs.iter().map(alone));
        for (i, rung) in rungs.iter().enumerate() {
            lines.push(Line::new(format!("+ {}", rung.name()), &rungs[..=i], None));
        }
        lines
    }

    fn rungs(&self) -> Vec<Rung> {
        let all =
            [Rung::Int8, Rung::Packed, Rung::Shortlist, Rung::Sorted, Rung::TopUp, Rung::Tuned];
        let there = |rung: &Rung| *rung != Rung::Shortlist || self.model.shortlist.is_some();
        all.into_iter().filter(there).collect()
    }

    /// All rungs except the auto-tuner, with one technique turned off in each line. Packing is left
    /// out because it is a rung.
    fn without(&self) -> Vec<Line> {
        let mut rungs = self.rungs();
        rungs.pop();
        let line = |off: Technique| Line::new(format!("without {}", off.name()), &rungs, Some(off));
        Technique::ALL.into_iter().filter(|off| *off != Technique::PackedOnce).map(line).collect()
    }

    fn measure(&self, translator: &Translator, line: &mut Line) -> anyhow::Result<()> {
        let mut setup = (self.setup)(translator);
        setup.options.shortlist = line.has(Rung::Shortlist);
        setup.workers.batching = match (line.has(Rung::TopUp), line.has(Rung::Sorted)) {
            (true, _) => Policy::TopUp,
            (_, true) => Policy::Sorted,
            _ => Policy::Naive,
        };
        let start = cpu_time();
        let translations = setup.translate(translator, self.requests)?;
        let seconds = cpu_time().zip(start).map_or(f64::NAN, |(end, start)| end - start);
        let tokens: usize = translations.iter().map(count_tokens).sum();
        line.speeds.push(tokens as f64 / seconds);
        line.texts = translations.iter().map(|t| t.text().to_owned()).collect();
        Ok(())
    }

    fn report(&self, lines: &mut [Line]) -> anyhow::Result<()> {
        for line in lines.iter_mut() {
            line.speeds.sort_by(f64::total_cmp);
        }
        let middle = |line: &Line| line.speeds[line.speeds.len() / 2];
        let base = middle(&lines[0]);
        let same = |line: &Line| {
            line.texts.iter().zip(&lines[0].texts).filter(|(a, b)| a == b).count() as f64
                / line.texts.len() as f64
        };
        let row = |line: &Line| {
            json!({
                "name": line.name,
                "on": line.on.iter().map(|rung| rung.name()).collect::<Vec<_>>(),
                "off": line.off.map(Technique::name),
                "tokens_per_cpu_second": middle(line),
                "least": line.speeds.first(),
                "most": line.speeds.last(),
                "ratio": middle(line) / base,
                "lines_as_float32": same(line),
            })
        };
        let rows: Vec<Value> = lines.iter().map(row).collect();
        if self.json {
            show!("{}", json!({ "isa": peregrine::instruction_set(), "ladder": rows }));
        } else {
            show!(
                "{} lines, {} rounds in turns, tokens a processor second, {}",
                self.requests.len(),
                self.rounds,
                peregrine::instruction_set()
            );
            show!(
                "{:24} {:>8} {:>17} {:>7} {:>14}",
                "",
                "tokens/s",
                "least-most",
                "ratio",
                "as float32"
            );
            for line in lines.iter() {
                let (least, most) = (line.speeds[0], line.speeds[line.speeds.len() - 1]);
                show!(
                    "{:24} {:8.0} {:>17} {:7.2} {:13.1}%",
                    line.name,
                    middle(line),
                    format!("{least:.0}-{most:.0}"),
                    middle(line) / base,
                    100.0 * same(line)
                );
            }
        }
        if let Some(path) = self.plot {
            let bars = lines.iter().map(|line| Bar {
                name: line.name.clone(),
                value: middle(line),
                range: (line.speeds[0], line.speeds[line.speeds.len() - 1]),
            });
            let title = "What each technique gives: target tokens a processor second".to_owned();
            let svg = Bars { title, bars: bars.collect() }.svg();
            std::fs::write(path, svg).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}
