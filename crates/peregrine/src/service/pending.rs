//! An accepted request, which can be waited for, polled, awaited or cancelled.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peregrine_decode::batching::{Priority, SourceId};
use peregrine_decode::clock::{self, Moment};
use peregrine_decode::{Call, Done, Job};

use super::Shared;
use crate::part::{Part, Parts};
use crate::{Error, Translation, Translator};

/// The state of a request that a service and its caller share.
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) call: Arc<Call>,
    pub(super) source: SourceId,
    pub(super) priority: Priority,
    pub(super) accepted: Moment,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parts: Parts,
    /// The number of unfinished parts.
    missing: usize,
    /// `Ok` when all parts are done, or the error that ended the request.
    outcome: Option<Result<(), Error>>,
    news: VecDeque<News>,
    waker: Option<Waker>,
}

impl State {
    /// Reports a finished part; a piece of a sentence is reported when all pieces are finished.
    fn report(&mut self, part: usize) {
        let root = self.parts.list[part].parent.unwrap_or(part);
        let open = |piece: &Part| piece.copied.is_none() && piece.hypotheses.is_empty();
        if !self.parts.pieces_of(&self.parts.list[root]).any(open) {
            self.news.push_back(News::Done { part: root });
        }
    }
}

/// The consequence of a part's result.
pub(super) enum PartDone {
    /// Other parts are unfinished.
    Waiting,
    /// The request needs further jobs, with the indices of their parts.
    More(Vec<(usize, Job)>),
    /// All parts are done.
    Complete,
}

/// An event of a part.
enum News {
    Done { part: usize },
    Token { part: usize, position: usize, token: u32 },
}

/// A progress report of an unfinished request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A greedy search has found one more word of a sentence.
    Token {
        /// The sentence's number in the text, counted from 0.
        sentence: usize,
        /// The sentence's translation so far. A guard may restart it.
        text: String,
    },
    /// A sentence is done. Sentences end in any order.
    Sentence {
        /// The sentence's number in the text, counted from 0.
        sentence: usize,
        /// The sentence's translation.
        text: String,
    },
}

impl Answer {
    pub(super) fn new(
        number: u64,
        call: Arc<Call>,
        (source, priority): (SourceId, Priority),
        parts: Parts,
    ) -> Answer {
        let missing = parts.list.iter().filter(|part| part.copied.is_none()).count();
        let outcome = (missing == 0).then_some(Ok(()));
        let state = State { parts, missing, outcome, ..State::default() };
        Answer {
            number,
            call,
            source,
            priority,
            accepted: clock::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Stores the result of a part and returns its consequence.
    pub(super) fn part_done(&self, part: usize, done: Done, translator: &Translator) -> PartDone {
        self.change(|state| {
            if part >= state.parts.list.len() {
                return PartDone::Waiting;
            }
            let more = state.parts.finish(part, done, translator);
            state.missing = state.missing + more.len() - 1;
            if more.is_empty() {
                state.report(part);
            }
            match state.missing {
                0 => PartDone::Complete,
                _ if more.is_empty() => PartDone::Waiting,
                _ => PartDone::More(more),
            }
        })
    }

    /// Ends the request with its results or an error; only the first call has an effect.
    pub(super) fn finish(&self, outcome: Result<(), Error>) {
        self.change(|state| {
            state.outcome.get_or_insert(outcome);
        });
    }

    pub(super) fn token(&self, part: usize, position: usize, token: u32) {
        self.change(|state| {
            // The pieces of a sentence are reported together at the end.
            if state.parts.list.get(part).is_some_and(|part| part.parent.is_none()) {
                state.news.push_back(News::Token { part, position, token });
            }
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().outcome.is_some()
    }
}

/// A request that a [`Service`](super::Service) has accepted.
///
/// It can be [waited for](Self::wait), [polled](Self::poll_ready), awaited, and cancelled: dropping it
/// removes it from the queue at once and from the batch at the next step.
#[must_use = "a request that is dropped is cancelled"]
pub struct Pending<T = Translation> {
    pub(super) answer: Arc<Answer>,
    pub(super) service: Arc<Shared>,
    /// Makes the result of finished parts, on the thread of the caller.
    pub(super) make: Option<Make<T>>,
    /// The words so far of each sentence whose tokens are reported.
    pub(super) words: Vec<Vec<u32>>,
}

pub(super) type Make<T> = Box<dyn FnOnce(&Shared, Parts) -> T + Send>;

impl<T> Pending<T> {
    /// Waits for the result. Past the deadline that is [`Error::Deadline`], whatever the workers do.
    pub fn wait(mut self) -> Result<T, Error> {
        let mut state = self.answer.lock();
        while state.outcome.is_none() {
            state = match self.wait_for_change(state) {
                Some(state) => state,
                None => return Err(Error::Deadline),
            };
        }
        drop(state);
        self.take()
    }

    /// Waits for the state to change; `None` if the deadline comes first.
    fn wait_for_change<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
    ) -> Option<MutexGuard<'s, State>> {
        let Some(deadline) = self.answer.call.deadline() else {
            return Some(self.answer.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            drop(state);
            self.service.end(&self.answer, Error::Deadline);
            return None;
        }
        let waited = self.answer.changed.wait_timeout(state, left);
        Some(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Whether [`Self::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        self.answer.is_over()
    }

    /// The result, if it is ready. It is returned once.
    pub fn poll_ready(&mut self) -> Option<Result<T, Error>> {
        self.answer.is_over().then(|| self.take())
    }

    /// The byte ranges of the request's sentences, by the numbers of [`Progress`]. Empty after the
    /// result has been taken.
    ///
    /// ```
    /// use peregrine::{Request, Service, ServiceOptions, Split, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
    /// let options = translator.options().with_split(Split::Sentence);
    /// let pending = service.submit(&Request::new("Thank you. Good morning!").with_options(&options))?;
    /// assert_eq!(pending.sources(), [0..10, 11..24]);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn sources(&self) -> Vec<Range<usize>> {
        let state = self.answer.lock();
        let whole = state.parts.list.iter().filter(|part| part.parent.is_none());
        whole.map(|part| part.source.clone()).collect()
    }

    /// Cancels the request. Its result is then [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.service.end(&self.answer, Error::Cancelled);
    }

    /// Waits for the next progress report; `None` at the end. A slow reader does not delay other
    /// requests.
    pub fn next_progress(&mut self) -> Option<Progress> {
        let news = {
            let mut state = self.answer.lock();
            loop {
                if let Some(news) = state.news.pop_front() {
                    break news;
                }
                if state.outcome.is_some() {
                    return None;
                }
                state = self.wait_for_change(state)?;
            }
        };
        Some(self.progress(news))
    }

    /// Polls for the next progress report; the task is woken when there is one.
    pub fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<Option<Progress>> {
        let news = {
            let mut state = self.answer.lock();
            match state.news.pop_front() {
                Some(news) => news,
                None if state.outcome.is_some() => return Poll::Ready(None),
                None => {
                    state.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        };
        Poll::Ready(Some(self.progress(news)))
    }

    fn progress(&mut self, news: News) -> Progress {
        let translator = &self.service.translator;
        match news {
            News::Done { part } => {
                let text = translator.text_of_part(&self.answer.lock().parts, part);
                Progress::Sentence { sentence: part, text }
            }
            News::Token { part, position, token } => {
                if self.words.len() <= part {
                    self.words.resize(part + 1, Vec::new());
                }
                let words = &mut self.words[part];
                words.truncate(position);
                words.push(token);
                let text = translator.model().target.decode(words);
                let text = self.answer.lock().parts.preview(part, text);
                Progress::Token { sentence: part, text }
            }
        }
    }

    /// The result at the end.
    fn take(&mut self) -> Result<T, Error> {
        let (parts, outcome) = {
            let mut state = self.answer.lock();
            let taken = Some(Err(Error::Cancelled));
            (std::mem::take(&mut state.parts), std::mem::replace(&mut state.outcome, taken))
        };
        match (outcome, self.make.take()) {
            (Some(Ok(())), Some(make)) => Ok(make(&self.service, parts)),
            (Some(Err(error)), _) => Err(error),
            _ => Err(Error::Cancelled),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.answer.lock();
        if state.outcome.is_none() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take())
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.answer.is_over() {
            self.cancel();
        }
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("ready", &self.is_ready()).finish_non_exhaustive()
    }
}
