//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache; from it each row updates its best words and, if probabilities are asked
//! for, a running maximum and sum. The scores of all words are never stored.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use peregrine_model::Activation;
use peregrine_nn::{Ask, Choice, Choices, Question, Scoring, profile};

use crate::int8::Packed8;
use crate::int8::rows::{Picked8, Rows8};
use crate::int8::screen::{Sample, Screen};
use crate::isa::{Isa, kernel};
use crate::lanes::{exp, largest, sum};
use crate::linear::{Linear, look, multiply_scattered, survivors};
use crate::matrix::Matrix;

/// Panels worked on at a time: 512 words.
const BLOCK_PANELS: usize = 32;

/// Rows from which on a selection is packed: fewer read their words where they are.
const MANY_ROWS: usize = 8;

/// Rows up to which reading weights is so much of the cost that screening pays.
const SCREENED_ROWS: usize = 2;

/// Rows after which a second copy of the weights pays for itself,
const ROWS_BEFORE_SCREENING: u32 = 100;

/// and those of them, the last ones, that tell whether it would.
const ROWS_LOOKED_AT: u32 = 20;

/// A prepared output layer.
pub struct Output {
    pub(crate) linear: Linear,
    /// The weights a word after the other, once there is a shortlist or a screen.
    rows: OnceLock<Arc<Rows8>>,
    /// The weights in four bits, once few rows at a time have come often enough; not if it is not wanted,
    /// or a sample of them tells that it would not pay.
    screen: OnceLock<Screen>,
    sample: OnceLock<Sample>,
    screening: bool,
    few_rows: AtomicU32,
}

/// The words of a shortlist. Both ways to compute their scores give the same bits.
pub struct Selection {
    words: Vec<u32>,
    /// Read where they are in the layer,
    scattered: Option<(Arc<Rows8>, Picked8)>,
    /// or copied and packed, once many rows share them.
    packed: OnceLock<Linear>,
}

/// What screening does with a row.
#[derive(Clone, Copy)]
enum Screening<'a> {
    /// Its best word is found without; a sample of the words tells whether it would have helped.
    Tried(&'a Sample),
    /// Its best word is sought among those that are left.
    Done(&'a Screen),
}

impl Output {
    pub(crate) fn new(linear: Linear, screening: bool) -> Output {
        let few_rows = AtomicU32::new(0);
        let (rows, screen, sample) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Output { linear, rows, screen, sample, screening, few_rows }
    }

    fn rows(&self, packed: &Packed8) -> &Arc<Rows8> {
        self.rows.get_or_init(|| Arc::new(Rows8::new(packed)))
    }

    /// How the words of these rows are screened, if it may pay: nothing but the best word is asked for.
    fn screening(
        &self,
        isa: Isa,
        question: Question<'_>,
        rows: &Range<usize>,
    ) -> Option<(&Packed8, Screening<'_>)> {
        let Linear::Int8(packed) = &self.linear else { return None };
        let best_only = |ask: &Ask<'_>| ask.count == 1 && ask.forced.is_none();
        let fits = self.screening
            && rows.len() <= SCREENED_ROWS
            && question.scoring == Scoring::Logit
            && question.asks[rows.clone()].iter().all(best_only)
            && Rows8::is_fast(isa)
            && !packed.saturates();
        let before = if fits { self.few_rows.fetch_add(1, Relaxed) } else { 0 };
        if before + ROWS_LOOKED_AT < ROWS_BEFORE_SCREENING {
            return None;
        }
        let sample = self.sample.get_or_init(|| Sample::new(packed));
        if before < ROWS_BEFORE_SCREENING {
            return Some((packed, Screening::Tried(sample)));
        }
        if !sample.pays() {
            return None;
        }
        let rows = Arc::clone(self.rows(packed));
        let screen = self.screen.get_or_init(|| Screen::new(packed, rows));
        screen.pays().then_some((packed, Screening::Done(screen)))
    }

    pub(crate) fn select(&self, isa: Isa, words: &[u32]) -> Selection {
        let exists = |&word: &u32| (word as usize) < self.linear.outputs();
        let words: Vec<u32> = words.iter().copied().filter(exists).collect();
        let scattered = match &self.linear {
            Linear::Int8(packed) if Rows8::is_fast(isa) && !packed.saturates() => {
                Some((Arc::clone(self.rows(packed)), Picked8::new(packed, &words)))
            }
            _ => None,
        };
        Selection { words, scattered, packed: OnceLock::new() }
    }
}

impl Selection {
    fn packed(&self, output: &Output) -> &Linear {
        self.packed.get_or_init(|| output.linear.select(&self.words))
    }
}

/// Runs of rows that share their words: all rows without a shortlist, or a sentence's hypotheses.
pub(crate) fn groups<'a>(
    selections: &'a [Option<&'a Selection>],
) -> impl Iterator<Item = (Range<usize>, Option<&'a Selection>)> {
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
    for (rows, selection) in groups(selections) {
        let words = selection.map(|s| s.words.as_slice());
        let inputs = output.linear.inputs();
        let x = &x.values()[rows.start * inputs..rows.end * inputs];
        let few = rows.len() < MANY_ROWS;
        let none = selection.is_none();
        let screening = if none { output.screening(isa, question, &rows) } else { None };
        let mut running: Vec<Running<'_>> = recycled(RUNNING.take());
        let mut lists = LISTS.take();
        running.extend(
            question.asks[rows]
                .iter()
                .map(|ask| Running::new(ask, question.scoring, lists.pop().unwrap_or_default())),
        );
        profile::mark();
        let mut take = |columns: Range<usize>, block: &mut [f32]| {
            profile::lap("output product and bias");
            for (row, scores) in running.iter_mut().zip(block.chunks_mut(columns.len())) {
                let words = match words {
                    Some(words) => Words::Listed(&words[columns.clone()]),
                    None => Words::From(columns.start as u32),
                };
                row.take(isa, scores, words);
            }
        };
        match (selection, &output.linear) {
            (Some(Selection { scattered: Some((rows, picked)), .. }), Linear::Int8(packed))
                if few =>
            {
                multiply_scattered(isa, x, packed, (rows, picked), BLOCK_PANELS, take);
            }
            (Some(selection), _) => {
                selection.packed(output).multiply_in_blocks(isa, x, BLOCK_PANELS, &mut take);
            }
            (None, linear) => match screening {
                Some((packed, Screening::Done(screen))) => {
                    for (running, x) in running.iter_mut().zip(x.chunks_exact(inputs)) {
                        best_screened(isa, x, linear, (packed, screen), running);
                    }
                }
                _ => linear.multiply_in_blocks(isa, x, BLOCK_PANELS, &mut take),
            },
        }
        if let Some((packed, Screening::Tried(sample))) = screening {
            for (running, x) in running.iter().zip(x.chunks_exact(inputs)) {
                look(isa, x, packed, sample, running.floor);
            }
        }
        for row in running.drain(..) {
            let list = row.finish();
            answer.push(list.iter().copied());
            lists.push(list);
        }
        LISTS.set(lists);
        RUNNING.set(recycled(running));
    }
}

/// One row's best word: first the words that can be it are found, then their scores.
fn best_screened(
    isa: Isa,
    x: &[f32],
    linear: &Linear,
    (packed, screen): (&Packed8, &Screen),
    running: &mut Running<'_>,
) {
    let (mut words, mut picked) = SCREENED.take();
    if survivors(isa, x, (packed, screen), running.ask.banned, &mut words) {
        picked.fill(packed, &words);
        let rows = (&*screen.rows, &picked);
        multiply_scattered(isa, x, packed, rows, BLOCK_PANELS, |columns, scores| {
            running.take(isa, scores, Words::Listed(&words[columns]));
        });
    } else {
        linear.multiply_in_blocks(isa, x, BLOCK_PANELS, &mut |columns, scores| {
            running.take(isa, scores, Words::From(columns.start as u32));
        });
    }
    SCREENED.set((words, picked));
}

thread_local! {
    /// Memory of a worker, kept between steps so that they allocate nothing.
    static SCREENED: RefCell<(Vec<u32>, Picked8)> = RefCell::default();
    static RUNNING: RefCell<Vec<Running<'static>>> = RefCell::default();
    static LISTS: RefCell<Vec<Vec<Choice>>> = RefCell::default();
}

/// An empty list in the memory of another, whose entries differ in lifetime only.
fn recycled<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
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
    fn new(ask: &'a Ask<'a>, scoring: Scoring, mut best: Vec<Choice>) -> Running<'a> {
        best.clear();
        best.reserve(ask.count + 1);
        let (floor, most) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        Running { ask, scoring, best, floor, most, sum: 0.0 }
    }

    fn take(&mut self, isa: Isa, scores: &mut [f32], words: Words<'_>) {
        if let Some(token) = self.ask.forced
            && let Some(column) = words.column(token, scores.len())
        {
            self.best.push(Choice { token, score: scores[column] });
        }
        let mut most = f32::NEG_INFINITY;
        block_largest(isa, scores, &mut most);
        if self.scoring == Scoring::LogProbability {
            self.add_to_sum(isa, scores, most);
        }
        if self.ban(scores, words) {
            most = f32::NEG_INFINITY;
            block_largest(isa, scores, &mut most);
        }
        if self.scoring == Scoring::LogProbabilityOfAllowed {
            self.add_to_sum(isa, scores, most);
        }
        if self.scoring != Scoring::Logit {
            profile::lap("output softmax");
        }
        // Nearly every block has nothing that beats the floor.
        if self.ask.forced.is_none() && self.ask.count > 0 && most > self.floor {
            self.search(isa, scores, words);
        }
        profile::lap("output best words");
    }

    /// Puts banned words out of reach, and says whether there were any.
    fn ban(&self, scores: &mut [f32], words: Words<'_>) -> bool {
        let mut any = false;
        for &word in self.ask.banned {
            if let Some(column) = words.column(word, scores.len()) {
                scores[column] = f32::NEG_INFINITY;
                any = true;
            }
        }
        any
    }

    fn add_to_sum(&mut self, isa: Isa, scores: &[f32], most: f32) {
        let most = most.max(self.most);
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

    /// Few words of a block beat the floor: runs of them are looked at whole first.
    fn search(&mut self, isa: Isa, scores: &[f32], words: Words<'_>) {
        const RUN: usize = 64;
        for (run, scores) in scores.chunks(RUN).enumerate() {
            let mut most = f32::NEG_INFINITY;
            block_largest(isa, scores, &mut most);
            if most <= self.floor {
                continue;
            }
            for (i, &score) in scores.iter().enumerate() {
                if score > self.floor {
                    self.insert(Choice { token: words.word(run * RUN + i), score });
                }
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
        let linear = selection.map_or(&output.linear, |s| s.packed(output));
        let x = &x.values()[rows.start * linear.inputs()..rows.end * linear.inputs()];
        let start = out.len();
        out.resize(start + rows.len() * linear.outputs(), 0.0);
        linear.multiply(isa, Activation::Identity, x, &mut out[start..]);
    }
}
