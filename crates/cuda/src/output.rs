//! The output layer: a product over the vocabulary of which only the best is wanted.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::{Ask, Candidates, Choice, Choices, Question, Scoring, choose};

use crate::Error;
use crate::device::{Answer, Device, Segment, Sent, bucket};
use crate::device_beam;
use crate::driver::Address;
use crate::kernel;
use crate::logits::{self, OutputLayer};
use crate::memory::{Buffer, NONE, Rows, copy};
use crate::product::{LARGE_BYTES, Linear, MIDDLE_BEST_BYTES, Target};

/// Words a block looks at.
const TILE: usize = 128;
/// Rows a block takes of those that share their words.
const FEW_ROWS: usize = 16;

/// A prepared output layer.
pub struct Output {
    pub(crate) linear: Linear,
}

/// The words of a shortlist, on the device.
pub struct Selection {
    buffer: Buffer,
    words: Vec<u32>,
}

impl Output {
    pub(crate) fn select(&self, device: &Arc<Device>, words: &[u32]) -> Result<Selection, Error> {
        let exists = |&word: &u32| (word as usize) < self.linear.outputs;
        let words: Vec<u32> = words.iter().copied().filter(exists).collect();
        let buffer = Buffer::new(device, 4 * words.len())?;
        let staged = device.record(|segment| segment.stage(&words))?;
        copy(device, staged, buffer.address, 4 * words.len())?;
        Ok(Selection { buffer, words })
    }
}

/// Runs of rows that share their words.
struct Group<'a> {
    first: usize,
    rows: usize,
    selection: Option<&'a Selection>,
}

impl Group<'_> {
    fn words(&self, all: usize) -> usize {
        self.selection.map_or(all, |selection| selection.words.len())
    }
}

fn groups<'a>(selections: &[Option<&'a Selection>]) -> Vec<Group<'a>> {
    let same = |a: &Option<&Selection>, b: &Option<&Selection>| match (a, b) {
        (Some(a), Some(b)) => std::ptr::eq(*a, *b),
        (None, None) => true,
        _ => false,
    };
    let mut first = 0;
    let group = |rows: &[Option<&'a Selection>]| {
        let group = Group { first, rows: rows.len(), selection: rows[0] };
        first += rows.len();
        group
    };
    selections.chunk_by(same).map(group).collect()
}

/// A question whose answer may still be on its way.
#[derive(Default)]
pub struct Pending {
    sent: Option<Sent>,
    /// Rows and choices a row that the answer has room for,
    room: (usize, usize),
    /// and choices asked for, row by row.
    counts: Vec<usize>,
    /// The answer, where it did not take a kernel.
    found: Choices,
}

impl Pending {
    /// Sends what was recorded off; `answer` has room for so many rows and choices a row.
    pub(crate) fn send(
        &mut self,
        device: &Device,
        answer: Answer,
        room: (usize, usize),
        question: Question<'_>,
    ) -> Result<(), Error> {
        self.sent = Some(device.send(answer)?);
        self.room = room;
        self.counts.clear();
        let count = |ask: &Ask<'_>| if ask.forced.is_some() { 1 } else { ask.count };
        self.counts.extend(question.asks.iter().map(count));
        Ok(())
    }

    /// Waits for the answer.
    pub(crate) fn answer(&mut self, device: &Device, answer: &mut Choices) -> Result<(), Error> {
        answer.clear();
        let Some(sent) = self.sent.take() else {
            std::mem::swap(&mut self.found, answer);
            return Ok(());
        };
        let (rows, most) = self.room;
        device.read(sent, 2 * rows * most, |words| {
            let (tokens, scores) = words.split_at(rows * most);
            for (row, &count) in self.counts.iter().enumerate() {
                let at = row * most..row * most + count;
                let choices = tokens[at.clone()].iter().zip(&scores[at]);
                let found = choices.filter(|&(&token, _)| token != NONE);
                answer.push(
                    found.map(|(&token, &score)| Choice { token, score: f32::from_bits(score) }),
                );
            }
        })
    }
}

/// Choices a row that are looked for where so many are asked for: few different numbers, so that steps are
/// recorded alike, but near enough, since each of them is looked for in every tile.
fn room_for(choices: usize) -> usize {
    match choices {
        0..=8 => choices.max(1).next_power_of_two(),
        _ => choices.next_multiple_of(4),
    }
}

/// Rows that something is asked of.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) device: &'a Arc<Device>,
    /// What is to answer, where it can.
    pub(crate) layer: OutputLayer,
    pub(crate) x: &'a Rows,
    pub(crate) output: &'a Output,
    /// The words of each row.
    pub(crate) selections: &'a [Option<&'a Selection>],
}

/// How a row is answered. Sums of exponentials have other last bits in each way, so this depends on nothing but the
/// row's own words and what it asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By one of the papers' layers,
    Paper,
    /// in the epilogue of the product,
    Epilogue,
    /// or by the host, where the lists of all tiles are too long for a block's memory.
    Host,
}

impl Asking<'_> {
    /// Asks a question of all rows.
    pub(crate) fn ask(self, question: Question<'_>, pending: &mut Pending) -> Result<(), Error> {
        pending.sent = None;
        let rows = question.asks.iter().zip(self.selections);
        let ways: Vec<Way> = rows.map(|(ask, &words)| self.way(ask, words)).collect();
        let first = ways.first().copied().unwrap_or(Way::Epilogue);
        if ways.iter().all(|&way| way == first) {
            self.ask_one_way(first, question, pending)?;
        } else {
            self.ask_apart(&ways, question.asks, &mut pending.found)?;
        }
        match pending.sent {
            Some(_) => Ok(()),
            None => self.follow(question, &pending.found),
        }
    }

    fn way(self, ask: &Ask<'_>, words: Option<&Selection>) -> Way {
        let paper = self.layer != OutputLayer::Epilogue;
        if paper && self.layer.can_answer(ask, words.is_some()) {
            return Way::Paper;
        }
        let fits = self.shared(ask, words) <= self.device.most_shared();
        if fits { Way::Epilogue } else { Way::Host }
    }

    /// Bytes of a block's memory that the lists of a row's tiles take.
    fn shared(self, ask: &Ask<'_>, words: Option<&Selection>) -> usize {
        let tiles = bucket(self.tiles(words)).min(self.tiles(None));
        8 * tiles * if ask.count == 0 { 0 } else { room_for(ask.count) }
    }

    /// Tiles of a row's words.
    fn tiles(self, words: Option<&Selection>) -> usize {
        words.map_or(self.output.linear.outputs, |words| words.words.len()).div_ceil(TILE)
    }

    fn ask_one_way(
        self,
        way: Way,
        question: Question<'_>,
        pending: &mut Pending,
    ) -> Result<(), Error> {
        match way {
            Way::Paper => {
                let Asking { device, layer, x, output, .. } = self;
                logits::ask(device, layer, x, output, question, pending)
            }
            Way::Epilogue => self.ask_epilogue(question, pending),
            Way::Host => self.best_of_logits(question, &mut pending.found),
        }
    }

    /// Has each way answer its own rows, one after the other: of the others it is asked nothing.
    fn ask_apart(self, ways: &[Way], asks: &[Ask<'_>], found: &mut Choices) -> Result<(), Error> {
        let mut parts = Vec::new();
        for way in [Way::Paper, Way::Epilogue, Way::Host] {
            if !ways.contains(&way) {
                continue;
            }
            let mut asks = asks.to_vec();
            for (ask, _) in asks.iter_mut().zip(ways).filter(|(_, other)| **other != way) {
                (ask.count, ask.forced, ask.scoring) = (0, None, Scoring::Logit);
            }
            let (mut pending, mut choices) = (Pending::default(), Choices::default());
            self.ask_one_way(way, Question { asks: &asks, device_beams: None }, &mut pending)?;
            let sent = pending.sent;
            pending.answer(self.device, &mut choices)?;
            sent.map_or(Ok(()), |sent| self.device.reuse_answer(sent))?;
            parts.push((way, choices));
        }
        found.clear();
        for (row, way) in ways.iter().enumerate() {
            let part = parts.iter().find(|(other, _)| other == way);
            found.push(part.into_iter().flat_map(|(_, choices)| choices.of(row)).copied());
        }
        Ok(())
    }

    /// Lets the next step go on from what the host has found.
    fn follow(self, question: Question<'_>, found: &Choices) -> Result<(), Error> {
        let rows = question.asks.len();
        if let Some(device_beams) = question.device_beams {
            let most = room_for(question.asks.iter().map(|ask| ask.count).max().unwrap_or(0));
            return self.device.record(|segment| {
                let asked = asked(segment, question, most)?;
                let lists = device_beam::stage(segment, found, rows, most)?;
                device_beam::record(segment, device_beams, question.asks, asked, lists)
            });
        }
        let best = |row: usize| found.of(row).first().map_or(NONE, |choice| choice.token);
        let best: Vec<u32> = (0..rows).map(best).collect();
        let (from, to) = self
            .device
            .record(|segment| Ok((segment.stage(&best)?, segment.next_latest(bucket(rows))?)))?;
        copy(self.device, from, to, 4 * rows)
    }

    /// Asks in the epilogue of the product.
    fn ask_epilogue(self, question: Question<'_>, pending: &mut Pending) -> Result<(), Error> {
        let Asking { device, x, output, selections, .. } = self;
        let (asks, linear) = (question.asks, &output.linear);
        let all = linear.outputs;
        let groups = groups(selections);
        let tile_counts: Vec<usize> = selections.iter().map(|&words| self.tiles(words)).collect();
        let tiles = bucket(tile_counts.iter().copied().max().unwrap_or(0));
        let most = room_for(asks.iter().map(|ask| ask.count).max().unwrap_or(0));
        let rows = bucket(x.count);
        let found = Found::new(device, rows, tiles, most)?;
        let operand = linear.operand(device, x)?;
        let answer = device.record(|segment| {
            let count = segment.count(x.count)?;
            if asks.iter().any(|ask| ask.forced.is_some()) {
                let parameters = kernel::BeginBest { forced: found.forced.address, count };
                let grid = [rows.div_ceil(256), 1];
                segment.launch(kernel::begin_best, grid, 256, 0, &parameters)?;
            }
            let asked = asked(segment, question, most)?;
            let activation = Activation::Identity;
            let nowhere =
                Target { out: 0, stride: 0, activation, input: 0, exact: true, bias: true };
            let p = linear.product(segment, &operand, &nowhere, x.count)?;
            let best = kernel::WideBest { p, asked, found: found.lists() };
            let shared_words = matches!(groups.as_slice(), [Group { selection: None, .. }]);
            let wide = shared_words && rows > FEW_ROWS && device.numbers.uses_tensor_cores();
            let all_tiles = all.div_ceil(TILE);
            match (wide, rows) {
                (true, 0..=64) => {
                    let (maps, threads) = linear.carried(device, &operand, TILE, 128)?;
                    let (grid, shared) = ([1, all_tiles], MIDDLE_BEST_BYTES);
                    let parameters = (&best, maps);
                    segment.launch_mapped(
                        kernel::best_middle,
                        grid,
                        threads,
                        shared,
                        parameters,
                    )?;
                }
                (true, _) => {
                    let (maps, threads) = linear.carried(device, &operand, TILE, 256)?;
                    let (grid, shared) = ([rows.div_ceil(128), all_tiles], LARGE_BYTES);
                    let parameters = (&best, maps);
                    segment.launch_mapped(kernel::best_large, grid, threads, shared, parameters)?;
                }
                (false, _) => launch_tasks(segment, &groups, all, best)?,
            }
            let tile_counts: Vec<u32> = tile_counts.iter().map(|&tiles| tiles as u32).collect();
            let answer = segment.answer(2 * rows * most)?;
            let latest = segment.next_latest(2 * rows * most)?;
            let latest_scores = latest + (4 * rows * most) as Address;
            let merge = kernel::Merge {
                asked,
                found: best.found,
                tile_counts: segment.stage(&tile_counts)?,
                answer_words: answer.address,
                answer_scores: answer.address + (4 * rows * most) as Address,
                latest,
                latest_scores: question.device_beams.map_or(0, |_| latest_scores),
                count,
            };
            let shared = asks.iter().zip(selections).map(|(ask, &words)| self.shared(ask, words));
            let shared = shared.max().unwrap_or(0);
            segment.launch(kernel::merge, [rows, 1], 128, shared, &merge)?;
            if let Some(device_beams) = question.device_beams {
                device_beam::record(segment, device_beams, asks, asked, (latest, latest_scores))?;
            }
            Ok(answer)
        })?;
        pending.send(device, answer, (rows, most), question)
    }

    /// For lists too long for a block's memory: all scores to the host.
    fn best_of_logits(self, question: Question<'_>, answer: &mut Choices) -> Result<(), Error> {
        let mut scores = Vec::new();
        logits(self.device, self.x, self.output, self.selections, &mut scores)?;
        let (mut rest, mut best) = (scores.as_slice(), Vec::new());
        answer.clear();
        for (ask, selection) in question.asks.iter().zip(self.selections) {
            let words = selection.map(|s| s.words.as_slice());
            let outputs = self.output.linear.outputs;
            let (row, behind) = rest.split_at(words.map_or(outputs, <[u32]>::len));
            choose(Candidates { scores: row, words }, ask, &mut best);
            answer.push(best.iter().copied());
            rest = behind;
        }
        Ok(())
    }
}

/// Blocks of rows that share their words, against tiles of those words.
fn launch_tasks(
    segment: &mut Segment<'_>,
    groups: &[Group<'_>],
    all: usize,
    kernel::WideBest { p, asked, found }: kernel::WideBest,
) -> Result<(), Error> {
    let tensor = segment.numbers().uses_tensor_cores();
    let few = groups.iter().all(|group| group.rows <= FEW_ROWS / 2);
    let (kernel, together, threads) = match (tensor, few) {
        (true, true) => (kernel::best_few, FEW_ROWS, 128),
        (true, false) => (kernel::best_narrow, FEW_ROWS, 128),
        (false, _) => (kernel::best_narrow, 64, 256),
    };
    let mut tasks = Vec::new();
    for group in groups {
        let columns = group.words(all);
        let words = group.selection.map_or(0, |selection| selection.buffer.address);
        for first in (0..group.rows).step_by(together) {
            let (first_row, rows) = (group.first + first, together.min(group.rows - first));
            let task = |tile| kernel::Task { first_row, rows, tile, columns, words };
            tasks.extend((0..columns.div_ceil(TILE)).map(task));
        }
    }
    let grid = [bucket(tasks.len()), 1];
    let tasks = segment.stage_all(&tasks)?;
    segment.launch(kernel, grid, threads, 0, &kernel::NarrowBest { p, asked, found, tasks })
}

/// What is asked, laid into the stage, with room for `most` choices a row.
pub(crate) fn asked(
    segment: &mut Segment<'_>,
    question: Question<'_>,
    most: usize,
) -> Result<kernel::Asked, Error> {
    let asks = question.asks;
    let counts: Vec<u32> = asks.iter().map(|ask| ask.count as u32).collect();
    let forced: Vec<u32> = asks.iter().map(|ask| ask.forced.unwrap_or(NONE)).collect();
    let probabilities = |ask: &Ask<'_>| match ask.scoring {
        Scoring::Logit => 0,
        Scoring::LogProbability => 1,
        Scoring::LogProbabilityOfAllowed => 2,
    };
    let probabilities: Vec<u32> = asks.iter().map(probabilities).collect();
    let (mut banned, mut spans) = (Vec::new(), Vec::with_capacity(2 * asks.len()));
    let mut last: &[u32] = &[];
    for ask in asks {
        // Mostly all rows ban the same few words: one list serves them.
        if ask.banned != last {
            banned.extend_from_slice(ask.banned);
            last = ask.banned;
        }
        let end = banned.len();
        spans.extend([(end - last.len()) as u32, end as u32]);
    }
    Ok(kernel::Asked {
        counts: segment.stage(&counts)?,
        forced: segment.stage(&forced)?,
        banned_spans: segment.stage(&spans)?,
        banned: segment.stage(&banned)?,
        probabilities: segment.stage(&probabilities)?,
        most,
    })
}

/// What tiles found.
struct Found {
    scores: Buffer,
    words: Buffer,
    maxima: Buffer,
    sums: Buffer,
    forced: Buffer,
    tiles: usize,
}

impl Found {
    fn new(device: &Arc<Device>, rows: usize, tiles: usize, most: usize) -> Result<Found, Error> {
        let buffer = |numbers: usize| Buffer::new(device, 4 * numbers);
        Ok(Found {
            scores: buffer(rows * tiles * most)?,
            words: buffer(rows * tiles * most)?,
            maxima: buffer(rows * tiles)?,
            sums: buffer(rows * tiles)?,
            forced: buffer(rows)?,
            tiles,
        })
    }

    fn lists(&self) -> kernel::Found {
        kernel::Found {
            scores: self.scores.address,
            words: self.words.address,
            maxima: self.maxima.address,
            sums: self.sums.address,
            forced: self.forced.address,
            tiles: self.tiles,
        }
    }
}

/// All scores of every row, end to end; of the selected words where a row has a selection.
pub(crate) fn logits(
    device: &Arc<Device>,
    x: &Rows,
    output: &Output,
    selections: &[Option<&Selection>],
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    let all = output.linear.outputs;
    let scores = Buffer::new(device, 4 * bucket(x.count) * all)?;
    let target = Target {
        out: scores.address,
        stride: all,
        activation: Activation::Identity,
        input: 0,
        exact: true,
        bias: true,
    };
    output.linear.multiply_to(device, x, &target)?;
    let mut whole = vec![0.0; x.count * all];
    device.download(scores.address, &mut whole)?;
    out.clear();
    for (row, selection) in whole.chunks(all.max(1)).zip(selections) {
        match selection {
            None => out.extend_from_slice(row),
            Some(selection) => out.extend(selection.words.iter().map(|&w| row[w as usize])),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_little_room_to_spare() {
        let rooms: Vec<usize> = [0, 1, 3, 5, 8, 9, 12, 18, 2000].map(room_for).to_vec();
        assert_eq!(rooms, [1, 1, 4, 8, 8, 12, 12, 20, 2000]);
    }
}
