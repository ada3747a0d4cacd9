//! A network whose answers are known: it translates every sentence into itself.

use std::collections::VecDeque;

use peregrine_decode::Member;
use peregrine_nn::{Ahead, Choice, Choices, Network, Question, Row, Sentence, Slot};

/// The end symbol.
pub(crate) const END: u32 = 0;

/// A network that copies, and knows which sentences are in its batch.
#[derive(Default)]
pub(crate) struct Copier {
    slots: Vec<Option<Vec<u32>>>,
    last: Vec<u32>,
    unanswered: VecDeque<Vec<u32>>,
    ahead: bool,
}

/// The members of a model that copies. With `ahead` it answers a question while the next step runs.
pub(crate) fn copiers(ahead: bool) -> Vec<Member> {
    vec![Member { network: Box::new(Copier { ahead, ..Copier::default() }), weight: 1.0 }]
}

impl Network for Copier {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
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
        self.unanswered.clear();
    }

    fn step(&mut self, rows: &[Row], _: bool) {
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
        1 << 20
    }

    fn position_limit(&self) -> usize {
        1000
    }
}
