//! One worker: a decoder for each priority, and the loop that steps them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use peregrine_nn::{Fault, profile};

use crate::batching::{Batching, Priority, Queue, Wake};
use crate::clock::{self, Moment};
use crate::decoder::{Decoder, Work};
use crate::job::{Event, Failure};
use crate::scorer::Member;
use crate::stats::{Clock, Counters, Stats};

/// How long an idle worker keeps its caches.
const PATIENCE: Duration = Duration::from_secs(1);

/// Steps in a row that interactive batches may have while a bulk batch waits. Without a limit a caller
/// who always has one more sentence would starve bulk work; one bulk step in 33 costs little latency.
const INTERACTIVE_STEPS: u32 = 32;

/// One worker of a model: it takes sentences from a queue and translates them in batches.
pub struct Worker {
    members: Box<dyn Fn() -> Vec<Member> + Send>,
    decoders: [Option<Decoder>; Priority::COUNT],
    /// Steps of interactive batches since the last step of a bulk batch.
    interactive_steps: u32,
}

/// What the workers of a model share.
#[derive(Clone, Copy)]
pub struct Workplace<'a> {
    /// The queue of waiting sentences.
    pub queue: &'a Queue,
    /// The batching policy and its numbers.
    pub batching: &'a Batching,
    /// The counters of all workers.
    pub counters: &'a Counters,
}

impl Worker {
    /// A worker for a model whose networks, with empty batches, `members` makes.
    pub fn new(members: impl Fn() -> Vec<Member> + Send + 'static) -> Worker {
        Worker { members: Box::new(members), decoders: [None, None], interactive_steps: 0 }
    }

    /// Translates what is in the queue until it is closed and empty, or stopped. `tell` is called once for each
    /// sentence, when it is done or has failed. A sentence's translation depends neither on the
    /// others nor on the policy.
    ///
    /// A device failure and a panic unwind to here and are reported as failures of the sentences of their batch.
    pub fn serve(
        &mut self,
        place: Workplace<'_>,
        stats: Option<&mut Stats>,
        tell: &mut dyn FnMut(Event),
    ) {
        let Workplace { queue, batching, counters } = place;
        let measured = stats.is_some();
        let work = Work { queue, batching, counters, measured };
        let mut unused = Stats::default();
        let stats = stats.unwrap_or(&mut unused);
        if measured {
            profile::begin();
        }
        self.decoders.iter_mut().flatten().for_each(|decoder| decoder.begin(batching));
        let mut patience = Some(PATIENCE);
        loop {
            let now = clock::now();
            for (ticket, failure) in queue.expire(now) {
                tell(Event::Failed { ticket, failure });
            }
            if self.turn(&work, now, stats, tell) {
                patience = Some(PATIENCE);
                continue;
            }
            let mut clock = Clock::new(measured);
            let wake = queue.wait(batching.size, patience);
            stats.waiting += clock.lap();
            match wake {
                Wake::Work => {}
                Wake::Idle => {
                    self.trim();
                    patience = None;
                }
                Wake::End => break,
            }
        }
        self.leave(queue.is_stopped());
        if measured {
            for (name, time) in profile::end() {
                stats.part(name, time);
            }
        }
    }

    /// Frees all working memory while no sentence is being translated.
    pub fn trim(&mut self) {
        for decoder in &mut self.decoders {
            forget(decoder);
        }
    }

    /// A turn of the first priority that has something to do, or of bulk work if that has waited for
    /// [`INTERACTIVE_STEPS`]. Whether there was one.
    fn turn(
        &mut self,
        work: &Work<'_>,
        now: Moment,
        stats: &mut Stats,
        tell: &mut dyn FnMut(Event),
    ) -> bool {
        let mut order = Priority::ALL;
        if self.interactive_steps >= INTERACTIVE_STEPS {
            order.reverse();
        }
        for priority in order {
            let waits = work.queue.waiting(priority).sentences > 0;
            let busy = self.decoders[priority as usize].as_ref().is_some_and(Decoder::is_busy);
            if !waits && !busy {
                continue;
            }
            // Batches share the device: the pending result of one is collected before another one's turn.
            for other in Priority::ALL.into_iter().filter(|&other| other != priority) {
                if self.decoders[other as usize].as_ref().is_some_and(Decoder::awaits_top_k) {
                    self.caught(other, work, tell, |decoder, tell| {
                        decoder.settle(work, stats, tell)
                    });
                }
            }
            if self.caught(priority, work, tell, |decoder, tell| {
                decoder.turn(priority, work, now, stats, tell)
            }) {
                self.interactive_steps = match priority {
                    Priority::Interactive => self.interactive_steps.saturating_add(1),
                    Priority::Bulk => 0,
                };
                return true;
            }
        }
        false
    }

    /// Runs a decoder and handles its failure. Whether it had something to do; a failure counts as something.
    fn caught(
        &mut self,
        priority: Priority,
        work: &Work<'_>,
        tell: &mut dyn FnMut(Event),
        act: impl FnOnce(&mut Decoder, &mut dyn FnMut(Event)) -> bool,
    ) -> bool {
        let Worker { members, decoders, .. } = self;
        let decoder = &mut decoders[priority as usize];
        let acted = catch_unwind(AssertUnwindSafe(|| {
            let new = || Decoder::new(members(), work.batching);
            act(decoder.get_or_insert_with(new), tell)
        }));
        let Err(reason) = acted else { return acted.is_ok_and(|busy| busy) };
        let failure = failure(reason);
        let out_of_memory = matches!(&failure, Failure::Device(fault) if fault.out_of_memory);
        let Some(failed) = decoder else {
            // Even an empty batch does not fit the device.
            for waiting in work.queue.take_all(priority) {
                tell(Event::Failed { ticket: waiting.ticket, failure: failure.clone() });
            }
            return true;
        };
        if out_of_memory && failed.can_shrink() {
            let again = failed.withdraw();
            let reset = catch_unwind(AssertUnwindSafe(|| failed.reset()));
            work.queue.put_back(priority, again);
            if reset.is_err() {
                forget(decoder);
            }
            return true;
        }
        for waiting in failed.withdraw() {
            tell(Event::Failed { ticket: waiting.ticket, failure: failure.clone() });
        }
        forget(decoder);
        true
    }

    /// Ends the work. Decoders that were interrupted are dropped.
    fn leave(&mut self, stopped: bool) {
        for decoder in &mut self.decoders {
            if stopped || decoder.as_ref().is_some_and(|d| d.is_busy() || d.has_shrunk()) {
                forget(decoder);
            }
        }
    }
}

/// Drops a decoder and ignores a panic while it is dropped, which a failed device may cause.
fn forget(decoder: &mut Option<Decoder>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(decoder.take())));
}

fn failure(reason: Box<dyn Any + Send>) -> Failure {
    let text = match reason.downcast::<Fault>() {
        Ok(fault) => return Failure::Device(*fault),
        Err(other) => match other.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => other.downcast::<&str>().map_or("a panic".into(), |text| (*text).into()),
        },
    };
    Failure::Panic(text)
}
