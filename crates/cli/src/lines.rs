//! Lines of text in and out.
//!
//! Only a line feed ends a line, and one carriage return before it goes with it. What is not UTF-8
//! becomes U+FFFD. The last line counts whether or not it is ended.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::hash::Hash;

/// Text read in chunks of lines.
pub(crate) struct Lines {
    reader: Box<dyn BufRead + Send>,
    name: String,
    /// Size of the whole text, where it is known.
    pub(crate) total_bytes: Option<u64>,
    pub(crate) bytes_read: u64,
    /// Of the bytes read.
    hash: Hash,
}

impl Lines {
    /// From a file, or from standard input.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Lines> {
        let Some(path) = path else {
            return Ok(Lines {
                reader: Box::new(BufReader::new(io::stdin())),
                name: "standard input".into(),
                total_bytes: None,
                bytes_read: 0,
                hash: Hash::default(),
            });
        };
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| name.clone())?;
        let total_bytes = file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        let reader = Box::new(BufReader::new(file));
        Ok(Lines { reader, name, total_bytes, bytes_read: 0, hash: Hash::default() })
    }

    /// From words on the command line.
    pub(crate) fn of_text(lines: &[String]) -> Lines {
        let text = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
        Lines {
            total_bytes: Some(text.len() as u64),
            reader: Box::new(BufReader::new(io::Cursor::new(text))),
            name: "arguments".into(),
            bytes_read: 0,
            hash: Hash::default(),
        }
    }

    /// The next line; none at the end.
    pub(crate) fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line).context(self.name.clone())?;
        if read == 0 {
            return Ok(None);
        }
        self.bytes_read += read as u64;
        self.hash.add(&line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some(String::from_utf8_lossy(line).into_owned()))
    }

    /// Up to `count` more lines; none at the end.
    pub(crate) fn next_chunk(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        while lines.len() < count
            && let Some(line) = self.next_line()?
        {
            lines.push(line);
        }
        Ok(lines)
    }

    /// Reads so many bytes, or all there are, and forgets them.
    pub(crate) fn skip_bytes(&mut self, mut count: u64) -> anyhow::Result<()> {
        while count > 0 {
            let buffer = self.reader.fill_buf().context(self.name.clone())?;
            let length = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            if length == 0 {
                return Ok(());
            }
            self.hash.add(&buffer[..length]);
            self.reader.consume(length);
            self.bytes_read += length as u64;
            count -= length as u64;
        }
        Ok(())
    }

    /// A hash of all bytes read so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// All lines.
    pub(crate) fn read_all(path: &Path) -> anyhow::Result<Vec<String>> {
        Lines::open(Some(path))?.next_chunk(usize::MAX)
    }
}

/// Where translations go: a file, or standard output.
pub(crate) fn open_output(path: Option<&PathBuf>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        None => Box::new(BufWriter::new(io::stdout().lock())),
        Some(path) => {
            let file = File::create(path).with_context(|| path.display().to_string())?;
            Box::new(BufWriter::new(file))
        }
    })
}

/// Whether an error only says that nobody reads our output any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
