//! Lines of text in and out.
//!
//! Only a line feed ends a line; one carriage return before it is removed as well. Invalid UTF-8
//! becomes U+FFFD. The last line counts even without a line feed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use peregrine::text::{LONGEST, cut_place};

use crate::hash::Hash;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// Text read line by line.
pub struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    /// The file name, or a name for standard input.
    pub name: String,
    /// Size of the whole text, where it is known.
    pub total_bytes: Option<u64>,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// The hash of the bytes read.
    hash: Hash,
    /// The start of the next fragment, read while the place to split a long line was searched.
    rest: Vec<u8>,
}

/// A line, or a part of one that is too long to be held in memory.
pub struct Fragment {
    /// The text without the line end.
    pub text: String,
    /// Whether the line ends with this fragment.
    pub ends: bool,
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A line without its line feed and the carriage return before it.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Lines {
    fn new(reader: impl Read + Send + 'static, name: String, total_bytes: Option<u64>) -> Lines {
        let reader = BufReader::with_capacity(BUFFER, Box::new(reader) as Box<dyn Read + Send>);
        let (hash, rest) = (Hash::default(), Vec::new());
        Lines { reader, name, total_bytes, bytes_read: 0, hash, rest }
    }

    /// Opens a file, or standard input if there is no path or it is `-`.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Lines> {
        let Some(path) = path.filter(|path| !is_standard(path)) else {
            return Ok(Lines::new(io::stdin(), "standard input".into(), None));
        };
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| name.clone())?;
        let total_bytes = file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        Ok(Lines::new(file, name, total_bytes))
    }

    /// Lines given on the command line.
    pub fn of_text(lines: &[String]) -> Lines {
        let text = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
        let total = text.len() as u64;
        Lines::new(io::Cursor::new(text), "arguments".into(), Some(total))
    }

    /// The next line, or the next part of a line of more than [`LONGEST`] bytes; `None` at the end.
    pub fn next_fragment(&mut self) -> anyhow::Result<Option<Fragment>> {
        let mut bytes = std::mem::take(&mut self.rest);
        // Room for the longest line and its line end.
        let most = LONGEST + 2;
        if !bytes.ends_with(b"\n") {
            let mut reader = (&mut self.reader).take((most - bytes.len()) as u64);
            reader.read_until(b'\n', &mut bytes).with_context(|| self.name.clone())?;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let goes_on = bytes.len() == most && !bytes.ends_with(b"\n");
        let line = if goes_on { &bytes } else { without_end(&bytes) };
        let length = cut_place(line);
        let ends = length == line.len();
        let text = String::from_utf8_lossy(&line[..length]).into_owned();
        if !ends {
            self.rest = bytes.split_off(length);
        }
        self.bytes_read += bytes.len() as u64;
        self.hash.add(&bytes);
        Ok(Some(Fragment { text, ends }))
    }

    /// Whether the next line has been read already, so that nobody waits for it.
    pub fn has_next(&self) -> bool {
        self.rest.ends_with(b"\n") || self.reader.buffer().contains(&b'\n')
    }

    /// The next line; `None` at the end.
    pub fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line).context(self.name.clone())?;
        if read == 0 {
            return Ok(None);
        }
        self.bytes_read += read as u64;
        self.hash.add(&line);
        Ok(Some(String::from_utf8_lossy(without_end(&line)).into_owned()))
    }

    /// Up to `count` more lines; empty at the end.
    pub fn next_chunk(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        while lines.len() < count
            && let Some(line) = self.next_line()?
        {
            lines.push(line);
        }
        Ok(lines)
    }

    /// Skips `count` bytes, or all that are left.
    pub fn skip_bytes(&mut self, mut count: u64) -> anyhow::Result<()> {
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
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Reads all lines of a file.
    pub fn read_all(path: &Path) -> anyhow::Result<Vec<String>> {
        Lines::open(Some(path))?.next_chunk(usize::MAX)
    }
}

/// Whether an error only means that the reader of the output has closed the pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(text: &[u8]) -> (Vec<(usize, bool)>, u64) {
        let mut lines = Lines::new(io::Cursor::new(text.to_vec()), "test".into(), None);
        let mut all = Vec::new();
        while let Some(fragment) = lines.next_fragment().expect("text") {
            all.push((fragment.text.len(), fragment.ends));
        }
        (all, lines.bytes_read)
    }

    #[test]
    fn lines_up_to_the_longest_are_whole() {
        for length in [0, 1, LONGEST - 1, LONGEST] {
            for end in ["\n", "\r\n"] {
                let text = format!("{}{end}b", "a".repeat(length));
                let expected = (vec![(length, true), (1, true)], text.len() as u64);
                assert_eq!(fragments(text.as_bytes()), expected, "{length}");
            }
            let text = "a".repeat(length);
            assert_eq!(fragments(text.as_bytes()).0.len(), usize::from(length > 0));
        }
    }

    #[test]
    fn longer_lines_come_in_parts() {
        for more in [1, 2, 3, LONGEST, 2 * LONGEST + 7] {
            for end in ["", "\n", "\r\n"] {
                let text = format!("{}{end}", "a".repeat(LONGEST + more));
                let (parts, bytes) = fragments(text.as_bytes());
                assert_eq!(bytes, text.len() as u64);
                assert_eq!(parts.iter().map(|part| part.0).sum::<usize>(), LONGEST + more);
                assert!(parts.iter().all(|part| part.0 <= LONGEST));
                assert_eq!(parts.iter().filter(|part| part.1).count(), 1);
                assert!(parts.last().is_some_and(|part| part.1 && part.0 > 0));
            }
        }
    }

    #[test]
    fn parts_end_at_blanks_and_never_within_a_character() {
        let text = "two words ".repeat(LONGEST);
        let (parts, _) = fragments(text.as_bytes());
        assert!(parts[..parts.len() - 1].iter().all(|part| part.0 > LONGEST - 6));
        let mut lines = Lines::new(io::Cursor::new("水".repeat(LONGEST)), "test".into(), None);
        while let Some(fragment) = lines.next_fragment().expect("text") {
            assert!(fragment.text.chars().all(|c| c == '水'));
        }
    }
}
