//! One worker: takes sentences from the queue as its policy says and steps them together.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use peregrine_nn::{Ahead, Choices, Fault, MOST_PLACES, Question, Sentence, profile};

use crate::batching::auto::Trial;
use crate::batching::{BatchSize, Batching, Haste, Policy, Queue, Scope, Waiting};
use crate::beam::{Banned, Details};
use crate::job::Done;
use crate::scorer::{Member, Scorer};
use crate::sentence::{Plan, Running};
use crate::settings::Settings;
use crate::stats::{Clock, Stats, TracedStep};

/// One worker: a model's networks and a batch.
pub struct Decoder {
    scorer: Scorer,
    /// Memory for the lists of a step.
    plan: Plan<'static>,
    faulted: bool,
    /// What the policy `auto` has found out.
    trial: Trial,
}

/// Who is in the batch, and who has been encoded for it.
#[derive(Default)]
struct Batch {
    running: Vec<Running>,
    ready: VecDeque<Running>,
    /// Source tokens of the running sentences.
    tokens: usize,
    choices: Choices,
    /// Whether the last step's question is still to be answered.
    asked: bool,
}

/// What a worker works by.
struct Work<'a> {
    queue: &'a Queue,
    batching: Batching,
    settings: &'a Settings,
    banned: Banned,
    /// Whether anybody wants to know how it went.
    measured: bool,
    /// Whether sentences are encoded before there is a place for them.
    encodes_ahead: bool,
}

impl Decoder {
    /// A worker for a model of one or several networks.
    pub fn new(members: Vec<Member>) -> Decoder {
        Decoder {
            scorer: Scorer::new(members),
            plan: Plan::default(),
            faulted: false,
            trial: Trial::default(),
        }
    }

    /// Whether it was left in the middle of something, and a new one is better.
    pub fn faulted(&self) -> bool {
        self.faulted
    }

    /// Translates what is in the queue until it is closed and empty, or stopped. `done` gets each
    /// sentence when it ends. A sentence's translation depends neither on the others nor on the
    /// policy.
    pub fn serve(
        &mut self,
        queue: &Queue,
        batching: &Batching,
        settings: &Settings,
        stats: Option<&mut Stats>,
        done: &mut dyn FnMut(Done),
    ) {
        let measured = stats.is_some();
        let banned = Banned::new(settings);
        let encodes_ahead = batching.rules().joins_running && self.scorer.encodes_beside();
        let mut work =
            Work { queue, batching: *batching, settings, banned, measured, encodes_ahead };
        let mut nobodys = Stats::default();
        let stats = stats.unwrap_or(&mut nobodys);
        let mut batch = Batch::default();
        if measured {
            profile::begin();
        }
        loop {
            // A device that runs out of memory unwinds from wherever it is.
            let turn = AssertUnwindSafe(|| self.turn(&mut batch, &work, stats, done));
            match catch_unwind(turn) {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => self.retry_smaller(fault, &mut batch, &mut work),
            }
        }
        // Work begun for them may still be under way.
        self.faulted |= queue.is_stopped();
        for sentence in batch.running.iter().chain(&batch.ready) {
            self.scorer.release(&sentence.slots);
        }
        if measured {
            for (name, time) in profile::end() {
                stats.part(name, time);
            }
        }
    }

    /// Lets sentences join, steps, lets them leave. Whether there was anything to do.
    fn turn(
        &mut self,
        batch: &mut Batch,
        work: &Work<'_>,
        stats: &mut Stats,
        done: &mut dyn FnMut(Done),
    ) -> bool {
        self.fill(batch, work, stats);
        let ahead = self.may_run_ahead(batch, work);
        if batch.asked && !ahead {
            self.answer(batch, work, stats);
            self.retire(batch, work, done);
            return true;
        }
        if batch.running.is_empty() || work.queue.is_stopped() {
            return false;
        }
        let start = (work.batching.policy == Policy::Auto).then(Instant::now);
        let sentences = batch.running.len();
        let rows = self.step(batch, work, ahead, stats);
        let mut clock = Clock::new(work.measured);
        self.retire(batch, work, done);
        stats.search += clock.lap();
        if let Some(start) = start.filter(|_| rows > 0) {
            self.trial.count(sentences, rows, start.elapsed());
        }
        true
    }

    /// Where the batch was too large for the device, its sentences begin again in a batch of half
    /// the size, with nobody waiting beside it. Anything else is passed on.
    fn retry_smaller(
        &mut self,
        reason: Box<dyn Any + Send>,
        batch: &mut Batch,
        work: &mut Work<'_>,
    ) {
        let memory = reason.downcast_ref::<Fault>().is_some_and(|fault| fault.out_of_memory);
        let size = &mut work.batching.size;
        let ahead = std::mem::take(&mut work.encodes_ahead);
        if !memory || (size.sentences < 2 && !ahead) {
            resume_unwind(reason);
        }
        self.faulted = true;
        // Half of those there were; none were there yet if the first could not be encoded.
        let there = batch.running.len() + batch.ready.len();
        let tried = if there > 1 { size.sentences.min(there) } else { size.sentences };
        size.sentences = (tried / 2).max(1);
        size.tokens = (size.tokens / 2).max(1);
        work.batching.encode_tokens = (work.batching.encode_tokens / 2).max(1);
        let begun = std::mem::take(batch);
        let begun = begun.running.into_iter().chain(begun.ready).filter(|sentence| !sentence.over);
        let again = self.withdrawn(begun).collect();
        self.scorer.reset();
        work.queue.put_back(again);
    }

    /// Sentences as they were before they were admitted.
    fn withdrawn(&mut self, begun: impl Iterator<Item = Running>) -> impl Iterator<Item = Waiting> {
        begun.map(|sentence| {
            self.scorer.release(&sentence.slots);
            Waiting { ticket: sentence.ticket, job: sentence.job }
        })
    }

    /// Lets sentences join where the policy has them join.
    fn fill(&mut self, batch: &mut Batch, work: &Work<'_>, stats: &mut Stats) {
        let batching = &work.batching;
        let admits = batching.admits(batch.running.len());
        if admits && !batching.rules().joins_running {
            let waiting = take(work, batching.size, Haste::Idle, stats);
            let encoded = self.encode(waiting, work, stats);
            batch.join(encoded);
        } else if admits {
            self.top_up(batch, work, stats);
        }
        // Those who will take the places of half the batch, while it runs.
        if work.encodes_ahead && 2 * batch.ready.len() < batch.running.len() {
            self.encode_some(Haste::Busy, batch, work, stats);
        }
    }

    /// Fills a running batch, or an empty one.
    fn top_up(&mut self, batch: &mut Batch, work: &Work<'_>, stats: &mut Stats) {
        let batching = &work.batching;
        let mut wanted = batching.size;
        if batching.policy == Policy::Auto {
            let waiting = work.queue.len() + batch.ready.len() + batch.running.len();
            wanted.sentences = self.trial.sentences(batching.size.sentences, waiting);
        }
        loop {
            while batch.has_place(wanted) {
                let Some(sentence) = batch.ready.pop_front() else { break };
                batch.join([sentence]);
            }
            if !batch.ready.is_empty() || batch.running.len() >= wanted.sentences {
                return;
            }
            let haste = match batch.running.len() {
                0 => Haste::Idle,
                n if 2 * n <= wanted.sentences => Haste::Eager,
                _ => Haste::Busy,
            };
            if !self.encode_some(haste, batch, work, stats) {
                return;
            }
        }
    }

    /// Encodes sentences for a batch they can join later. Whether there were any.
    fn encode_some(
        &mut self,
        haste: Haste,
        batch: &mut Batch,
        work: &Work<'_>,
        stats: &mut Stats,
    ) -> bool {
        let size = BatchSize { tokens: work.batching.encode_tokens, ..work.batching.size };
        let waiting = take(work, size, haste, stats);
        let any = !waiting.is_empty();
        let encoded = self.encode(waiting, work, stats);
        batch.ready.extend(encoded);
        any
    }

    /// Encodes sentences, a run's worth at a time, and gives them their slots.
    fn encode(
        &mut self,
        mut waiting: Vec<Waiting>,
        work: &Work<'_>,
        stats: &mut Stats,
    ) -> Vec<Running> {
        let mut clock = Clock::new(work.measured);
        let size = BatchSize { tokens: work.batching.encode_tokens, sentences: usize::MAX };
        let position_limit = self.scorer.position_limit();
        let beam = work.settings.search.beam > 1;
        if work.batching.scope == Scope::Batch {
            share_words(&mut waiting);
        }
        let mut encoded = Vec::with_capacity(waiting.len());
        let mut waiting = waiting.into_iter();
        while !waiting.as_slice().is_empty() && !work.queue.is_stopped() {
            let lengths = waiting.as_slice().iter().map(|w| w.job.source.len());
            let count = size.fitting(lengths.clone());
            if work.measured {
                stats.encoded(lengths.take(count));
            }
            let together = &waiting.as_slice()[..count];
            let sentences: Vec<Sentence<'_>> = together
                .iter()
                .map(|w| Sentence { source: &w.job.source, words: w.job.words.as_deref(), beam })
                .collect();
            profile::mark();
            let admitted = catch_unwind(AssertUnwindSafe(|| self.scorer.admit(&sentences)));
            let slots = admitted.unwrap_or_else(|reason| {
                // Nobody else knows of these sentences yet.
                let again = self.withdrawn(encoded.drain(..)).chain(waiting.by_ref()).collect();
                work.queue.put_back(again);
                resume_unwind(reason)
            });
            for slots in slots {
                let Some(Waiting { ticket, job }) = waiting.next() else { break };
                encoded.push(Running::new(ticket, job, slots, work.settings, position_limit));
            }
        }
        stats.encode += clock.lap();
        encoded
    }

    /// Whether a step may begin before the last one is answered: its rows go on from words that only the
    /// device knows. A sentence that turns out to have ended was then computed once in vain.
    fn may_run_ahead(&mut self, batch: &Batch, work: &Work<'_>) -> bool {
        self.could_run_ahead(work)
            && !batch.running.is_empty()
            && !work.queue.is_stopped()
            && batch.running.iter().all(Running::may_run_ahead)
    }

    /// The same, whoever is in the batch.
    fn could_run_ahead(&mut self, work: &Work<'_>) -> bool {
        let needed = match work.settings.search.beam {
            1 => Ahead::Greedy,
            2..=MOST_PLACES => Ahead::Beams,
            _ => return false,
        };
        !work.settings.alignments
            && !work.batching.rules().computes_finished
            && self.scorer.ahead() >= needed
    }

    /// One step of all running sentences; how many rows it had. With `ahead`, what is answered is the
    /// step before, while this one is being computed.
    fn step(
        &mut self,
        batch: &mut Batch,
        work: &Work<'_>,
        ahead: bool,
        stats: &mut Stats,
    ) -> usize {
        let mut clock = Clock::new(work.measured);
        let settings = work.settings;
        let constant = work.batching.rules().computes_finished;
        for sentence in &mut batch.running {
            sentence.prepare(settings, &work.banned, constant);
        }
        let mut plan = recycled(std::mem::take(&mut self.plan));
        for sentence in &batch.running {
            sentence.plan(settings, &work.banned, &mut plan);
        }
        let row_count = plan.rows.len();
        let census = work.measured.then(|| batch.census(stats));
        stats.search += clock.lap();
        let before = stats.decode + stats.output;
        if row_count > 0 {
            profile::mark();
            self.scorer.step(&plan.rows, settings.alignments);
            stats.decode += clock.lap();
            let races = settings.search.beam > 1 && self.could_run_ahead(work);
            let contests = races.then_some(plan.contests.as_slice());
            self.scorer.ask(&plan.rows, Question { asks: &plan.asks, contests });
            stats.output += clock.lap();
        }
        self.plan = recycled(plan);
        if batch.asked {
            self.answer(batch, work, stats);
        }
        if row_count > 0 {
            batch.begun(settings.search.beam);
        }
        if batch.asked && !ahead {
            self.answer(batch, work, stats);
        }
        if let Some((sentences, dead)) = census.filter(|_| row_count > 0) {
            let time = stats.decode + stats.output - before;
            let step = TracedStep { time, sentences, rows: row_count };
            stats.step(step, dead, work.batching.size.sentences);
        }
        row_count
    }

    /// Tells every sentence's search what the step that was asked about found.
    fn answer(&mut self, batch: &mut Batch, work: &Work<'_>, stats: &mut Stats) {
        let mut clock = Clock::new(work.measured);
        batch.asked = false;
        self.scorer.answer(&mut batch.choices);
        stats.output += clock.lap();
        let settings = work.settings;
        let scorer = &self.scorer;
        let choices = &batch.choices;
        for sentence in &mut batch.running {
            let Some(first_row) = sentence.awaited.take() else { continue };
            let first_row = first_row as usize;
            let open = sentence.beam.open().len();
            let words = sentence.job.words.as_deref();
            let wants_details = settings.scores || settings.alignments;
            let details = |row: usize, choice| {
                wants_details.then(|| Details {
                    member_scores: match settings.scores {
                        true => scorer.member_scores(first_row + row, words, choice),
                        false => Vec::new(),
                    },
                    alignment: match settings.alignments {
                        true => scorer.alignment(first_row + row).to_vec(),
                        false => Vec::new(),
                    },
                })
            };
            if open > 0 {
                let of_rows = (first_row..first_row + open).map(|row| choices.of(row));
                sentence.beam.advance(settings, of_rows, details);
            }
        }
        stats.search += clock.lap();
    }

    /// Hands out what has ended and lets it leave, unless the policy computes it on.
    fn retire(&mut self, batch: &mut Batch, work: &Work<'_>, done: &mut dyn FnMut(Done)) {
        let members = self.scorer.members();
        for sentence in batch.running.iter_mut().filter(|s| !s.over) {
            if !sentence.is_finished(work.settings) {
                continue;
            }
            if let Some(hypotheses) = sentence.finish(work.settings, members) {
                sentence.over = true;
                done(Done { ticket: sentence.ticket, hypotheses, verdict: sentence.verdict });
            }
        }
        let all_over = batch.running.iter().all(|s| s.over);
        let stay = work.batching.rules().computes_finished && !all_over;
        batch.running.retain(|sentence| {
            if stay || !sentence.over {
                return true;
            }
            self.scorer.release(&sentence.slots);
            batch.tokens -= sentence.job.source.len();
            false
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

    fn join(&mut self, sentences: impl IntoIterator<Item = Running>) {
        for sentence in sentences {
            self.tokens += sentence.job.source.len();
            self.running.push(sentence);
        }
    }

    /// Notes where each sentence's rows are in the step that has begun, whose answer is awaited now.
    fn begun(&mut self, beam: usize) {
        let (mut first_row, mut first_place) = (0, 0);
        for sentence in self.running.iter_mut().filter(|sentence| sentence.rows > 0) {
            sentence.stepped(first_row, first_place);
            first_row += sentence.rows as u32;
            first_place += beam as u32;
        }
        self.asked = true;
    }

    /// How many sentences are not over, and how many rows are of ended hypotheses. Notes what all rows
    /// read.
    fn census(&self, stats: &mut Stats) -> (usize, usize) {
        let source = |s: &Running| std::iter::repeat_n(s.job.source.len(), s.rows);
        stats.reads(self.running.iter().flat_map(source));
        let alive = self.running.iter().filter(|s| !s.over).count();
        (alive, self.running.iter().map(|s| s.rows.saturating_sub(s.beam.open().len())).sum())
    }
}

/// Allows every sentence the words of all. One without a list allows all words to everybody.
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

/// Takes sentences from the queue.
fn take(work: &Work<'_>, size: BatchSize, haste: Haste, stats: &mut Stats) -> Vec<Waiting> {
    let mut clock = Clock::new(work.measured);
    if work.measured {
        stats.queue(work.queue.len());
    }
    let waiting = work.queue.take(size, haste);
    stats.waiting += clock.lap();
    waiting
}

/// An empty plan in the memory of another, whose entries differ in lifetime only.
fn recycled<'a>(plan: Plan<'_>) -> Plan<'a> {
    fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
        list.clear();
        list.into_iter().map(|_| unreachable!("the list is empty")).collect()
    }
    let Plan { rows, asks, contests } = plan;
    Plan { rows: emptied(rows), asks: emptied(asks), contests: emptied(contests) }
}
