//! Lines in flight: read, not yet written.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peregrine_decode::{Done, Job};

use super::Answer;
use crate::part::Parts;
use crate::{Translation, Translator};

/// How often the writer checks the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Lines in flight, in order.
pub(super) struct Flow<T> {
    state: Mutex<State<T>>,
    /// Wakes the writer: a line is ready, or no more will be.
    ready: Condvar,
    /// Wakes the reader: there is room.
    room: Condvar,
    most_bytes: usize,
    most_lines: usize,
}

struct State<T> {
    lines: VecDeque<InFlight<T>>,
    /// The number of the first line in flight.
    first: u64,
    bytes: usize,
    /// Whether no more lines will come.
    read_all: bool,
    /// Whether all lines there are have been read.
    complete: bool,
    ended: bool,
    /// Whether the writer and the reader wait. Waking nobody costs a system call too.
    writer_waits: bool,
    reader_waits: bool,
}

struct InFlight<T> {
    tag: T,
    parts: Parts,
    /// Parts that are not done.
    missing: usize,
    translation: Option<Translation>,
    cost: usize,
}

/// What the result of a part leads to.
pub(super) enum PartDone {
    /// Other parts are not done.
    Waiting,
    /// The line needs further jobs, by the numbers of their parts.
    More(Vec<(usize, Job)>),
    /// All parts are done.
    Complete(Parts),
}

impl<T> State<T> {
    fn line(&mut self, number: u64) -> Option<&mut InFlight<T>> {
        let place = number.checked_sub(self.first)?;
        self.lines.get_mut(place as usize)
    }

    fn is_ready(&self) -> bool {
        self.lines.front().is_some_and(|line| line.translation.is_some())
    }
}

impl<T> Flow<T> {
    /// Room for that many bytes and lines.
    pub(super) fn new(most_bytes: usize, most_lines: usize) -> Flow<T> {
        let state = State {
            lines: VecDeque::new(),
            first: 0,
            bytes: 0,
            read_all: false,
            complete: false,
            ended: false,
            writer_waits: false,
            reader_waits: false,
        };
        Flow {
            state: Mutex::new(state),
            ready: Condvar::new(),
            room: Condvar::new(),
            most_bytes,
            most_lines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a line into flight when there is room, and returns its number; none if the stream has ended.
    /// `missing` of its parts are to be translated.
    /// A line that is larger than the whole budget is in flight alone. `stalled` is called when waiting begins
    /// and ends.
    pub(super) fn admit(
        &self,
        tag: T,
        parts: Parts,
        missing: usize,
        cost: usize,
        stalled: impl Fn(bool),
    ) -> Option<u64> {
        let mut state = self.lock();
        let mut waited = false;
        while !state.ended
            && !state.lines.is_empty()
            && (state.bytes + cost > self.most_bytes || state.lines.len() >= self.most_lines)
        {
            if !waited {
                stalled(true);
                waited = true;
            }
            state.reader_waits = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if waited {
            stalled(false);
        }
        if state.ended {
            return None;
        }
        let number = state.first + state.lines.len() as u64;
        state.bytes += cost;
        state.lines.push_back(InFlight { tag, parts, missing, translation: None, cost });
        Some(number)
    }

    /// Stores the result of a part. Returns the jobs that the line still needs because of it, or all its parts if that was the last
    /// one.
    pub(super) fn part_done(
        &self,
        number: u64,
        part: usize,
        done: Done,
        translator: &Translator,
    ) -> PartDone {
        let mut state = self.lock();
        let Some(line) = state.line(number) else { return PartDone::Waiting };
        if line.missing > 1 {
            let more = line.parts.finish(part, done, translator);
            line.missing = line.missing + more.len() - 1;
            return if more.is_empty() { PartDone::Waiting } else { PartDone::More(more) };
        }
        // Nobody else waits for a part of this line, so it can be looked at without the lock.
        line.missing = 0;
        let mut parts = std::mem::take(&mut line.parts);
        drop(state);
        let more = parts.finish(part, done, translator);
        if more.is_empty() {
            return PartDone::Complete(parts);
        }
        if let Some(line) = self.lock().line(number) {
            (line.parts, line.missing) = (parts, more.len());
        }
        PartDone::More(more)
    }

    /// Stores the translation of a line.
    pub(super) fn finish(&self, number: u64, translation: Translation) {
        let mut state = self.lock();
        if let Some(line) = state.line(number) {
            line.translation = Some(translation);
        }
        if state.writer_waits && state.is_ready() {
            state.writer_waits = false;
            drop(state);
            self.ready.notify_all();
        }
    }

    /// Waits for the next line in order, and adds it and those that are ready after it, up to `most`, to `answers`. At the end there
    /// are none. After `stop` lines that are ready are still returned.
    pub(super) fn next(
        &self,
        most: usize,
        stop: impl Fn() -> bool,
        answers: &mut VecDeque<Answer<T>>,
    ) {
        let mut state = self.lock();
        while !state.is_ready() {
            let complete = state.read_all && state.lines.is_empty();
            if complete || state.ended || stop() {
                return;
            }
            state.writer_waits = true;
            let waited = self.ready.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.writer_waits = false;
        while answers.len() < most && state.is_ready() {
            let Some(line) = state.lines.pop_front() else { break };
            let number = state.first;
            state.first += 1;
            state.bytes -= line.cost;
            let more = state.is_ready();
            let answer = |translation| Answer { number, tag: line.tag, translation, more };
            answers.extend(line.translation.map(answer));
        }
        if std::mem::take(&mut state.reader_waits) {
            drop(state);
            self.room.notify_all();
        }
    }

    /// No more lines will come, `complete` if there are none.
    pub(super) fn read_all(&self, complete: bool) {
        let mut state = self.lock();
        state.read_all = true;
        state.complete = complete;
        drop(state);
        self.ready.notify_all();
    }

    /// Ends the stream and wakes all threads.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Whether all lines have been read and handed out.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.lock();
        state.complete && state.lines.is_empty()
    }
}
