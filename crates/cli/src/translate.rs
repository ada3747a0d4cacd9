//! `peregrine translate`

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use peregrine::marian_format::{AlignmentStyle, Fields, best_line, n_best_lines};
use peregrine::{
    Answer, Dictionary, Guard, Options, Split, StreamOptions, Summary, Translation, Translator,
};
use serde_json::json;

use crate::feed::{Feed, Place};
use crate::interrupt::{Interrupted, stop_flag};
use crate::lines::{Lines, open_output};
use crate::model_args::ModelArgs;
use crate::notes::Notes;
use crate::resume::{FileJob, Output, Start};
use crate::search_args::SearchArgs;
use crate::stats::{describe, parse_bytes, peak_memory_mb};

/// Translate text, one line in, one line out
///
/// Reads standard input unless TEXT or a file is given. Every input line gives exactly one output
/// line, in order, whatever it holds; a line too long for the model is translated in parts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Lines to translate
    text: Vec<String>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Read from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    input: Option<PathBuf>,

    /// Write to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A file with the beginning of each translation, a line for each input line; an empty line
    /// forces nothing
    #[arg(long, value_name = "FILE")]
    prefix: Option<PathBuf>,

    /// Print all hypotheses in Marian's form: number ||| text ||| F0= sum ||| score
    #[arg(long)]
    n_best: bool,

    /// Print the log-probability of every token
    #[arg(long)]
    word_scores: bool,

    /// Print word alignments: `hard` (best source token), `soft` (all weights), or a threshold
    #[arg(long, value_name = "hard|soft|THRESHOLD", num_args = 0..=1, default_missing_value = "hard", value_parser = parse_alignment)]
    alignment: Option<AlignmentStyle>,

    /// Replace unknown words by the source word they attend to, or by its translation in a
    /// dictionary (lines `target source probability`)
    #[arg(long, value_name = "DICTIONARY", num_args = 0..=1)]
    replace_unknown: Option<Option<PathBuf>>,

    /// Print tokens instead of text
    #[arg(long)]
    tokens: bool,

    /// Print a JSON object for each line, with scores
    #[arg(long, conflicts_with_all = ["n_best", "word_scores", "tokens"])]
    json: bool,

    /// Split lines into sentences, translate these and join them again: `none` (a line is a
    /// sentence), `sentence` (a line may hold several), `paragraph` (sentences may go on over lines;
    /// an empty line ends a paragraph, and a sentence's translation stands where it began)
    #[arg(long, value_name = "none|sentence|paragraph", default_value = "none")]
    split: Split,

    /// Stop sentences that repeat themselves or do not end, and translate them again with repetition
    /// banned. `off` gives what the original tool would give
    #[arg(long, value_parser = ["on", "off"], default_value = "on")]
    guards: String,

    /// Memory the process may use, model included, e.g. 300MB: sizes the read-ahead and the batch
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,

    /// Go on with an interrupted job from one file to another
    #[arg(long, requires_all = ["input", "output"])]
    resume: bool,

    /// Write what was measured as JSON: time by phase, who was in the batch, padding, queue, memory
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let stop = stop_flag();
    let translator = args.model.open()?;
    if !args.quiet {
        for note in &translator.model().notes {
            eprintln!("peregrine: note: {note}");
        }
    }
    let options = args.options(&translator);
    let dictionary = args.dictionary()?;
    let mut job = args.file_job(&translator, &options);
    let mut start = args.start(job.as_ref())?;
    if start.complete {
        args.say(format_args!("already complete"));
        return Ok(());
    }
    if start.lines > 0 {
        args.say(format_args!("going on after line {}", start.lines));
    }
    let mut prefixes = args.prefix.as_deref().map(|path| Lines::open(Some(path))).transpose()?;
    if let Some(prefixes) = &mut prefixes {
        prefixes.next_chunk(usize::try_from(start.lines)?)?;
    }
    let mut progress = Progress::new(args, &start.input);
    let stream_options = StreamOptions {
        memory: args.memory,
        stop: Some(stop),
        measure: args.stats.is_some(),
        ..StreamOptions::new(options)
    };
    let begun = Instant::now();
    let mut last = Place::default();
    let mut notes = Notes::new(args.quiet);
    // Answers come in the order of lines, so that a queue tells what each one translates.
    let asked: Mutex<VecDeque<String>> = Mutex::default();
    let lines = Feed::new(start.input, prefixes, stop).inspect(|line| {
        if let (Some(_), Ok(line)) = (&dictionary, line) {
            asked.lock().unwrap_or_else(PoisonError::into_inner).push_back(line.text.clone());
        }
    });
    let summary = translator.stream(lines, &stream_options, |mut answer: Answer<Place>| {
        let number = start.lines + answer.number;
        if let Some(dictionary) = &dictionary {
            let line = asked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let line = line.unwrap_or_default();
            translator.replace_unknown(&line, &mut answer.translation, dictionary);
        }
        notes.look_at(number, &answer.translation);
        args.write(&mut start.output, number as usize, &answer.translation)?;
        last = answer.tag;
        progress.advance(&answer.translation, answer.tag.bytes);
        if !answer.more {
            start.output.flush()?;
            if let Some(job) = &mut job {
                job.note(number + 1, answer.tag, &start.output);
            }
        }
        anyhow::Ok(())
    })?;
    start.output.flush()?;
    progress.finish();
    if !args.quiet && peregrine::narrowed_rows() > 0 {
        let rows = peregrine::narrowed_rows();
        eprintln!(
            "peregrine: note: {rows} rows did not fit 16-bit fixed point and were rounded to fewer bits"
        );
    }
    notes.finish();
    args.report(&summary, begun)?;
    let lines = start.lines + summary.lines;
    if summary.stopped {
        if let Some(job) = job.as_mut().filter(|_| summary.lines > 0) {
            job.note_now(lines, last, &start.output);
        }
        let hint = if job.is_some() { "; --resume goes on from there" } else { "" };
        eprintln!("peregrine: stopped: {lines} lines are translated and written{hint}");
        return Err(Interrupted.into());
    }
    if let Some(job) = job {
        job.finish();
    }
    Ok(())
}

impl Args {
    fn options(&self, translator: &Translator) -> Options {
        let mut options = self.search.options(translator);
        options.scores = self.n_best || self.word_scores || self.json;
        options.alignments = self.alignment.is_some() || self.replace_unknown.is_some();
        if self.n_best {
            options.n_best = options.search.beam;
        }
        options.split = self.split;
        options.guard = (self.guards == "on").then(Guard::default);
        options
    }

    /// A job from file to file can be resumed.
    fn file_job(&self, translator: &Translator, options: &Options) -> Option<FileJob> {
        let output = self.output.as_deref().filter(|_| self.input.is_some())?;
        let settings = format!(
            "{} {:?} {} {:?} {:?} {:?} {:?} {:?}",
            translator.model().describe(),
            options.search,
            options.n_best,
            (options.shortlist, options.shortlist_scope),
            (options.split, options.guard, translator.precision()),
            (self.json, self.n_best, self.tokens, self.word_scores),
            self.alignment,
            self.prefix,
        );
        // What is no file (a pipe, /dev/null) has nothing to go on from.
        let is_file = output.metadata().map_or(true, |m| m.is_file());
        is_file.then(|| FileJob::new(output, &settings))
    }

    fn start(&self, job: Option<&FileJob>) -> anyhow::Result<Start> {
        if let (Some(job), Some(input), Some(output)) = (job, &self.input, &self.output) {
            return job.start(input, output, self.resume);
        }
        let input = self.lines()?;
        let output = Output::new(open_output(self.output.as_ref())?);
        Ok(Start { input, output, lines: 0, complete: false })
    }

    fn say(&self, message: std::fmt::Arguments<'_>) {
        if !self.quiet {
            eprintln!("peregrine: {message}");
        }
    }

    /// Says what was measured.
    fn report(&self, summary: &Summary, begun: Instant) -> anyhow::Result<()> {
        if let (Some(path), Some(stats)) = (&self.stats, &summary.stats) {
            let mut report = describe(stats, begun.elapsed());
            report["lines"] = json!(summary.lines);
            std::fs::write(path, format!("{report:#}\n"))
                .with_context(|| path.display().to_string())?;
        }
        if let (Some(_), Some(peak)) = (self.memory, peak_memory_mb()) {
            self.say(format_args!(
                "note: at most {:.0} MB of memory were in use",
                peak * 1.048_576
            ));
        }
        Ok(())
    }

    fn dictionary(&self) -> anyhow::Result<Option<Dictionary>> {
        Ok(match &self.replace_unknown {
            None => None,
            Some(None) => Some(Dictionary::default()),
            Some(Some(path)) => Some(Dictionary::read(path)?),
        })
    }

    fn lines(&self) -> anyhow::Result<Lines> {
        if !self.text.is_empty() {
            if let Some(line) = self.text.iter().find(|line| line.contains('\n')) {
                bail!("{line:?}: a text argument is one line");
            }
            return Ok(Lines::of_text(&self.text));
        }
        Lines::open(self.input.as_deref())
    }

    fn write(
        &self,
        output: &mut dyn Write,
        number: usize,
        translation: &Translation,
    ) -> std::io::Result<()> {
        let fields = Fields {
            alignment: self.alignment,
            word_scores: self.word_scores,
            tokens: self.tokens,
        };
        if self.json {
            writeln!(output, "{}", self.json_line(translation))
        } else if self.n_best {
            let lines = n_best_lines(number, translation, &fields);
            lines.iter().try_for_each(|line| writeln!(output, "{line}"))
        } else {
            writeln!(output, "{}", best_line(translation, &fields))
        }
    }

    fn json_line(&self, translation: &Translation) -> serde_json::Value {
        let alternative = |a: &peregrine::Alternative| {
            let mut object = json!({
                "text": a.text,
                "score": a.score,
                "tokens": a.tokens,
                "token_scores": a.token_scores,
                "ended": a.ended,
            });
            if self.alignment.is_some() {
                object["alignment"] = json!(a.alignment);
            }
            object
        };
        json!({
            "text": translation.text(),
            "source_tokens": translation.source_tokens,
            "parts": translation.segments,
            "cut": translation.cut,
            "looped": translation.verdict.looped,
            "endless": translation.verdict.endless,
            "alternatives": translation.alternatives.iter().map(alternative).collect::<Vec<_>>(),
        })
    }
}

fn parse_alignment(text: &str) -> Result<AlignmentStyle, String> {
    match text {
        "hard" | "1" => Ok(AlignmentStyle::Hard),
        "soft" => Ok(AlignmentStyle::Soft),
        _ => match text.parse::<f32>() {
            Ok(threshold) if (0.0..1.0).contains(&threshold) => {
                Ok(AlignmentStyle::Above(threshold))
            }
            _ => Err("expected hard, soft or a number from 0 to 1".into()),
        },
    }
}

/// A line on the terminal: lines, tokens a second, time left.
struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    lines: usize,
    tokens: usize,
}

impl Progress {
    fn new(args: &Args, input: &Lines) -> Progress {
        // Where translations scroll by on the same terminal, they are progress enough.
        let visible = std::io::stderr().is_terminal()
            && !args.quiet
            && (args.output.is_some() || !std::io::stdout().is_terminal());
        let bar = visible.then(|| match input.total_bytes {
            Some(total) => ProgressBar::new(total).with_style(style("{bar:24} {msg}, {eta} left")),
            None => ProgressBar::no_length().with_style(style("{spinner} {msg}")),
        });
        Progress { bar, start: Instant::now(), lines: 0, tokens: 0 }
    }

    fn advance(&mut self, translation: &Translation, bytes_read: u64) {
        let Some(bar) = &self.bar else { return };
        self.lines += 1;
        self.tokens += translation.alternatives.first().map_or(0, |best| best.tokens.len() + 1);
        let speed = self.tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        bar.set_message(format!("{} lines, {speed:.0} tokens/s", self.lines));
        bar.set_position(bytes_read);
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
