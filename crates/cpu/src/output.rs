//! The output layer: a product over the vocabulary of which only the best is wanted.
//!
//! The vocabulary is worked through in blocks of columns. A block's scores live in a small buffer
//! that stays in cache, or in registers (int8 with AMX); from it each row updates its best words and, if
//! probabilities are asked for, a running maximum and sum, 32 words at a time. The scores of all words
//! are never stored. Where rows have word lists of their own, only those words are worked through, each where it is
//! (`int8::rows`), or once for all rows that have it (`int8::shared`).

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
use crate::int8::{PIECE, Packed8, Piece, Take};
use crate::isa::{Isa, kernel};
use crate::lanes::{LANES, add_up, exp_down};
use crate::linear::{Linear, look, multiply_scattered, survivors};
use crate::matrix::Matrix;
use crate::panels::Lanes;
use crate::product::Line;

/// Panels worked on at a time: 512 words.
const BLOCK_PANELS: usize = 32;

/// Words after which the lanes of a sum are added up.
const FOLDED: usize = 2048;

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
    Done(&'a Screen),
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
        let free = |ask: &Ask<'_>| ask.forced.is_none();
        let sharing = output.in_registers
            && question.scoring == Scoring::Logit
            && groups(selections).count() >= MANY_LISTS
            && question.asks.iter().all(free);
        return listen(question, selections, answer, |running| {
            if sharing {
                best_of_shared(isa, x.values(), output, selections, running);
            } else {
                best_in_turns(isa, x.values(), output, selections, running);
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
        listen(question, selections, answer, |running| {
            if in_place {
                return best_in_turns(isa, x, output, selections, running);
            }
            let linear = selection.map_or(&output.linear, |selection| selection.packed(output));
            if let Some((packed, Screening::Done(screen))) = screening {
                for (running, x) in running.iter_mut().zip(x.chunks_exact(inputs)) {
                    best_screened(isa, x, linear, (packed, screen), running);
                }
                return;
            }
            let mut listeners = Listeners { running, words };
            linear.multiply_in_blocks(isa, x, BLOCK_PANELS, output.in_registers, &mut listeners);
            if let Some((packed, Screening::Tried(sample))) = screening {
                for (running, x) in running.iter().zip(x.chunks_exact(inputs)) {
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
    multiply: impl FnOnce(&mut [Running<'_>]),
) {
    let mut running: Vec<Running<'_>> = recycled(RUNNING.take());
    let mut lists = LISTS.take();
    running.extend(question.asks.iter().zip(selections).map(|(ask, selection)| {
        let words = selection.map(|selection| &*selection.words);
        Running::new(ask, question.scoring, words, lists.pop().unwrap_or_default())
    }));
    profile::mark();
    multiply(&mut running);
    for row in running.drain(..) {
        let list = row.finish();
        answer.push(list.iter().copied());
        lists.push(list);
    }
    LISTS.set(lists);
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
    running: &mut [Running<'_>],
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
                let (running, words) = (&mut running[rows.clone()], Some(&*selection.words));
                let mut listeners = Listeners { running, words };
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
                waiting.retain(|&row| !guests.admit(seats[row].1, row, running[row].threshold));
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
    (packed, screen): (&Packed8, &Screen),
    running: &mut Running<'_>,
) {
    let (mut words, mut picked) = SCREENED.take();
    let survivors = survivors(isa, x, (packed, screen), running.ask.banned, &mut words);
    let words_left = survivors.then_some(words.as_slice());
    let running = std::slice::from_mut(running);
    let mut listener = Listeners { running, words: words_left };
    if survivors {
        picked.fill(packed, &words);
        let rows = (&*screen.rows, &picked);
        multiply_scattered(isa, x, packed, |products| {
            products.take(0..1, rows, 0..words.len(), &mut listener);
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
    static RUNNING: RefCell<Vec<Running<'static>>> = RefCell::default();
    static LISTS: RefCell<Vec<Vec<Choice>>> = RefCell::default();
}

/// An empty list in the memory of another, whose entries differ in lifetime only.
fn recycled<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Those who listen to the scores of a product: a row each.
struct Listeners<'r, 'a> {
    running: &'r mut [Running<'a>],
    /// The words columns stand for; without, a word is its column.
    words: Option<&'r [u32]>,
}

impl Take for Listeners<'_, '_> {
    fn block(&mut self, isa: Isa, columns: Range<usize>, scores: &[f32]) {
        profile::lap("output product and bias");
        take_block(isa, self, columns, scores);
        profile::lap("output best words");
    }

    #[inline(always)]
    fn piece<const FMA: bool>(&mut self, row: usize, column: usize, scores: Piece) -> bool {
        self.running[row].take::<FMA>(scores, column)
    }

    #[inline(always)]
    fn again<const FMA: bool>(&mut self, row: usize, column: usize, scores: Piece) {
        self.running[row].look_closer::<FMA>(scores, column, self.words);
    }
}

kernel! {
    fn take_block(
        listeners: &mut Listeners<'_, '_>,
        columns: Range<usize>,
        scores: &[f32],
    ) = take_block_body
}

/// As if the scores had come in pieces.
#[inline(always)]
fn take_block_body<const FMA: bool>(
    listeners: &mut Listeners<'_, '_>,
    columns: Range<usize>,
    scores: &[f32],
) {
    for (row, scores) in scores.chunks_exact(columns.len()).enumerate() {
        let (pieces, rest) = scores.as_chunks::<PIECE>();
        let mut last = [f32::NEG_INFINITY; PIECE];
        last[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() { None } else { Some(&last) };
        let columns = columns.clone().step_by(PIECE);
        for (column, piece) in columns.zip(pieces.iter().chain(last)) {
            let piece = bytemuck::cast(*piece);
            if !listeners.piece::<FMA>(row, column, piece) {
                listeners.again::<FMA>(row, column, piece);
            }
        }
    }
}

/// Whether one of them is above a threshold.
#[inline(always)]
fn above([left, right]: Piece, threshold: f32) -> bool {
    let mut above = false;
    for i in 0..LANES {
        let larger = if left[i] > right[i] { left[i] } else { right[i] };
        above |= larger > threshold;
    }
    above
}

/// What a row knows of the words it has seen.
struct Running<'a> {
    ask: &'a Ask<'a>,
    scoring: Scoring,
    best: Vec<Choice>,
    /// What a newcomer to the list must beat: its last entry, once it is full.
    floor: f32,
    /// A score above this changes the list or is the largest so far.
    threshold: f32,
    /// The next column of a word to look up: one that is forced, or that has no probability, or the last before sums are folded.
    special: usize,
    /// Largest score, and `Σ exp(score − most)`: of the last words lane by lane, and of those before.
    most: f32,
    lanes: Line,
    sum: f64,
}

impl<'a> Running<'a> {
    fn new(
        ask: &'a Ask<'a>,
        scoring: Scoring,
        words: Option<&[u32]>,
        mut best: Vec<Choice>,
    ) -> Running<'a> {
        best.clear();
        best.reserve(ask.count + 1);
        let wants_none = ask.forced.is_some() || ask.count == 0;
        let floor = if wants_none { f32::INFINITY } else { f32::NEG_INFINITY };
        let mut running = Running {
            ask,
            scoring,
            best,
            floor,
            threshold: if scoring == Scoring::Logit { floor } else { f32::NEG_INFINITY },
            special: 0,
            most: f32::NEG_INFINITY,
            lanes: Line::zeroed(),
            sum: 0.0,
        };
        running.special = running.special_from(0, words);
        running
    }

    /// Takes the scores of some words, the first of which is in the given column, if that is all there is to do: nearly always
    /// none is above the threshold.
    #[inline(always)]
    fn take<const FMA: bool>(&mut self, scores: Piece, column: usize) -> bool {
        let ordinary = self.special >= column + PIECE && !above(scores, self.threshold);
        if ordinary && self.scoring != Scoring::Logit {
            self.add::<FMA>(scores);
        }
        ordinary
    }

    /// The same, with all there may be to do.
    #[inline(always)]
    fn look_closer<const FMA: bool>(
        &mut self,
        mut scores: Piece,
        column: usize,
        words: Option<&[u32]>,
    ) {
        if self.special < column + PIECE {
            scores = self.look_up(scores, column, words);
        }
        if above(scores, self.threshold) {
            self.rise(scores, column, words);
        }
        if self.scoring != Scoring::Logit {
            self.add::<FMA>(scores);
            if (column + PIECE).is_multiple_of(FOLDED) {
                self.fold();
            }
        }
    }

    /// Adds the probabilities of some words to the sum. What is added while there is no largest score yet is next to nothing,
    /// and taken back by the first.
    #[inline(always)]
    fn add<const FMA: bool>(&mut self, scores: Piece) {
        let (most, Lanes(mut lanes)) = (self.most, self.lanes);
        for half in scores {
            for i in 0..LANES {
                lanes[i] += exp_down::<FMA>(half[i] - most);
            }
        }
        self.lanes = Lanes(lanes);
    }

    /// Notes the score of a forced word, and puts those out of reach that have no probability.
    #[cold]
    #[inline(never)]
    fn look_up(&mut self, mut scores: Piece, first: usize, words: Option<&[u32]>) -> Piece {
        let all = scores.as_flattened_mut();
        while self.special < first + PIECE {
            let column = self.special;
            self.special = self.special_from(column + 1, words);
            let word = |words: &[u32]| words.get(column).copied();
            let Some(token) = words.map_or(Some(column as u32), word) else { continue };
            let score = &mut all[column - first];
            // Behind the last word there is nothing to force.
            if self.ask.forced == Some(token) && *score > f32::NEG_INFINITY {
                self.best.push(Choice { token, score: *score });
            }
            if self.scoring == Scoring::LogProbabilityOfAllowed
                && self.ask.banned.binary_search(&token).is_ok()
            {
                *score = f32::NEG_INFINITY;
            }
        }
        scores
    }

    /// The first column to look up of those from the given one on.
    fn special_from(&self, first: usize, words: Option<&[u32]>) -> usize {
        let banned = match self.scoring {
            Scoring::LogProbabilityOfAllowed => self.ask.banned,
            Scoring::Logit | Scoring::LogProbability => &[],
        };
        let column = |&word: &u32| match words {
            Some(words) => words.binary_search(&word).ok(),
            None => Some(word as usize),
        };
        let columns = self.ask.forced.iter().chain(banned).filter_map(column);
        let folding = match self.scoring {
            Scoring::Logit => usize::MAX,
            _ => (first + 1).next_multiple_of(FOLDED) - 1,
        };
        columns.filter(|&column| column >= first).fold(folding, usize::min)
    }

    /// Some score is above the threshold: the list changes, or the sum is to be over something larger.
    #[inline(always)]
    fn rise(&mut self, scores: Piece, column: usize, words: Option<&[u32]>) {
        let (scores, mut most) = (scores.as_flattened(), self.most);
        let mut above = 0u32;
        for (i, &score) in scores.iter().enumerate() {
            above |= u32::from(score > self.threshold) << i;
        }
        while above != 0 {
            let i = above.trailing_zeros() as usize;
            let token = words.map_or((column + i) as u32, |words| words[column + i]);
            self.consider(Choice { token, score: scores[i] });
            most = most.max(scores[i]);
            above &= above - 1;
        }
        self.threshold = self.floor;
        if self.scoring != Scoring::Logit {
            if most > self.most {
                let less = f64::from(self.most - most).exp();
                self.sum *= less;
                self.lanes.0.iter_mut().for_each(|lane| *lane *= less as f32);
                self.most = most;
            }
            self.threshold = self.floor.min(most);
        }
    }

    /// Takes a word into the list, if it is good enough and not banned.
    fn consider(&mut self, choice: Choice) {
        if choice.score <= self.floor || self.ask.banned.binary_search(&choice.token).is_ok() {
            return;
        }
        let place = self.best.partition_point(|c| c.score >= choice.score);
        self.best.insert(place, choice);
        self.best.truncate(self.ask.count);
        if self.best.len() == self.ask.count {
            self.floor = self.best[self.ask.count - 1].score;
        }
    }

    /// Many small numbers are added up in higher precision.
    #[cold]
    #[inline(never)]
    fn fold(&mut self) {
        self.sum += f64::from(add_up(self.lanes.0));
        self.lanes = Line::zeroed();
    }

    fn finish(mut self) -> Vec<Choice> {
        if let Some(token) = self.ask.forced
            && self.best.is_empty()
        {
            self.best.push(Choice { token, score: f32::MIN });
        }
        if self.scoring != Scoring::Logit {
            self.fold();
            let shift = self.most + self.sum.ln() as f32;
            for choice in &mut self.best {
                choice.score -= shift;
            }
        }
        self.best
    }
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Whatever the instructions, and whether scores are stored or not: the words the plain search finds, and for
        /// a row alone the same bits.
        #[test]
        fn best_words_are_the_best(
            rows in 1usize..70,
            (inputs, outputs) in (1usize..70, 8usize..1100),
            lists in 0usize..4,
            scoring in prop::sample::select(vec![
                Scoring::Logit, Scoring::LogProbability, Scoring::LogProbabilityOfAllowed,
            ]),
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
                })
                .collect();
            let question = Question { asks: &asks, scoring, race: None };
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
                let (mut scores, mut expected) = (Vec::new(), Vec::new());
                for row in 0..rows {
                    let alone = Matrix::from_rows(inputs, x.values()[row * inputs..][..inputs].to_vec());
                    let one = Question { asks: &asks[row..=row], ..question };
                    let list = &selected[row..=row];
                    prop_assert_eq!(&answers(isa, &alone, &made[0], list, one)[0], &got[row]);
                    logits(isa, &alone, &made[0], list, &mut scores);
                    let words = of_row(row).map(|list| words[list].as_slice());
                    choose(Candidates { scores: &scores, words }, &asks[row], scoring, &mut expected);
                    let tokens = |choices: &[Choice]| choices.iter().map(|c| c.token).collect::<Vec<_>>();
                    prop_assert_eq!(tokens(&got[row]), tokens(&expected));
                    for (got, expected) in got[row].iter().zip(&expected) {
                        let error = (got.score - expected.score).abs();
                        let allowed = if scoring == Scoring::Logit { 0.0 } else { 2e-5 };
                        prop_assert!(error <= allowed, "{got:?}, not {expected:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// Lists come and go, some in several rows, at times more of them than a table has room for: every row has
        /// the answer it has alone.
        #[test]
        fn words_that_lists_share(
            lists in prop::collection::vec(prop::collection::btree_set(0u32..400, 1..60), 1..90),
            steps in prop::collection::vec(prop::collection::vec(0usize..90, 1..100), 1..5),
            inputs in prop::sample::select(vec![5usize, 70, 256, 512]),
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
                        .map(|row| Ask { count: row % 3, banned: &banned[row % 4..], forced: None, path: 0.0 })
                        .collect();
                    let question = Question { asks: &asks, scoring: Scoring::Logit, race: None };
                    let got = answers(isa, &x, &output, &selected, question);
                    for row in 0..rows.len() {
                        let alone = Matrix::from_rows(inputs, x.values()[row * inputs..][..inputs].to_vec());
                        let one = Question { asks: &asks[row..=row], ..question };
                        let expected = answers(isa, &alone, &output, &selected[row..=row], one);
                        prop_assert_eq!(&got[row], &expected[0]);
                    }
                }
            }
        }
    }
}
