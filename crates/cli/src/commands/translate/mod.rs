//! `peregrine translate`

mod answers;
mod documents;
mod files;
mod fingerprint;
mod input_output;
mod languages;
mod notes;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::ArgMatches;
use peregrine::measure::narrowed_rows;
use peregrine::model::write_whole;
use peregrine::{
    Answer, Calibration, Carry, GlossaryMode, Guard, Legs, Line, Options, Pivot, Split,
    StreamOptions, Summary, Translator, Workers,
};
use serde_json::json;

use answers::{Answers, Form};
use fingerprint::fingerprint;
use input_output::InputOutput;
use languages::LanguageArgs;
use notes::{Coverage, Notes};
use peregrine_args::model::ModelArgs;
use peregrine_args::search::SearchArgs;
use progress::Progress;

use crate::io::clash::{self, Named};
use crate::io::feed::{Feed, Place, Reader};
use crate::io::output::Output;
use crate::io::resume::{FileJob, Start, checkpoint_of};
use crate::io::signals::{self, Interrupted};
use peregrine_args::console::remark;
use peregrine_args::lines::{Lines, is_standard};
use peregrine_args::stats::{describe, parse_bytes, peak_memory_mb};

/// Translate text, one line in, one line out
///
/// Reads standard input unless TEXT or a file is given. Every input line gives exactly one output
/// line, in order, whatever it holds; a line too long for the model is translated in parts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Lines to translate, or files and folders of documents
    ///
    /// Arguments are files if all of them exist and -o or --in-place says where the translations go. A single document is written to
    /// standard output without.
    text: Vec<String>,

    #[command(flatten)]
    model: ModelArgs,

    /// A second model, which translates what the first one makes of the text
    ///
    /// The text is split once. With --json each line has the text between the two, and with --alignment attention goes through it.
    #[arg(
        long,
        help_heading = "Model",
        hide_short_help = true,
        value_name = "PATH",
        visible_alias = "pivot"
    )]
    then: Option<PathBuf>,

    #[command(flatten)]
    languages: LanguageArgs,

    #[command(flatten)]
    io: InputOutput,

    #[command(flatten)]
    search: SearchArgs,

    /// Stop sentences that repeat themselves or do not end, and translate them again
    ///
    /// The second translation has repetition banned. `off` gives what the original tool would give.
    #[arg(long, help_heading = "Search", value_name = "on|off", value_parser = ["on", "off"], default_value = "on", hide_possible_values = true)]
    guards: String,

    /// Memory the process may use, model included [default: three quarters of what is free]
    ///
    /// It sizes the read-ahead and the batch, e.g. 300MB. On a GPU there is no default.
    #[arg(long, help_heading = "Speed", value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,

    /// Write what was measured as JSON
    ///
    /// Time by phase, batches, padding, queue, memory.
    #[arg(long, help_heading = "Speed", value_name = "FILE")]
    stats: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, matches: &ArgMatches) -> anyhow::Result<()> {
    signals::watch();
    args.refuse_lost_names()?;
    // Before the model takes its part, which the budget includes.
    let usual_memory = peregrine::available_memory().map(|bytes| bytes / 4 * 3);
    let Opened { first, translator, digest } = args.open()?;
    for note in first.iter().chain([&translator]).flat_map(|model| &model.model().notes) {
        args.say(format_args!("note: {note}"));
    }
    let translator = args.with_table(translator)?;
    let options = args.options(&translator)?;
    let workers = args.search.workers(&translator, &args.model.settings());
    // A GPU's batches are bounded by its own memory.
    let on_cpu = translator.device().starts_with("CPU");
    let workers = workers.with_memory(args.memory.or(usual_memory.filter(|_| on_cpu)));
    args.refuse_clashes(&translator)?;
    args.check_memory(&translator, &options, &workers)?;
    let (first, translator) = (first.as_ref(), &translator);
    let models = Models { first, translator, options: &options, workers: &workers };
    if let Some(files) = args.files() {
        return args.work_on_files(&files, &models);
    }
    if args.io.in_place.is_some() {
        bail!("--in-place: files or folders must be given, and all of them must exist");
    }
    if let Some(format) = args.document_format() {
        return args.work_on_document(format, &models);
    }
    let mut job = args.job(matches, translator, digest)?;
    let Some(start) = args.start(job.as_mut())? else {
        args.say(format_args!("already complete"));
        return Ok(());
    };
    if start.lines > 0 {
        args.say(format_args!("going on after line {}", start.lines));
    }
    let (before, begun) = (start.lines, Instant::now());
    let (summary, lines) = args.work(&models, start, job.as_mut())?;
    args.report(&summary, lines - before, begun)?;
    if summary.stopped {
        let resumes = job.is_some_and(|job| job.can_be_resumed());
        let hint = if resumes { "; --resume goes on from there" } else { "" };
        remark!("stopped: {lines} lines are translated and written{hint}");
        return Err(Interrupted.into());
    }
    if let Some(job) = job {
        job.finish();
    }
    Ok(())
}

/// The models of a command, and how they translate.
#[derive(Clone, Copy)]
struct Models<'a> {
    /// The first of two models in a row.
    first: Option<&'a Translator>,
    /// The model whose translations are written.
    translator: &'a Translator,
    /// Its options.
    options: &'a Options,
    workers: &'a Workers,
}

impl Models<'_> {
    /// Translates lines as they come.
    fn stream<T: Send>(
        &self,
        args: &Args,
        lines: impl Iterator<Item = anyhow::Result<Line<T>>> + Send,
        stop: &AtomicBool,
        write: impl FnMut(Answer<T>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Summary> {
        let mut stream = StreamOptions::new(self.options.clone(), self.workers.clone());
        stream.stop = Some(stop);
        stream.measure = args.stats.is_some();
        let Some(first) = self.first else { return self.translator.stream(lines, &stream, write) };
        let options = args.options(first)?.with_n_best(1).keeping_terms();
        let workers = args.search.workers(first, &args.model.settings());
        let workers = workers.with_memory(stream.workers.memory);
        let mut before =
            StreamOptions::new(options.with_alignments(stream.options.alignments), workers);
        before.stop = Some(stop);
        stream.options.glossary_mode = GlossaryMode::Mask;
        let legs = Legs { first: before, second: stream };
        Pivot::new(first, self.translator).stream(lines, &legs, write)
    }
}

/// The models that were opened.
struct Opened {
    /// The first of two models in a row.
    first: Option<Translator>,
    /// The model whose translations are written.
    translator: Translator,
    /// The digest of all files of the models, if the job can be resumed.
    digest: Option<u64>,
}

impl Args {
    /// Opens the model, or two in a row.
    fn open(&self) -> anyhow::Result<Opened> {
        let chosen = self.languages.choose(|| self.sample())?;
        let mut paths = chosen.iter().flat_map(|chosen| &chosen.paths).chain(&self.then);
        if let Some(chosen) = &chosen {
            self.say(format_args!("note: {}", chosen.note));
        }
        let (model, tuner) = match chosen {
            None => (self.model.read()?, self.model.tuner()?),
            Some(_) => (self.model.read_other(paths.next().context("a model")?)?, None),
        };
        let digest = self.job_files().map(|_| model.digest());
        let translator = self.model.prepare(model, tuner)?;
        let Some(path) = paths.next() else {
            let (translator, note) = self.languages.apply(translator, || self.sample())?;
            if let Some(note) = note {
                self.say(format_args!("note: {note}"));
            }
            return Ok(Opened { first: None, translator, digest });
        };
        let second = self.model.read_other(path)?;
        let digest = digest.map(|first| first.rotate_left(1) ^ second.digest());
        let second = self.model.prepare(second, None)?;
        Ok(Opened { first: Some(translator), translator: second, digest })
    }

    /// Translates the input to its end, or until a signal comes. How it went, and how many lines are written.
    fn work(
        &self,
        models: &Models<'_>,
        start: Start,
        mut job: Option<&mut FileJob>,
    ) -> anyhow::Result<(Summary, u64)> {
        let options = &self.for_lines(models);
        let models = Models { options, ..*models };
        let prefixes = self.prefixes(start.lines)?;
        let stop = signals::begin_work();
        let mut progress =
            Progress::new(self.io.quiet, self.writes_files(), start.input.total_bytes);
        let mut notes = Notes::new(self.io.quiet, self.io.glossary.is_some());
        let mut answers =
            Answers::new(self.io.form(options), &options.search, start.output, start.lines);
        let coverage = Coverage::new(models.first.unwrap_or(models.translator).model());
        let lines = Feed::new(Reader::new(start.input, prefixes, start.lines), stop)
            .inspect(|line| line.iter().for_each(|line| coverage.look_at(&line.text)));
        let write = |answer: Answer<Place>| {
            progress.advance(&answer.translation, answer.tag.bytes);
            if let Some((number, line)) = answers.add(answer.translation, &answer.tag)? {
                notes.look_at(number, &line);
            }
            if let Some(job) = &mut job {
                // A sentence may go on over lines: only where none does can a job begin.
                if answer.tag.ends && (options.split != Split::Paragraph || answer.tag.blank) {
                    job.mark(answers.lines, &answer.tag, &answers.output);
                }
                job.save_if_due(&mut answers.output)?;
            }
            if !answer.more {
                answers.flush()?;
            }
            anyhow::Ok(())
        };
        let outcome = models.stream(self, lines, stop, write);
        answers.flush()?;
        let complete = outcome.as_ref().is_ok_and(|summary| !summary.stopped);
        if let Some(job) = job.filter(|_| !complete) {
            job.save(&mut answers.output)?;
        }
        progress.finish();
        notes.finish(&coverage);
        Ok((outcome?, answers.lines))
    }

    /// The options for lines: nothing is made of a translation that is not written.
    fn for_lines(&self, models: &Models<'_>) -> Options {
        let mut options = models.options.clone();
        options.text_only = matches!(self.io.form(&options), Form::Text)
            && models.first.is_none()
            && options.replace_unknown.is_none();
        options
    }

    /// Whether translations go to files.
    fn writes_files(&self) -> bool {
        self.io.output.is_some() || self.io.in_place.is_some()
    }

    /// What is needed to resume the job, if it can be.
    fn job(
        &self,
        matches: &ArgMatches,
        translator: &Translator,
        digest: Option<u64>,
    ) -> anyhow::Result<Option<FileJob>> {
        let (Some((_, output)), Some(digest)) = (self.job_files(), digest) else { return Ok(None) };
        let command = <Args as clap::Args>::augment_args(clap::Command::new("translate"));
        let settings = fingerprint(&command, matches, translator, digest)?;
        Ok(Some(FileJob::new(output, settings)))
    }

    fn options(&self, translator: &Translator) -> anyhow::Result<Options> {
        let mut options = self.search.options(translator);
        options.scores = self.io.n_best || self.io.word_scores || self.io.json;
        options.alignments = self.io.alignment.is_some();
        options.quality = self.io.quality.is_some();
        options.replace_unknown = self.io.dictionary()?.map(Arc::new);
        if self.io.n_best {
            options.n_best = options.search.beam;
        }
        let usual = if self.is_bare() { translator.options() } else { translator.text_options() };
        options.split = self.io.split.unwrap_or(usual.split);
        options.carry = match self.io.carry.as_deref() {
            None => usual.carry,
            Some("on") => Carry::On,
            Some(_) => Carry::Off,
        };
        options.glossary = self.io.glossary()?;
        options.glossary_mode = self.io.glossary_mode;
        options.guard = (self.guards == "on").then(Guard::default);
        Ok(options)
    }

    /// Whether an original tool's output is wanted: lines are translated as they are then.
    fn is_bare(&self) -> bool {
        let fields = self.io.n_best || self.io.tokens || self.io.word_scores;
        self.model.follows_tool() || !self.io.json && (fields || self.io.alignment.is_some())
    }

    /// The translator with the table of quality that is named.
    fn with_table(&self, translator: Translator) -> anyhow::Result<Translator> {
        Ok(match &self.io.quality {
            Some(Some(path)) => translator.with_calibration(Calibration::read(path)?),
            _ => translator,
        })
    }

    /// Input and output of a job that can be resumed: from a file to a file. What is no file (a pipe,
    /// /dev/null) has nothing to go on from, and can be read only once.
    fn job_files(&self) -> Option<(&Path, &Path)> {
        let (input, output) = (self.io.input.as_deref()?, self.io.output.as_deref()?);
        let tables = self.io.replace_unknown.iter().chain(&self.io.quality);
        let read = self.io.prefix.iter().chain(tables.flatten());
        let mut read = read.chain(&self.io.glossary);
        let readable = input.is_file() && read.all(|path| path.is_file());
        let is_new = !output.exists() && !is_standard(output);
        (readable && (is_new || output.is_file())).then_some((input, output))
    }

    /// Refuses to write a file that is read, before any is opened for writing.
    fn refuse_clashes(&self, translator: &Translator) -> anyhow::Result<()> {
        let files = self.model.files();
        let checkpoint = self.job_files().map(|(_, output)| checkpoint_of(output));
        let mut read: Vec<_> = files.iter().map(|(name, path)| Named::read(name, path)).collect();
        let members = &translator.model().members;
        read.extend(members.iter().map(|member| Named::read("--model", &member.path)));
        match self.input_file() {
            Some(path) => read.push(Named::read("--input", path)),
            None if self.text.is_empty() => read.push(Named::input()),
            None => {}
        }
        let dictionary = self.io.replace_unknown.iter().flatten();
        read.extend(dictionary.map(|path| Named::read("--replace-unknown", path)));
        let table = self.io.quality.iter().flatten();
        read.extend(table.map(|path| Named::read("--quality", path)));
        read.extend(self.io.prefix.iter().map(|path| Named::read("--prefix", path)));
        read.extend(self.io.glossary.iter().map(|path| Named::read("--glossary", path)));
        let files = self.files().is_some();
        let mut written = match &self.io.output {
            // Each file is looked at when it is written.
            _ if files => Vec::new(),
            Some(path) => vec![Named::written("--output", path)],
            None => vec![Named::output()],
        };
        written.extend(self.stats.iter().map(|path| Named::written("--stats", path)));
        written.extend(checkpoint.iter().map(|path| Named::written("the checkpoint", path)));
        clash::refuse(&written, &read)
    }

    /// Refuses a budget that cannot be kept.
    fn check_memory(
        &self,
        translator: &Translator,
        options: &Options,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        let least = translator.least_memory(options, workers);
        let (Some(memory), Some(least)) = (self.memory, least) else {
            return Ok(());
        };
        if memory < least {
            let megabytes = |bytes: u64| (bytes as f64 / 1e6).ceil();
            bail!(
                "--memory {:.0}MB: the model and one sentence take about {:.0} MB",
                megabytes(memory),
                megabytes(least)
            );
        }
        Ok(())
    }

    /// Opens input and output; none if there is nothing left to do.
    fn start(&self, job: Option<&mut FileJob>) -> anyhow::Result<Option<Start>> {
        match (job, self.job_files(), self.io.resume) {
            (Some(job), Some((input, output)), true) => job.go_on(input, output),
            (Some(job), Some((input, output)), false) => job.begin(input, output).map(Some),
            (_, _, true) => {
                bail!("--resume: input, output, prefixes, dictionary and glossary must be files")
            }
            _ => {
                let input = self.lines()?;
                let output = Output::create(self.io.output.as_deref())?;
                Ok(Some(Start { input, output, lines: 0 }))
            }
        }
    }

    /// The prefixes of the lines that are still to be translated.
    fn prefixes(&self, lines: u64) -> anyhow::Result<Option<Lines>> {
        let Some(path) = &self.io.prefix else { return Ok(None) };
        let mut prefixes = Lines::open(Some(path))?;
        prefixes.next_chunk(usize::try_from(lines)?)?;
        Ok(Some(prefixes))
    }

    fn say(&self, message: std::fmt::Arguments<'_>) {
        if !self.io.quiet {
            remark!("{message}");
        }
    }

    /// Says what was measured.
    fn report(&self, summary: &Summary, lines: u64, begun: Instant) -> anyhow::Result<()> {
        if narrowed_rows() > 0 {
            let rows = narrowed_rows();
            self.say(format_args!(
                "note: {rows} rows did not fit 16-bit fixed point and were rounded to fewer bits"
            ));
        }
        if let (Some(path), Some(stats)) = (&self.stats, &summary.stats) {
            let mut report = describe(stats, begun.elapsed());
            report["lines"] = json!(lines);
            write_whole(path, format!("{report:#}\n").as_bytes())?;
        }
        if let (Some(_), Some(peak)) = (self.memory, peak_memory_mb()) {
            self.say(format_args!(
                "note: at most {:.0} MB of memory were in use",
                peak * 1.048_576
            ));
        }
        Ok(())
    }

    fn lines(&self) -> anyhow::Result<Lines> {
        if let Some(path) = self.input_file() {
            return Lines::open(Some(path));
        }
        if !self.text.is_empty() {
            if let Some(line) = self.text.iter().find(|line| line.contains('\n')) {
                bail!("{line:?}: a text argument is one line");
            }
            return Ok(Lines::of_text(&self.text));
        }
        Lines::open(None)
    }
}
