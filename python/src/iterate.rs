//! An iterator of texts as an iterator of their translations: in order, as they come, in bounded memory.
//!
//! ```text
//! next() ── pulls texts ──▶ channel ──▶ stream on a thread of its own ──▶ channel ──▶ next() returns one
//! ```
//!
//! The Python iterator is only ever asked by the thread that calls `next()`. Each call pulls a few texts, so that the workers have
//! enough to do, and then returns the next translation; it pulls more while there is none.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::{Error, Line};
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use crate::both::Both;
use crate::errors::{failed, value};
use crate::open::Opened;
use crate::options::text;
use crate::wait;

/// Texts pulled ahead for each sentence of a batch: as many as a stream sorts by length.
const AHEAD: usize = 16;
/// Bytes of texts pulled ahead at most, unless one text has more.
const MOST_BYTES: usize = 64 << 20;
/// Texts pulled for one that is returned, so that those ahead become more.
const PULLS: usize = 4;
/// An iterator that takes longer for a text is not asked again while there is something to return.
const SLOW: Duration = Duration::from_millis(1);

/// An iterator over translations.
#[pyclass(frozen, module = "peregrine._peregrine")]
pub(crate) struct Translations {
    state: Mutex<State>,
}

struct State {
    /// Where texts come from, until there are no more, and where they go.
    source: Option<(Py<PyIterator>, Sender<Line>)>,
    results: Mutex<Receiver<Result<String, Error>>>,
    /// The bytes of each text that is on its way, and their sum.
    sizes: VecDeque<usize>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    /// Texts pulled so far.
    pulled: u64,
    stop: Arc<AtomicBool>,
    /// What ended the source, to be raised behind the translations of what came before.
    failure: Option<PyErr>,
    /// The process whose threads work for it.
    process: u32,
}

impl Translations {
    pub(crate) fn new(
        opened: &Arc<Opened>,
        source: &Bound<'_, PyAny>,
        options: Both,
    ) -> PyResult<Translations> {
        let source = source.try_iter()?.unbind();
        let (send_text, texts) = channel::<Line>();
        let (send_result, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let workers = &opened.workers;
        let most_bytes = workers.memory.and_then(|bytes| usize::try_from(bytes / 16).ok());
        let state = State {
            source: Some((source, send_text)),
            results: Mutex::new(results),
            sizes: VecDeque::new(),
            bytes: 0,
            most: AHEAD * workers.batch.sentences * workers.threads,
            most_bytes: most_bytes.map_or(MOST_BYTES, |bytes| bytes.min(MOST_BYTES)),
            pulled: 0,
            stop: Arc::clone(&stop),
            failure: None,
            process: std::process::id(),
        };
        let opened = Arc::clone(opened);
        let work = move || {
            let outcome = opened.stream(&options, &stop, texts.into_iter(), |answer| {
                // Where nobody receives, the iterator is gone.
                let text = answer.translation.text().to_owned();
                send_result.send(Ok(text)).map_err(|_| Error::Cancelled)
            });
            if let Err(error) = outcome {
                let _ = send_result.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("peregrine iterator".to_owned()).spawn(work);
        thread.map_err(|error| failed(Error::Thread(error)))?;
        Ok(Translations { state: Mutex::new(state) })
    }
}

#[pymethods]
impl Translations {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match self.state.try_lock() {
            Ok(state) if state.process != std::process::id() => {
                Err(failed("this process was forked after the iterator was made"))
            }
            Ok(mut state) => state.next(py),
            Err(_) => Err(value("another thread is in this iterator")),
        }
    }
}

impl State {
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<String>> {
        for _ in 0..PULLS {
            let start = Instant::now();
            if !self.pull(py) || start.elapsed() > SLOW {
                break;
            }
        }
        loop {
            let ready = match self.results.get_mut() {
                Ok(results) => results.try_recv(),
                Err(_) => Err(TryRecvError::Disconnected),
            };
            let result = match ready {
                Ok(result) => result,
                Err(TryRecvError::Disconnected) => return self.end(),
                Err(TryRecvError::Empty) if self.pull(py) => continue,
                Err(TryRecvError::Empty) => match wait::next(py, &self.results) {
                    Ok(result) => result,
                    Err(RecvTimeoutError::Disconnected) => return self.end(),
                    Err(RecvTimeoutError::Timeout) => {
                        py.check_signals().inspect_err(|_| self.stop())?;
                        continue;
                    }
                },
            };
            self.bytes -= self.sizes.pop_front().unwrap_or_default();
            return result.map(Some).map_err(|error| {
                self.stop();
                failed(error)
            });
        }
    }

    /// Pulls a text, if there may be more on their way. Whether one came.
    fn pull(&mut self, py: Python<'_>) -> bool {
        let full = self.sizes.len() >= self.most || self.bytes >= self.most_bytes;
        if full && !self.sizes.is_empty() {
            return false;
        }
        let Some((source, send)) = &self.source else { return false };
        let item = source.bind(py).clone().next();
        let name = || format!("text {}", self.pulled);
        match item.map(|item| item.and_then(|item| text(&item, name))) {
            Some(Ok(text)) => {
                self.pulled += 1;
                self.bytes += text.len();
                self.sizes.push_back(text.len());
                // Where nobody receives, the stream has failed, and says so.
                let _ = send.send(Line::new(text));
                true
            }
            Some(Err(error)) => {
                self.failure = Some(error);
                self.source = None;
                false
            }
            None => {
                self.source = None;
                false
            }
        }
    }

    /// The end of the translations, and what ended them.
    fn end(&mut self) -> PyResult<Option<String>> {
        self.source = None;
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    /// Stops the stream; the rest is dropped.
    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.source = None;
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            return self.stop();
        }
        // The channels may be locked by threads that a forked process does not have.
        std::mem::forget(self.source.take());
        std::mem::forget(std::mem::replace(&mut self.results, Mutex::new(channel().1)));
    }
}
