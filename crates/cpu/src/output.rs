//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache; from it each row updates its best words and, if probabilities are asked
//! for, a running maximum and sum. The scores of all words are never stored.

use peregrine_model::Weight;
use peregrine_nn::{Ask, Choice, Choices, Question, Scoring};

use crate::isa::{Isa, kernel};
use crate::lanes::{LANES, exp, largest, sum};
use crate::matrix::Matrix;
use crate::product::{Packed, Task, multiply};

/// Panels worked on at a time: 512 words.
const BLOCK_PANELS: usize = 32;

/// A prepared output layer.
pub struct Output {
    pub(crate) packed: Packed,
    /// As stored: shortlists gather from here, a row a word.
    weight: Weight,
    bias: Vec<f32>,
}

/// The words of a shortlist, packed.
pub struct Selection {
    pub(crate) packed: Packed,
    pub(crate) words: Vec<u32>,
}

impl Output {
    pub(crate) fn new(packed: Packed, weight: Weight, bias: Vec<f32>) -> Output {
        Output { packed, weight, bias }
    }

    pub(crate) fn select(&self, words: &[u32]) -> Selection {
        let words: Vec<u32> =
            words.iter().copied().filter(|&w| (w as usize) < self.packed.outputs()).collect();
        let mut packed = Packed::new(words.len(), self.packed.inputs());
        let mut row = vec![0.0; self.packed.inputs()];
        for (output, &word) in words.iter().enumerate() {
            self.weight.read_row(word as usize, &mut row);
            let bias = self.bias.get(word as usize).copied().unwrap_or(0.0);
            packed.set(output, &row, bias);
        }
        Selection { packed, words }
    }
}

/// Runs of rows that share their words: all rows without a shortlist, or a sentence's hypotheses.
pub(crate) fn groups<'a>(
    selections: &'a [Option<&'a Selection>],
) -> impl Iterator<Item = (std::ops::Range<usize>, Option<&'a Selection>)> {
    let same = |a: &Option<&Selection>, b: &Option<&Selection>| match (a, b) {
        (Some(a), Some(b)) => std::ptr::eq(*a, *b),
        (None, None) => true,
        _ => false,
    };
    let mut start = 0;
    selections.chunk_by(same).map(move |group| {
        let range = start..start + group.len();
        start = range.end;
        (range, group[0])
    })
}

/// Answers `question` for every row of `x`.
pub(crate) fn best(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    question: Question<'_>,
    answer: &mut Choices,
) {
    answer.clear();
    let mut block = Vec::new();
    for (rows, selection) in groups(selections) {
        let packed = selection.map_or(&output.packed, |s| &s.packed);
        let words = selection.map(|s| s.words.as_slice());
        let inputs = packed.inputs();
        let x = &x.values()[rows.start * inputs..rows.end * inputs];
        let mut running: Vec<Running<'_>> =
            question.asks[rows].iter().map(|ask| Running::new(ask, question.scoring)).collect();
        let all = Task::all(x, packed);
        for first_panel in (0..all.panels).step_by(BLOCK_PANELS) {
            let panels = BLOCK_PANELS.min(all.panels - first_panel);
            let task = Task { first_panel, panels, ..all };
            let columns = task.outputs();
            block.resize(running.len() * columns.len(), 0.0);
            multiply(isa, task, &mut block);
            for (row, scores) in running.iter_mut().zip(block.chunks_mut(columns.len())) {
                let words = match words {
                    Some(words) => Words::Listed(&words[columns.clone()]),
                    None => Words::From(columns.start as u32),
                };
                row.take(isa, scores, words);
            }
        }
        for row in running {
            answer.push(row.finish());
        }
    }
}

/// Which words a block's columns stand for.
#[derive(Clone, Copy)]
enum Words<'a> {
    From(u32),
    Listed(&'a [u32]),
}

impl Words<'_> {
    fn word(self, column: usize) -> u32 {
        match self {
            Words::From(first) => first + column as u32,
            Words::Listed(words) => words[column],
        }
    }

    fn column(self, word: u32, columns: usize) -> Option<usize> {
        match self {
            Words::From(first) => {
                word.checked_sub(first).map(|c| c as usize).filter(|&c| c < columns)
            }
            Words::Listed(words) => words.binary_search(&word).ok(),
        }
    }
}

/// What a row knows of the blocks it has seen.
struct Running<'a> {
    ask: &'a Ask<'a>,
    scoring: Scoring,
    best: Vec<Choice>,
    /// Score of the last entry of a full list: what a newcomer must beat.
    floor: f32,
    /// Largest score, and `Σ exp(score − most)`.
    most: f32,
    sum: f64,
}

impl<'a> Running<'a> {
    fn new(ask: &'a Ask<'a>, scoring: Scoring) -> Running<'a> {
        let (floor, most) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        Running { ask, scoring, best: Vec::with_capacity(ask.count + 1), floor, most, sum: 0.0 }
    }

    fn take(&mut self, isa: Isa, scores: &mut [f32], words: Words<'_>) {
        if let Some(token) = self.ask.forced
            && let Some(column) = words.column(token, scores.len())
        {
            self.best.push(Choice { token, score: scores[column] });
        }
        if self.scoring == Scoring::LogProbability {
            self.add_to_sum(isa, scores);
        }
        for &word in self.ask.banned {
            if let Some(column) = words.column(word, scores.len()) {
                scores[column] = f32::NEG_INFINITY;
            }
        }
        if self.scoring == Scoring::LogProbabilityOfAllowed {
            self.add_to_sum(isa, scores);
        }
        if self.ask.forced.is_none() && self.ask.count > 0 {
            self.search(isa, scores, words);
        }
    }

    fn add_to_sum(&mut self, isa: Isa, scores: &[f32]) {
        let mut most = self.most;
        block_largest(isa, scores, &mut most);
        if most == f32::NEG_INFINITY {
            return;
        }
        if most > self.most {
            self.sum *= f64::from(self.most - most).exp();
            self.most = most;
        }
        let mut sum = 0.0;
        block_sum(isa, scores, most, &mut sum);
        self.sum += f64::from(sum);
    }

    /// Nearly every block has nothing that beats the floor, which one look at its largest tells.
    fn search(&mut self, isa: Isa, scores: &[f32], words: Words<'_>) {
        let mut most = self.floor;
        block_largest(isa, scores, &mut most);
        if most <= self.floor {
            return;
        }
        for (column, &score) in scores.iter().enumerate() {
            if score > self.floor {
                self.insert(Choice { token: words.word(column), score });
            }
        }
    }

    fn insert(&mut self, choice: Choice) {
        let place = self.best.partition_point(|c| c.score >= choice.score);
        self.best.insert(place, choice);
        self.best.truncate(self.ask.count);
        if self.best.len() == self.ask.count {
            self.floor = self.best[self.ask.count - 1].score;
        }
    }

    fn finish(mut self) -> Vec<Choice> {
        if let Some(token) = self.ask.forced
            && self.best.is_empty()
        {
            self.best.push(Choice { token, score: f32::MIN });
        }
        if self.scoring != Scoring::Logit {
            let shift = self.most + self.sum.ln() as f32;
            for choice in &mut self.best {
                choice.score -= shift;
            }
        }
        self.best
    }
}

kernel! {
    fn block_largest(scores: &[f32], most: &mut f32) = block_largest_body
}

#[inline(always)]
fn block_largest_body<const FMA: bool>(scores: &[f32], most: &mut f32) {
    *most = most.max(largest(scores));
}

kernel! {
    fn block_sum(scores: &[f32], most: f32, total: &mut f32) = block_sum_body
}

#[inline(always)]
fn block_sum_body<const FMA: bool>(scores: &[f32], most: f32, total: &mut f32) {
    *total = sum(scores, |s| exp::<FMA>(s - most));
}

/// All scores of every row, end to end.
pub(crate) fn logits(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    out: &mut Vec<f32>,
) {
    out.clear();
    for (rows, selection) in groups(selections) {
        let packed = selection.map_or(&output.packed, |s| &s.packed);
        let x = &x.values()[rows.start * packed.inputs()..rows.end * packed.inputs()];
        let start = out.len();
        out.resize(start + rows.len() * packed.outputs(), 0.0);
        multiply(isa, Task::all(x, packed), &mut out[start..]);
    }
}

// A block is a whole number of panels, so that its columns begin where a panel does.
const _: () = assert!(BLOCK_PANELS * LANES == 512);
