//! Top k and log-sum-exp in the epilogue of the output layer's product: every block leaves the findings of a tile
//! of words, which one more kernel merges. Logits are never written.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::{RowRequest, TopKQuery};

use super::device_beam;
use super::layer::{Group, Selection, groups};
use super::query::{OutputCall, Pending, asked, room_for};
use crate::Error;
use crate::device::{Device, Segment, bucket};
use crate::driver::Address;
use crate::kernel;
use crate::memory::Buffer;
use crate::product::{
    LARGE_BYTES, MIDDLE_BEST_BYTES, PERSISTENT_BYTES, PERSISTENT_THREADS, PRODUCER, Target,
    persistent_grid,
};

/// Words of a tile, which a block searches.
const TILE: usize = 128;
/// Rows of a block of the kernels for few rows, all with the same shortlist.
const FEW_ROWS: usize = 16;

impl OutputCall<'_> {
    /// Bytes of shared memory for the candidates of all tiles of a row.
    pub(super) fn shared(self, request: &RowRequest<'_>, words: Option<&Selection>) -> usize {
        let tiles = bucket(self.tiles(words)).min(self.tiles(None));
        8 * tiles * if request.count == 0 { 0 } else { room_for(request.count) }
    }

    /// The tiles of a row's words.
    fn tiles(self, words: Option<&Selection>) -> usize {
        words.map_or(self.output.linear.outputs, |words| words.words.len()).div_ceil(TILE)
    }

    /// Runs a query in the epilogue of the product.
    pub(super) fn run_epilogue(
        self,
        query: TopKQuery<'_>,
        pending: &mut Pending,
    ) -> Result<(), Error> {
        let OutputCall { device, x, output, selections, .. } = self;
        let (requests, linear) = (query.requests, &output.linear);
        let all = linear.outputs;
        let groups = groups(selections);
        let tile_counts: Vec<usize> = selections.iter().map(|&words| self.tiles(words)).collect();
        let tiles = bucket(tile_counts.iter().copied().max().unwrap_or(0));
        let most = room_for(requests.iter().map(|request| request.count).max().unwrap_or(0));
        let rows = bucket(x.count);
        let found = Found::new(device, rows, tiles, most)?;
        let operand = linear.operand(device, x)?;
        let answer = device.record(|segment| {
            let count = segment.count(x.count)?;
            if requests.iter().any(|request| request.forced.is_some()) {
                let parameters = kernel::BeginBest { forced: found.forced.address, count };
                let grid = [rows.div_ceil(256), 1];
                segment.launch(kernel::begin_best, grid, 256, 0, &parameters)?;
            }
            let asked = asked(segment, query, most)?;
            let activation = Activation::Identity;
            let nowhere =
                Target { out: 0, stride: 0, activation, input: 0, exact: true, bias: true };
            let p = linear.product(segment, &operand, &nowhere, x.count)?;
            let best = kernel::WideBest { p, asked, found: found.lists() };
            let shared_words = matches!(groups.as_slice(), [Group { selection: None, .. }]);
            let wide = shared_words && rows > FEW_ROWS && device.precision.uses_tensor_cores();
            let all_tiles = all.div_ceil(TILE);
            if wide {
                let maps = linear.carried(device, &operand, TILE)?;
                let producer = maps.map_or(0, |_| PRODUCER);
                let (kernel, grid, threads, shared) = match rows {
                    0..=64 => {
                        (kernel::best_middle, [1, all_tiles], 128 + producer, MIDDLE_BEST_BYTES)
                    }
                    129.. if maps.is_some() => {
                        let grid = persistent_grid(device, rows, all);
                        (kernel::best_huge, grid, PERSISTENT_THREADS, PERSISTENT_BYTES)
                    }
                    _ => {
                        let grid = [rows.div_ceil(128), all_tiles];
                        (kernel::best_large, grid, 256 + producer, LARGE_BYTES)
                    }
                };
                segment.launch_mapped(kernel, grid, threads, shared, (&best, maps))?;
            } else {
                launch_tasks(segment, &groups, all, best)?;
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
                latest_scores: query.device_beams.map_or(0, |_| latest_scores),
                count,
            };
            let shared = requests
                .iter()
                .zip(selections)
                .map(|(request, &words)| self.shared(request, words));
            let shared = shared.max().unwrap_or(0);
            segment.launch(kernel::merge, [rows, 1], 128, shared, &merge)?;
            if let Some(device_beams) = query.device_beams {
                device_beam::record(
                    segment,
                    device_beams,
                    requests,
                    asked,
                    (latest, latest_scores),
                )?;
            }
            Ok(answer)
        })?;
        pending.send(device, answer, (rows, most), query)
    }
}

/// Records blocks of rows that share their shortlist, each with one tile of its words.
fn launch_tasks(
    segment: &mut Segment<'_>,
    groups: &[Group<'_>],
    all: usize,
    kernel::WideBest { p, asked, found }: kernel::WideBest,
) -> Result<(), Error> {
    let tensor = segment.precision().uses_tensor_cores();
    let few = groups.iter().all(|group| group.rows <= FEW_ROWS / 2);
    let (kernel, together, threads) = match (tensor, few) {
        (true, true) => (kernel::best_few, FEW_ROWS, 128),
        (true, false) => (kernel::best_narrow, FEW_ROWS, 128),
        (false, _) => (kernel::best_narrow, 64, 256),
    };
    let mut tasks = Vec::new();
    for group in groups {
        let columns = group.words(all);
        let words = group.address();
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

/// The findings of tiles: their top k, and maxima and sums of the log-sum-exp.
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
