//! Input lines for a stream, read by a thread of their own.
//!
//! A read can take for ever (somebody types, a pipe is silent), and nothing can interrupt it. So the
//! thread that reads is left alone, and the stream asks it for lines in a way that Ctrl-C ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use peregrine::Line;

use crate::lines::Lines;

/// Lines waiting between the thread that reads and the stream.
const WAITING: usize = 64;

/// How often a waiting stream looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(20);

/// Where a line ends in its file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// Bytes up to its end.
    pub(crate) bytes: u64,
    /// Their hash.
    pub(crate) hash: u64,
}

/// Lines as they come.
pub(crate) struct Feed {
    lines: Receiver<anyhow::Result<Line<Place>>>,
    stop: &'static AtomicBool,
}

impl Feed {
    /// Reads `input`, and with it `prefixes` if there are any.
    pub(crate) fn new(input: Lines, prefixes: Option<Lines>, stop: &'static AtomicBool) -> Feed {
        let (sender, lines) = sync_channel(WAITING);
        std::thread::spawn(move || read(input, prefixes, &sender));
        Feed { lines, stop }
    }
}

/// To the end, or until nobody wants more.
fn read(
    mut input: Lines,
    mut prefixes: Option<Lines>,
    sender: &SyncSender<anyhow::Result<Line<Place>>>,
) {
    loop {
        let line = next(&mut input, prefixes.as_mut()).transpose();
        let Some(line) = line else { return };
        let failed = line.is_err();
        if sender.send(line).is_err() || failed {
            return;
        }
    }
}

fn next(input: &mut Lines, prefixes: Option<&mut Lines>) -> anyhow::Result<Option<Line<Place>>> {
    let Some(text) = input.next_line()? else { return Ok(None) };
    let prefix = prefixes.map(Lines::next_line).transpose()?.flatten();
    let tag = Place { bytes: input.bytes_read, hash: input.hash() };
    Ok(Some(Line { text, prefix: prefix.filter(|p| !p.is_empty()), tag }))
}

impl Iterator for Feed {
    type Item = anyhow::Result<Line<Place>>;

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
