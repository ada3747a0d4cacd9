//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache, or in registers (int8 with AMX); from it each row updates its best words and, if
//! probabilities are asked for, a running sum, 32 words at a time (`sinks`). The scores of all words
//! are never stored. Where rows have word lists of their own, only those words are worked through, each where it is
//! (`int8::rows`), or once for all rows that have it (`int8::shared`).

pub(crate) mod scattered;
#[cfg(test)]
mod scattered_tests;
mod score_sinks;
pub(crate) mod screening;
#[cfg(test)]
mod screening_tests;
pub(crate) mod shared_words;
#[cfg(test)]
mod tests;
mod top_k;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytemuck::Zeroable;
use peregrine_model::Activation;
use peregrine_nn::{Ask, Choice, Choices, Question, Scoring, profile};

use crate::gemm::int8::{PIECE, PackedInt8};
use crate::gemm::linear::{Linear, with_quantised_rows};
use crate::gemm::panels::Lanes;
use crate::isa::Isa;
use crate::memory::matrix::Matrix;
use crate::output::scattered::{OutputRows, PickedRows};
use crate::output::screening::{Sample, Screen};
use crate::output::shared_words::{ActiveRows, Table, assign_bits};
use score_sinks::{Mark, Running, ScoreSinks};
use top_k::TopK;

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
    rows: OnceLock<Arc<OutputRows>>,
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
    rows: Arc<OutputRows>,
    picked: PickedRows,
    /// Columns at which turns begin, and the end of the last: see [`best_in_turns`].
    cuts: Vec<usize>,
}

impl Scattered {
    fn new(packed: &PackedInt8, rows: &Arc<OutputRows>, words: &[u32]) -> Scattered {
        let of_turn = (TURN_BYTES / rows.output_bytes().max(1)).max(1);
        let turns = packed.outputs().div_ceil(of_turn).max(1);
        let end = |turn: usize| words.partition_point(|&word| (word as usize) < turn * of_turn);
        let mut cuts = vec![0];
        for turn in 1..turns {
            // Whole pieces: a few words more or less do not matter.
            cuts.push(cuts[turn - 1].max(end(turn) / PIECE * PIECE));
        }
        cuts.push(words.len());
        Scattered { rows: Arc::clone(rows), picked: PickedRows::new(packed, words), cuts }
    }
}

/// What screening does with a row.
#[derive(Clone, Copy)]
enum Screening<'a> {
    /// Its best word is found without; a sample of the words tells whether it would have helped.
    Tried(&'a Sample),
    /// Its best word is sought among those that are left.
    Done(&'a OutputRows, &'a Screen),
}

impl Output {
    pub(crate) fn new(linear: Linear, screening: bool, in_registers: bool) -> Output {
        let few_rows = AtomicU32::new(0);
        let (rows, screen, sample) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Output { linear, rows, screen, sample, screening, few_rows, in_registers }
    }

    fn rows(&self, packed: &PackedInt8) -> &Arc<OutputRows> {
        self.rows.get_or_init(|| Arc::new(OutputRows::new(packed)))
    }

    /// How the words of these rows are screened, if it may pay: nothing but the best word is asked for.
    fn screening(
        &self,
        isa: Isa,
        question: Question<'_>,
        rows: &Range<usize>,
    ) -> Option<(&PackedInt8, Screening<'_>)> {
        let Linear::Int8(packed) = &self.linear else { return None };
        let best_only =
            |ask: &Ask<'_>| ask.count == 1 && ask.forced.is_none() && ask.scoring == Scoring::Logit;
        let fits = self.screening
            && rows.len() <= SCREENED_ROWS
            && question.asks[rows.clone()].iter().all(best_only)
            && OutputRows::is_fast(isa)
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
            Linear::Int8(packed) if OutputRows::is_fast(isa) && !packed.saturates() => {
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
    if groups(selections).all(|(rows, list)| few(&rows) && scattered_list(list).is_some()) {
        let free = |ask: &Ask<'_>| ask.forced.is_none() && ask.scoring == Scoring::Logit;
        let sharing = output.in_registers
            && groups(selections).count() >= MANY_LISTS
            && question.asks.iter().all(free);
        return listen(question, selections, answer, |sinks| {
            if sharing {
                best_of_shared(isa, x.values(), output, selections, sinks.running);
            } else {
                best_in_turns(isa, x.values(), output, selections, sinks);
            }
        });
    }
    for (rows, selection) in groups(selections) {
        let words = selection.map(|s| &*s.words);
        let inputs = output.linear.inputs();
        let x = &x.values()[rows.start * inputs..rows.end * inputs];
        let none = selection.is_none();
        let screening = if none { output.screening(isa, question, &rows) } else { None };
        let in_place = few(&rows) && scattered_list(selection).is_some();
        let selections = &selections[rows.clone()];
        let question = Question { asks: &question.asks[rows], ..question };
        listen(question, selections, answer, |sinks| {
            if in_place {
                return best_in_turns(isa, x, output, selections, sinks);
            }
            let linear = selection.map_or(&output.linear, |selection| selection.packed(output));
            if let Some((packed, Screening::Done(rows, screen))) = screening {
                for (row, x) in x.chunks_exact(inputs).enumerate() {
                    let sink = sinks.of(row..row + 1, None);
                    best_screened(isa, x, linear, (packed, rows, screen), sink);
                }
                return;
            }
            let mut sinks = sinks.of(0..sinks.running.len(), words);
            linear.multiply_in_blocks(isa, x, BLOCK_PANELS, output.in_registers, &mut sinks);
            for row in sinks.lost() {
                let (x, mut sink) = (&x[row * inputs..][..inputs], sinks.of(row..row + 1, words));
                linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut sink);
            }
            if let Some((packed, Screening::Tried(sample))) = screening {
                for (running, x) in sinks.running.iter().zip(x.chunks_exact(inputs)) {
                    with_quantised_rows(isa, x, packed, |x, bounds| {
                        sample.look(isa, x, running.floor, bounds);
                    });
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
    multiply: impl FnOnce(&mut ScoreSinks<'_, '_>),
) {
    let mut running: Vec<Running<'_>> = recycled(RUNNING.take());
    let (mut marks, mut lanes, mut lists) = (MARKS.take(), SUMS.take(), LISTS.take());
    running.extend(question.asks.iter().zip(selections).map(|(ask, selection)| {
        let words = selection.map(|selection| &*selection.words);
        Running::new(ask, words, lists.pop().unwrap_or_default())
    }));
    marks.extend(running.iter().map(Running::mark));
    lanes.resize(running.len(), Lanes::zeroed());
    profile::mark();
    multiply(&mut ScoreSinks::new(&mut running, &mut marks, &mut lanes));
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

fn scattered_list(selection: Option<&Selection>) -> Option<&Scattered> {
    selection.and_then(|selection| selection.scattered.as_ref())
}

/// Scores of lists that few rows have each, read where they are. Lists have many words in common, so all sentences read those of
/// a part of the vocabulary before the next part's turn comes: only the first of them waits for the third cache.
fn best_in_turns(
    isa: Isa,
    x: &[f32],
    output: &Output,
    selections: &[Option<&Selection>],
    sinks: &mut ScoreSinks<'_, '_>,
) {
    let Linear::Int8(packed) = &output.linear else { return };
    let first = selections.first().and_then(|&list| scattered_list(list));
    let turns = first.map_or(0, |list| list.cuts.len() - 1);
    with_quantised_rows(isa, x, packed, |x, block| {
        for turn in 0..turns {
            for (rows, selection) in groups(selections) {
                let (Some(selection), Some(list)) = (selection, scattered_list(selection)) else {
                    continue;
                };
                let mut sinks = sinks.of(rows.clone(), Some(&selection.words));
                let columns = list.cuts[turn]..list.cuts[turn + 1];
                let words = (&*list.rows, &list.picked);
                scattered::multiply_into(isa, (x, rows), words, columns, block, &mut sinks);
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
    let (mut tables, mut bits, mut waiting) =
        (TABLES.take(), LISTS_IN_TABLE.take(), WAITING.take());
    let lists = selections.iter().flatten().map(|selection| &selection.words);
    assign_bits(&mut tables, lists, &mut bits);
    with_quantised_rows(isa, x, packed, |x, _| {
        for (t, table) in tables.iter().enumerate() {
            waiting.clear();
            waiting.extend((0..bits.len()).filter(|&row| bits[row].0 == t));
            // Rows with the same list come one after the other.
            while !waiting.is_empty() {
                let mut active = ActiveRows::none();
                waiting.retain(|&row| !active.admit(bits[row].1, row, running[row].floor));
                let layer = (packed, &**rows);
                shared_words::multiply(
                    isa,
                    x,
                    layer,
                    table,
                    &mut active,
                    &mut |row, token, score| {
                        running[row].consider(Choice { token, score });
                        running[row].floor
                    },
                );
            }
        }
    });
    TABLES.set(tables);
    LISTS_IN_TABLE.set(bits);
    WAITING.set(waiting);
    profile::lap("output layer");
}

/// One row's best word: first the words that can be it are found, then their scores.
fn best_screened(
    isa: Isa,
    x: &[f32],
    linear: &Linear,
    (packed, rows, screen): (&PackedInt8, &OutputRows, &Screen),
    mut sink: ScoreSinks<'_, '_>,
) {
    let (mut words, mut picked) = SCREENED.take();
    let banned = sink.running[0].ask.banned;
    let survivors = with_quantised_rows(isa, x, packed, |x, bounds| {
        screen.survivors(isa, (x, packed, rows), banned, (bounds, &mut words))
    });
    if survivors {
        let mut sink = sink.of(0..1, Some(&words));
        picked.fill(packed, &words);
        with_quantised_rows(isa, x, packed, |x, block| {
            let (columns, words) = (0..words.len(), (rows, &picked));
            scattered::multiply_into(isa, (x, 0..1), words, columns, block, &mut sink);
        });
    } else {
        linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut sink);
    }
    SCREENED.set((words, picked));
}

thread_local! {
    /// Memory of a worker, kept between steps so that they allocate nothing.
    static SCREENED: RefCell<(Vec<u32>, PickedRows)> = RefCell::default();
    static TABLES: RefCell<Vec<Table>> = RefCell::default();
    static LISTS_IN_TABLE: RefCell<Vec<(usize, usize)>> = RefCell::default();
    static WAITING: RefCell<Vec<usize>> = RefCell::default();
    static MARKS: RefCell<Vec<Mark>> = RefCell::default();
    static SUMS: RefCell<Vec<Lanes<f32>>> = RefCell::default();
    static RUNNING: RefCell<Vec<Running<'static>>> = RefCell::default();
    static LISTS: RefCell<Vec<TopK>> = RefCell::default();
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
