//! `peregrine score`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::marian_format::{significant, word_scores};
use peregrine::{Calibration, Flag, Flags, Scored};
use serde_json::json;

use crate::io::output::Output;
use peregrine_args::console::remark;
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::{Lines, is_standard};
use peregrine_args::model::ModelArgs;
use peregrine_args::search::{Threads, parse_threads};

/// Score given translations: the log-probability of each, one per line
///
/// Without files, lines `source TAB translation` are read from standard input.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Source text, a sentence a line; `-` is standard input
    #[arg(value_name = "SOURCE_FILE", requires = "target")]
    source: Option<PathBuf>,

    /// Its translations, line by line; `-` is standard input
    #[arg(value_name = "TARGET_FILE")]
    target: Option<PathBuf>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    languages: PairArgs,

    /// Print the log-probability of every token too
    #[arg(long)]
    word_scores: bool,

    /// Print what seems wrong with each translation too: looped, untranslated, numbers, length, unknown
    ///
    /// The usual length is that of the table that `peregrine calibrate` has stored beside the model, or of TABLE.
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true)]
    flags: Option<Option<PathBuf>>,

    /// Print a JSON object for each pair: score, scores of tokens, whether a side was cut
    #[arg(long)]
    json: bool,

    /// Workers, each with a batch of its own [default: auto]
    #[arg(short, long, help_heading = "Speed", value_name = "auto|N", value_parser = parse_threads, default_value = "auto", hide_default_value = true)]
    threads: Threads,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let lines = match (&args.source, &args.target) {
        (Some(source), Some(target)) => read_two(source, target)?,
        _ => read_tabbed()?,
    };
    let translator = args.languages.apply(args.model.open()?)?;
    let translator = match &args.flags {
        Some(Some(table)) => translator.with_calibration(Calibration::read(table)?),
        _ => translator,
    };
    let options = translator.options();
    let workers = translator.workers().with_threads(args.threads.number(&translator));
    let pairs: Vec<(&str, &str)> = lines.iter().map(|(s, t)| (s.as_str(), t.as_str())).collect();
    let mut output = Output::create(None)?;
    let scores = translator.score_with(&pairs, &options, &workers)?;
    for (number, scored) in scores.iter().enumerate() {
        if scored.cut {
            let line = number + 1;
            remark!("note: line {line} is too long for the model: its beginning was scored");
        }
        let (source, target) = pairs[number];
        let flags = args.flags.is_some().then(|| translator.check(source, target));
        writeln!(output, "{}", args.shown(scored, flags))?;
    }
    output.flush()?;
    Ok(())
}

impl Args {
    fn shown(&self, scored: &Scored, flags: Option<Flags>) -> String {
        if self.json {
            let Scored { score, token_scores, cut, .. } = scored;
            let mut pair = json!({ "score": score, "token_scores": token_scores, "cut": cut });
            if let Some(flags) = flags {
                pair["flags"] = flags.iter().map(Flag::name).collect();
            }
            return pair.to_string();
        }
        let scores = self.word_scores.then(|| word_scores(&scored.token_scores));
        let flags = flags.map(|flags| format!("Flags= {flags}").trim_end().to_owned());
        let fields = [Some(significant(scored.score)), scores, flags];
        fields.into_iter().flatten().collect::<Vec<_>>().join(" ||| ")
    }
}

/// Lines that belong together, of two files.
fn read_two(source: &Path, target: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if is_standard(source) && is_standard(target) {
        bail!(
            "-: standard input can be one side only; without files it has both, with a tab between"
        );
    }
    let (sources, targets) = (Lines::read_all(source)?, Lines::read_all(target)?);
    if sources.len() != targets.len() {
        bail!(
            "{} has {} lines, {} has {}: expected a translation for each line",
            source.display(),
            sources.len(),
            target.display(),
            targets.len()
        );
    }
    Ok(sources.into_iter().zip(targets).collect())
}

/// Lines of standard input with a tab between the two sides.
fn read_tabbed() -> anyhow::Result<Vec<(String, String)>> {
    let lines = Lines::open(None)?.next_chunk(usize::MAX)?;
    let pair = |(number, line): (usize, &String)| {
        let pair = line.split_once('\t').map(|(s, t)| (s.to_owned(), t.to_owned()));
        pair.with_context(|| {
            format!("standard input, line {}: expected source TAB translation", number + 1)
        })
    };
    lines.iter().enumerate().map(pair).collect()
}
