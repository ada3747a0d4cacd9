//! The queue of sentences waiting for a worker, shared by all workers.
//!
//! Sentences belong to *sources*: a file being read, a batch, a request. Sources of one caller are a *group*. The groups of a
//! priority are served round-robin, one sentence each, and so are the sources of a group: a large source cannot starve a
//! small one, nor a caller with many requests one with a few. Within a source the policy says which sentence is next.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::source::{Source, Waiting};
use super::{BatchSize, Order, Policy, Priority};
use crate::clock::Moment;
use crate::job::{Call, Failure};

/// How long an idle worker waits for more sentences before it begins with those there are. A reader that is
/// quiet for so long waits for a user who types, or for a translation.
const QUIET: Duration = Duration::from_millis(2);

/// How much a worker needs sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Its batch has become small: it takes any sentence.
    Eager,
    /// Its batch is large, or empty: it takes sentences of full windows.
    Busy,
}

/// Why a worker that waited wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// There are sentences to take.
    Work,
    /// None came before the timeout.
    Idle,
    /// The queue is closed.
    End,
}

/// The identity of a source of sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId(u64);

/// An amount of waiting sentences of one priority, or the bound of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The number of sentences.
    pub sentences: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Bound {
    /// No bound.
    pub const NONE: Bound = Bound { sentences: usize::MAX, bytes: usize::MAX };

    /// The amount of these sentences.
    fn of(waiting: &[Waiting]) -> Bound {
        let bytes = waiting.iter().map(|waiting| waiting.job.bytes()).sum();
        Bound { sentences: waiting.len(), bytes }
    }
}

/// Why the queue refused sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The queue is full.
    Full,
    /// The deadline passed before the queue had room.
    Deadline,
    /// The queue is closed.
    Closed,
}

/// The queue of sentences waiting for a worker.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    /// Wakes workers: sentences came, or the queue was closed.
    changed: Condvar,
    /// Wakes callers that push: sentences left.
    room: Condvar,
    /// Whether the rest is dropped.
    stopped: AtomicBool,
    order: Order,
    /// The number of sentences of a full window.
    read_ahead: usize,
    workers: usize,
    bound: Bound,
}

#[derive(Debug, Default)]
struct State {
    sources: HashMap<SourceId, Source>,
    last_source: u64,
    classes: [Class; Priority::COUNT],
    /// The number of arrivals, by which a change is seen.
    arrived: u64,
    /// Whether no more will come.
    closed: bool,
    /// The earliest deadline of all, or an earlier one that is gone.
    deadline: Option<Moment>,
    /// The number of calls of [`State::take`].
    takes: u64,
    /// Workers and callers that wait.
    waiting_workers: usize,
    waiting_callers: usize,
}

/// The waiting sentences of one priority.
#[derive(Debug, Default)]
struct Class {
    /// Groups with sources that may have sentences; the first is next.
    ring: VecDeque<SourceId>,
    /// The sources of each group in the ring; the first is next.
    groups: HashMap<SourceId, VecDeque<SourceId>>,
    /// Sentences that were taken but could not be translated. They are taken first.
    returned: VecDeque<Waiting>,
    sentences: usize,
    bytes: usize,
}

impl Queue {
    /// An empty queue for that many workers. `read_ahead` sentences are sorted together where the
    /// policy sorts.
    pub fn new(policy: Policy, read_ahead: usize, workers: usize) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            room: Condvar::new(),
            stopped: AtomicBool::new(false),
            order: policy.rules().order,
            read_ahead: read_ahead.max(1),
            workers: workers.max(1),
            bound: Bound::NONE,
        }
    }

    /// The same queue with a bound of each priority. Sentences that exceed the bound by themselves are accepted
    /// if no others wait.
    pub fn bounded(self, bound: Bound) -> Queue {
        Queue { bound, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.has_changed(state);
        result
    }

    /// Wakes workers that wait. Waking nobody costs a system call too.
    fn has_changed(&self, state: MutexGuard<'_, State>) {
        let waits = state.waiting_workers > 0;
        drop(state);
        if waits {
            self.changed.notify_all();
        }
    }

    /// Wakes callers that wait for room.
    fn has_room(&self, state: MutexGuard<'_, State>) {
        let waits = state.waiting_callers > 0;
        drop(state);
        if waits {
            self.room.notify_all();
        }
    }

    /// Opens a source whose sentences are taken as soon as a batch has room for them.
    pub fn open(&self, priority: Priority) -> SourceId {
        self.lock().open(Source::complete(priority), None)
    }

    /// Opens a source in the group of another one, which may be closed by now: they share a turn.
    pub fn open_beside(&self, other: SourceId, priority: Priority) -> SourceId {
        self.lock().open(Source::complete(priority), Some(other))
    }

    /// Opens a source that is read ahead, of bulk priority: workers with a large batch wait until a window
    /// of sentences has come. With `least`, windows are of about equal time and have at least `least` sentences,
    /// which bounds the delay of results that are wanted in order.
    pub fn open_read_ahead(&self, least: Option<usize>) -> SourceId {
        let least = least.map(|least| least.clamp(1, self.read_ahead));
        self.lock().open(Source::read_ahead(least), None)
    }

    /// Adds a sentence, whatever the bound.
    pub fn push(&self, source: SourceId, waiting: Waiting) {
        self.change(|state| state.push(source, [waiting]));
    }

    /// Adds sentences, whatever the bound.
    pub fn push_all(&self, source: SourceId, waiting: Vec<Waiting>) {
        if !waiting.is_empty() {
            self.change(|state| state.push(source, waiting));
        }
    }

    /// Adds sentences if there is room.
    pub fn try_push(&self, source: SourceId, waiting: Vec<Waiting>) -> Result<(), Refusal> {
        let mut state = self.lock();
        let size = Bound::of(&waiting);
        self.admits(&state, source, size)?;
        state.push(source, waiting);
        self.has_changed(state);
        Ok(())
    }

    /// Adds sentences when there is room, unless `deadline` comes first.
    pub fn push_when_room(
        &self,
        source: SourceId,
        waiting: Vec<Waiting>,
        deadline: Option<Moment>,
    ) -> Result<(), Refusal> {
        let size = Bound::of(&waiting);
        let mut state = self.lock();
        while let Err(refusal) = self.admits(&state, source, size) {
            if refusal == Refusal::Closed {
                return Err(refusal);
            }
            let left = deadline.map(|end| end.saturating_duration_since(crate::clock::now()));
            if left == Some(Duration::ZERO) {
                return Err(Refusal::Deadline);
            }
            state.waiting_callers += 1;
            state = match left {
                Some(left) => {
                    let waited = self.room.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.room.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.waiting_callers -= 1;
        }
        state.push(source, waiting);
        self.has_changed(state);
        Ok(())
    }

    fn admits(&self, state: &State, source: SourceId, size: Bound) -> Result<(), Refusal> {
        let Some(found) = state.sources.get(&source).filter(|_| !state.closed) else {
            return Err(Refusal::Closed);
        };
        let class = &state.classes[found.priority as usize];
        let fits = class.sentences + size.sentences <= self.bound.sentences
            && class.bytes.saturating_add(size.bytes) <= self.bound.bytes;
        if fits || class.sentences == 0 { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Puts sentences back that were taken but could not be translated. They are taken first.
    pub(crate) fn put_back(&self, priority: Priority, waiting: Vec<Waiting>) {
        if self.is_stopped() {
            return;
        }
        self.change(|state| {
            let Bound { sentences, bytes } = Bound::of(&waiting);
            let class = &mut state.classes[priority as usize];
            class.sentences += sentences;
            class.bytes += bytes;
            waiting.into_iter().rev().for_each(|waiting| class.returned.push_front(waiting));
        });
    }

    /// Adds further sentences of requests that have been taken, whatever the bound and even if their source is closed. They are taken
    /// first.
    pub fn push_again(&self, priority: Priority, waiting: Vec<Waiting>) {
        let deadline = waiting.iter().filter_map(|waiting| waiting.job.call.deadline()).min();
        self.put_back(priority, waiting);
        let mut state = self.lock();
        state.deadline = state.deadline.into_iter().chain(deadline).min();
    }

    /// Closes a source: no more sentences will come from it.
    pub fn close_source(&self, source: SourceId) {
        self.change(|state| {
            if let Some(found) = state.sources.get_mut(&source) {
                found.closed = true;
                if found.len() == 0 {
                    state.sources.remove(&source);
                }
            }
        });
    }

    /// Sets whether the reader waits for sentences to leave. Then a window counts as full.
    pub fn set_stalled(&self, source: SourceId, stalled: bool) {
        self.change(|state| {
            if let Some(source) = state.sources.get_mut(&source) {
                source.stalled = stalled;
            }
        });
    }

    /// Removes the waiting sentences of a request that has been [cancelled](Call::cancel).
    pub fn forget(&self, source: SourceId, call: &Call) {
        let mut state = self.lock();
        state.remove(Some(source), |waiting| std::ptr::eq(&*waiting.job.call, call));
        self.has_room(state);
    }

    /// Closes all sources.
    pub fn close(&self) {
        self.change(|state| {
            state.closed = true;
            state.sources.values_mut().for_each(|source| source.closed = true);
            state.sources.retain(|_, source| source.len() > 0);
        });
        self.room.notify_all();
    }

    /// Stops the work: workers drop their batches.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.change(|state| {
            state.closed = true;
            state.sources.clear();
            state.classes = Default::default();
        });
        self.room.notify_all();
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The number of waiting sentences.
    pub fn len(&self) -> usize {
        self.lock().classes.iter().map(|class| class.sentences).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The amount of waiting sentences of a priority.
    pub fn waiting(&self, priority: Priority) -> Bound {
        let class = &self.lock().classes[priority as usize];
        Bound { sentences: class.sentences, bytes: class.bytes }
    }

    /// Takes the next sentences of a priority, as many as fit and no more than a worker's share, so that the
    /// other workers are not idle.
    pub(crate) fn take(&self, priority: Priority, size: BatchSize, haste: Haste) -> Vec<Waiting> {
        let mut state = self.lock();
        let share = state.classes[priority as usize].sentences.div_ceil(self.workers);
        let size = BatchSize { sentences: size.sentences.min(share), ..size };
        let taken = state.take(priority, size, |source, size| {
            if haste == Haste::Eager || source.is_ready(self.order, self.read_ahead, size) {
                source.order(self.order, self.read_ahead);
            }
        });
        if !taken.is_empty() {
            self.has_room(state);
        }
        taken
    }

    /// Takes all sentences of a priority.
    pub(crate) fn take_all(&self, priority: Priority) -> Vec<Waiting> {
        let mut state = self.lock();
        let all = BatchSize { sentences: usize::MAX, tokens: usize::MAX };
        let taken = state.take(priority, all, |source, _| source.order(Order::Arrival, 0));
        self.has_room(state);
        taken
    }

    /// Removes the sentences whose deadline has passed or that were cancelled, and returns their tickets and reasons.
    pub(crate) fn expire(&self, now: Moment) -> Vec<(u64, Failure)> {
        let mut state = self.lock();
        if state.deadline.is_none_or(|deadline| deadline > now) {
            return Vec::new();
        }
        let mut expired = Vec::new();
        state.deadline = None;
        let mut earliest: Option<Moment> = None;
        state.remove(None, |waiting| {
            let failure = waiting.job.call.ended(now);
            if failure.is_none() {
                earliest = earliest.into_iter().chain(waiting.job.call.deadline()).min();
            }
            expired.extend(failure.clone().map(|failure| (waiting.ticket, failure)));
            failure.is_some()
        });
        state.deadline = earliest;
        self.has_room(state);
        expired
    }

    /// Waits until there is something to take, or for `patience`.
    pub(crate) fn wait(&self, size: BatchSize, patience: Option<Duration>) -> Wake {
        let mut state = self.lock();
        let mut seen = None;
        loop {
            if self.is_stopped() {
                return Wake::End;
            }
            if seen == Some(state.arrived) {
                state.sources.values_mut().for_each(|source| source.quiet = true);
            }
            let ready = |source: &Source| source.is_ready(self.order, self.read_ahead, size);
            let returned = state.classes.iter().any(|class| !class.returned.is_empty());
            if returned || state.sources.values().any(ready) {
                return Wake::Work;
            }
            if state.closed {
                return Wake::End;
            }
            seen = Some(state.arrived).filter(|_| !state.is_empty());
            let timeout = if seen.is_some() { Some(QUIET) } else { patience };
            state.waiting_workers += 1;
            let mut timed_out = false;
            state = match timeout {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.changed.wait_timeout(state, timeout);
                    let (state, over) = waited.unwrap_or_else(PoisonError::into_inner);
                    timed_out = over.timed_out();
                    state
                }
            };
            state.waiting_workers -= 1;
            if timed_out && seen.is_none() && state.is_empty() && !state.closed {
                return Wake::Idle;
            }
        }
    }
}

impl State {
    fn open(&mut self, mut source: Source, group: Option<SourceId>) -> SourceId {
        self.last_source += 1;
        let id = SourceId(self.last_source);
        source.group = Some(group.unwrap_or(id));
        self.sources.insert(id, source);
        id
    }

    fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.sentences == 0)
    }

    fn push(&mut self, id: SourceId, waiting: impl IntoIterator<Item = Waiting>) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        let class = &mut self.classes[source.priority as usize];
        if source.len() == 0 {
            class.join(source.group.unwrap_or(id), id);
        }
        for waiting in waiting {
            class.sentences += 1;
            class.bytes += waiting.job.bytes();
            self.deadline = self.deadline.into_iter().chain(waiting.job.call.deadline()).min();
            source.push(waiting);
            self.arrived += 1;
        }
    }

    /// Takes the next sentences: those put back, then one of each group in turn. `ready` puts a source's
    /// sentences in order, if they may be taken.
    fn take(
        &mut self,
        priority: Priority,
        size: BatchSize,
        ready: impl Fn(&mut Source, BatchSize),
    ) -> Vec<Waiting> {
        self.takes += 1;
        let State { sources, classes, takes, .. } = self;
        let class = &mut classes[priority as usize];
        let mut taken = Vec::new();
        let (mut tokens, mut skipped) = (0, 0);
        while taken.len() < size.sentences {
            let mut fits = |length: usize| {
                let fits = tokens == 0 || tokens + length <= size.tokens;
                tokens += length;
                fits
            };
            if let Some(waiting) = class.returned.front() {
                if !fits(waiting.job.source.len()) {
                    break;
                }
                taken.extend(class.returned.pop_front());
                continue;
            }
            let Some(id) = class.next().filter(|_| skipped < class.ring.len()) else { break };
            let source = sources.get_mut(&id);
            let Some(source) = source.filter(|source| source.len() > 0) else {
                class.turn(false);
                continue;
            };
            // Each source is put in order once. Sentences after a window wait for the next call.
            if source.put_in_order != *takes {
                ready(source, size);
                source.put_in_order = *takes;
            }
            match source.next_length() {
                None => skipped += 1,
                Some(length) if !fits(length) => break,
                Some(_) => {
                    taken.extend(source.pop());
                    skipped = 0;
                }
            }
            class.turn(source.len() > 0);
            if source.len() == 0 && source.closed {
                sources.remove(&id);
            }
        }
        let Bound { sentences, bytes } = Bound::of(&taken);
        class.sentences -= sentences;
        class.bytes -= bytes;
        taken
    }

    /// Removes the sentences of one source, or of all, for which `gone` is true.
    fn remove(&mut self, only: Option<SourceId>, mut gone: impl FnMut(&Waiting) -> bool) {
        let State { sources, classes, .. } = self;
        let mut leave = |class: &mut Class, waiting: &Waiting| {
            let gone = gone(waiting);
            if gone {
                class.sentences -= 1;
                class.bytes -= waiting.job.bytes();
            }
            gone
        };
        for class in classes.iter_mut() {
            let mut returned = std::mem::take(&mut class.returned);
            returned.retain(|waiting| !leave(class, waiting));
            class.returned = returned;
        }
        let mut clean = |source: &mut Source| {
            let class = &mut classes[source.priority as usize];
            source.remove(|waiting| leave(class, waiting));
        };
        let (one, all) = match only {
            Some(id) => (sources.get_mut(&id), None),
            None => (None, Some(sources.values_mut())),
        };
        one.into_iter().chain(all.into_iter().flatten()).for_each(&mut clean);
        // An empty source leaves the ring and comes back with its next sentence.
        for class in classes {
            let waits = |id: &SourceId| sources.get(id).is_some_and(|source| source.len() > 0);
            class.groups.values_mut().for_each(|group| group.retain(waits));
            class.groups.retain(|_, group| !group.is_empty());
            class.ring.retain(|group| class.groups.contains_key(group));
        }
        sources.retain(|_, source| !source.closed || source.len() > 0);
    }
}

impl Class {
    /// Adds a source that has sentences now.
    fn join(&mut self, group: SourceId, source: SourceId) {
        let members = self.groups.entry(group).or_default();
        if members.is_empty() {
            self.ring.push_back(group);
        }
        members.push_back(source);
    }

    /// The source whose turn it is.
    fn next(&self) -> Option<SourceId> {
        self.groups.get(self.ring.front()?)?.front().copied()
    }

    /// Ends the turn of the group and of its source, which comes to the end of the group or leaves it.
    fn turn(&mut self, stays: bool) {
        let Some(group) = self.ring.pop_front() else { return };
        let Some(members) = self.groups.get_mut(&group) else { return };
        match stays {
            true => members.rotate_left(1),
            false => drop(members.pop_front()),
        }
        match members.is_empty() {
            true => drop(self.groups.remove(&group)),
            false => self.ring.push_back(group),
        }
    }
}

#[cfg(test)]
mod tests;
