//! A batch: takes sentences from the queue as its policy says and steps them together, each by the
//! settings of its own request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use peregrine_nn::{Candidates, Choices, RunAhead, Sentence, TopKQuery, profile};

use crate::batching::auto::Trial;
use crate::batching::{BatchSize, Batching, Haste, Policy, Priority, Queue, Scope, Waiting};
use crate::beam::{Details, ScoredRow};
use crate::clock::Moment;
use crate::job::{Done, Event, Failure};
use crate::scorer::{Member, Scorer};
use crate::sentence::{Running, StepRows};
use crate::stats::{Clock, Counters, Stats, TracedStep};

/// Fewer sentences than the batch size divided by this are not encoded by themselves while a batch runs.
const FEW: usize = 8;
/// The most steps for which few sentences wait for others.
const MOST_DEFERRED: u32 = 6;

/// A batch of more sentences is not in cache.
const MANY: usize = 256;
/// How often a batch of many is searched for cancelled sentences and those past their deadline; others are at every step.
const SWEEPS: Duration = Duration::from_millis(20);

/// A batch of one worker, and the networks with its state.
pub(crate) struct Decoder {
    scorer: Scorer,
    batch: Batch,
    /// How large the batch may be: less than configured if the device ran out of memory.
    limits: Limits,
    /// Memory for the lists of a step.
    step_rows: StepRows<'static>,
    /// The batch size that the policy `auto` has measured to be best.
    trial: Trial,
    /// Steps for which sentences have waited although the batch had room.
    deferred: u32,
    /// The last time that ended requests were looked for.
    swept: Option<Moment>,
    /// The start of the last turn, with the sentences and rows of its step; none if the turn encoded too.
    last_step: Option<(Moment, usize, usize)>,
}

/// The sentences of a batch, and those that enter it.
#[derive(Default)]
struct Batch {
    /// Sentences taken from the queue, to be encoded.
    entering: VecDeque<Waiting>,
    /// Encoded sentences for which the batch has no room yet.
    ready: VecDeque<Box<Running>>,
    #[expect(
        clippy::vec_box,
        reason = "those behind a sentence that has ended move up, in every step"
    )]
    running: Vec<Box<Running>>,
    /// Source tokens of the running sentences.
    tokens: usize,
    choices: Choices,
    /// Whether the last step's top-k result is still to be collected.
    pending: bool,
    /// Whether the pending step was begun with device beams.
    with_device_beams: bool,
    /// Indices of the running sentences that may be over since the last top-k result.
    ended: Vec<usize>,
}

/// How large a batch may be.
struct Limits {
    size: BatchSize,
    encode_tokens: usize,
    /// Whether sentences are encoded on a side stream before the batch has room for them.
    pre_encodes: bool,
    shrunk: bool,
}

impl Limits {
    fn new(batching: &Batching, scorer: &Scorer) -> Limits {
        let Batching { size, encode_tokens, .. } = *batching;
        let pre_encodes = batching.rules().joins_running && scorer.encodes_on_side_stream();
        Limits { size, encode_tokens, pre_encodes, shrunk: false }
    }
}

/// How the next step is made.
#[derive(Clone, Copy)]
struct Plan {
    /// Whether it may begin before the last top-k result is collected: its rows go on from words that only the device has. A
    /// sentence that turns out to have ended has then computed one step too many.
    runs_ahead: bool,
    /// Whether it uses device beams, so that the next one can go on from their places.
    device_beams: bool,
}

/// What a decoder works with.
pub(crate) struct Work<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) batching: &'a Batching,
    pub(crate) counters: &'a Counters,
    /// Whether times are measured.
    pub(crate) measured: bool,
}

impl Decoder {
    /// An empty batch for a model of one or several networks.
    pub(crate) fn new(members: Vec<Member>, batching: &Batching) -> Decoder {
        let scorer = Scorer::new(members);
        Decoder {
            limits: Limits::new(batching, &scorer),
            scorer,
            batch: Batch::default(),
            step_rows: StepRows::default(),
            trial: Trial::default(),
            deferred: 0,
            swept: None,
            last_step: None,
        }
    }

    /// Resets the limits for a new run.
    pub(crate) fn begin(&mut self, batching: &Batching) {
        self.limits = Limits::new(batching, &self.scorer);
        self.last_step = None;
    }

    /// Whether any sentence is in the batch, or its last top-k result is not collected.
    pub(crate) fn is_busy(&self) -> bool {
        let Batch { entering, ready, running, pending, .. } = &self.batch;
        *pending || !entering.is_empty() || !ready.is_empty() || !running.is_empty()
    }

    /// Whether the last top-k result is not collected.
    pub(crate) fn awaits_top_k(&self) -> bool {
        self.batch.pending
    }

    /// Lets sentences join, steps the batch, and lets finished sentences leave. Whether there was anything to do.
    /// Deadlines are compared with `now` only.
    pub(crate) fn turn(
        &mut self,
        priority: Priority,
        work: &Work<'_>,
        now: Moment,
        stats: &mut Stats,
        tell: &mut dyn FnMut(Event),
    ) -> bool {
        let gone = self.sweep(now, tell);
        let last = self.last_step.take();
        if let Some((begun, sentences, rows)) = last.filter(|_| !gone) {
            self.trial.count(sentences, rows, now.duration_since(begun));
        }
        let encoded = self.fill(priority, work, stats);
        let mut clock = Clock::new(work.measured);
        let plan = self.prepare(work);
        stats.search += clock.lap();
        if self.batch.pending && !plan.runs_ahead {
            return self.settle(work, stats, tell);
        }
        if self.batch.running.is_empty() || work.queue.is_stopped() {
            return false;
        }
        let sentences = self.batch.running.len();
        let rows = self.step(work, plan, stats, tell);
        if rows > 0 {
            work.counters.step(sentences, rows);
        }
        if work.batching.policy == Policy::Auto && rows > 0 && !encoded {
            self.last_step = Some((now, sentences, rows));
        }
        let mut clock = Clock::new(work.measured);
        self.retire(work, tell);
        stats.search += clock.lap();
        true
    }

    /// Collects the last top-k result, so that nothing is under way. Whether there was one.
    pub(crate) fn settle(
        &mut self,
        work: &Work<'_>,
        stats: &mut Stats,
        tell: &mut dyn FnMut(Event),
    ) -> bool {
        let pending = self.batch.pending;
        if pending {
            self.take_top_k(work, stats, tell);
            self.retire(work, tell);
        }
        pending
    }

    /// Removes the sentences that were cancelled or whose deadline has passed. Whether there were any.
    fn sweep(&mut self, now: Moment, tell: &mut dyn FnMut(Event)) -> bool {
        let Batch { entering, ready, running, .. } = &self.batch;
        let has_many = entering.len() + ready.len() + running.len() > MANY;
        if has_many && self.swept.is_some_and(|swept| now.duration_since(swept) < SWEEPS) {
            return false;
        }
        self.swept = Some(now);
        let Batch { entering, ready, running, tokens, .. } = &mut self.batch;
        let mut gone = false;
        let mut told = |ticket: u64, failure: Option<Failure>| {
            gone |= failure.is_some();
            failure.is_some_and(|failure| {
                tell(Event::Failed { ticket, failure });
                true
            })
        };
        entering.retain(|waiting| !told(waiting.ticket, waiting.job.call.ended(now)));
        let scorer = &mut self.scorer;
        let mut leaves = |sentence: &Running| {
            let leaves = !sentence.over && told(sentence.ticket, sentence.job.call.ended(now));
            if leaves {
                scorer.release(&sentence.slots);
            }
            leaves
        };
        ready.retain(|sentence| !leaves(sentence));
        running.retain(|sentence| {
            let leaves = leaves(sentence);
            *tokens -= if leaves { sentence.job.source.len() } else { 0 };
            !leaves
        });
        gone
    }

    /// Whether a smaller batch can be tried.
    pub(crate) fn can_shrink(&self) -> bool {
        self.limits.size.sentences > 1 || self.limits.pre_encodes
    }

    /// Whether its batch is smaller than configured.
    pub(crate) fn has_shrunk(&self) -> bool {
        self.limits.shrunk
    }

    /// Takes all sentences out, as they were before they were admitted, and halves the batch size, after the
    /// device ran out of memory or failed.
    pub(crate) fn withdraw(&mut self) -> Vec<Waiting> {
        let Batch { entering, ready, running, .. } = std::mem::take(&mut self.batch);
        let Limits { size, encode_tokens, .. } = self.limits;
        // Half of the sentences there were; there were none yet if the first could not be encoded.
        let there = running.len() + ready.len();
        let tried = if there > 1 { size.sentences.min(there) } else { size.sentences };
        self.limits = Limits {
            size: BatchSize { sentences: (tried / 2).max(1), tokens: (size.tokens / 2).max(1) },
            encode_tokens: (encode_tokens / 2).max(1),
            pre_encodes: false,
            shrunk: true,
        };
        self.last_step = None;
        let begun = running.into_iter().chain(ready).filter(|sentence| !sentence.over);
        let begun = begun.map(|sentence| {
            self.scorer.release(&sentence.slots);
            Waiting { ticket: sentence.ticket, job: sentence.job }
        });
        begun.chain(entering).collect()
    }

    /// Frees the device memory of an empty batch.
    pub(crate) fn reset(&mut self) {
        self.scorer.reset();
    }

    /// Lets sentences join by the policy's rules. Whether any were encoded.
    fn fill(&mut self, priority: Priority, work: &Work<'_>, stats: &mut Stats) -> bool {
        let batching = work.batching;
        let admits = batching.admits(self.batch.running.len());
        let mut encoded = false;
        if admits && !batching.rules().joins_running {
            let size = self.limits.size;
            encoded = self.take(priority, size, Haste::Busy, work, stats);
            self.encode(work, stats);
            let ready = std::mem::take(&mut self.batch.ready);
            self.batch.join(ready);
        } else if admits {
            encoded = self.top_up(priority, work, stats);
        }
        // While the batch runs, up to half as many sentences as it has are encoded to replace those that end.
        if self.limits.pre_encodes && 2 * self.batch.ready.len() < self.batch.running.len() {
            encoded |= self.encode_some(priority, Haste::Busy, work, stats);
        }
        encoded
    }

    /// Fills a running batch, or an empty one. Whether any were encoded.
    fn top_up(&mut self, priority: Priority, work: &Work<'_>, stats: &mut Stats) -> bool {
        let mut wanted = self.limits.size;
        // A device that encodes beside the steps is fastest with full batches, and its steps cannot be timed one by one.
        if work.batching.policy == Policy::Auto && !self.limits.pre_encodes {
            let Batch { ready, running, .. } = &self.batch;
            let waiting = work.queue.waiting(priority).sentences + ready.len() + running.len();
            wanted.sentences = self.trial.sentences(wanted.sentences, waiting);
        }
        if self.defers(wanted, work.queue.waiting(priority).sentences) {
            self.deferred += 1;
            return false;
        }
        self.deferred = 0;
        let mut encoded = false;
        loop {
            while self.batch.has_place(wanted) {
                let Some(sentence) = self.batch.ready.pop_front() else { break };
                self.batch.join([sentence]);
            }
            let running = self.batch.running.len();
            if !self.batch.ready.is_empty() || running >= wanted.sentences {
                return encoded;
            }
            let small = running > 0 && 2 * running <= wanted.sentences;
            let haste = if small { Haste::Eager } else { Haste::Busy };
            if !self.encode_some(priority, haste, work, stats) {
                return encoded;
            }
            encoded = true;
        }
    }

    /// Whether a nearly full batch is stepped as it is: sentences that arrive one by one are cheaper to
    /// encode together, so they wait for each other for some steps.
    fn defers(&self, wanted: BatchSize, waiting: usize) -> bool {
        let Batch { ready, running, .. } = &self.batch;
        let few = wanted.sentences / FEW;
        ready.is_empty()
            && (1..few).contains(&waiting)
            && running.len() + few > wanted.sentences
            && self.deferred < MOST_DEFERRED
    }

    /// Encodes sentences for a batch they can join later. Whether there were any.
    fn encode_some(
        &mut self,
        priority: Priority,
        haste: Haste,
        work: &Work<'_>,
        stats: &mut Stats,
    ) -> bool {
        let Limits { size, encode_tokens: tokens, .. } = self.limits;
        let any = self.take(priority, BatchSize { tokens, ..size }, haste, work, stats);
        self.encode(work, stats);
        any
    }

    /// Takes sentences from the queue. Whether there were any.
    fn take(
        &mut self,
        priority: Priority,
        size: BatchSize,
        haste: Haste,
        work: &Work<'_>,
        stats: &mut Stats,
    ) -> bool {
        let mut clock = Clock::new(work.measured);
        if work.measured {
            stats.queue(work.queue.waiting(priority).sentences);
        }
        let mut taken = work.queue.take(priority, size, haste);
        if work.batching.scope == Scope::Batch {
            share_words(&mut taken);
        }
        stats.waiting += clock.lap();
        let any = !taken.is_empty();
        self.batch.entering.extend(taken);
        any
    }

    /// Encodes the sentences that enter, a run's worth at a time, and gives them their slots.
    fn encode(&mut self, work: &Work<'_>, stats: &mut Stats) {
        let mut clock = Clock::new(work.measured);
        let size = BatchSize { tokens: self.limits.encode_tokens, sentences: usize::MAX };
        let position_limit = self.scorer.position_limit();
        let Batch { entering, ready, .. } = &mut self.batch;
        while !entering.is_empty() && !work.queue.is_stopped() {
            let lengths = entering.iter().map(|w| w.job.source.len());
            let count = size.fitting(lengths.clone());
            if work.measured {
                stats.encoded(lengths.clone().take(count));
            }
            work.counters.encoded(lengths.take(count).sum());
            let together = entering.iter().take(count);
            let sentences: Vec<Sentence<'_>> = together
                .map(|Waiting { job, .. }| Sentence {
                    source: &job.source,
                    words: job.words.as_deref(),
                    beam: job.settings.search.beam > 1,
                })
                .collect();
            profile::mark();
            for slots in self.scorer.admit(&sentences) {
                let Some(Waiting { ticket, job }) = entering.pop_front() else { break };
                ready.push_back(Box::new(Running::new(ticket, job, slots, position_limit)));
            }
        }
        stats.encode += clock.lap();
    }

    /// Prepares the next step of all running sentences, in one pass: a large batch is not in cache.
    fn prepare(&mut self, work: &Work<'_>) -> Plan {
        let constant = work.batching.rules().computes_finished;
        let offered = self.scorer.run_ahead();
        let Batch { running, pending, with_device_beams, .. } = &mut self.batch;
        let mut needed = (!constant && offered != RunAhead::No).then_some(RunAhead::Greedy);
        let mut may_run_ahead = !running.is_empty() && !work.queue.is_stopped();
        for sentence in running {
            sentence.prepare(constant);
            needed = needed.zip(sentence.needed_run_ahead()).map(|(a, b)| a.max(b));
            may_run_ahead &= sentence.may_run_ahead();
        }
        let needed = needed.filter(|needed| offered >= *needed);
        let device_beams = needed == Some(RunAhead::Beams);
        // Places are numbered with or without device beams, but not both in one run of steps.
        let goes_on = !*pending || device_beams == *with_device_beams;
        Plan { runs_ahead: needed.is_some() && goes_on && may_run_ahead, device_beams }
    }

    /// One step of all running sentences; returns its number of rows. If it runs ahead, the top-k result of the
    /// step before is collected while this one is being computed.
    fn step(
        &mut self,
        work: &Work<'_>,
        plan: Plan,
        stats: &mut Stats,
        tell: &mut dyn FnMut(Event),
    ) -> usize {
        let Plan { runs_ahead, device_beams } = plan;
        let mut clock = Clock::new(work.measured);
        let mut step = recycled(std::mem::take(&mut self.step_rows));
        let mut alignments = false;
        for sentence in &self.batch.running {
            sentence.add_rows(&mut step, device_beams);
            alignments |= sentence.job.settings.alignments;
        }
        let row_count = step.rows.len();
        let census = work.measured.then(|| self.batch.census(stats));
        stats.search += clock.lap();
        let before = stats.decode + stats.output;
        if row_count > 0 {
            profile::mark();
            self.scorer.step(&step.rows, alignments);
            stats.decode += clock.lap();
            let requested = device_beams.then_some(step.device_beams.as_slice());
            self.scorer
                .top_k(&step.rows, TopKQuery { requests: &step.requests, device_beams: requested });
            stats.output += clock.lap();
        }
        self.step_rows = recycled(step);
        if self.batch.pending {
            self.take_top_k(work, stats, tell);
        }
        if row_count > 0 {
            self.batch.note_step(device_beams);
        }
        if self.batch.pending && !runs_ahead {
            self.take_top_k(work, stats, tell);
        }
        if let Some((sentences, dead)) = census.filter(|_| row_count > 0) {
            let time = stats.decode + stats.output - before;
            let traced = TracedStep { time, sentences, rows: row_count };
            stats.step(traced, dead, self.limits.size.sentences);
        }
        row_count
    }

    /// Tells every sentence's search what the awaited step found.
    fn take_top_k(&mut self, work: &Work<'_>, stats: &mut Stats, tell: &mut dyn FnMut(Event)) {
        let mut clock = Clock::new(work.measured);
        self.batch.pending = false;
        self.scorer.take_top_k(&mut self.batch.choices);
        stats.output += clock.lap();
        let Batch { running, choices, ended, .. } = &mut self.batch;
        let scorer = &self.scorer;
        for (index, sentence) in running.iter_mut().enumerate() {
            let Some(first_row) = sentence.awaited.take() else { continue };
            let first_row = first_row as usize;
            let open = sentence.beam.open().len();
            if open == 0 {
                continue;
            }
            let Running { beam, job, .. } = &mut **sentence;
            let settings = &*job.settings;
            let details = |row: usize, choice| {
                (settings.scores || settings.alignments).then(|| Details {
                    member_scores: match settings.scores {
                        true => scorer.member_scores(first_row + row, job.words.as_deref(), choice),
                        false => Vec::new(),
                    },
                    alignment: match settings.alignments {
                        true => scorer.alignment(first_row + row).to_vec(),
                        false => Vec::new(),
                    },
                })
            };
            if beam.is_constrained() {
                let scored = |row: usize| {
                    let (row, words) = (first_row + row, job.words.as_deref());
                    let attention = if settings.alignments {
                        scorer.alignment(row)
                    } else {
                        Default::default()
                    };
                    let candidates = Candidates { scores: scorer.all_scores(row), words };
                    ScoredRow { candidates, attention }
                };
                beam.advance_constrained(settings, scored, details);
            } else {
                let of_rows = (first_row..first_row + open).map(|row| choices.of(row));
                beam.advance(settings, of_rows, details);
            }
            if sentence.job.call.wants_tokens()
                && let Some((position, token)) = sentence.latest()
            {
                tell(Event::Token { ticket: sentence.ticket, position, token });
            }
            if sentence.may_be_finished() {
                ended.push(index);
            }
        }
        stats.search += clock.lap();
    }

    /// Reports the sentences that have ended with the last top-k result and removes them, unless the policy goes on computing them.
    fn retire(&mut self, work: &Work<'_>, tell: &mut dyn FnMut(Event)) {
        let members = self.scorer.members();
        let Batch { running, tokens, ended, .. } = &mut self.batch;
        ended.retain(|&index| {
            let sentence = &mut *running[index];
            if !sentence.is_finished() {
                return false;
            }
            let Some(hypotheses) = sentence.finish(members) else { return false };
            sentence.over = true;
            work.counters.finished(hypotheses.first().map_or(0, |best| best.tokens.len()));
            let Running { ticket, verdict, .. } = *sentence;
            tell(Event::Done(Done { ticket, hypotheses, verdict }));
            true
        });
        if work.batching.rules().computes_finished && !ended.is_empty() {
            ended.clear();
            if running.iter().all(|sentence| sentence.over) {
                ended.extend(0..running.len());
            }
        }
        if ended.is_empty() {
            return;
        }
        let mut leaves = ended.drain(..).peekable();
        let mut index = 0;
        running.retain(|sentence| {
            let stays = leaves.next_if_eq(&index).is_none();
            index += 1;
            if !stays {
                self.scorer.release(&sentence.slots);
                *tokens -= sentence.job.source.len();
            }
            stays
        });
    }
}

impl Batch {
    /// Whether the next encoded sentence may join.
    fn has_place(&self, size: BatchSize) -> bool {
        let next = self.ready.front().map_or(0, |sentence| sentence.job.source.len());
        self.running.is_empty()
            || (self.running.len() < size.sentences && self.tokens + next <= size.tokens)
    }

    fn join(&mut self, sentences: impl IntoIterator<Item = Box<Running>>) {
        for sentence in sentences {
            self.tokens += sentence.job.source.len();
            self.running.push(sentence);
        }
    }

    /// Notes where each sentence's rows are in the step that has begun, whose top-k result is now pending.
    fn note_step(&mut self, device_beams: bool) {
        let (mut first_row, mut first_place) = (0, 0);
        for sentence in self.running.iter_mut().filter(|sentence| sentence.rows > 0) {
            sentence.stepped(first_row, first_place);
            first_row += sentence.rows as u32;
            first_place += sentence.job.settings.search.beam as u32;
        }
        self.pending = true;
        self.with_device_beams = device_beams;
    }

    /// The number of sentences that are not over, and of rows of ended hypotheses. Counts the source positions
    /// that all rows read.
    fn census(&self, stats: &mut Stats) -> (usize, usize) {
        let source = |s: &Running| std::iter::repeat_n(s.job.source.len(), s.rows);
        stats.reads(self.running.iter().flat_map(|sentence| source(sentence)));
        let alive = self.running.iter().filter(|s| !s.over).count();
        (alive, self.running.iter().map(|s| s.rows.saturating_sub(s.beam.open().len())).sum())
    }
}

/// Gives every sentence the union of all shortlists. One sentence without a shortlist allows all words to all.
fn share_words(waiting: &mut [Waiting]) {
    let lists: Option<Vec<&[u32]>> = waiting.iter().map(|w| w.job.words.as_deref()).collect();
    let mut union: Option<Vec<u32>> = lists.map(|lists| lists.concat());
    if let Some(words) = &mut union {
        words.sort_unstable();
        words.dedup();
    }
    let union: Option<Arc<[u32]>> = union.map(Arc::from);
    for sentence in waiting {
        sentence.job.words.clone_from(&union);
    }
}

/// Empty lists in the memory of others, whose entries differ in lifetime only.
fn recycled<'a>(step: StepRows<'_>) -> StepRows<'a> {
    fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
        list.clear();
        list.into_iter().map(|_| unreachable!("the list is empty")).collect()
    }
    let StepRows { rows, requests, device_beams } = step;
    StepRows {
        rows: emptied(rows),
        requests: emptied(requests),
        device_beams: emptied(device_beams),
    }
}
