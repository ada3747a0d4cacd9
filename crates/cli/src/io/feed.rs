//! Input lines for a stream, read by a thread of their own.
//!
//! A read can take for ever (somebody types, a pipe is silent), and nothing can interrupt it. So the
//! thread that reads is left alone, and the stream asks it for lines in a way that Ctrl-C ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use std::vec;

use anyhow::bail;
use peregrine::Line;

use peregrine_args::lines::Lines;

/// Chunks of lines waiting between the thread that reads and the stream.
const WAITING: usize = 4;

/// The most lines of a chunk: what has been read at once is handed on at once.
const MOST_LINES: usize = 64;

/// The bytes of a chunk that is complete.
const MOST_BYTES: usize = 1 << 14;

/// How often a waiting stream looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(20);

/// What is known of a line, or of a part of one that is too long to be held in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// Bytes of the input up to its end.
    pub(crate) bytes: u64,
    /// Their hash.
    pub(crate) hash: u64,
    /// White space between the part of the line before and this one; none at the beginning of a line.
    pub(crate) between: Option<Arc<str>>,
    /// Whether the line ends with it.
    pub(crate) ends: bool,
    /// Whether it is blank.
    pub(crate) blank: bool,
}

/// Lines that have been read at once.
type Chunk<T> = Vec<anyhow::Result<Line<T>>>;

/// Lines as they come.
pub(crate) struct Feed<T> {
    chunks: Receiver<Chunk<T>>,
    /// What is left of the last chunk.
    lines: vec::IntoIter<anyhow::Result<Line<T>>>,
    stop: &'static AtomicBool,
}

impl<T: Send + 'static> Feed<T> {
    /// Reads to the end, to the first error, or until nobody wants more.
    pub(crate) fn new(
        lines: impl Iterator<Item = anyhow::Result<Line<T>>> + Send + 'static,
        stop: &'static AtomicBool,
    ) -> Feed<T> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::spawn(move || send(lines, &sender));
        Feed { chunks: receiver, lines: Vec::new().into_iter(), stop }
    }
}

/// Sends lines in chunks of those that are there already.
fn send<T>(mut lines: impl Iterator<Item = anyhow::Result<Line<T>>>, to: &SyncSender<Chunk<T>>) {
    let mut goes_on = true;
    while goes_on {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while goes_on {
            let Some(line) = lines.next() else {
                goes_on = false;
                break;
            };
            goes_on = line.is_ok();
            bytes += line.as_ref().map_or(0, |line| line.text.len());
            chunk.push(line);
            if chunk.len() >= MOST_LINES || bytes >= MOST_BYTES || lines.size_hint().0 == 0 {
                break;
            }
        }
        goes_on &= chunk.is_empty() || to.send(chunk).is_ok();
    }
}

/// Lines of a text with their places in it.
pub(crate) struct Reader {
    input: Lines,
    prefixes: Option<Lines>,
    /// Lines that have ended.
    lines: u64,
    /// White space at the end of the part of a line read last, if that line goes on.
    between: Option<String>,
}

impl Reader {
    /// Reads `input`, whose first `lines` have been read, and with it `prefixes` if there are any.
    pub(crate) fn new(input: Lines, prefixes: Option<Lines>, lines: u64) -> Reader {
        Reader { input, prefixes, lines, between: None }
    }

    fn next_line(&mut self) -> anyhow::Result<Option<Line<Place>>> {
        let Some(fragment) = self.input.next_fragment()? else {
            return self.check_prefixes().map(|()| None);
        };
        let before = self.between.take();
        let prefix = if before.is_none() { self.next_prefix()? } else { None };
        let between = before.map(|space| {
            let length = fragment.text.len() - fragment.text.trim_start().len();
            (space + &fragment.text[..length]).into()
        });
        self.lines += u64::from(fragment.ends);
        if !fragment.ends {
            let length = fragment.text.trim_end().len();
            self.between = Some(fragment.text[length..].to_owned());
        }
        let tag = Place {
            bytes: self.input.bytes_read,
            hash: self.input.hash(),
            between,
            ends: fragment.ends,
            blank: fragment.text.trim().is_empty(),
        };
        let prefix = prefix.filter(|p| !p.is_empty());
        Ok(Some(Line { text: fragment.text, prefix, tag, sentences: None, keep: Vec::new() }))
    }

    /// The prefix of the next line.
    fn next_prefix(&mut self) -> anyhow::Result<Option<String>> {
        let Some(prefixes) = &mut self.prefixes else { return Ok(None) };
        match prefixes.next_line()? {
            None => bail!("{}: no line for line {} of the text", prefixes.name, self.lines + 1),
            prefix => Ok(prefix),
        }
    }

    /// Refuses prefixes of lines that are not there.
    fn check_prefixes(&mut self) -> anyhow::Result<()> {
        let Some(prefixes) = &mut self.prefixes else { return Ok(()) };
        match prefixes.next_line()? {
            Some(_) => bail!("{}: more lines than the {} of the text", prefixes.name, self.lines),
            None => Ok(()),
        }
    }
}

impl Iterator for Reader {
    type Item = anyhow::Result<Line<Place>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }

    /// At least one line, if what has been read holds more.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.input.has_next().into(), None)
    }
}

impl<T> Iterator for Feed<T> {
    type Item = anyhow::Result<Line<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.lines.next() {
                return Some(line);
            }
            match self.chunks.recv_timeout(LOOK) {
                Ok(lines) => self.lines = lines.into_iter(),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// At least the lines of the last chunk.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.lines.len(), None)
    }
}
