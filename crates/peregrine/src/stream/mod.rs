//! Texts of any size through bounded memory.
//!
//! ```text
//! reader ──▶ queue ──▶ workers ──▶ lines in order ──▶ writer
//!    ▲   (sentences)   (batches)    (in flight)          │
//!    └───────── no more than the budget allows ──────────┘
//! ```
//!
//! The reader splits and tokenises, the workers share one queue, and the caller's own thread writes
//! a line as soon as it and all before it are ready. A line is *in flight* from the moment it is read
//! until it is written; the budget bounds the lines in flight, so a slow line holds up the reader and
//! not the machine.

mod budget;
mod flow;
mod paragraph;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use peregrine_decode::batching::{Priority, Queue, SourceId, Waiting};
use peregrine_decode::{Counters, Event, Job, Stats, clock};
use peregrine_text::Split;

pub(crate) use budget::{Budget, memory_in_use};
use flow::{Flow, PartDone};

use crate::line::{Common, SplitLine};
use crate::{Error, Options, Request, Translation, Translator, Workers};

/// A line to translate, with a tag that is returned with the translation.
#[derive(Debug, Clone, Default)]
pub struct Line<T = ()> {
    /// The line, without its end.
    pub text: String,
    /// The first words of its translation, if they are given.
    pub prefix: Option<String>,
    /// The tag, which is returned with the translation.
    pub tag: T,
    /// The bytes of its sentences, if they are known, see [`Request::with_sentences`].
    pub sentences: Option<Vec<Range<usize>>>,
    /// Bytes of it that must come back as they are, see [`Request::keep`].
    pub keep: Vec<Range<usize>>,
}

impl Line {
    /// A line without prefix and tag.
    pub fn new(text: impl Into<String>) -> Line {
        Line { text: text.into(), ..Line::default() }
    }
}

/// A line's translation.
#[derive(Debug)]
pub struct Answer<T = ()> {
    /// The line's number, counted from 0.
    pub number: u64,
    /// The line's tag.
    pub tag: T,
    /// Its translation.
    pub translation: Translation,
    /// Whether the next answer is ready too. If not, this is a good time to flush.
    pub more: bool,
}

/// How to translate a stream.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamOptions<'a> {
    /// The options of every line.
    pub options: Options,
    /// The workers. The batch may be made smaller to fit [`Workers::memory`].
    pub workers: Workers,
    /// A flag that stops the stream: lines that are done are written, the rest is dropped.
    pub stop: Option<&'a AtomicBool>,
    /// Whether times are measured.
    pub measure: bool,
}

impl StreamOptions<'_> {
    /// A stream without measuring and without a stop flag.
    pub fn new(options: Options, workers: Workers) -> Self {
        StreamOptions { options, workers, stop: None, measure: false }
    }
}

/// The summary of a stream.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Lines written.
    pub lines: u64,
    /// Whether the stop flag ended it.
    pub stopped: bool,
    /// The counts and times, if they were measured.
    pub stats: Option<Stats>,
}

/// The most lines read ahead for each sentence of a batch, so that batches have sentences of similar length.
const READ_AHEAD: usize = 16;
/// The fewest lines read ahead for each sentence of a batch. With fewer, batches would not be full.
const LEAST_AHEAD: usize = 2;

impl Translator {
    /// Translates lines as they come and writes them in order, each as soon as it and all before it
    /// are ready, in bounded memory. An error of `lines` ends the stream after the lines before it; an error
    /// of `write` or of the device ends it at once.
    ///
    /// ```
    /// use peregrine::{Line, StreamOptions, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let lines = ["Good morning!", "", "Thank you."].map(|text| Ok(Line::new(text)));
    /// let mut written = Vec::new();
    /// let options = StreamOptions::new(translator.options(), translator.workers());
    /// let summary = translator.stream(lines.into_iter(), &options, |answer| {
    ///     written.push(answer.translation.text().to_owned());
    ///     Ok::<(), peregrine::Error>(())
    /// })?;
    /// assert_eq!((written.len(), summary.lines), (3, 3));
    /// assert_eq!(written[1], "");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Stopping
    ///
    /// When [`StreamOptions::stop`] is set, this returns after the step being computed, provided that
    /// `lines` does not block.
    pub fn stream<T: Send, E: From<Error> + Send>(
        &self,
        lines: impl Iterator<Item = Result<Line<T>, E>> + Send,
        options: &StreamOptions<'_>,
        mut write: impl FnMut(Answer<T>) -> Result<(), E>,
    ) -> Result<Summary, E> {
        let budget = Budget::new(self, &options.options, &options.workers);
        let workers = Workers { batch: budget.batch, ..options.workers.clone() };
        let threads = workers.threads.max(1);
        let read_ahead = READ_AHEAD * budget.batch.sentences * threads;
        let queue = Queue::new(workers.batching, read_ahead, threads);
        let stream = Stream {
            translator: self,
            common: self.common(&options.options, None)?,
            workers,
            source: queue.open_read_ahead(Some(LEAST_AHEAD * budget.batch.sentences * threads)),
            queue,
            flow: Flow::new(budget.lines, 4 * read_ahead),
            stop: options.stop,
            measure: options.measure,
            stats: Mutex::default(),
            failed: Mutex::default(),
        };
        let mut summary = Summary::default();
        let mut write_error = None;
        let read_error = std::thread::scope(|scope| {
            let stream = &stream;
            let reader = scope.spawn(move || {
                let alarm = Alarm(stream);
                let error = stream.read(lines);
                drop(alarm);
                error
            });
            for _ in 0..threads {
                let work = || {
                    let _alarm = Alarm(stream);
                    stream.work();
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                    stream.fail(Error::Thread(error));
                }
            }
            while let Some(answer) = stream.flow.next(|| stream.is_stopped()) {
                if let Err(error) = write(answer) {
                    write_error = Some(error);
                    break;
                }
                summary.lines += 1;
            }
            summary.stopped = stream.is_stopped() && !stream.flow.is_complete();
            stream.end();
            // A panic of the reader goes on here.
            reader.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason))
        });
        if options.measure {
            summary.stats = stream.stats.into_inner().ok();
        }
        let failed = stream.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let read_error = read_error.filter(|_| !summary.stopped);
        match write_error.or(failed.map(E::from)).or(read_error) {
            Some(error) => Err(error),
            None => Ok(summary),
        }
    }
}

/// What the threads of a stream share.
struct Stream<'t, T> {
    translator: &'t Translator,
    common: Common<'t>,
    workers: Workers,
    queue: Queue,
    source: SourceId,
    flow: Flow<T>,
    stop: Option<&'t AtomicBool>,
    measure: bool,
    stats: Mutex<Stats>,
    /// The error that ended it, if one did.
    failed: Mutex<Option<Error>>,
}

/// Ends the stream if its thread panics, so that no other thread waits for it.
struct Alarm<'s, 't, T>(&'s Stream<'t, T>);

impl<T> Drop for Alarm<'_, '_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Bits of a ticket that number the parts of a text.
const PART_BITS: u32 = 24;

/// The ticket of part `part` of text `number`.
pub(crate) fn ticket(number: u64, part: usize) -> u64 {
    number << PART_BITS | part as u64
}

/// The text and its part behind a ticket.
pub(crate) fn place(ticket: u64) -> (u64, usize) {
    (ticket >> PART_BITS, (ticket & ((1 << PART_BITS) - 1)) as usize)
}

impl<T: Send> Stream<'_, T> {
    /// The reader: to the end, or the first error.
    fn read<E>(&self, lines: impl Iterator<Item = Result<Line<T>, E>>) -> Option<E> {
        let mut error = None;
        let mut paragraph = paragraph::Paragraph::default();
        let spans_lines = self.common.options.split == Split::Paragraph;
        let is_paragraph = |line: &Line<T>| spans_lines && line.sentences.is_none();
        for line in lines {
            match line {
                Err(e) => {
                    error = Some(e);
                    break;
                }
                Ok(line) if is_paragraph(&line) => {
                    if let Some(lines) = paragraph.push(line) {
                        self.read_paragraph(lines);
                    }
                }
                Ok(line) => {
                    let split = self.measured(|| {
                        let (prefix, sentences) =
                            (line.prefix.as_deref(), line.sentences.as_deref());
                        let request = Request::new(&line.text).with_kept(&line.keep);
                        let request = Request { prefix, sentences, ..request };
                        self.translator.split_line(&request, &self.common)
                    });
                    match split {
                        Ok(split) => self.admit(line, split),
                        Err(error) => self.fail(error),
                    }
                }
            }
            if self.flow.is_ended() {
                break;
            }
        }
        self.read_paragraph(paragraph.take());
        self.queue.close();
        // After a stop not all lines have been read.
        self.flow.read_all(!self.is_stopped());
        error
    }

    fn read_paragraph(&self, lines: Vec<Line<T>>) {
        match paragraph::split_lines(self.translator, &lines, &self.common) {
            Ok(split) => {
                for (line, split) in lines.into_iter().zip(split) {
                    self.admit(line, split);
                }
            }
            Err(error) => self.fail(error),
        }
    }

    fn measured<P>(&self, split: impl FnOnce() -> P) -> P {
        let start = self.measure.then(clock::now);
        let split = split();
        if let (Some(start), Ok(mut stats)) = (start, self.stats.lock()) {
            stats.tokenise += start.elapsed();
        }
        split
    }

    /// Puts a line into flight, when there is room.
    fn admit(&self, line: Line<T>, split: SplitLine) {
        let options = self.common.options;
        let cost = budget::cost(&line.text, &split, options);
        let stalled = |stalled| self.queue.set_stalled(self.source, stalled);
        // A line without a job, which is empty or a copy, needs no worker.
        let ready =
            split.jobs.is_empty().then(|| self.translator.translation(&split.parts, options));
        let (parts, missing) = (split.parts, split.jobs.len());
        let Some(number) = self.flow.admit(line.tag, parts, missing, cost, stalled) else { return };
        if let Some(translation) = ready {
            self.flow.finish(number, translation);
        }
        for (part, job) in split.jobs {
            let ticket = ticket(number, part);
            self.queue.push(self.source, Waiting { ticket, job });
        }
    }

    /// Has further attempts made of parts of a line.
    fn push_again(&self, number: u64, jobs: Vec<(usize, Job)>) {
        let waiting = |(part, job)| Waiting { ticket: ticket(number, part), job };
        self.queue.push_again(Priority::Bulk, jobs.into_iter().map(waiting).collect());
    }

    /// A worker.
    fn work(&self) {
        let mut stats = Stats::default();
        let mut detokenise = std::time::Duration::ZERO;
        let mut tell = |event: Event| {
            let done = match event {
                Event::Done(done) => done,
                Event::Failed { failure, .. } => return self.fail(failure.into()),
                Event::Token { .. } => return,
            };
            let (number, part) = place(done.ticket);
            let parts = match self.flow.part_done(number, part, done, self.translator) {
                PartDone::Waiting => return,
                PartDone::More(jobs) => return self.push_again(number, jobs),
                PartDone::Complete(parts) => parts,
            };
            let start = self.measure.then(clock::now);
            let translation = self.translator.translation(&parts, self.common.options);
            detokenise += start.map(|start| start.elapsed()).unwrap_or_default();
            self.flow.finish(number, translation);
        };
        let measured = self.measure.then_some(&mut stats);
        let counters = Counters::default();
        self.translator.work(&self.queue, &self.workers, &counters, measured, &mut tell);
        stats.search = stats.search.saturating_sub(detokenise);
        stats.detokenise += detokenise;
        if let Ok(mut all) = self.stats.lock() {
            all.add(&stats);
        }
    }
}

impl<T> Stream<'_, T> {
    /// Whether the stop flag is set.
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Ends the stream with an error; the first one counts.
    fn fail(&self, error: Error) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
        drop(failed);
        self.end();
    }

    fn end(&self) {
        self.queue.stop();
        self.flow.end();
    }
}
