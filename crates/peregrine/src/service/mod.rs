//! A model that many callers share: permanent workers and one queue.
//!
//! ```text
//! callers ── submit ──▶ queue ──▶ workers ──▶ answers
//!    ▲                (sentences)  (batches)     │
//!    └────────────── wait, poll, await ──────────┘
//! ```
//!
//! A caller's thread splits and tokenises its text, workers translate sentences of all requests in
//! common batches, and the thread that waits for a result detokenises it. Free slots in a batch go
//! to the callers in turn (top-up batching across callers).

mod pending;
mod stats;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use peregrine_decode::batching::{Bound, Priority, Queue, Scope, SourceId, Waiting};
use peregrine_decode::clock;
use peregrine_decode::{Call, Counters, Event, Job};

use crate::part::{Part, Parts};
use crate::stream::{Budget, memory_in_use, place, ticket};
use crate::{Error, Options, Request, Scored, Translation, Translator, Workers};

use pending::{Answer, Make, PartDone};
pub use pending::{Pending, Progress};
use stats::Tally;
pub use stats::{Latencies, ServiceStats};

/// The default limit of queued sentences of each priority.
const USUAL_SENTENCES: usize = 100_000;

/// The options of a service.
///
/// ```
/// use peregrine::{ServiceOptions, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let options = ServiceOptions::new(translator.workers().with_threads(2)).with_room(1000);
/// assert_eq!(options.most_sentences, 1000);
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServiceOptions {
    /// The workers.
    pub workers: Workers,
    /// The limit of queued sentences of each priority.
    pub most_sentences: usize,
    /// The limit of queued bytes of each priority; by default the rest of [`Workers::memory`].
    pub most_bytes: Option<usize>,
}

impl ServiceOptions {
    /// Default options with these workers.
    pub fn new(workers: Workers) -> ServiceOptions {
        ServiceOptions { workers, most_sentences: USUAL_SENTENCES, most_bytes: None }
    }

    /// The same options with this limit of queued sentences of each priority.
    pub fn with_room(self, most_sentences: usize) -> ServiceOptions {
        ServiceOptions { most_sentences, ..self }
    }
}

/// A model that many callers share. Its threads start with the first request and end when it is dropped.
///
/// ```
/// use peregrine::{Request, Service, ServiceOptions, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
/// std::thread::scope(|scope| {
///     for text in ["Good morning!", "Two dogs play in the snow."] {
///         let service = &service;
///         scope.spawn(move || {
///             let pending = service.submit(&Request::new(text))?;
///             assert!(!pending.wait()?.text().is_empty());
///             Ok::<(), peregrine::Error>(())
///         });
///     }
/// });
/// service.finish();
/// # Ok::<(), peregrine::Error>(())
/// ```
pub struct Service {
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
}

/// The threads of a service, and the process they are in. A forked process has the service but not its threads.
#[derive(Default)]
struct Threads {
    process: Option<u32>,
    handles: Vec<JoinHandle<()>>,
}

/// The state that callers, workers and pending requests share.
pub(crate) struct Shared {
    translator: Translator,
    options: Options,
    workers: Workers,
    queue: Queue,
    counters: Counters,
    tally: Tally,
    /// Requests that have not ended, by number.
    answers: Mutex<HashMap<u64, Arc<Answer>>>,
    last_number: AtomicU64,
}

/// A caller whose requests share a turn: a text submitted line by line gets no larger share of a batch than a
/// request of one line.
///
/// ```
/// use peregrine::{Priority, Request, Service, ServiceOptions, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
/// let caller = service.caller(Priority::Bulk);
/// let lines = ["Good morning!", "Thank you."];
/// let pending = lines.map(|line| caller.submit(&Request::new(line)));
/// for line in pending {
///     println!("{}", line?.wait()?.text());
/// }
/// # Ok::<(), peregrine::Error>(())
/// ```
///
/// It borrows the service, or shares it: [`Service::shared_caller`].
pub struct Caller<S: Deref<Target = Service>> {
    service: S,
    priority: Priority,
    source: SourceId,
}

impl Service {
    /// A service of a model.
    pub fn new(translator: &Translator, options: &ServiceOptions) -> Service {
        let own = translator.options();
        let budget = Budget::new(translator, &own, &options.workers);
        let workers = Workers {
            batch: budget.batch,
            shortlist_scope: Scope::Sentence,
            ..options.workers.clone()
        };
        let bytes = options.most_bytes.unwrap_or(budget.lines);
        let bound = Bound { sentences: options.most_sentences, bytes };
        let threads = workers.threads.max(1);
        let shared = Shared {
            translator: translator.clone(),
            options: own,
            queue: Queue::new(workers.batching, usize::MAX, threads).bounded(bound),
            workers,
            counters: Counters::default(),
            tally: Tally::new(),
            answers: Mutex::default(),
            last_number: AtomicU64::new(0),
        };
        Service { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// The model.
    pub fn translator(&self) -> &Translator {
        &self.shared.translator
    }

    /// Queues a request. Waits while the queue is full, but no longer than its deadline.
    pub fn submit(&self, request: &Request<'_>) -> Result<Pending, Error> {
        self.submit_once(request, true)
    }

    /// Queues a request, or fails with [`Error::Full`] if the queue is full.
    pub fn try_submit(&self, request: &Request<'_>) -> Result<Pending, Error> {
        self.submit_once(request, false)
    }

    fn submit_once(&self, request: &Request<'_>, waits: bool) -> Result<Pending, Error> {
        let source = self.shared.queue.open(request.priority);
        let pending = self.submit_to((source, request.priority), request, waits);
        self.shared.queue.close_source(source);
        pending
    }

    /// A caller whose requests share a turn. Its priority overrides those of its requests.
    pub fn caller(&self, priority: Priority) -> Caller<&Service> {
        Caller { service: self, priority, source: self.shared.queue.open(priority) }
    }

    /// A caller that keeps the service alive.
    pub fn shared_caller(self: &Arc<Self>, priority: Priority) -> Caller<Arc<Service>> {
        let source = self.shared.queue.open(priority);
        Caller { service: Arc::clone(self), priority, source }
    }

    /// Translates a text with the model's own settings.
    pub fn translate(&self, text: &str) -> Result<String, Error> {
        Ok(self.submit(&Request::new(text))?.wait()?.text().to_owned())
    }

    /// Translates texts, which share a turn and the first one's priority; the translations are in
    /// the same order.
    pub fn translate_batch(&self, requests: &[Request<'_>]) -> Result<Vec<Translation>, Error> {
        let priority = requests.first().map_or(Priority::Bulk, |request| request.priority);
        let caller = self.caller(priority);
        let pending: Result<Vec<Pending>, Error> =
            requests.iter().map(|request| caller.submit(request)).collect();
        pending?.into_iter().map(Pending::wait).collect()
    }

    /// Scores a translation, see [`Translator::score`]. The request is the source.
    pub fn submit_score(
        &self,
        request: &Request<'_>,
        translation: &str,
    ) -> Result<Pending<Scored>, Error> {
        let shared = &self.shared;
        let options = request.options.unwrap_or(&shared.options);
        let call = Arc::new(Call::new(request.deadline, false));
        let settings = Arc::new(shared.translator.scoring(options));
        let pair = (request.text, translation);
        let framing = shared.translator.framing(Some(request), options)?;
        let (job, cut) = shared.translator.score_job(pair, framing, options, &settings, &call);
        let part = Part { source_tokens: job.source.len(), ..Part::default() };
        let source = shared.queue.open(request.priority);
        let make: Make<Scored> = Box::new(move |_, mut parts| {
            let hypotheses = parts.list.pop().map(|part| part.hypotheses).unwrap_or_default();
            Scored::new(peregrine_decode::Done { hypotheses, ..Default::default() }, cut)
        });
        let parts = Parts { list: vec![part], ..Parts::default() };
        let source = (source, request.priority);
        let pending = self.accept(source, call, parts, vec![(0, job)], true, make);
        let source = source.0;
        shared.queue.close_source(source);
        pending
    }

    fn submit_to(
        &self,
        source: (SourceId, Priority),
        request: &Request<'_>,
        waits: bool,
    ) -> Result<Pending, Error> {
        let shared = &self.shared;
        let options = request.options.unwrap_or(&shared.options);
        let call = Arc::new(Call::new(request.deadline, request.tokens));
        let framing = shared.translator.framing(Some(request), options)?;
        let common = shared.translator.common_of(options, framing, Arc::clone(&call));
        let split = shared.translator.split_line(request, &common)?;
        let options = options.clone();
        let make: Make<Translation> =
            Box::new(move |shared, parts| shared.translator.translation(&parts, &options));
        self.accept(source, call, split.parts, split.jobs, waits, make)
    }

    fn accept<T>(
        &self,
        (source, priority): (SourceId, Priority),
        call: Arc<Call>,
        parts: Parts,
        jobs: Vec<(usize, Job)>,
        waits: bool,
        make: Make<T>,
    ) -> Result<Pending<T>, Error> {
        self.begin()?;
        let shared = &self.shared;
        let number = shared.last_number.fetch_add(1, Relaxed) + 1;
        let deadline = call.deadline();
        let answer = Arc::new(Answer::new(number, call, (source, priority), parts));
        let waiting = |(part, job)| Waiting { ticket: ticket(number, part), job };
        let waiting: Vec<Waiting> = jobs.into_iter().map(waiting).collect();
        if waiting.is_empty() {
            shared.tally.answered_after(Duration::ZERO);
        } else {
            // Insert first: a worker may finish the request before the queue returns.
            shared.answers().insert(number, Arc::clone(&answer));
            let pushed = match waits {
                true => shared.queue.push_when_room(source, waiting, deadline),
                false => shared.queue.try_push(source, waiting),
            };
            if let Err(refusal) = pushed {
                shared.answers().remove(&number);
                shared.tally.refused.fetch_add(1, Relaxed);
                return Err(refusal.into());
            }
        }
        shared.tally.accepted.fetch_add(1, Relaxed);
        let service = Arc::clone(shared);
        Ok(Pending { answer, service, make: Some(make), words: Vec::new() })
    }

    /// The number of queued sentences of a priority.
    pub fn queue_depth(&self, priority: Priority) -> usize {
        self.shared.queue.waiting(priority).sentences
    }

    /// The number of sentences translated so far.
    pub fn finished(&self) -> u64 {
        self.shared.counters.counts().finished
    }

    /// The counts of the service.
    pub fn stats(&self) -> ServiceStats {
        let Shared { queue, tally, .. } = &*self.shared;
        let [interactive, bulk] = Priority::ALL.map(|priority| queue.waiting(priority));
        ServiceStats {
            waiting_interactive: interactive.sentences,
            waiting_bulk: bulk.sentences,
            waiting_bytes: interactive.bytes + bulk.bytes,
            open: self.shared.answers().len(),
            accepted: tally.accepted.load(Relaxed),
            answered: tally.answered.load(Relaxed),
            cancelled: tally.cancelled.load(Relaxed),
            late: tally.late.load(Relaxed),
            refused: tally.refused.load(Relaxed),
            failed: tally.failed.load(Relaxed),
            counts: self.shared.counters.counts(),
            latencies: tally.latencies(),
            memory: memory_in_use(),
        }
    }

    /// Accepts no more requests, finishes the accepted ones, and ends the threads.
    pub fn finish(self) {
        self.shared.queue.close();
        self.join();
    }

    /// Ends at once: unfinished requests fail with [`Error::Stopped`]. Dropping the service does
    /// the same.
    pub fn stop(self) {}

    /// Starts the threads with the first request, so that a process may fork before it.
    fn begin(&self) -> Result<(), Error> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        match threads.process {
            Some(known) if known == process => return Ok(()),
            Some(_) => return Err(Error::Forked),
            None => {}
        }
        for number in 0..self.shared.workers.threads.max(1) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name(format!("peregrine {number}"));
            let handle = builder.spawn(move || shared.work()).map_err(Error::Thread)?;
            threads.handles.push(handle);
            threads.process = Some(process);
        }
        Ok(())
    }

    fn join(&self) {
        let threads = self.threads.lock().map(|mut threads| std::mem::take(&mut *threads));
        let Threads { process, handles } = threads.unwrap_or_default();
        // After a fork, the threads belong to the parent process and cannot be joined.
        if process != Some(std::process::id()) {
            return handles.into_iter().for_each(std::mem::forget);
        }
        for handle in handles {
            // The requests of a worker that panicked have failed already.
            let _ = handle.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.queue.stop();
        self.shared.end_all(|| Error::Stopped);
        self.join();
        self.shared.end_all(|| Error::Stopped);
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<S: Deref<Target = Service>> Caller<S> {
    /// Queues a request. Waits while the queue is full, but no longer than its deadline.
    pub fn submit(&self, request: &Request<'_>) -> Result<Pending, Error> {
        self.service.submit_to((self.source, self.priority), request, true)
    }

    /// Queues a request, or fails with [`Error::Full`] if the queue is full.
    pub fn try_submit(&self, request: &Request<'_>) -> Result<Pending, Error> {
        self.service.submit_to((self.source, self.priority), request, false)
    }

    /// Another caller that shares the turn of this one. Requests of the two alternate: a client's
    /// short text does not wait for its long one, and the client has no larger share than others.
    pub fn beside(&self) -> Caller<S>
    where
        S: Clone,
    {
        let source = self.service.shared.queue.open_beside(self.source, self.priority);
        Caller { service: self.service.clone(), priority: self.priority, source }
    }
}

impl<S: Deref<Target = Service>> Drop for Caller<S> {
    fn drop(&mut self) {
        self.service.shared.queue.close_source(self.source);
    }
}

impl Shared {
    fn answers(&self) -> MutexGuard<'_, HashMap<u64, Arc<Answer>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of a worker thread.
    fn work(&self) {
        /// Fails all requests if a worker panics, so that no caller waits for it.
        struct Alarm<'s>(&'s Shared);
        impl Drop for Alarm<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.queue.stop();
                    self.0.end_all(|| Error::Internal("a worker has ended".to_owned()));
                }
            }
        }
        let _alarm = Alarm(self);
        let mut tell = |event: Event| self.hear(event);
        self.translator.work(&self.queue, &self.workers, &self.counters, None, &mut tell);
    }

    fn hear(&self, event: Event) {
        let (Event::Done(peregrine_decode::Done { ticket, .. })
        | Event::Failed { ticket, .. }
        | Event::Token { ticket, .. }) = event;
        let (number, part) = place(ticket);
        let Some(answer) = self.answers().get(&number).cloned() else { return };
        match event {
            Event::Token { position, token, .. } => answer.token(part, position, token),
            Event::Failed { failure, .. } => self.end(&answer, failure.into()),
            Event::Done(done) => match answer.part_done(part, done, &self.translator) {
                PartDone::Waiting => {}
                PartDone::More(jobs) => {
                    let waiting =
                        |(part, job)| Waiting { ticket: crate::stream::ticket(number, part), job };
                    let waiting = jobs.into_iter().map(waiting).collect();
                    self.queue.push_again(answer.priority, waiting);
                }
                // Count first, so that a caller with the result sees it counted.
                PartDone::Complete => {
                    if self.answers().remove(&number).is_some() {
                        self.tally.answered_after(clock::now().duration_since(answer.accepted));
                        answer.finish(Ok(()));
                    }
                }
            },
        }
    }

    /// Ends a request without a result: its sentences leave the queue at once and their batch at
    /// the next step.
    fn end(&self, answer: &Answer, error: Error) {
        answer.call.cancel();
        self.queue.forget(answer.source, &answer.call);
        if self.answers().remove(&answer.number).is_none() {
            return;
        }
        let count = match error {
            Error::Cancelled | Error::Stopped => &self.tally.cancelled,
            Error::Deadline => &self.tally.late,
            _ => &self.tally.failed,
        };
        count.fetch_add(1, Relaxed);
        answer.finish(Err(error));
    }

    fn end_all(&self, error: impl Fn() -> Error) {
        let all: Vec<Arc<Answer>> = self.answers().values().cloned().collect();
        all.iter().for_each(|answer| self.end(answer, error()));
    }
}
