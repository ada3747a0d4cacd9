//! Steps begun before the last one is answered give the translations they would give after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use peregrine_decode::batching::{BatchSize, Batching, Policy, Queue, Waiting};
use peregrine_decode::{Decoder, Done, Guard, Job, Member, Settings};
use peregrine_model::{Dialect, Search};
use peregrine_nn::{Choice, Choices, Network, Question, Row, Sentence, Slot};

const END: u32 = 0;
const WORDS: u32 = 40;

/// The next word depends on the source, the position and all words before it. What was found by the
/// last question is kept apart from what has been answered, as on a device.
struct Chain {
    slots: Vec<Option<u32>>,
    /// The source of each row of the last step, and all it has seen.
    seen: Vec<(u32, u32)>,
    /// The best words of the last question's rows.
    latest: Vec<u32>,
    unanswered: VecDeque<Choices>,
    ahead: bool,
    most_unanswered: Arc<AtomicUsize>,
}

fn mixed(a: u32, b: u32) -> u32 {
    (a ^ b.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b).rotate_left(13)
}

impl Network for Chain {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        let mut add = |sentence: &Sentence<'_>| {
            self.slots.push(Some(sentence.source.iter().fold(7, |sum, &id| mixed(sum, id))));
            Slot(self.slots.len() as u32 - 1)
        };
        sentences.iter().map(&mut add).collect()
    }

    fn release(&mut self, slot: Slot) {
        assert!(self.slots[slot.0 as usize].take().is_some(), "released once");
    }

    fn step(&mut self, rows: &[Row], _: bool) {
        let see = |row: &Row| {
            assert!(self.ahead || !row.follows);
            let source = self.slots[row.slot.0 as usize].expect("an admitted sentence");
            let before = row.parent.map_or(source, |parent| self.seen[parent as usize].1);
            let word = match row.parent {
                Some(parent) if row.follows => self.latest[parent as usize],
                _ => row.token.unwrap_or(u32::MAX),
            };
            (source, mixed(mixed(before, word), row.position))
        };
        self.seen = rows.iter().map(see).collect();
    }

    fn ask(&mut self, question: Question<'_>) {
        let mut found = Choices::default();
        self.latest.clear();
        for (&(source, seen), ask) in self.seen.iter().zip(question.asks) {
            // One source in eight runs in circles, which guards notice.
            let word = |i: u32| if source % 8 == 0 { 3 } else { mixed(seen, i) % WORDS };
            let allowed = |word: &u32| ask.banned.binary_search(word).is_err();
            let free = (0..100).map(word).find(allowed).or((0..WORDS).find(allowed));
            let token = ask.forced.or(free).expect("some word is allowed");
            self.latest.push(token);
            found.push([Choice { token, score: -(seen as f32).sqrt() }]);
        }
        self.unanswered.push_back(found);
        self.most_unanswered.fetch_max(self.unanswered.len(), Relaxed);
    }

    fn answer(&mut self, answer: &mut Choices) {
        *answer = self.unanswered.pop_front().expect("a question was asked");
    }

    fn runs_ahead(&self) -> bool {
        self.ahead
    }

    fn logits(&mut self, _: &mut Vec<f32>) {
        unreachable!("one network answers by itself");
    }

    fn alignment(&self, _: usize) -> &[f32] {
        &[]
    }

    fn target_words(&self) -> usize {
        WORDS as usize
    }

    fn position_limit(&self) -> usize {
        60
    }
}

/// Words and score of each of 100 sentences, and how many questions were without an answer at once.
fn translate(policy: Policy, guard: Option<Guard>, ahead: bool) -> (Vec<(Vec<u32>, f32)>, usize) {
    let most_unanswered = Arc::default();
    let chain = Chain {
        slots: Vec::new(),
        seen: Vec::new(),
        latest: Vec::new(),
        unanswered: VecDeque::new(),
        ahead,
        most_unanswered: Arc::clone(&most_unanswered),
    };
    let mut decoder = Decoder::new(vec![Member { network: Box::new(chain), weight: 1.0 }]);
    let queue = Queue::new(policy, usize::MAX, 1);
    for ticket in 0..100 {
        let source = (0..1 + ticket % 9).map(|i| (3 * ticket + i) as u32).collect();
        let prefix = (0..ticket % 3).map(|i| 11 + i as u32).collect();
        let length = (ticket % 5 == 4).then_some(1 + ticket as usize % 12);
        queue.push(Waiting { ticket, job: Job { source, prefix, length, ..Job::default() } });
    }
    queue.close();
    let settings = Settings {
        search: Search { beam: 1, ..Search::of(Dialect::Marian) },
        end: END,
        unknown: None,
        scores: true,
        alignments: false,
        n_best: 1,
        guard,
    };
    let batching = Batching::new(policy, BatchSize { sentences: 8, tokens: 1000 });
    let mut results = vec![None; 100];
    let mut done = |done: Done| {
        let best = &done.hypotheses[0];
        let before = results[done.ticket as usize].replace((best.tokens.clone(), best.score));
        assert!(before.is_none(), "answered once");
    };
    decoder.serve(&queue, &batching, &settings, None, &mut done);
    let results = results.into_iter().map(|result| result.expect("every sentence is answered"));
    (results.collect(), most_unanswered.load(Relaxed))
}

#[test]
fn running_ahead_changes_nothing() {
    for policy in Policy::ALL {
        for guard in [None, Some(Guard::default())] {
            let (expected, one) = translate(policy, guard, false);
            let (found, most) = translate(policy, guard, true);
            assert_eq!(found, expected, "{policy}");
            // The naive policy computes on what has ended, and must know what has.
            assert_eq!((one, most), (1, if policy == Policy::Naive { 1 } else { 2 }), "{policy}");
        }
    }
}
