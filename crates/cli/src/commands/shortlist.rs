//! `peregrine shortlist`: makes tables of likely translations, shows them and tells what they cover.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::model::shortlist::{Learning, ParallelText, learn, write_shortlist};
use peregrine::model::{
    Model, Shortlist, ShortlistChoice, ShortlistFile, SourceFrame, choose_shortlist,
};
use serde_json::{Value, json};

use crate::io::clash::{self, Named};
use peregrine_args::console::{remark, show};
use peregrine_args::lines::Lines;
use peregrine_args::model::OpenArgs;
use peregrine_args::numbers::number;

/// Make, show or check a shortlist: the target words worth scoring for each source word
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Build(BuildArgs),
    Inspect(InspectArgs),
    Check(CheckArgs),
}

/// Make a table from parallel text, by IBM model 1
///
/// What a table is written as follows from its name: `.bin` is Marian's and Bergamot's binary form,
/// `vmap*.txt` CTranslate2's vocabulary map, anything else lines `target source probability`. The
/// text is held in memory as numbers, and of pairs of words no more than --most-entries.
#[derive(clap::Args)]
struct BuildArgs {
    /// Source text, a sentence a line
    #[arg(value_name = "SOURCE_FILE")]
    source: PathBuf,

    /// Its translations, line by line
    #[arg(value_name = "TARGET_FILE")]
    target: PathBuf,

    #[command(flatten)]
    vocabularies: Vocabularies,

    /// Files to write; several are the same table in several forms
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Vec<PathBuf>,

    /// Files to write the table of the opposite direction to
    #[arg(long, value_name = "FILE")]
    reverse: Vec<PathBuf>,

    /// How many first target words are always allowed; lines of text do not hold this number
    #[arg(long, value_name = "N", default_value_t = 100)]
    first: usize,

    /// Translations kept for a word
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    best: u32,

    /// Only translations more probable than this
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1e-4, value_parser = number(0.0..=1.0))]
    prune: f32,

    /// Rounds over the text
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Pairs of words held at a time, about 30 bytes each; beyond that the rarest are forgotten
    #[arg(long, value_name = "N", default_value_t = 60_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    most_entries: u64,

    /// Threads; the table is the same
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    threads: u32,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Print what is in a table
#[derive(clap::Args)]
struct InspectArgs {
    /// The table: text, .bin or vmap*.txt
    #[arg(value_name = "TABLE")]
    table: PathBuf,

    /// Words whose candidates to print; what is no token is cut into tokens first
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    #[command(flatten)]
    vocabularies: Vocabularies,

    /// Print the candidates of all words
    #[arg(long)]
    all: bool,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Report how many words of reference translations a table allows
#[derive(clap::Args)]
struct CheckArgs {
    /// The table: text, .bin or vmap*.txt
    #[arg(value_name = "TABLE")]
    table: PathBuf,

    /// Source text, a sentence a line
    #[arg(value_name = "SOURCE_FILE")]
    source: PathBuf,

    /// Its translations, line by line
    #[arg(value_name = "TARGET_FILE")]
    target: PathBuf,

    #[command(flatten)]
    vocabularies: Vocabularies,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The vocabularies are those of a model.
#[derive(clap::Args)]
struct Vocabularies {
    /// Model whose vocabularies the table is for, a file or directory of any format [default: the
    /// built-in model]
    #[arg(short, long, value_name = "PATH")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    open: OpenArgs,
}

impl Vocabularies {
    fn read(&self) -> anyhow::Result<Model> {
        self.open.read(&self.model)
    }

    /// A model with this table; the numbers of --shortlist count where it names the same file.
    fn read_with(&self, table: &Path) -> anyhow::Result<(Model, Shortlist)> {
        let mut model = self.read()?;
        let named = self.open.shortlist()?;
        let choice = match named {
            ShortlistChoice::File(file) if file.path == table => ShortlistChoice::File(file),
            _ => ShortlistChoice::File(ShortlistFile::new(table)),
        };
        choose_shortlist(&mut model, &choice)?;
        let shortlist = model.shortlist.take().context("the table was not read")?;
        Ok((model, shortlist))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Build(args) => build(args),
        What::Inspect(args) => inspect(args),
        What::Check(args) => check(args),
    }
}

/// Calls `take` with the lines of two files that belong together.
fn each_pair(
    source: &Path,
    target: &Path,
    mut take: impl FnMut(&str, &str),
) -> anyhow::Result<usize> {
    let (mut sources, mut targets) = (Lines::open(Some(source))?, Lines::open(Some(target))?);
    for number in 0.. {
        match (sources.next_line()?, targets.next_line()?) {
            (Some(source), Some(target)) => take(&source, &target),
            (None, None) => return Ok(number),
            (one, _) => {
                let (short, long) = if one.is_none() { (source, target) } else { (target, source) };
                bail!(
                    "{} has {number} lines, {} has more: expected a translation for each line",
                    short.display(),
                    long.display()
                );
            }
        }
    }
    Ok(0)
}

fn build(args: &BuildArgs) -> anyhow::Result<()> {
    let read = [Named::read("SOURCE_FILE", &args.source), Named::read("TARGET_FILE", &args.target)];
    let written = args.output.iter().map(|path| Named::written("--output", path));
    let reverse = args.reverse.iter().map(|path| Named::written("--reverse", path));
    clash::refuse(&written.chain(reverse).collect::<Vec<_>>(), &read)?;
    let model = args.vocabularies.read()?;
    let say = |message: std::fmt::Arguments<'_>| {
        if !args.quiet {
            remark!("{message}");
        }
    };
    let mut text = ParallelText::default();
    each_pair(&args.source, &args.target, |source, target| {
        let source = frame(&model).frame(&model.source.encode(source).ids);
        let mut target = model.target.encode(target).ids;
        target.push(model.target.eos());
        text.push(&source, &target);
        if text.len().is_multiple_of(100_000) {
            say(format_args!("{} pairs read", text.len()));
        }
    })?;
    if text.is_empty() {
        bail!("{}: there is nothing to learn from", args.source.display());
    }
    say(format_args!("{} pairs of lines", text.len()));
    let learning = Learning {
        rounds: args.rounds as usize,
        best: args.best as usize,
        prune: args.prune,
        most_entries: usize::try_from(args.most_entries).unwrap_or(usize::MAX),
        threads: args.threads as usize,
    };
    for (files, source, target, direction) in [
        (&args.output, &model.source, &model.target, "source to target"),
        (&args.reverse, &model.target, &model.source, "target to source"),
    ] {
        if !files.is_empty() {
            let lexicon = learn(&text, source.size(), &learning, |progress| {
                let forgotten = match progress.forgotten {
                    0 => String::new(),
                    pairs => format!(", {pairs} rare ones forgotten"),
                };
                // The first round knows no probabilities yet.
                let bits = match progress.round {
                    1 => String::new(),
                    _ => format!("{:.2} bits a word, ", progress.bits),
                };
                say(format_args!(
                    "{direction}, round {} of {}: {bits}{} pairs of words{forgotten}",
                    progress.round, learning.rounds, progress.entries
                ));
            });
            for file in files {
                write_shortlist(file, &lexicon, args.first, source, target)?;
            }
            let words = lexicon.iter().filter(|list| !list.is_empty()).count();
            let entries: usize = lexicon.iter().map(Vec::len).sum();
            say(format_args!("{direction}: {words} words have {entries} translations"));
        }
        if args.reverse.is_empty() {
            break;
        }
        text = text.reversed();
    }
    Ok(())
}

fn frame(model: &Model) -> &SourceFrame {
    model.members[0].architecture.source_frame()
}

fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let (model, shortlist) = args.vocabularies.read_with(&args.table)?;
    let lengths = (0..shortlist.source_words() as u32).map(|word| shortlist.list(word).len());
    let lists = lengths.clone().filter(|&length| length > 0).count();
    let mut report = shortlist.describe();
    report["lists"] = json!(lists);
    report["longest_list"] = json!(lengths.clone().max().unwrap_or_default());
    report["mean_list"] = json!(lengths.sum::<usize>() as f64 / lists.max(1) as f64);
    let mut ids: Vec<u32> = Vec::new();
    if args.all {
        ids.extend(0..shortlist.source_words() as u32);
        ids.retain(|&id| !shortlist.list(id).is_empty());
    }
    for word in &args.words {
        match model.source.id(word) {
            Some(id) => ids.push(id),
            None => ids.extend(model.source.encode(word).ids),
        }
    }
    let candidates = |id: u32| -> Vec<&str> {
        shortlist.list(id).iter().map(|&target| model.target.token(target)).collect()
    };
    if args.json {
        let words: Vec<Value> = ids
            .iter()
            .map(|&id| json!({ "word": model.source.token(id), "candidates": candidates(id) }))
            .collect();
        report["words"] = json!(words);
        show!("{report}");
        return Ok(());
    }
    if !args.all {
        print_report(&report);
    }
    for id in ids {
        show!("{}\t{}", model.source.token(id), candidates(id).join(" "));
    }
    Ok(())
}

fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let (model, shortlist) = args.vocabularies.read_with(&args.table)?;
    let frame = frame(&model);
    let (mut tokens, mut covered, mut whole, mut listed) = (0_usize, 0_usize, 0_usize, 0_usize);
    let lines = each_pair(&args.source, &args.target, |source, target| {
        let words = shortlist.select(&frame.frame(&model.source.encode(source).ids));
        let target = model.target.encode(target).ids;
        let inside = target.iter().filter(|id| words.binary_search(id).is_ok()).count();
        tokens += target.len();
        covered += inside;
        whole += usize::from(inside == target.len());
        listed += words.len();
    })?;
    let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let report = json!({
        "lines": lines,
        "tokens": tokens,
        "tokens_covered": covered,
        "share_of_tokens": share(covered, tokens),
        "lines_covered": whole,
        "share_of_lines": share(whole, lines),
        "mean_words_allowed": share(listed, lines),
        "target_words": model.target.size(),
    });
    if args.json {
        show!("{report}");
    } else {
        print_report(&report);
    }
    Ok(())
}

fn print_report(report: &Value) {
    for (name, value) in report.as_object().into_iter().flatten() {
        match value.as_f64().filter(|_| value.is_f64()) {
            Some(number) => show!("{name:20} {number:.4}"),
            None => show!("{name:20} {value}"),
        }
    }
}
