//! Many callers and few workers on one queue: whatever callers do, every sentence that was accepted is
//! answered once, and nobody waits for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{END, Room, copiers};
use peregrine_decode::batching::{
    BatchSize, Batching, Bound, Policy, Priority, Queue, Refusal, SourceId, Waiting,
};
use peregrine_decode::{Call, Counters, Event, Failure, Job, Settings, Worker, Workplace, clock};
use peregrine_model::{Dialect, Search};

/// Long enough for the slowest machine; a lost wake-up takes for ever.
const PATIENCE: Duration = Duration::from_secs(120);

fn settings() -> Arc<Settings> {
    let search = Search { beam: 1, ..Search::of(Dialect::Marian) };
    Arc::new(Settings::new(search, END, None))
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What came of every sentence.
#[derive(Default)]
struct Ledger {
    events: Mutex<HashMap<u64, Event>>,
    last_ticket: AtomicU64,
}

impl Ledger {
    fn hear(&self, event: Event) {
        let (Event::Failed { ticket, .. } | Event::Token { ticket, .. }) = event else {
            let Event::Done(done) = &event else { unreachable!("all events have been named") };
            return self.note(done.ticket, event);
        };
        self.note(ticket, event);
    }

    fn note(&self, ticket: u64, event: Event) {
        let before = self.events.lock().expect("no test has failed").insert(ticket, event);
        assert!(before.is_none(), "sentence {ticket} is answered twice");
    }
}

/// A caller's sentence: its ticket is in it, so that a wrong answer is seen.
fn source(ticket: u64) -> Vec<u32> {
    (0..1 + ticket % 13).map(|i| 1 + ((ticket * 31 + i) % 100_000) as u32).collect()
}

/// What a caller knows of the sentences it has submitted.
struct Submitted {
    tickets: Vec<u64>,
    cancelled: bool,
}

/// One caller: requests of one to twenty sentences, some of which it gives up.
fn caller(queue: &Queue, ledger: &Ledger, seed: u64, stopping: &AtomicBool) -> Vec<Submitted> {
    let mut random = Random(seed);
    let settings = settings();
    let mut submitted = Vec::new();
    for _ in 0..60 {
        let priority = Priority::ALL[random.below(2) as usize];
        let from = queue.open(priority);
        let deadline =
            (random.below(5) == 0).then(|| clock::now() + Duration::from_micros(random.below(800)));
        let call = Arc::new(Call::new(deadline, false));
        let count = 1 + random.below(20);
        let first = ledger.last_ticket.fetch_add(count, Ordering::Relaxed);
        let tickets: Vec<u64> = (first..first + count).collect();
        let waiting = |ticket: &u64| Waiting {
            ticket: *ticket,
            job: Job::new(source(*ticket), &settings, &call),
        };
        let waiting = tickets.iter().map(waiting).collect();
        let pushed = match random.below(3) {
            0 => queue.try_push(from, waiting),
            _ => queue.push_when_room(from, waiting, deadline),
        };
        let cancelled = random.below(4) == 0;
        match pushed {
            Ok(()) => submitted.push(Submitted { tickets, cancelled }),
            Err(Refusal::Full | Refusal::Deadline) => {}
            Err(Refusal::Closed) => assert!(stopping.load(Ordering::SeqCst)),
        }
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
        if cancelled {
            cancel(queue, from, &call);
        }
        queue.close_source(from);
    }
    submitted
}

fn cancel(queue: &Queue, from: SourceId, call: &Call) {
    call.cancel();
    queue.forget(from, call);
}

/// Runs callers and workers to the end; whether that came before patience ran out.
fn run(seed: u64, stops: bool) {
    let (end, ended) = mpsc::channel();
    let all = std::thread::spawn(move || {
        let bound = Bound { sentences: 30, bytes: 1 << 20 };
        let queue = Queue::new(Policy::Auto, usize::MAX, 3).bounded(bound);
        let (ledger, stopping) = (Ledger::default(), AtomicBool::new(false));
        let batching = Batching::new(Policy::Auto, BatchSize { sentences: 8, tokens: 100 });
        let counters = Counters::default();
        let submitted: Vec<Submitted> = std::thread::scope(|scope| {
            for worker in 0..3 {
                let (queue, ledger, batching, counters) = (&queue, &ledger, &batching, &counters);
                scope.spawn(move || {
                    let mut worker = Worker::new(move || copiers(Room::ENOUGH, worker % 2 == 1));
                    let place = Workplace { queue, batching, counters };
                    worker.serve(place, None, &mut |event| ledger.hear(event));
                });
            }
            let callers: Vec<_> = (0..6)
                .map(|number| {
                    let (queue, ledger, stopping) = (&queue, &ledger, &stopping);
                    scope.spawn(move || caller(queue, ledger, 100 * seed + number, stopping))
                })
                .collect();
            if stops {
                std::thread::sleep(Duration::from_micros(2000 + 37 * (seed % 100)));
                stopping.store(true, Ordering::SeqCst);
                queue.stop();
            }
            let submitted =
                callers.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect();
            queue.close();
            submitted
        });
        check(&ledger, &submitted, stops);
        assert!(queue.is_empty());
        end.send(()).expect("somebody waits");
    });
    let waited = ended.recv_timeout(PATIENCE);
    if waited == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("seed {seed}: somebody waits for ever");
    }
    all.join().expect("callers and workers");
}

fn check(ledger: &Ledger, submitted: &[Submitted], stops: bool) {
    let events = ledger.events.lock().expect("no test has failed");
    let known: std::collections::HashSet<u64> =
        submitted.iter().flat_map(|request| request.tickets.iter().copied()).collect();
    assert!(events.keys().all(|ticket| known.contains(ticket)), "nobody asked for some answer");
    for request in submitted {
        for ticket in &request.tickets {
            match events.get(ticket) {
                Some(Event::Done(done)) => assert_eq!(done.hypotheses[0].tokens, source(*ticket)),
                Some(Event::Failed { failure: Failure::Deadline, .. }) => {}
                Some(Event::Failed { failure: Failure::Cancelled, .. }) => {
                    assert!(request.cancelled);
                }
                Some(other) => panic!("sentence {ticket}: {other:?}"),
                None => assert!(stops || request.cancelled, "sentence {ticket} is forgotten"),
            }
        }
    }
}

#[test]
fn everybody_is_answered_once() {
    (0..40).for_each(|seed| run(seed, false));
}

#[test]
fn nobody_waits_for_a_queue_that_was_stopped() {
    (0..40).for_each(|seed| run(1000 + seed, true));
}

/// Serves what is in the queue and tells what happened, in order.
fn serve(queue: &Queue, batching: &Batching, tell: &mut dyn FnMut(Event)) {
    let counters = Counters::default();
    let place = Workplace { queue, batching, counters: &counters };
    Worker::new(|| copiers(Room::ENOUGH, false)).serve(place, None, tell);
}

/// Sentences with priority come first, and the others go on where they were.
#[test]
fn a_book_rests_while_somebody_waits() {
    let queue = Queue::new(Policy::Auto, usize::MAX, 1);
    let batching = Batching::new(Policy::Auto, BatchSize { sentences: 4, tokens: 1000 });
    let settings = settings();
    let job = |length: u32| Job::new((1..=length).collect(), &settings, &Arc::default());
    let (book, person) = (queue.open(Priority::Bulk), queue.open(Priority::Interactive));
    let call = Arc::new(Call::new(None, true));
    let told = Job { call: Arc::clone(&call), ..job(30) };
    queue.push(book, Waiting { ticket: 0, job: told });
    let mut events = Vec::new();
    let mut tell = |event: Event| {
        match event {
            // In the middle of the book somebody comes.
            Event::Token { position: 9, .. } => {
                queue.push(person, Waiting { ticket: 1, job: job(20) });
                queue.close();
                events.push("comes");
            }
            Event::Token { position: 10, .. } => events.push("the book goes on"),
            Event::Token { .. } => {}
            Event::Done(done) if done.ticket == 1 => events.push("the sentence is done"),
            Event::Done(done) => {
                assert_eq!(done.hypotheses[0].tokens, (1..=30).collect::<Vec<u32>>());
                events.push("the book is done");
            }
            Event::Failed { .. } => panic!("{event:?}"),
        }
    };
    serve(&queue, &batching, &mut tell);
    let expected = ["comes", "the sentence is done", "the book goes on", "the book is done"];
    assert_eq!(events, expected);
}

/// Somebody who always has one more sentence does not hold a book up for ever.
#[test]
fn a_book_is_not_starved() {
    let queue = Queue::new(Policy::Auto, usize::MAX, 1);
    let batching = Batching::new(Policy::Auto, BatchSize { sentences: 4, tokens: 1000 });
    let settings = settings();
    let job = || Job::new((1..=9).collect(), &settings, &Arc::default());
    let (book, person) = (queue.open(Priority::Bulk), queue.open(Priority::Interactive));
    queue.push(book, Waiting { ticket: 0, job: job() });
    queue.push(person, Waiting { ticket: 1, job: job() });
    let mut sentences = 0;
    serve(&queue, &batching, &mut |event| match event {
        Event::Done(done) if done.ticket == 0 => queue.close(),
        Event::Done(_) => {
            sentences += 1;
            assert!(sentences < 100, "the book waits and waits");
            queue.push(person, Waiting { ticket: 1, job: job() });
        }
        _ => panic!("{event:?}"),
    });
    assert!(sentences > 10, "{sentences} sentences before the book");
}

/// What was cancelled or is late costs no further step.
#[test]
fn a_sentence_that_was_given_up_leaves_at_the_next_step() {
    let queue = Queue::new(Policy::Auto, usize::MAX, 1);
    let batching = Batching::new(Policy::Auto, BatchSize { sentences: 4, tokens: 1000 });
    let settings = settings();
    let call = Arc::new(Call::new(None, true));
    let other = Arc::new(Call::new(None, false));
    let from = queue.open(Priority::Bulk);
    let source: Vec<u32> = (1..=50).collect();
    queue.push(from, Waiting { ticket: 0, job: Job::new(source.clone(), &settings, &call) });
    queue.push(from, Waiting { ticket: 1, job: Job::new(source, &settings, &other) });
    queue.close();
    let mut events = Vec::new();
    serve(&queue, &batching, &mut |event| match event {
        Event::Token { position, .. } => {
            assert!(position <= 7, "nobody wants word {position}");
            if position == 7 {
                call.cancel();
            }
        }
        Event::Failed { ticket, failure } => {
            assert_eq!((ticket, failure), (0, Failure::Cancelled));
            events.push("given up");
        }
        Event::Done(done) => {
            assert_eq!((done.ticket, done.hypotheses[0].tokens.len()), (1, 50));
            events.push("done");
        }
    });
    assert_eq!(events, ["given up", "done"]);
}
