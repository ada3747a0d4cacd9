//! A device whose memory is full ends no job and loses no sentence: the batch begins again, smaller.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;

use peregrine_decode::batching::{BatchSize, Batching, Policy, Priority, Queue, Waiting};
use peregrine_decode::{Counters, Event, Failure, Job, Member, Settings, Worker, Workplace};
use peregrine_model::{Dialect, Search};
use peregrine_nn::{Ahead, Choice, Choices, Fault, Network, Question, Row, Sentence, Slot};

const END: u32 = 0;

/// Translates a sentence into itself. There is room for `sentences` slots, and a step may have `rows`
/// rows; what a step that was too large took stays taken until a reset.
struct Parrot {
    taken: usize,
    slots: Vec<Option<Vec<u32>>>,
    sentences: usize,
    rows: usize,
    last: Vec<u32>,
    unanswered: VecDeque<Vec<u32>>,
    ahead: bool,
}

fn full() -> ! {
    resume_unwind(Box::new(Fault { reason: "full".to_owned(), out_of_memory: true }))
}

impl Network for Parrot {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        if self.slots.iter().flatten().count() + sentences.len() > self.sentences {
            full();
        }
        let mut add = |sentence: &Sentence<'_>| {
            self.slots.push(Some(sentence.source.to_vec()));
            Slot(self.slots.len() as u32 - 1)
        };
        sentences.iter().map(&mut add).collect()
    }

    fn release(&mut self, slot: Slot) {
        self.slots[slot.0 as usize] = None;
    }

    fn reset(&mut self) {
        assert!(self.slots.iter().all(Option::is_none), "no sentence is in the batch");
        self.taken = 0;
        self.unanswered.clear();
    }

    fn step(&mut self, rows: &[Row], _: bool) {
        if self.taken + rows.len() > self.rows {
            self.taken = self.rows;
            full();
        }
        let word = |row: &Row| {
            let source = self.slots[row.slot.0 as usize].as_ref().expect("an admitted sentence");
            source.get(row.position as usize).copied().unwrap_or(END)
        };
        self.last = rows.iter().map(word).collect();
    }

    fn ask(&mut self, question: Question<'_>) {
        assert_eq!(question.asks.len(), self.last.len());
        self.unanswered.push_back(self.last.clone());
    }

    fn answer(&mut self, answer: &mut Choices) {
        answer.clear();
        for token in self.unanswered.pop_front().expect("a question was asked") {
            answer.push([Choice { token, score: -1.0 }]);
        }
    }

    fn ahead(&self) -> Ahead {
        if self.ahead { Ahead::Greedy } else { Ahead::No }
    }

    fn encodes_beside(&self) -> bool {
        self.ahead
    }

    fn logits(&mut self, _: &mut Vec<f32>) {
        unreachable!("one network answers by itself");
    }

    fn alignment(&self, _: usize) -> &[f32] {
        &[]
    }

    fn target_words(&self) -> usize {
        100
    }

    fn position_limit(&self) -> usize {
        1000
    }
}

/// What each of 40 sentences became.
fn translate(
    policy: Policy,
    sentences: usize,
    rows: usize,
    ahead: bool,
) -> Vec<Result<Vec<u32>, Failure>> {
    let mut worker = Worker::new(move || {
        let parrot = Parrot {
            taken: 0,
            slots: Vec::new(),
            sentences,
            rows,
            last: Vec::new(),
            unanswered: VecDeque::new(),
            ahead,
        };
        vec![Member { network: Box::new(parrot), weight: 1.0 }]
    });
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
