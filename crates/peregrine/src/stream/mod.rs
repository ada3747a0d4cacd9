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

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use peregrine_decode::batching::{Queue, Waiting};
use peregrine_decode::{Done, Stats};
use peregrine_text::Split;

use budget::Budget;

use flow::Flow;

use crate::line::Plan;
use crate::translator::join;
use crate::{Options, Request, Translation, Translator};

/// A line to translate, with what its owner wants back together with the translation.
#[derive(Debug, Clone, Default)]
pub struct Line<T = ()> {
    /// The line, without its end.
    pub text: String,
    /// How its translation begins, if that is known.
    pub prefix: Option<String>,
    /// Anything.
    pub tag: T,
}

impl Line {
    /// A line of which nothing else is known.
    pub fn new(text: impl Into<String>) -> Line {
        Line { text: text.into(), prefix: None, tag: () }
    }
}

/// A line's translation.
#[derive(Debug)]
pub struct Answer<T = ()> {
    /// The line's number, counted from 0.
    pub number: u64,
    /// What came with the line.
    pub tag: T,
    /// Its translation.
    pub translation: Translation,
    /// Whether the next answer is ready too. If not, this is a good time to flush.
    pub more: bool,
}

/// How to translate a stream.
#[derive(Debug, Clone)]
pub struct StreamOptions<'a> {
    /// How to translate. The batch may be made smaller to fit the memory.
    pub options: Options,
    /// Bytes the whole process may use, the model included. It sizes the read-ahead and the batch.
    pub memory: Option<u64>,
    /// Set from outside, ends the work: what is complete is written, the rest is given up.
    pub stop: Option<&'a AtomicBool>,
    /// Whether to measure.
    pub measure: bool,
}

impl StreamOptions<'_> {
    /// Without a budget of its own.
    pub fn new(options: Options) -> Self {
        StreamOptions { options, memory: None, stop: None, measure: false }
    }
}

/// How it went.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Lines written.
    pub lines: u64,
    /// Whether it was stopped from outside.
    pub stopped: bool,
    /// What was measured, if it was to be.
    pub stats: Option<Stats>,
}

/// Most lines read ahead for each sentence of a batch, so that sentences of like length meet,
const READ_AHEAD: usize = 16;
/// and fewest: with fewer, batches would not be full.
const LEAST_AHEAD: usize = 2;

impl Translator {
    /// Translates lines as they come and hands them out in order, each as soon as it and all before it
    /// are ready, in bounded memory. An error of `lines` ends the stream after the lines before it; one
    /// of `write` ends it at once.
    ///
    /// ```
    /// use peregrine::{Line, StreamOptions, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let lines = ["Good morning!", "", "Thank you."].map(|text| Ok(Line::new(text)));
    /// let mut written = Vec::new();
    /// let options = StreamOptions::new(translator.options());
    /// let summary = translator.stream(lines.into_iter(), &options, |answer| {
    ///     written.push(answer.translation.text().to_owned());
    ///     Ok::<(), std::io::Error>(())
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
    pub fn stream<T: Send, E: Send>(
        &self,
        lines: impl Iterator<Item = Result<Line<T>, E>> + Send,
        options: &StreamOptions<'_>,
        mut write: impl FnMut(Answer<T>) -> Result<(), E>,
    ) -> Result<Summary, E> {
        let budget = Budget::new(self, options);
        let workers = options.options.threads.max(1);
        let read_ahead = READ_AHEAD * budget.batch.sentences * workers;
        let stream = Stream {
            translator: self,
            options: Options { batch: budget.batch, ..options.options.clone() },
            queue: Queue::new(options.options.batching, read_ahead, workers)
                .paced(LEAST_AHEAD * budget.batch.sentences * workers),
            flow: Flow::new(budget.lines, 4 * read_ahead),
            stop: options.stop,
            measure: options.measure,
            stats: Mutex::default(),
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
            let work = || {
                let _alarm = Alarm(stream);
                stream.work();
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            while let Some(answer) = stream.flow.next(|| stream.is_stopped()) {
                if let Err(error) = write(answer) {
                    write_error = Some(error);
                    break;
                }
                summary.lines += 1;
            }
            summary.stopped = stream.is_stopped() && !stream.flow.is_complete();
            stream.end();
            workers.into_iter().for_each(join);
            join(reader)
        });
        if options.measure {
            summary.stats = stream.stats.into_inner().ok();
        }
        match write_error.or(read_error.filter(|_| !summary.stopped)) {
            Some(error) => Err(error),
            None => Ok(summary),
        }
    }
}

/// What the threads of a stream share.
struct Stream<'t, T> {
    translator: &'t Translator,
    options: Options,
    queue: Queue,
    flow: Flow<T>,
    stop: Option<&'t AtomicBool>,
    measure: bool,
    stats: Mutex<Stats>,
}

/// Ends the stream if its thread panics, so that nobody waits for it.
struct Alarm<'s, 't, T>(&'s Stream<'t, T>);

impl<T> Drop for Alarm<'_, '_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Bits of a ticket that number the parts of a line.
const PART_BITS: u32 = 24;

impl<T: Send> Stream<'_, T> {
    /// The reader: to the end, or the first error.
    fn read<E>(&self, lines: impl Iterator<Item = Result<Line<T>, E>>) -> Option<E> {
        let mut error = None;
        let mut paragraph = paragraph::Paragraph::default();
        for line in lines {
            match line {
                Err(e) => {
                    error = Some(e);
                    break;
                }
                Ok(line) if self.options.split == Split::Paragraph => {
                    if let Some(lines) = paragraph.push(line) {
                        self.read_paragraph(lines);
                    }
                }
                Ok(line) => {
                    let plan = self.measured_plan(|| {
                        let prefix = line.prefix.as_deref();
                        let request = Request { prefix, ..Request::new(&line.text) };
                        self.translator.plan(&request, &self.options)
                    });
                    self.admit(line, plan);
                }
            }
            if self.flow.is_ended() {
                break;
            }
        }
        self.read_paragraph(paragraph.take());
        self.queue.close();
        // Lines that end because somebody said stop are not all lines.
        self.flow.read_all(!self.is_stopped());
        error
    }

    fn read_paragraph(&self, lines: Vec<Line<T>>) {
        let plans = paragraph::plan(self.translator, &lines, &self.options);
        for (line, plan) in lines.into_iter().zip(plans) {
            self.admit(line, plan);
        }
    }

    fn measured_plan(&self, plan: impl FnOnce() -> Plan) -> Plan {
        let start = self.measure.then(Instant::now);
        let plan = plan();
        if let (Some(start), Ok(mut stats)) = (start, self.stats.lock()) {
            stats.tokenise += start.elapsed();
        }
        plan
    }

    /// Puts a line into flight, when there is room.
    fn admit(&self, line: Line<T>, plan: Plan) {
        let cost = budget::cost(&line.text, &plan, &self.options);
        let stalled = |stalled| self.queue.set_stalled(stalled);
        // A line without a job is not waited for: it is nothing, or a copy.
        let ready =
            plan.jobs.is_empty().then(|| self.translator.translation(&plan.parts, &self.options));
        let (parts, missing) = (plan.parts, plan.jobs.len());
        let Some(number) = self.flow.admit(line.tag, parts, missing, cost, stalled) else { return };
        if let Some(translation) = ready {
            self.flow.finish(number, translation);
        }
        for (part, job) in plan.jobs {
            self.queue.push(Waiting { ticket: number << PART_BITS | part as u64, job });
        }
    }

    /// A worker.
    fn work(&self) {
        let mut stats = Stats::default();
        let mut detokenise = std::time::Duration::ZERO;
        let mut done = |done: Done| {
            let (number, part) = (done.ticket >> PART_BITS, done.ticket & ((1 << PART_BITS) - 1));
            let Some(parts) = self.flow.part_done(number, part as usize, done) else { return };
            let start = self.measure.then(Instant::now);
            let translation = self.translator.translation(&parts, &self.options);
            detokenise += start.map(|start| start.elapsed()).unwrap_or_default();
            self.flow.finish(number, translation);
        };
        let settings = self.translator.settings(&self.options);
        let measured = self.measure.then_some(&mut stats);
        self.translator.work(&self.queue, &settings, &self.options, measured, &mut done);
        stats.search = stats.search.saturating_sub(detokenise);
        stats.detokenise += detokenise;
        if let Ok(mut all) = self.stats.lock() {
            all.add(&stats);
        }
    }
}

impl<T> Stream<'_, T> {
    /// Whether somebody outside said stop.
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn end(&self) {
        self.queue.stop();
        self.flow.end();
    }
}
