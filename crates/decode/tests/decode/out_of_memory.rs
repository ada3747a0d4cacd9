//! A device whose memory is full ends no job and loses no sentence: the batch begins again, smaller.

use std::sync::Arc;

use crate::common::{END, Room, copiers};
use peregrine_decode::batching::{BatchSize, Batching, Policy, Priority, Queue, Waiting};
use peregrine_decode::{Counters, Event, Failure, Job, Settings, Worker, Workplace};
use peregrine_model::{Dialect, Search};

/// What each of 40 sentences became.
fn translate(
    policy: Policy,
    sentences: usize,
    rows: usize,
    ahead: bool,
) -> Vec<Result<Vec<u32>, Failure>> {
    let mut worker = Worker::new(move || copiers(Room { sentences, rows }, ahead));
    let queue = Queue::new(policy, usize::MAX, 1);
    let search = Search { beam: 1, ..Search::of(Dialect::Marian) };
    let settings = Arc::new(Settings::new(search, END, None));
    let from = queue.open(Priority::Bulk);
    for ticket in 0..40 {
        let job = Job::new(source(ticket), &settings, &Arc::default());
        queue.push(from, Waiting { ticket, job });
    }
    queue.close();
    let batching = Batching::new(policy, BatchSize { sentences: 16, tokens: 1000 });
    let mut results = vec![None; 40];
    let mut tell = |event: Event| {
        let (ticket, result) = match event {
            Event::Done(done) => (done.ticket, Ok(done.hypotheses[0].tokens.clone())),
            Event::Failed { ticket, failure } => (ticket, Err(failure)),
            Event::Token { .. } => unreachable!("nobody asked for them"),
        };
        assert!(results[ticket as usize].replace(result).is_none(), "answered once");
    };
    let counters = Counters::default();
    let place = Workplace { queue: &queue, batching: &batching, counters: &counters };
    worker.serve(place, None, &mut tell);
    results.into_iter().map(|result| result.expect("answered")).collect()
}

fn source(ticket: u64) -> Vec<u32> {
    (0..1 + ticket % 7).map(|i| 1 + (ticket + i) as u32 % 90).collect()
}

#[test]
fn every_sentence_is_translated_in_a_smaller_batch() {
    let expected: Vec<_> = (0..40).map(|ticket| Ok(source(ticket))).collect();
    for policy in Policy::ALL {
        for (sentences, rows) in [(100, 100), (100, 5), (5, 100), (7, 3), (1, 1)] {
            for ahead in [false, true] {
                let found = translate(policy, sentences, rows, ahead);
                assert_eq!(
                    found, expected,
                    "{policy}, room for {sentences} sentences, {rows} rows"
                );
            }
        }
    }
}

/// Everybody hears of it, and the worker goes on.
#[test]
fn a_single_sentence_that_does_not_fit_is_told() {
    for result in translate(Policy::Auto, 0, 1, false) {
        assert!(matches!(result, Err(Failure::Device(fault)) if fault.out_of_memory));
    }
}
