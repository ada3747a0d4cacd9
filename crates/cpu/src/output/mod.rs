//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache, or in registers (int8 with AMX); from it each row updates its best words and, if
//! probabilities are asked for, a running sum, 32 words at a time (`listeners`). The scores of all words
//! are never stored. Where rows have word lists of their own, only those words are worked through, each where it is
//! (`int8::rows`), or once for all rows that have it (`int8::shared`).

mod listeners;
mod ranking;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytemuck::Zeroable;
use peregrine_model::Activation;
use peregrine_nn::{Ask, Choice, Choices, Question, Scoring, profile};

use crate::int8::rows::{Picked8, Rows8};
use crate::int8::screen::{Sample, Screen};
use crate::int8::shared::{Guests, Table, seat_all};
use crate::int8::{PIECE, Packed8};
use crate::isa::Isa;
use crate::linear::{Linear, look, multiply_scattered, survivors};
use crate::matrix::Matrix;
use crate::product::Line;
use listeners::{Listeners, Mark, Running};
use ranking::Ranking;

/// Panels worked on at a time: 512 words.
const BLOCK_PANELS: usize = 32;

/// Rows from which on a selection is packed: fewer read their words where they are.
const MANY_ROWS: usize = 8;

/// Bytes of the words that are worked on in turn: few enough to stay in the second cache. Tests have small layers.
const TURN_BYTES: usize = if cfg!(test) { 1 << 13 } else { 1 << 19 };

/// Lists from which on each of their words is read once for all rows that have it. Tests have few.
const MANY_LISTS: usize = if cfg!(test) { 2 } else { 6 };

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
    /// Whether scores may be looked at while they are in registers.
    in_registers: bool,
}

/// The words of a shortlist. Both ways to compute their scores give the same bits.
pub struct Selection {
    /// In their order.
    words: Arc<[u32]>,
    /// Read where they are in the layer,
    scattered: Option<Scattered>,
    /// or copied and packed, once many rows share them.
    packed: OnceLock<Linear>,
}

/// Words that are read where they are.
struct Scattered {
    rows: Arc<Rows8>,
    picked: Picked8,
    /// Columns at which turns begin, and the end of the last: see [`best_in_turns`].
    cuts: Vec<usize>,
}

impl Scattered {
    fn new(packed: &Packed8, rows: &Arc<Rows8>, words: &[u32]) -> Scattered {
        let of_turn = (TURN_BYTES / rows.output_bytes().max(1)).max(1);
        let turns = packed.outputs().div_ceil(of_turn).max(1);
        let end = |turn: usize| words.partition_point(|&word| (word as usize) < turn * of_turn);
        let mut cuts = vec![0];
        for turn in 1..turns {
            // Whole pieces: a few words more or less do not matter.
            cuts.push(cuts[turn - 1].max(end(turn) / PIECE * PIECE));
        }
        cuts.push(words.len());
        Scattered { rows: Arc::clone(rows), picked: Picked8::new(packed, words), cuts }
    }
}

/// What screening does with a row.
#[derive(Clone, Copy)]
enum Screening<'a> {
    /// Its best word is found without; a sample of the words tells whether it would have helped.
    Tried(&'a Sample),
    /// Its best word is sought among those that are left.
    Done(&'a Rows8, &'a Screen),
}

impl Output {
    pub(crate) fn new(linear: Linear, screening: bool, in_registers: bool) -> Output {
        let few_rows = AtomicU32::new(0);
        let (rows, screen, sample) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Output { linear, rows, screen, sample, screening, few_rows, in_registers }
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
        let best_only =
            |ask: &Ask<'_>| ask.count == 1 && ask.forced.is_none() && ask.scoring == Scoring::Logit;
        let fits = self.screening
            && rows.len() <= SCREENED_ROWS
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
        let screen = self.screen.get_or_init(|| Screen::new(packed));
        screen.pays().then(|| (packed, Screening::Done(self.rows(packed), screen)))
    }

    pub(crate) fn select(&self, isa: Isa, words: &[u32]) -> Selection {
        let exists = |&word: &u32| (word as usize) < self.linear.outputs();
        let words: Arc<[u32]> = words.iter().copied().filter(exists).collect();
        let scattered = match &self.linear {
            Linear::Int8(packed) if Rows8::is_fast(isa) && !packed.saturates() => {
                Some(Scattered::new(packed, self.rows(packed), &words))
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
    let few = |rows: &Range<usize>| rows.len() < MANY_ROWS;
    if groups(selections).all(|(rows, list)| few(&rows) && scattered(list).is_some()) {
        let free = |ask: &Ask<'_>| ask.forced.is_none() && ask.scoring == Scoring::Logit;
        let sharing = output.in_registers
            && groups(selections).count() >= MANY_LISTS
            && question.asks.iter().all(free);
        return listen(question, selections, answer, |listeners| {
            if sharing {
                best_of_shared(isa, x.values(), output, selections, listeners.running);
            } else {
                best_in_turns(isa, x.values(), output, selections, listeners);
            }
        });
    }
    for (rows, selection) in groups(selections) {
        let words = selection.map(|s| &*s.words);
        let inputs = output.linear.inputs();
        let x = &x.values()[rows.start * inputs..rows.end * inputs];
        let none = selection.is_none();
        let screening = if none { output.screening(isa, question, &rows) } else { None };
        let in_place = few(&rows) && scattered(selection).is_some();
        let selections = &selections[rows.clone()];
        let question = Question { asks: &question.asks[rows], ..question };
        listen(question, selections, answer, |listeners| {
            if in_place {
                return best_in_turns(isa, x, output, selections, listeners);
            }
            let linear = selection.map_or(&output.linear, |selection| selection.packed(output));
            if let Some((packed, Screening::Done(rows, screen))) = screening {
                for (row, x) in x.chunks_exact(inputs).enumerate() {
                    let listener = listeners.of(row..row + 1, None);
                    best_screened(isa, x, linear, (packed, rows, screen), listener);
                }
                return;
            }
            let mut listeners = listeners.of(0..listeners.running.len(), words);
            linear.multiply_in_blocks(isa, x, BLOCK_PANELS, output.in_registers, &mut listeners);
            for row in listeners.lost() {
                let (x, mut listener) =
                    (&x[row * inputs..][..inputs], listeners.of(row..row + 1, words));
                linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut listener);
            }
            if let Some((packed, Screening::Tried(sample))) = screening {
                for (running, x) in listeners.running.iter().zip(x.chunks_exact(inputs)) {
                    look(isa, x, packed, sample, running.floor);
                }
            }
        });
    }
}

/// Answers `question`: `multiply` has each row's scores taken.
fn listen(
    question: Question<'_>,
    selections: &[Option<&Selection>],
    answer: &mut Choices,
    multiply: impl FnOnce(&mut Listeners<'_, '_>),
) {
    let mut running: Vec<Running<'_>> = recycled(RUNNING.take());
    let (mut marks, mut lanes, mut lists) = (MARKS.take(), SUMS.take(), LISTS.take());
    running.extend(question.asks.iter().zip(selections).map(|(ask, selection)| {
        let words = selection.map(|selection| &*selection.words);
        Running::new(ask, words, lists.pop().unwrap_or_default())
    }));
    marks.extend(running.iter().map(Running::mark));
    lanes.resize(running.len(), Line::zeroed());
    profile::mark();
    multiply(&mut Listeners::new(&mut running, &mut marks, &mut lanes));
    for ((row, mark), lanes) in running.drain(..).zip(marks.drain(..)).zip(&mut lanes) {
        let (mut list, shift) = row.finish(mark, lanes);
        answer.push(list.choices().map(|word| Choice { score: word.score - shift, ..word }));
        lists.push(list);
    }
    lanes.clear();
    LISTS.set(lists);
    MARKS.set(marks);
    SUMS.set(lanes);
    RUNNING.set(recycled(running));
}

fn scattered(selection: Option<&Selection>) -> Option<&Scattered> {
    selection.and_then(|selection| selection.scattered.as_ref())
}

/// Scores of lists that few rows have each, read where they are. Lists have many words in common, so all sentences read those of
/// a part of the vocabulary before the next part's turn comes: only the first of them waits for the third cache.
fn best_in_turns(
    isa: Isa,
    x: &[f32],
    output: &Output,
    selections: &[Option<&Selection>],
    listeners: &mut Listeners<'_, '_>,
) {
    let Linear::Int8(packed) = &output.linear else { return };
    let first = selections.first().and_then(|&list| scattered(list));
    let turns = first.map_or(0, |list| list.cuts.len() - 1);
    multiply_scattered(isa, x, packed, |products| {
        for turn in 0..turns {
            for (rows, selection) in groups(selections) {
                let (Some(selection), Some(list)) = (selection, scattered(selection)) else {
                    continue;
                };
                let mut listeners = listeners.of(rows.clone(), Some(&selection.words));
                let columns = list.cuts[turn]..list.cuts[turn + 1];
                products.take(rows, (&list.rows, &list.picked), columns, &mut listeners);
            }
        }
    });
}

/// Scores of many lists, where each word is read once for all rows that have it.
fn best_of_shared(
    isa: Isa,
    x: &[f32],
    output: &Output,
    selections: &[Option<&Selection>],
    running: &mut [Running<'_>],
) {
    let Linear::Int8(packed) = &output.linear else { return };
    let rows = output.rows(packed);
    let (mut tables, mut seats, mut waiting) = (TABLES.take(), SEATS.take(), WAITING.take());
    let lists = selections.iter().flatten().map(|selection| &selection.words);
    seat_all(&mut tables, lists, &mut seats);
    multiply_scattered(isa, x, packed, |products| {
        for (t, table) in tables.iter().enumerate() {
            waiting.clear();
            waiting.extend((0..seats.len()).filter(|&row| seats[row].0 == t));
            // Rows with the same list come one after the other.
            while !waiting.is_empty() {
                let mut guests = Guests::none();
                waiting.retain(|&row| !guests.admit(seats[row].1, row, running[row].floor));
                products.share((packed, rows), table, &mut guests, &mut |row, token, score| {
                    running[row].consider(Choice { token, score });
                    running[row].floor
                });
            }
        }
    });
    TABLES.set(tables);
    SEATS.set(seats);
    WAITING.set(waiting);
    profile::lap("output layer");
}

/// One row's best word: first the words that can be it are found, then their scores.
fn best_screened(
    isa: Isa,
    x: &[f32],
    linear: &Linear,
    (packed, rows, screen): (&Packed8, &Rows8, &Screen),
    mut listener: Listeners<'_, '_>,
) {
    let (mut words, mut picked) = SCREENED.take();
    let banned = listener.running[0].ask.banned;
    let survivors = survivors(isa, x, (packed, rows, screen), banned, &mut words);
    if survivors {
        let mut listener = listener.of(0..1, Some(&words));
        picked.fill(packed, &words);
        multiply_scattered(isa, x, packed, |products| {
            products.take(0..1, (rows, &picked), 0..words.len(), &mut listener);
        });
    } else {
        linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut listener);
    }
    SCREENED.set((words, picked));
}

thread_local! {
    /// Memory of a worker, kept between steps so that they allocate nothing.
    static SCREENED: RefCell<(Vec<u32>, Picked8)> = RefCell::default();
    static TABLES: RefCell<Vec<Table>> = RefCell::default();
    static SEATS: RefCell<Vec<(usize, usize)>> = RefCell::default();
    static WAITING: RefCell<Vec<usize>> = RefCell::default();
    static MARKS: RefCell<Vec<Mark>> = RefCell::default();
    static SUMS: RefCell<Vec<Line>> = RefCell::default();
    static RUNNING: RefCell<Vec<Running<'static>>> = RefCell::default();
    static LISTS: RefCell<Vec<Ranking>> = RefCell::default();
}

/// An empty list in the memory of another, whose entries differ in lifetime only.
fn recycled<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
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
