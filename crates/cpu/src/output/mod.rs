//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache, or in registers (int8 with AMX); from it each row updates its best words and, if
//! probabilities are asked for, a running sum, 32 words at a time (`listeners`). The scores of all words
//! are never stored. Where rows have word lists of their own, only those words are worked through, each where it is
//! (`int8::rows`), or once for all rows that have it (`int8::shared`).

mod listeners;
mod ranking;

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

#[cfg(test)]
mod tests {
    use peregrine_model::{Precision, Weight};
    use peregrine_nn::{Candidates, Dense, choose};
    use proptest::prelude::*;

    use super::*;
    use crate::arena::Arena;
    use crate::isa::Level;

    /// Numbers of which some are equal.
    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let number = |i: u64| (i * 7919 + seed * 104_729) % 1009;
        (0..count as u64).map(|i| number(i * i + i) as f32 / 504.5 - 1.0).collect()
    }

    fn answers(
        isa: Isa,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        question: Question<'_>,
    ) -> Vec<Vec<Choice>> {
        let mut choices = Choices::default();
        best(isa, x, output, selections, question, &mut choices);
        (0..x.rows()).map(|row| choices.of(row).to_vec()).collect()
    }

    /// What must be the same to the bit.
    fn bits(choices: &[Choice]) -> Vec<(u32, u32)> {
        choices.iter().map(|choice| (choice.token, choice.score.to_bits())).collect()
    }

    /// Row `row` in a question of its own.
    fn alone(
        isa: Isa,
        x: &Matrix,
        output: &Output,
        selections: &[Option<&Selection>],
        asks: &[Ask<'_>],
        row: usize,
    ) -> Vec<Choice> {
        let x = Matrix::from_rows(x.width(), x.row(row).to_vec());
        let question = Question { asks: &asks[row..=row], contests: None };
        answers(isa, &x, output, &selections[row..=row], question).remove(0)
    }

    const SCORINGS: [Scoring; 3] =
        [Scoring::Logit, Scoring::LogProbability, Scoring::LogProbabilityOfAllowed];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Whatever the instructions, whether scores are stored or not, and however each row's words are scored: the words the
        /// plain search finds, and for a row alone the same bits.
        #[test]
        fn best_words_are_the_best(
            rows in 1usize..70,
            (inputs, outputs) in (1usize..70, 8usize..1100),
            lists in 0usize..4,
            scorings in prop::collection::vec(prop::sample::select(SCORINGS.to_vec()), 1..8),
            banned in prop::collection::btree_set(0u32..1100, 0..4),
            forced in prop::option::of(0u32..1100),
            seed in 0u64..1000,
        ) {
            let weight = Weight::from_f32(vec![outputs, inputs], &numbers(outputs * inputs, seed));
            let dense = Dense { weight: &weight, bias: None, alpha: None };
            let x = Matrix::from_rows(inputs, numbers(rows * inputs, seed + 1));
            let banned: Vec<u32> = banned.into_iter().collect();
            let asks: Vec<Ask<'_>> = (0..rows)
                .map(|row| Ask {
                    count: row % 7,
                    banned: if row % 3 == 0 { &[] } else { &banned },
                    forced: forced.filter(|_| row % 5 == 4),
                    path: 0.0,
                    scoring: scorings[row % scorings.len()],
                })
                .collect();
            let question = Question { asks: &asks, contests: None };
            let mut on_others = None;
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let linear = |precision| Linear::prepare(&[dense], precision, &Arena::default());
                let made = [true, false].map(|in_registers| {
                    Output::new(linear(Precision::Int8), false, in_registers)
                });
                // No list, one for all, or several of which neighbours may have the same.
                let words: Vec<Vec<u32>> = (0..lists)
                    .map(|list| (0..outputs as u32).filter(|w| (w * 7 + w / 5) % 4 != list as u32).collect())
                    .collect();
                let selections: Vec<Selection> =
                    words.iter().map(|words| made[0].select(isa, words)).collect();
                let of_row = |row: usize| (lists > 0).then(|| row / 3 % lists);
                let selected: Vec<_> = (0..rows).map(|r| of_row(r).map(|l| &selections[l])).collect();
                let got = answers(isa, &x, &made[0], &selected, question);
                prop_assert_eq!(&got, &answers(isa, &x, &made[1], &selected, question));
                prop_assert_eq!(&got, on_others.get_or_insert_with(|| got.clone()), "{:?}", isa);
                let (mut scores, mut expected) = (Vec::new(), Vec::new());
                for row in 0..rows {
                    let expected_bits = bits(&alone(isa, &x, &made[0], &selected, &asks, row));
                    prop_assert_eq!(bits(&got[row]), expected_bits, "row {}, {:?}", row, asks[row]);
                    let one = Matrix::from_rows(inputs, x.row(row).to_vec());
                    logits(isa, &one, &made[0], &selected[row..=row], &mut scores);
                    let words = of_row(row).map(|list| words[list].as_slice());
                    choose(Candidates { scores: &scores, words }, &asks[row], &mut expected);
                    let tokens = |choices: &[Choice]| choices.iter().map(|c| c.token).collect::<Vec<_>>();
                    prop_assert_eq!(tokens(&got[row]), tokens(&expected));
                    for (got, expected) in got[row].iter().zip(&expected) {
                        let error = (got.score - expected.score).abs();
                        let allowed = if asks[row].scoring == Scoring::Logit { 0.0 } else { 2e-5 };
                        prop_assert!(error <= allowed, "{got:?}, not {expected:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// Scores so far apart that sums have no room for them, and some that are not numbers: rows of a batch have the answers they
        /// have alone, however others' words are scored, and those that the plain search has.
        #[test]
        fn scores_may_be_far_apart(
            rows in 13usize..40,
            outputs in 40usize..5000,
            factor in prop::sample::select(vec![1f32, 10.0, 60.0, 1000.0]),
            unknown in prop::option::of(0usize..39),
            scorings in prop::collection::vec(prop::sample::select(SCORINGS.to_vec()), 1..8),
            seed in 0u64..1000,
        ) {
            let small = numbers;
            let numbers = |count, seed| -> Vec<f32> { small(count, seed).iter().map(|v| v * factor).collect() };
            let weight = Weight::from_f32(vec![outputs, 3], &numbers(outputs * 3, seed));
            let mut bias = numbers(outputs, seed + 1);
            if let Some(unknown) = unknown {
                (bias[unknown], bias[unknown / 2]) = (f32::NAN, f32::NEG_INFINITY);
            }
            let bias = Weight::from_f32(vec![outputs], &bias);
            let dense = Dense { weight: &weight, bias: Some(&bias), alpha: None };
            let x = Matrix::from_rows(3, small(rows * 3, seed + 2));
            let asks: Vec<Ask<'_>> = (0..rows)
                .map(|row| Ask {
                    count: row % 5,
                    banned: if row % 3 == 0 { &[1, 30] } else { &[] },
                    forced: (row % 5 == 0).then_some(39),
                    path: 0.0,
                    scoring: scorings[row % scorings.len()],
                })
                .collect();
            let question = Question { asks: &asks, contests: None };
            let mut on_others = None;
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
                let output = Output::new(linear, false, true);
                let none: Vec<Option<&Selection>> = vec![None; rows];
                let got = answers(isa, &x, &output, &none, question);
                prop_assert_eq!(&got, on_others.get_or_insert_with(|| got.clone()), "{:?}", isa);
                let (mut scores, mut expected) = (Vec::new(), Vec::new());
                for row in 0..rows {
                    let expected_bits = bits(&alone(isa, &x, &output, &none, &asks, row));
                    prop_assert_eq!(bits(&got[row]), expected_bits, "row {}, {:?}", row, asks[row]);
                    let one = Matrix::from_rows(3, x.row(row).to_vec());
                    logits(isa, &one, &output, &none[..1], &mut scores);
                    scores.iter_mut().filter(|score| score.is_nan()).for_each(|score| *score = f32::NEG_INFINITY);
                    choose(Candidates { scores: &scores, words: None }, &asks[row], &mut expected);
                    prop_assert_eq!(got[row].len(), expected.len());
                    for (got, expected) in got[row].iter().zip(&expected) {
                        prop_assert_eq!(got.token, expected.token);
                        let error = (got.score - expected.score).abs();
                        let allowed = if asks[row].scoring == Scoring::Logit { 0.0 } else { 2e-5 };
                        prop_assert!(error <= allowed * factor, "{got:?}, not {expected:?}");
                    }
                }
            }
        }
    }

    /// Words that are screened out have their share of probabilities all the same: of two rows one may be scored by
    /// logit and the other not.
    #[test]
    fn only_rows_without_probabilities_are_screened() {
        let Some(isa) =
            Level::ALL.into_iter().filter_map(Isa::new).find(|&isa| Rows8::is_fast(isa))
        else {
            return;
        };
        let (inputs, outputs) = (2048, 640);
        let one = numbers(inputs, 3);
        let mut weights = numbers(inputs * outputs, 4);
        // A word far ahead, so that screening pays.
        weights.iter_mut().zip(&one).for_each(|(weight, x)| *weight += x);
        let weight = Weight::from_f32(vec![outputs, inputs], &weights);
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let linear = || Linear::prepare(&[dense], Precision::Int8, &Arena::default());
        let [screened, plain] =
            [true, false].map(|screening| Output::new(linear(), screening, true));
        let x = Matrix::from_rows(inputs, one.repeat(2));
        let ask = |scoring| Ask { count: 1, banned: &[], forced: None, path: 0.0, scoring };
        let of = |output, asks: &[Ask<'_>]| -> Vec<_> {
            let question = Question { asks, contests: None };
            answers(isa, &x, output, &[None, None], question).iter().map(|row| bits(row)).collect()
        };
        for _ in 0..2 * ROWS_BEFORE_SCREENING {
            of(&screened, &[ask(Scoring::Logit); 2]);
        }
        assert!(screened.screen.get().is_some_and(Screen::pays));
        for scorings in [[0, 1], [1, 0], [0, 2], [0, 0], [1, 2]] {
            let asks = scorings.map(|scoring| ask(SCORINGS[scoring]));
            assert_eq!(of(&screened, &asks), of(&plain, &asks), "{scorings:?}");
        }
    }

    /// Rows that nobody listens for are refused before one of them is heard.
    #[test]
    fn a_product_in_registers_wants_a_listener_for_each_row() {
        let Some(isa) = Isa::new(Level::Amx) else { return };
        let weight = Weight::from_f32(vec![40, 3], &numbers(40 * 3, 1));
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
        let x = numbers(20 * 3, 2);
        let heard = std::panic::catch_unwind(|| {
            let mut nobody = Listeners::new(&mut [], &mut [], &mut []);
            linear.multiply_in_blocks(isa, &x, BLOCK_PANELS, true, &mut nobody);
        });
        let message = heard.unwrap_err().downcast::<String>().expect("a message");
        assert!(message.contains("somebody to take each row"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// Lists come and go, some in several rows, at times more of them than a table has room for, and at times some rows
        /// want probabilities: every row has the answer it has alone.
        #[test]
        fn words_that_lists_share(
            lists in prop::collection::vec(prop::collection::btree_set(0u32..400, 1..60), 1..90),
            steps in prop::collection::vec(prop::collection::vec(0usize..90, 1..100), 1..5),
            inputs in prop::sample::select(vec![5usize, 70, 256, 512]),
            scored in prop::option::of(0usize..9),
            seed in 0u64..1000,
        ) {
            let weight = Weight::from_f32(vec![400, inputs], &numbers(400 * inputs, seed));
            let dense = Dense { weight: &weight, bias: None, alpha: None };
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let linear = Linear::prepare(&[dense], Precision::Int8, &Arena::default());
                let output = Output::new(linear, false, true);
                let words = lists.iter().map(|words| words.iter().copied().collect::<Vec<_>>());
                let selections: Vec<Selection> = words.map(|words| output.select(isa, &words)).collect();
                for rows in &steps {
                    let x = Matrix::from_rows(inputs, numbers(rows.len() * inputs, seed + rows[0] as u64));
                    let selected: Vec<_> = rows.iter().map(|list| Some(&selections[list % lists.len()])).collect();
                    let banned = [7, 50, 51];
                    let asks: Vec<Ask<'_>> = (0..rows.len())
                        .map(|row| Ask {
                            count: row % 3,
                            banned: &banned[row % 4..],
                            forced: None,
                            path: 0.0,
                            scoring: SCORINGS[if scored == Some(row % 9) { 1 } else { 0 }],
                        })
                        .collect();
                    let question = Question { asks: &asks, contests: None };
                    let got = answers(isa, &x, &output, &selected, question);
                    for row in 0..rows.len() {
                        let expected = alone(isa, &x, &output, &selected, &asks, row);
                        prop_assert_eq!(bits(&got[row]), bits(&expected));
                    }
                }
            }
        }
    }
}
