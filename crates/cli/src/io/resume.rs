//! Going on with a file job that was interrupted.
//!
//! Beside the output stands a checkpoint: how many lines of the input are translated, how many bytes
//! these are and their hash, the same of the output, and what the output depends on. It is written
//! when a job begins and then after the output it speaks of, and replaced in one piece, so whenever a job
//! is killed it speaks of a prefix that is really there. Going on cuts off what the output has beyond it,
//! a broken last line included. A finished job has none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::feed::Place;
use super::output::Output;
use peregrine_args::console::{in_words, remark};
use peregrine_args::lines::Lines;

/// Time between two checkpoints, about.
const INTERVAL: Duration = Duration::from_millis(500);

/// What this program writes, and reads.
const VERSION: u64 = 2;

/// Everything that can change a byte of a job's output, by name.
pub(crate) type Settings = BTreeMap<String, String>;

/// How far a job has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    lines: u64,
    input_bytes: u64,
    input_hash: u64,
    output_bytes: u64,
    output_hash: u64,
}

/// A job from a file to a file.
pub(crate) struct FileJob {
    checkpoint: PathBuf,
    /// What the job is, apart from its input.
    settings: Settings,
    /// Where the job could go on from.
    marked: Progress,
    /// When the last checkpoint was written.
    saved: Option<Instant>,
    /// Whether a checkpoint could not be written.
    failed: bool,
}

/// Where a job begins.
pub(crate) struct Start {
    /// The input, at the first line that is not translated.
    pub(crate) input: Lines,
    /// The output, at its end.
    pub(crate) output: Output,
    /// Lines that are translated already.
    pub(crate) lines: u64,
}

/// Where the checkpoint of an output stands.
pub(crate) fn checkpoint_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".resume");
    PathBuf::from(name)
}

impl FileJob {
    /// A job whose output is `output`.
    pub(crate) fn new(output: &Path, settings: Settings) -> FileJob {
        let checkpoint = checkpoint_of(output);
        FileJob { checkpoint, settings, marked: Progress::default(), saved: None, failed: false }
    }

    /// Opens both files at their beginning.
    pub(crate) fn begin(&mut self, input: &Path, output: &Path) -> anyhow::Result<Start> {
        let input = Lines::open(Some(input))?;
        // An old checkpoint must not be taken for one of this run.
        let _ = std::fs::remove_file(&self.checkpoint);
        let mut output = Output::create(Some(output))?;
        self.mark(0, &Place { hash: input.hash(), ..Place::default() }, &output);
        self.save(&mut output)?;
        Ok(Start { input, output, lines: 0 })
    }

    /// Opens both files where an earlier run left off; none if that was at the end.
    pub(crate) fn go_on(&mut self, input: &Path, output: &Path) -> anyhow::Result<Option<Start>> {
        let Some(progress) = self.read()? else {
            let written = output.metadata().map_or(0, |m| m.len());
            if written == 0 {
                return self.begin(input, output).map(Some);
            }
            if count_lines(output)? == count_lines(input)? {
                return Ok(None);
            }
            bail!(
                "{}: there is no checkpoint {} to go on from; without --resume it is written anew",
                output.display(),
                self.checkpoint.display()
            );
        };
        let mut lines = Lines::open(Some(input))?;
        lines.skip_bytes(progress.input_bytes)?;
        if lines.bytes_read != progress.input_bytes || lines.hash() != progress.input_hash {
            let (name, count) = (input.display(), progress.lines);
            bail!("{name}: its first {count} lines are not those that were translated");
        }
        let output = Output::go_on(output, progress.output_bytes, progress.output_hash)?;
        self.marked = progress;
        Ok(Some(Start { input: lines, output, lines: progress.lines }))
    }

    /// The job could go on from here: `lines` are translated, the last one ends at `place`.
    pub(crate) fn mark(&mut self, lines: u64, place: &Place, output: &Output) {
        self.marked = Progress {
            lines,
            input_bytes: place.bytes,
            input_hash: place.hash,
            output_bytes: output.bytes,
            output_hash: output.hash.value(),
        };
    }

    /// Stores the last mark, if the last checkpoint is old.
    pub(crate) fn save_if_due(&mut self, output: &mut Output) -> io::Result<()> {
        if self.saved.is_some_and(|saved| saved.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.save(output)
    }

    /// Stores the last mark, behind the output it speaks of.
    pub(crate) fn save(&mut self, output: &mut Output) -> io::Result<()> {
        output.flush()?;
        self.saved = Some(Instant::now());
        if let Err(error) = self.write(self.marked)
            && !self.failed
        {
            self.failed = true;
            let (name, error) = (self.checkpoint.display(), in_words(&error.to_string()));
            remark!("note: {name}: {error}: this job could not be resumed");
        }
        Ok(())
    }

    /// Whether `--resume` would go on from the last line noted.
    pub(crate) fn can_be_resumed(&self) -> bool {
        !self.failed
    }

    /// The job is done.
    pub(crate) fn finish(&self) {
        let _ = std::fs::remove_file(&self.checkpoint);
    }

    fn write(&self, progress: Progress) -> io::Result<()> {
        let value = json!({
            "peregrine_checkpoint": VERSION,
            "settings": self.settings,
            "lines": progress.lines,
            "input_bytes": progress.input_bytes,
            "input_hash": format!("{:016x}", progress.input_hash),
            "output_bytes": progress.output_bytes,
            "output_hash": format!("{:016x}", progress.output_hash),
        });
        let mut new = self.checkpoint.as_os_str().to_owned();
        new.push(".new");
        let written = std::fs::write(&new, format!("{value}\n"))
            .and_then(|()| std::fs::rename(&new, &self.checkpoint));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written
    }

    fn read(&self) -> anyhow::Result<Option<Progress>> {
        let name = || self.checkpoint.display().to_string();
        let text = match std::fs::read(&self.checkpoint) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(name)?,
        };
        let value: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{}: not a checkpoint", name()))?;
        let number = |key: &str| value[key].as_u64();
        let hash = |key: &str| u64::from_str_radix(value[key].as_str()?, 16).ok();
        let progress = (|| {
            Some(Progress {
                lines: number("lines")?,
                input_bytes: number("input_bytes")?,
                input_hash: hash("input_hash")?,
                output_bytes: number("output_bytes")?,
                output_hash: hash("output_hash")?,
            })
        })();
        let settings = serde_json::from_value::<Settings>(value["settings"].clone()).ok();
        let is_ours = number("peregrine_checkpoint") == Some(VERSION);
        let (Some(progress), Some(settings), true) = (progress, settings, is_ours) else {
            bail!("{}: not a checkpoint of this version", name());
        };
        if let Some(difference) = difference(&settings, &self.settings) {
            bail!("{}: the job was begun with {difference}", name());
        }
        Ok(Some(progress))
    }
}

/// What is not as it was, in words.
fn difference(then: &Settings, now: &Settings) -> Option<String> {
    let names = then.keys().chain(now.keys());
    let changed = names.into_iter().find(|name| then.get(*name) != now.get(*name))?;
    let told = |settings: &Settings| settings.get(changed).cloned().unwrap_or("nothing".into());
    Some(format!("{changed} {}, and now it is {}", told(then), told(now)))
}

/// Lines of a file, a last one without an end included.
fn count_lines(path: &Path) -> anyhow::Result<u64> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut reader = BufReader::new(file);
    let (mut lines, mut last) = (0, b'\n');
    let mut buffer = [0; 1 << 16];
    loop {
        let read = reader.read(&mut buffer).with_context(|| path.display().to_string())?;
        let Some(&end) = buffer[..read].last() else {
            return Ok(lines + u64::from(last != b'\n'));
        };
        lines += buffer[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
        last = end;
    }
}
