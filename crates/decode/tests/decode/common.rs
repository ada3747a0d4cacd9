//! A network whose answers are known: it translates every sentence into itself.

use std::collections::VecDeque;
use std::panic::resume_unwind;

use peregrine_decode::Member;
use peregrine_nn::{Choice, Choices, Fault, Network, Row, RunAhead, Sentence, Slot, TopKQuery};

/// The end symbol.
pub(crate) const END: u32 = 0;

/// What a device has room for.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Sentences in the batch.
    pub(crate) sentences: usize,
    /// Rows of a step. What a step that was too large took stays taken until a reset.
    pub(crate) rows: usize,
}

impl Room {
    /// More than anybody asks for.
    pub(crate) const ENOUGH: Room = Room { sentences: usize::MAX, rows: usize::MAX };
}

/// A network that copies, and knows which sentences are in its batch.
struct Copier {
    room: Room,
    /// Rows that a step which was too large has taken.
    taken: usize,
    slots: Vec<Option<Vec<u32>>>,
    last: Vec<u32>,
    unanswered: VecDeque<Vec<u32>>,
    ahead: bool,
}

/// The members of a model that copies. With `ahead` it answers a query while the next step runs.
pub(crate) fn copiers(room: Room, ahead: bool) -> Vec<Member> {
    let copier = Copier {
        room,
        taken: 0,
        slots: Vec::new(),
        last: Vec::new(),
        unanswered: VecDeque::new(),
        ahead,
    };
    vec![Member { network: Box::new(copier), weight: 1.0 }]
}

fn full() -> ! {
    resume_unwind(Box::new(Fault { reason: "full".to_owned(), out_of_memory: true }))
}

impl Network for Copier {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        if self.slots.iter().flatten().count() + sentences.len() > self.room.sentences {
            full();
        }
        let mut add = |sentence: &Sentence<'_>| {
            let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
            self.slots.resize(self.slots.len().max(free + 1), None);
            self.slots[free] = Some(sentence.source.to_vec());
            Slot(free as u32)
        };
        sentences.iter().map(&mut add).collect()
    }

    fn release(&mut self, slot: Slot) {
        assert!(self.slots[slot.0 as usize].take().is_some(), "released once");
    }

    fn reset(&mut self) {
        assert!(self.slots.iter().all(Option::is_none), "no sentence is in the batch");
        self.taken = 0;
        self.unanswered.clear();
    }

    fn step(&mut self, rows: &[Row], _: bool) {
        if self.taken + rows.len() > self.room.rows {
            self.taken = self.room.rows;
            full();
        }
        let word = |row: &Row| {
            let source = self.slots[row.slot.0 as usize].as_ref().expect("an admitted sentence");
            source.get(row.position as usize).copied().unwrap_or(END)
        };
        self.last = rows.iter().map(word).collect();
    }

    fn top_k(&mut self, query: TopKQuery<'_>) {
        assert_eq!(query.requests.len(), self.last.len());
        self.unanswered.push_back(self.last.clone());
    }

    fn take_top_k(&mut self, answer: &mut Choices) {
        answer.clear();
        for token in self.unanswered.pop_front().expect("a query was asked") {
            answer.push([Choice { token, score: -1.0 }]);
        }
    }

    fn run_ahead(&self) -> RunAhead {
        if self.ahead { RunAhead::Greedy } else { RunAhead::No }
    }

    fn encodes_on_side_stream(&self) -> bool {
        self.ahead
    }

    fn logits(&mut self, _: &[bool], _: &mut Vec<f32>) {
        unreachable!("one network answers by itself");
    }

    fn alignment(&self, _: usize) -> &[f32] {
        &[]
    }

    fn target_words(&self) -> usize {
        1 << 20
    }

    fn position_limit(&self) -> usize {
        1000
    }
}
