//! Going on with a file job that was interrupted.
//!
//! Beside the output stands a checkpoint: how many lines of the input are translated, how many bytes
//! these are and their hash, and how long the output was then. It is written after the output it
//! speaks of, and replaced in one piece, so whenever a job is killed it speaks of a prefix that is
//! really there. Going on cuts off what the output has beyond it, a broken last line included. A
//! finished job has none.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::feed::Place;
use crate::hash::Hash;
use crate::lines::Lines;

/// Time between two checkpoints, about.
const INTERVAL: Duration = Duration::from_millis(500);

/// How far a job has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    lines: u64,
    input_bytes: u64,
    input_hash: u64,
    output_bytes: u64,
}

/// A job from a file to a file.
pub(crate) struct FileJob {
    checkpoint: PathBuf,
    /// What the job is, apart from its input: model and options.
    settings: u64,
    /// When the last checkpoint was written.
    last: Option<Instant>,
    /// Whether the user has been told that checkpoints cannot be written.
    complained: bool,
}

/// An output that knows its length.
pub(crate) struct Output {
    writer: Box<dyn Write>,
    bytes: u64,
}

impl Output {
    /// Whatever was opened.
    pub(crate) fn new(writer: Box<dyn Write>) -> Output {
        Output { writer, bytes: 0 }
    }
}

impl Write for Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Where a job begins.
pub(crate) struct Start {
    /// The input, at the first line that is not translated.
    pub(crate) input: Lines,
    /// The output, at its end.
    pub(crate) output: Output,
    /// Lines that are translated already.
    pub(crate) lines: u64,
    /// Whether there is nothing left to do.
    pub(crate) complete: bool,
}

impl FileJob {
    /// A job whose output is `output`; `settings` describes model and options.
    pub(crate) fn new(output: &Path, settings: &str) -> FileJob {
        let mut name = output.as_os_str().to_owned();
        name.push(".resume");
        let mut hash = Hash::default();
        hash.add(settings.as_bytes());
        FileJob {
            checkpoint: PathBuf::from(name),
            settings: hash.value(),
            last: None,
            complained: false,
        }
    }

    /// Opens both files, where an earlier run left off if `resume`.
    pub(crate) fn start(&self, input: &Path, output: &Path, resume: bool) -> anyhow::Result<Start> {
        if !resume {
            // An old checkpoint must not be taken for one of this run.
            let _ = std::fs::remove_file(&self.checkpoint);
            return self.begin(input, output);
        }
        let Some(progress) = self.read()? else {
            let written = output.metadata().map_or(0, |m| m.len());
            if written == 0 {
                return self.begin(input, output);
            }
            if count_lines(output)? == count_lines(input)? {
                return Ok(Start { complete: true, ..self.append(input, output, None)? });
            }
            bail!(
                "{}: there is no checkpoint {} to go on from; without --resume it is written anew",
                output.display(),
                self.checkpoint.display()
            );
        };
        self.append(input, output, Some(progress))
    }

    fn begin(&self, input: &Path, output: &Path) -> anyhow::Result<Start> {
        let input = Lines::open(Some(input))?;
        let file = File::create(output).with_context(|| output.display().to_string())?;
        let output = Output { writer: Box::new(BufWriter::new(file)), bytes: 0 };
        Ok(Start { input, output, lines: 0, complete: false })
    }

    fn append(
        &self,
        input: &Path,
        output: &Path,
        progress: Option<Progress>,
    ) -> anyhow::Result<Start> {
        let name = |path: &Path| path.display().to_string();
        let mut lines = Lines::open(Some(input))?;
        let mut file = OpenOptions::new().write(true).open(output).with_context(|| name(output))?;
        let length = file.metadata().with_context(|| name(output))?.len();
        let Some(progress) = progress else {
            return Ok(Start {
                input: lines,
                output: Output { writer: Box::new(io::sink()), bytes: length },
                lines: 0,
                complete: true,
            });
        };
        if length < progress.output_bytes {
            bail!(
                "{}: {length} bytes, but the checkpoint knows of {}: it is not the file it was",
                name(output),
                progress.output_bytes
            );
        }
        lines.skip_bytes(progress.input_bytes)?;
        if lines.bytes_read != progress.input_bytes || lines.hash() != progress.input_hash {
            bail!(
                "{}: its first {} lines are not those that were translated",
                name(input),
                progress.lines
            );
        }
        file.set_len(progress.output_bytes).with_context(|| name(output))?;
        file.seek(SeekFrom::End(0)).with_context(|| name(output))?;
        let writer = Box::new(BufWriter::new(file));
        let output = Output { writer, bytes: progress.output_bytes };
        Ok(Start { input: lines, output, lines: progress.lines, complete: false })
    }

    /// Notes how far the job has come, now and then. `output` has been flushed.
    pub(crate) fn note(&mut self, lines: u64, place: Place, output: &Output) {
        if self.last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            self.note_now(lines, place, output);
        }
    }

    /// The same, at once.
    pub(crate) fn note_now(&mut self, lines: u64, place: Place, output: &Output) {
        self.last = Some(Instant::now());
        let progress = Progress {
            lines,
            input_bytes: place.bytes,
            input_hash: place.hash,
            output_bytes: output.bytes,
        };
        if let Err(error) = self.write(progress)
            && !self.complained
        {
            self.complained = true;
            let name = self.checkpoint.display();
            eprintln!("peregrine: note: {name}: {error}: this job could not be resumed");
        }
    }

    /// The job is done.
    pub(crate) fn finish(&self) {
        let _ = std::fs::remove_file(&self.checkpoint);
    }

    fn write(&self, progress: Progress) -> io::Result<()> {
        let value = json!({
            "peregrine_checkpoint": 1,
            "settings": format!("{:016x}", self.settings),
            "lines": progress.lines,
            "input_bytes": progress.input_bytes,
            "input_hash": format!("{:016x}", progress.input_hash),
            "output_bytes": progress.output_bytes,
        });
        let mut new = self.checkpoint.as_os_str().to_owned();
        new.push(".new");
        std::fs::write(&new, format!("{value}\n"))?;
        std::fs::rename(&new, &self.checkpoint)
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
            })
        })();
        let Some(progress) = progress.filter(|_| number("peregrine_checkpoint") == Some(1)) else {
            bail!("{}: not a checkpoint of this version", name());
        };
        if hash("settings") != Some(self.settings) {
            bail!("{}: the job was begun with another model or other options", name());
        }
        Ok(Some(progress))
    }
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
