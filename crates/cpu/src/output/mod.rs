//! The output layer: a product over the vocabulary of which only the top-k is wanted.
//!
//! The vocabulary is processed in blocks of columns. The scores (logits) of a block live in a small buffer that stays in L2, or in
//! registers (int8 with AMX). From there each row updates its top-k and, where log-probabilities are wanted, an online log-sum-exp,
//! 32 words at a time (`score_sinks`). The scores of the whole vocabulary are never stored.
//!
//! | words of a row | kernel |
//! |---|---|
//! | the vocabulary | the packed product |
//! | the vocabulary, int8, 1 or 2 rows, best logit only | `screening`: 4-bit weights rule out most words |
//! | the vocabulary, float32, best logit only | `float_screening`: int8 weights rule out most words |
//! | a shortlist of 8 or more rows, or any without AVX-512 VNNI | a packed copy of its words |
//! | shortlists of fewer rows each | `scattered`: each word where it is |
//! | 6 or more such shortlists, logits only | `frequent_words` (AMX): words that many have, for all rows |
//! | | `shared_words`: each of the others once for all rows that have it |

mod float_screening;
#[cfg(test)]
mod float_screening_tests;
mod frequent_words;
mod membership;
pub(crate) mod scattered;
#[cfg(test)]
mod scattered_tests;
mod score_sinks;
pub(crate) mod screening;
#[cfg(test)]
mod screening_tests;
mod shared_words;
#[cfg(test)]
mod tests;
mod top_k;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytemuck::Zeroable;
use peregrine_model::Activation;
use peregrine_nn::{Choice, Choices, RowRequest, Scoring, TopKQuery, profile};

use crate::gemm::float32::PackedFloat32;
use crate::gemm::int8::{PIECE, PackedInt8};
use crate::gemm::linear::{Linear, with_quantised_rows};
use crate::gemm::panels::Lanes;
use crate::isa::Isa;
use crate::memory::matrix::Matrix;
use crate::memory::working_set;
use crate::output::membership::{MembershipTable, assign_bits};
use crate::output::scattered::{OutputRows, PickedRows};
use crate::output::screening::{Sample, Screen};
use crate::output::shared_words::ActiveRows;
use float_screening::FloatScreen;
use score_sinks::{RowFilter, RowState, ScoreSinks};
use top_k::TopK;

/// Panels of a block: 512 words.
const BLOCK_PANELS: usize = 32;

/// Fewest rows for which the words of a shortlist are packed. Fewer rows read their words where they are.
const PACK_MIN_ROWS: usize = 8;

/// Bytes of weights of a vocabulary block: few enough to stay in L2. Tests have small layers.
const VOCABULARY_BLOCK_BYTES: usize = if cfg!(test) { 1 << 13 } else { 1 << 19 };

/// Fewest shortlists for which each word is read once for all rows that have it. Tests have few.
const SHARED_MIN_LISTS: usize = if cfg!(test) { 2 } else { 6 };

/// Most rows for which screening pays: with more, reading the weights is too small a part of the cost.
const SCREEN_MAX_ROWS: usize = 2;

/// Rows after which a 4-bit copy of the weights pays for its memory and the time to make it.
const ROWS_BEFORE_SCREENING: u32 = 100;

/// Rows after which an int8 copy of float32 weights pays for the time to make it.
const ROWS_BEFORE_FLOAT_SCREENING: u32 = 320;

/// Reading the float32 weights of a step takes as long as computing so many rows: a step counts for no fewer.
const ROWS_OF_READING: u32 = 16;

/// The most inputs of a float32 layer that is screened: int8 products of many more might overflow.
const MAX_SCREENED_INPUTS: usize = 1 << 16;

/// Number of rows, the last before screening starts, that are tried on a sample of the words, which tells whether screening pays.
const SAMPLED_ROWS: u32 = 20;

/// A prepared output layer.
pub struct Output {
    pub(crate) linear: Linear,
    /// The weights word by word. Made for the first shortlist or screen.
    rows: OnceLock<Arc<OutputRows>>,
    /// The weights in 4 bits. Made after [`ROWS_BEFORE_SCREENING`] rows that could use them, if the sample says that they pay.
    screen: OnceLock<Screen>,
    /// Some of the weights in 4 bits.
    sample: OnceLock<Sample>,
    /// The weights of a float32 layer in int8. Made after [`ROWS_BEFORE_FLOAT_SCREENING`] rows that could use them.
    float_screen: OnceLock<FloatScreen>,
    /// Whether screening is enabled.
    screening: bool,
    /// Rows so far that screening could serve.
    screenable_rows: AtomicU32,
    /// Whether scores may be consumed while they are in registers.
    in_registers: bool,
}

/// The words of a shortlist. Scattered and packed words give the same bits.
pub struct Selection {
    /// Words in ascending order.
    words: Arc<[u32]>,
    /// The words where they are in the layer. None if there is no kernel for that.
    scattered: Option<ScatteredWords>,
    /// A packed copy of the words. Made when [`PACK_MIN_ROWS`] rows share them.
    packed: OnceLock<Linear>,
}

/// Words of a shortlist that are read where they are in the layer.
struct ScatteredWords {
    rows: Arc<OutputRows>,
    picked: PickedRows,
    /// First column of each vocabulary block, and the end of the last one: see [`best_of_scattered_words`].
    block_starts: Vec<usize>,
}

impl ScatteredWords {
    fn new(packed: &PackedInt8, rows: &Arc<OutputRows>, words: &[u32]) -> ScatteredWords {
        let block_words = (VOCABULARY_BLOCK_BYTES / rows.output_bytes().max(1)).max(1);
        let blocks = packed.outputs().div_ceil(block_words).max(1);
        let start = |block: usize| words.partition_point(|&w| (w as usize) < block * block_words);
        let mut block_starts = vec![0];
        for block in 1..blocks {
            // Whole pieces: a few words more or less do not matter.
            block_starts.push(block_starts[block - 1].max(start(block) / PIECE * PIECE));
        }
        block_starts.push(words.len());
        let picked = PickedRows::new(packed, words);
        ScatteredWords { rows: Arc::clone(rows), picked, block_starts }
    }
}

/// How screening serves a row.
#[derive(Clone, Copy)]
enum Screening<'a> {
    /// The best word is found without. The sample records whether screening would have helped.
    Sampled(&'a PackedInt8, &'a Sample),
    /// The best word is found among those that screening leaves.
    Int8(&'a PackedInt8, &'a OutputRows, &'a Screen),
    /// As above, in float32.
    Float32(&'a PackedFloat32, &'a FloatScreen),
}

impl Output {
    pub(crate) fn new(linear: Linear, screening: bool, in_registers: bool) -> Output {
        let screenable_rows = AtomicU32::new(0);
        let (rows, screen, sample) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let float_screen = OnceLock::new();
        Output {
            linear,
            rows,
            screen,
            sample,
            float_screen,
            screening,
            screenable_rows,
            in_registers,
        }
    }

    fn rows(&self, packed: &PackedInt8) -> &Arc<OutputRows> {
        self.rows.get_or_init(|| Arc::new(OutputRows::new(packed)))
    }

    /// How these rows are screened. None if more than the best logit is wanted, or if screening does not pay.
    fn screening(
        &self,
        isa: Isa,
        query: TopKQuery<'_>,
        rows: &Range<usize>,
    ) -> Option<Screening<'_>> {
        let best_only = |request: &RowRequest<'_>| {
            request.count == 1 && request.forced.is_none() && request.scoring == Scoring::Logit
        };
        if !self.screening || !query.requests[rows.clone()].iter().all(best_only) {
            return None;
        }
        match &self.linear {
            Linear::Int8(packed) => self.int8_screening(isa, packed, rows.len()),
            Linear::Float32(packed) => self.float_screening(isa, packed, rows.len()),
            _ => None,
        }
    }

    fn int8_screening<'a>(
        &'a self,
        isa: Isa,
        packed: &'a PackedInt8,
        rows: usize,
    ) -> Option<Screening<'a>> {
        let fits = rows <= SCREEN_MAX_ROWS && OutputRows::is_fast(isa) && !packed.saturates();
        let before = if fits { self.screenable_rows.fetch_add(1, Relaxed) } else { 0 };
        if before + SAMPLED_ROWS < ROWS_BEFORE_SCREENING {
            return None;
        }
        let sample = self.sample.get_or_init(|| Sample::new(packed));
        if before < ROWS_BEFORE_SCREENING {
            return Some(Screening::Sampled(packed, sample));
        }
        if !sample.pays() {
            return None;
        }
        let screen = self.screen.get_or_init(|| Screen::new(packed));
        screen.pays().then(|| Screening::Int8(packed, self.rows(packed), screen))
    }

    fn float_screening<'a>(
        &'a self,
        isa: Isa,
        packed: &'a PackedFloat32,
        rows: usize,
    ) -> Option<Screening<'a>> {
        if rows > FloatScreen::max_rows(isa)
            || !(1..=MAX_SCREENED_INPUTS).contains(&packed.inputs())
        {
            return None;
        }
        if self.screenable_rows.load(Relaxed) < ROWS_BEFORE_FLOAT_SCREENING {
            self.screenable_rows.fetch_add(ROWS_OF_READING.max(rows as u32), Relaxed);
            return None;
        }
        let screen = self.float_screen.get_or_init(|| FloatScreen::new(isa, packed));
        screen.pays().then_some(Screening::Float32(packed, screen))
    }

    pub(crate) fn select(&self, isa: Isa, words: &[u32]) -> Selection {
        let exists = |&word: &u32| (word as usize) < self.linear.outputs();
        let words: Arc<[u32]> = words.iter().copied().filter(exists).collect();
        let scattered = match &self.linear {
            Linear::Int8(packed) if OutputRows::is_fast(isa) && !packed.saturates() => {
                Some(ScatteredWords::new(packed, self.rows(packed), &words))
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

/// Runs of rows that share their words: rows without a shortlist, or the hypotheses of a sentence.
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

/// Answers `query` for every row of `x`.
pub(crate) fn best(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    query: TopKQuery<'_>,
    answer: &mut Choices,
) {
    answer.clear();
    let few = |rows: &Range<usize>| rows.len() < PACK_MIN_ROWS;
    let linear = &output.linear;
    let bytes = |list: Option<&Selection>| {
        list.map_or(linear.bytes(), |list| list.words.len() * linear.inputs())
    };
    working_set::count(groups(selections).map(|(_, list)| bytes(list)).sum());
    if groups(selections).all(|(rows, list)| few(&rows) && scattered_words(list).is_some()) {
        let logit_only = |request: &RowRequest<'_>| {
            request.forced.is_none() && request.scoring == Scoring::Logit
        };
        let sharing = output.in_registers
            && groups(selections).count() >= SHARED_MIN_LISTS
            && query.requests.iter().all(logit_only);
        return collect_choices(query, selections, answer, |sinks| {
            if sharing {
                best_of_shared_words(isa, x.values(), output, selections, sinks.rows);
            } else {
                best_of_scattered_words(isa, x.values(), output, selections, sinks);
            }
        });
    }
    for (rows, selection) in groups(selections) {
        let words = selection.map(|s| &*s.words);
        let inputs = output.linear.inputs();
        let x = &x.values()[rows.start * inputs..rows.end * inputs];
        let none = selection.is_none();
        let screening = if none { output.screening(isa, query, &rows) } else { None };
        let in_place = few(&rows) && scattered_words(selection).is_some();
        let selections = &selections[rows.clone()];
        let query = TopKQuery { requests: &query.requests[rows], ..query };
        collect_choices(query, selections, answer, |sinks| {
            if in_place {
                return best_of_scattered_words(isa, x, output, selections, sinks);
            }
            let linear = selection.map_or(&output.linear, |selection| selection.packed(output));
            if let Some(Screening::Float32(packed, screen)) = screening {
                let failed = screen.multiply(isa, x, packed, sinks);
                for run in failed.chunk_by(|a, b| a + 1 == *b) {
                    let (rows, x) = (run[0]..run[0] + run.len(), &x[run[0] * inputs..]);
                    let (x, mut sinks) = (&x[..run.len() * inputs], sinks.slice_rows(rows, None));
                    linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut sinks);
                }
                return;
            }
            if let Some(Screening::Int8(packed, rows, screen)) = screening {
                for (row, x) in x.chunks_exact(inputs).enumerate() {
                    let sink = sinks.slice_rows(row..row + 1, None);
                    best_screened(isa, x, linear, (packed, rows, screen), sink);
                }
                return;
            }
            let mut sinks = sinks.slice_rows(0..sinks.rows.len(), words);
            linear.multiply_in_blocks(isa, x, BLOCK_PANELS, output.in_registers, &mut sinks);
            for row in sinks.reset_overflowed() {
                let (x, mut sink) =
                    (&x[row * inputs..][..inputs], sinks.slice_rows(row..row + 1, words));
                linear.multiply_in_blocks(isa, x, BLOCK_PANELS, false, &mut sink);
            }
            if let Some(Screening::Sampled(packed, sample)) = screening {
                for (state, x) in sinks.rows.iter().zip(x.chunks_exact(inputs)) {
                    with_quantised_rows(isa, x, packed, |x, bounds| {
                        sample.look(isa, x, state.top_k_threshold, bounds);
                    });
                }
            }
        });
    }
}

/// Answers `query` from the scores that `multiply` gives to the sinks.
fn collect_choices(
    query: TopKQuery<'_>,
    selections: &[Option<&Selection>],
    answer: &mut Choices,
    multiply: impl FnOnce(&mut ScoreSinks<'_, '_>),
) {
    let mut rows: Vec<RowState<'_>> = recycled(ROW_STATES.take());
    let (mut filters, mut lanes, mut lists) = (FILTERS.take(), SUMS.take(), TOP_K_LISTS.take());
    rows.extend(query.requests.iter().zip(selections).map(|(request, selection)| {
        let words = selection.map(|selection| &*selection.words);
        RowState::new(request, words, lists.pop().unwrap_or_default())
    }));
    filters.extend(rows.iter().map(RowState::filter));
    lanes.resize(rows.len(), Lanes::zeroed());
    profile::mark();
    multiply(&mut ScoreSinks::new(&mut rows, &mut filters, &mut lanes));
    for ((row, filter), lanes) in rows.drain(..).zip(filters.drain(..)).zip(&mut lanes) {
        let (mut top_k, log_sum_exp) = row.finish(filter, lanes);
        let choices = top_k.choices();
        answer.push(choices.map(|word| Choice { score: word.score - log_sum_exp, ..word }));
        lists.push(top_k);
    }
    lanes.clear();
    TOP_K_LISTS.set(lists);
    FILTERS.set(filters);
    SUMS.set(lanes);
    ROW_STATES.set(recycled(rows));
}

fn scattered_words(selection: Option<&Selection>) -> Option<&ScatteredWords> {
    selection.and_then(|selection| selection.scattered.as_ref())
}

/// Scores of shortlists that few rows have each, read where they are. Shortlists share many words, so all sentences read their words
/// of one vocabulary block before those of the next: the first sentence reads them from L3, the others from L2.
fn best_of_scattered_words(
    isa: Isa,
    x: &[f32],
    output: &Output,
    selections: &[Option<&Selection>],
    sinks: &mut ScoreSinks<'_, '_>,
) {
    let Linear::Int8(packed) = &output.linear else { return };
    let first = selections.first().and_then(|&list| scattered_words(list));
    let vocabulary_blocks = first.map_or(0, |list| list.block_starts.len() - 1);
    with_quantised_rows(isa, x, packed, |x, block| {
        for i in 0..vocabulary_blocks {
            for (rows, selection) in groups(selections) {
                let (Some(selection), Some(list)) = (selection, scattered_words(selection)) else {
                    continue;
                };
                let mut sinks = sinks.slice_rows(rows.clone(), Some(&selection.words));
                let columns = list.block_starts[i]..list.block_starts[i + 1];
                let words = (&*list.rows, &list.picked);
                scattered::multiply_into(isa, (x, rows), words, columns, block, &mut sinks);
            }
        }
    });
}

/// Scores of many shortlists. Each word is read once for all rows that have it.
fn best_of_shared_words(
    isa: Isa,
    x: &[f32],
    output: &Output,
    selections: &[Option<&Selection>],
    states: &mut [RowState<'_>],
) {
    let Linear::Int8(packed) = &output.linear else { return };
    let rows = output.rows(packed);
    let (mut tables, mut bits, mut waiting) = (TABLES.take(), ROW_BITS.take(), WAITING.take());
    let lists = selections.iter().flatten().map(|selection| &selection.words);
    assign_bits(&mut tables, lists, &mut bits);
    with_quantised_rows(isa, x, packed, |x, _| {
        let members = bits.iter().map(|&(table, bit)| tables[table].members(bit));
        let frequent = frequent_words::worthwhile(isa, packed, members.clone());
        if frequent > 0 {
            let thresholds: Vec<f32> = states.iter().map(|state| state.top_k_threshold).collect();
            let (rows, words) = (members.zip(thresholds), (packed, frequent));
            frequent_words::multiply(isa, x, words, rows, &mut |row, token, score| {
                states[row].consider_and_raise(Choice { token, score })
            });
        }
        for (t, table) in tables.iter().enumerate() {
            waiting.clear();
            waiting.extend((0..bits.len()).filter(|&row| bits[row].0 == t));
            // At most one row of each shortlist in a pass.
            while !waiting.is_empty() {
                let mut active = ActiveRows::none();
                waiting.retain(|&row| !active.add(bits[row].1, row, states[row].top_k_threshold));
                let layer = (packed, &**rows);
                shared_words::multiply(
                    isa,
                    x,
                    layer,
                    (table, frequent),
                    &mut active,
                    &mut |row, token, score| {
                        states[row].consider_and_raise(Choice { token, score })
                    },
                );
            }
        }
    });
    TABLES.set(tables);
    ROW_BITS.set(bits);
    WAITING.set(waiting);
    profile::lap("output layer");
}

/// One row's best word: screening finds the words that can be the best, whose scores are then computed in full.
fn best_screened(
    isa: Isa,
    x: &[f32],
    linear: &Linear,
    (packed, rows, screen): (&PackedInt8, &OutputRows, &Screen),
    mut sink: ScoreSinks<'_, '_>,
) {
    let (mut words, mut picked) = SCREENED.take();
    let banned = sink.rows[0].request.banned;
    let survivors = with_quantised_rows(isa, x, packed, |x, bounds| {
        screen.survivors(isa, (x, packed, rows), banned, (bounds, &mut words))
    });
    if survivors {
        let mut sink = sink.slice_rows(0..1, Some(&words));
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
    // Scratch memory of a worker, kept between steps so that they allocate nothing.
    static SCREENED: RefCell<(Vec<u32>, PickedRows)> = RefCell::default();
    static TABLES: RefCell<Vec<MembershipTable>> = RefCell::default();
    static ROW_BITS: RefCell<Vec<(usize, usize)>> = RefCell::default();
    static WAITING: RefCell<Vec<usize>> = RefCell::default();
    static FILTERS: RefCell<Vec<RowFilter>> = RefCell::default();
    static SUMS: RefCell<Vec<Lanes<f32>>> = RefCell::default();
    static ROW_STATES: RefCell<Vec<RowState<'static>>> = RefCell::default();
    static TOP_K_LISTS: RefCell<Vec<TopK>> = RefCell::default();
}

/// An empty list in the memory of another one. The entry types differ in their lifetimes only.
fn recycled<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// All logits of every row that is wanted, row after row.
pub(crate) fn logits(
    isa: Isa,
    x: &Matrix,
    output: &Output,
    selections: &[Option<&Selection>],
    wanted: &[bool],
    out: &mut Vec<f32>,
) {
    out.clear();
    for (rows, selection) in groups(selections) {
        let mut first = rows.start;
        for run in wanted[rows].chunk_by(|a, b| a == b) {
            let rows = first..first + run.len();
            first = rows.end;
            if !run[0] {
                continue;
            }
            let linear = selection.map_or(&output.linear, |s| s.packed(output));
            let x = &x.values()[rows.start * linear.inputs()..rows.end * linear.inputs()];
            let start = out.len();
            out.resize(start + rows.len() * linear.outputs(), 0.0);
            linear.multiply(isa, Activation::Identity, x, &mut out[start..]);
        }
    }
}
