//! Input lines for a stream, read by a thread of their own.
//!
//! A read can take for ever (somebody types, a pipe is silent), and nothing can interrupt it. So the
//! thread that reads is left alone, and the stream asks it for lines in a way that Ctrl-C ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::bail;
use peregrine::Line;

use peregrine_args::lines::Lines;

/// Lines waiting between the thread that reads and the stream.
const WAITING: usize = 64;

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

/// Lines as they come.
pub(crate) struct Feed<T> {
    lines: Receiver<anyhow::Result<Line<T>>>,
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
        Feed { lines: receiver, stop }
    }
}

fn send<T>(
    lines: impl Iterator<Item = anyhow::Result<Line<T>>>,
    to: &SyncSender<anyhow::Result<Line<T>>>,
) {
    for line in lines {
        let failed = line.is_err();
        if to.send(line).is_err() || failed {
            return;
        }
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
}

impl<T> Iterator for Feed<T> {
    type Item = anyhow::Result<Line<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
