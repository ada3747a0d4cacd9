//! Reading with several threads: lines are taken in chunks, split by whoever is free, and go into flight in order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Line;
use super::paragraph::Paragraph;
use crate::Error;
use crate::part::SplitLine;

/// The most lines of a chunk. More would only delay the first one.
const MOST_LINES: usize = 32;

/// The bytes of a chunk that is complete.
const MOST_BYTES: usize = 1 << 14;

/// Chunks for each reader that may wait for an earlier one.
const AHEAD: u64 = 4;

/// Lines that are split together, or those of a paragraph.
pub(super) struct Chunk<T> {
    number: u64,
    pub(super) lines: Vec<Line<T>>,
    pub(super) is_paragraph: bool,
}

/// A split chunk.
pub(super) type SplitLines<T> = Result<Vec<(Line<T>, SplitLine)>, Error>;

/// What lines are taken from.
pub(super) struct Input<I, T, E> {
    lines: I,
    paragraph: Paragraph<T>,
    /// Whether sentences may span lines.
    spans_lines: bool,
    /// Chunks taken so far.
    chunks: u64,
    /// Whether there are no more lines.
    ended: bool,
    /// Why there are no more lines, if an error is the reason.
    pub(super) error: Option<E>,
}

impl<T, E, I: Iterator<Item = Result<Line<T>, E>>> Input<I, T, E> {
    pub(super) fn new(lines: I, spans_lines: bool) -> Input<I, T, E> {
        let paragraph = Paragraph::default();
        Input { lines, paragraph, spans_lines, chunks: 0, ended: false, error: None }
    }

    /// The next chunk; none at the end. It waits for one line, and takes those that the iterator has for certain with it.
    fn next(&mut self) -> Option<Chunk<T>> {
        let mut lines = Vec::new();
        let mut is_paragraph = false;
        let mut bytes = 0;
        while !self.ended && lines.len() < MOST_LINES && bytes < MOST_BYTES {
            if !lines.is_empty() && self.lines.size_hint().0 == 0 {
                break;
            }
            match self.lines.next() {
                Some(Ok(line)) if self.spans_lines && line.sentences.is_none() => {
                    if let Some(paragraph) = self.paragraph.push(line) {
                        (lines, is_paragraph) = (paragraph, true);
                        break;
                    }
                }
                Some(Ok(line)) => {
                    bytes += line.text.len();
                    lines.push(line);
                    if self.spans_lines {
                        break;
                    }
                }
                Some(Err(error)) => {
                    self.error = Some(error);
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
        if lines.is_empty() {
            (lines, is_paragraph) = (self.paragraph.take(), true);
        }
        if lines.is_empty() {
            return None;
        }
        self.chunks += 1;
        Some(Chunk { number: self.chunks - 1, lines, is_paragraph })
    }
}

/// Split chunks on their way into flight.
pub(super) struct Intake<T> {
    state: Mutex<State<T>>,
    /// Wakes readers: a chunk has gone into flight.
    gone: Condvar,
    readers: usize,
}

struct State<T> {
    /// The number of the chunk that goes into flight next.
    next: u64,
    /// Chunks that wait for it, by number.
    waiting: BTreeMap<u64, SplitLines<T>>,
    /// Whether a thread puts chunks into flight.
    busy: bool,
    /// Readers that have not ended.
    readers: usize,
    ended: bool,
}

impl<T> Intake<T> {
    pub(super) fn new(readers: usize) -> Intake<T> {
        let state = State { next: 0, waiting: BTreeMap::new(), busy: false, readers, ended: false };
        Intake { state: Mutex::new(state), gone: Condvar::new(), readers }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next chunk; none at the end. Waits while too many chunks wait for an earlier one.
    pub(super) fn take<E, I: Iterator<Item = Result<Line<T>, E>>>(
        &self,
        input: &Mutex<Input<I, T, E>>,
    ) -> Option<Chunk<T>> {
        let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
        let most = AHEAD * self.readers as u64;
        let is_far_ahead = |state: &mut State<T>| !state.ended && input.chunks >= state.next + most;
        let state = self.gone.wait_while(self.lock(), is_far_ahead);
        if state.unwrap_or_else(PoisonError::into_inner).ended {
            return None;
        }
        input.next()
    }

    /// Puts a split chunk into flight, by `admit`, when all before it are there: now, or later by another thread. `admit` breaks if
    /// no more is wanted.
    pub(super) fn put(
        &self,
        number: u64,
        split: SplitLines<T>,
        admit: impl Fn(SplitLines<T>) -> ControlFlow<()>,
    ) {
        let mut state = self.lock();
        state.waiting.insert(number, split);
        if state.busy {
            return;
        }
        state.busy = true;
        while !state.ended {
            let next = state.next;
            let Some(split) = state.waiting.remove(&next) else { break };
            drop(state);
            let admitted = admit(split);
            state = self.lock();
            state.next += 1;
            state.ended |= admitted.is_break();
            if self.readers > 1 {
                self.gone.notify_all();
            }
        }
        state.busy = false;
    }

    /// Whether the caller, a reader that ends, is the last one.
    pub(super) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.readers -= 1;
        state.readers == 0
    }

    /// Ends the intake: nothing more goes into flight.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.gone.notify_all();
    }
}

impl<T> Chunk<T> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What goes into flight of these lines with so many readers, who finish in any order, until `admit` breaks.
    fn taken_in<E: Send>(
        lines: impl Iterator<Item = Result<Line<usize>, E>> + Send,
        readers: usize,
        admit: impl Fn(usize) -> ControlFlow<()> + Sync,
    ) -> (Vec<usize>, Option<E>, usize) {
        let intake = Intake::new(readers);
        let input = Mutex::new(Input::new(lines, false));
        let tags = Mutex::new(Vec::new());
        let last_ones = Mutex::new(0);
        std::thread::scope(|scope| {
            for reader in 0..readers {
                let (intake, input, tags, admit, last_ones) =
                    (&intake, &input, &tags, &admit, &last_ones);
                scope.spawn(move || {
                    while let Some(chunk) = intake.take(input) {
                        (0..reader).for_each(|_| std::thread::yield_now());
                        let number = chunk.number();
                        let split = |line: Line<usize>| {
                            let split = SplitLine::new(&line.text);
                            (line, split)
                        };
                        let split = Ok(chunk.lines.into_iter().map(split).collect());
                        intake.put(number, split, |split| {
                            let mut tags = tags.lock().unwrap();
                            let mut lines = split.unwrap().into_iter();
                            lines.try_for_each(|(line, _)| {
                                tags.push(line.tag);
                                admit(line.tag)
                            })
                        });
                    }
                    *last_ones.lock().unwrap() += usize::from(intake.leave());
                });
            }
        });
        let error = input.into_inner().unwrap().error;
        (tags.into_inner().unwrap(), error, last_ones.into_inner().unwrap())
    }

    fn line(tag: usize) -> Line<usize> {
        Line { text: "text".repeat(tag % 7), tag, ..Line::default() }
    }

    #[test]
    fn lines_go_into_flight_in_order() {
        for readers in 1..5 {
            for known in [false, true] {
                let lines = (0..2000).map(|tag| Ok::<_, Infallible>(line(tag)));
                // An iterator that cannot say how many are left gives one line at a time.
                let lines: Box<dyn Iterator<Item = _> + Send> =
                    if known { Box::new(lines) } else { Box::new(lines.filter(|_| true)) };
                let (tags, _, last_ones) = taken_in(lines, readers, |_| ControlFlow::Continue(()));
                assert!(tags.into_iter().eq(0..2000), "{readers} readers");
                assert_eq!(last_ones, 1);
            }
        }
    }

    #[test]
    fn an_error_ends_it_behind_the_lines_before() {
        let lines = (0..100).map(|tag| if tag == 70 { Err("no more") } else { Ok(line(tag)) });
        let (tags, error, _) = taken_in(lines, 3, |_| ControlFlow::Continue(()));
        assert!(tags.into_iter().eq(0..70));
        assert_eq!(error, Some("no more"));
    }

    #[test]
    fn nothing_follows_the_end() {
        let lines = (0..).map(|tag| Ok::<_, Infallible>(line(tag)));
        let (tags, ..) = taken_in(lines, 4, |tag| match tag {
            500 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(tags.into_iter().eq(0..=500));
    }
}
