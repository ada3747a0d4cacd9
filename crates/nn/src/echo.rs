//! A network that costs nothing and says the source again.
//!
//! What is left of a translation is everything else: reading, splitting, tokenising, queueing, search, detokenising and
//! writing. It runs ahead and encodes beside steps as a GPU does, so it measures what keeps one waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use peregrine_model::Architecture;

use crate::device_beam::RunAhead;
use crate::network::{Network, Prepared, Row, Sentence, Slot};
use crate::positions::MOST_POSITIONS;
use crate::top_k::{Choice, Choices, TopKQuery};

/// The score of a word that is not the source's.
const UNLIKELY: f32 = -20.0;

/// A network that says the source again, then the end symbol. Its search is greedy; in a wider beam all hypotheses are worse.
#[derive(Debug, Clone)]
pub struct Echo {
    begins: usize,
    ends: usize,
    end: u32,
    words: usize,
}

/// One worker's sentences and steps.
struct Session {
    echo: Arc<Echo>,
    /// The words of each sentence, without its frame.
    slots: Vec<Option<Vec<u32>>>,
    free: Vec<u32>,
    /// The words of the last step's rows.
    last: Vec<u32>,
    /// What each of them attends to, if alignments are wanted: the word it repeats.
    attention: Vec<Vec<f32>>,
    pending: VecDeque<Choices>,
    spare: Vec<Choices>,
}

impl Echo {
    /// The stand-in for a network of this architecture, whose end symbol is `end`.
    pub fn new(architecture: &Architecture, end: u32) -> Echo {
        let words = architecture.target_vocabulary();
        let frame = architecture.source_frame();
        let begins = usize::from(frame.begin.is_some());
        Echo { begins, ends: frame.len() - begins, end, words }
    }
}

impl Prepared for Echo {
    fn session(self: Arc<Self>) -> Box<dyn Network> {
        Box::new(Session {
            echo: self,
            slots: Vec::new(),
            free: Vec::new(),
            last: Vec::new(),
            attention: Vec::new(),
            pending: VecDeque::new(),
            spare: Vec::new(),
        })
    }
}

impl Network for Session {
    fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slot> {
        let Session { echo, slots, free, .. } = self;
        let add = |sentence: &Sentence<'_>| {
            let slot = free.pop().unwrap_or_else(|| {
                slots.push(None);
                slots.len() as u32 - 1
            });
            let words = &sentence.source[echo.begins..sentence.source.len() - echo.ends];
            slots[slot as usize] = Some(words.to_vec());
            Slot(slot)
        };
        sentences.iter().map(add).collect()
    }

    fn release(&mut self, slot: Slot) {
        if self.slots[slot.0 as usize].take().is_some() {
            self.free.push(slot.0);
        }
    }

    fn reset(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.pending.clear();
    }

    fn step(&mut self, rows: &[Row], alignments: bool) {
        let word = |row: &Row| {
            let words = self.slots[row.slot.0 as usize].as_ref();
            let word = words.and_then(|words| words.get(row.position as usize));
            word.map_or(self.echo.end, |&word| word.min(self.echo.words as u32 - 1))
        };
        self.last.clear();
        self.last.extend(rows.iter().map(word));
        let Echo { begins, ends, .. } = *self.echo;
        let attention = |row: &Row| {
            let words = self.slots[row.slot.0 as usize].as_ref().map_or(0, Vec::len);
            let mut weights = vec![0.0; begins + words + ends];
            let place = begins + (row.position as usize).min(words);
            weights.get_mut(place).into_iter().for_each(|weight| *weight = 1.0);
            weights
        };
        self.attention.clear();
        self.attention.extend(rows.iter().filter(|_| alignments).map(attention));
    }

    fn top_k(&mut self, query: TopKQuery<'_>) {
        let mut choices = self.spare.pop().unwrap_or_default();
        choices.clear();
        let words = self.echo.words as u32;
        for (&word, request) in self.last.iter().zip(query.requests) {
            let allowed = |word: &u32| request.banned.binary_search(word).is_err();
            let others = (1..words).map(|further| (word + further) % words);
            let mut all = std::iter::once(word).chain(others).filter(allowed);
            let count = if request.forced.is_some() { 1 } else { request.count };
            let score = |token: u32| if token == word { 0.0 } else { UNLIKELY };
            choices.push((0..count).map_while(|_| {
                let token = request.forced.or_else(|| all.next())?;
                Some(Choice { token, score: score(token) })
            }));
        }
        self.pending.push_back(choices);
    }

    fn take_top_k(&mut self, best: &mut Choices) {
        if let Some(mut choices) = self.pending.pop_front() {
            std::mem::swap(&mut choices, best);
            self.spare.push(choices);
        }
    }

    fn run_ahead(&self) -> RunAhead {
        RunAhead::Greedy
    }

    fn encodes_on_side_stream(&self) -> bool {
        true
    }

    fn logits(&mut self, wanted: &[bool], out: &mut Vec<f32>) {
        for (&word, _) in self.last.iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            let start = out.len();
            out.resize(start + self.echo.words, UNLIKELY);
            out[start + word as usize] = 0.0;
        }
    }

    fn alignment(&self, row: usize) -> &[f32] {
        self.attention.get(row).map_or(&[], Vec::as_slice)
    }

    fn target_words(&self) -> usize {
        self.echo.words
    }

    fn position_limit(&self) -> usize {
        MOST_POSITIONS
    }
}
