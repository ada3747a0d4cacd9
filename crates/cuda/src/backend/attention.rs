//! Attention: of transformers, over a KV cache; and of recurrent networks, over the encoder's rows.

use std::sync::Arc;

use peregrine_nn::{Attention, Reads};

use super::Cuda;
use crate::Error;
use crate::device::{Device, Parties, Stored, bucket};
use crate::driver::Address;
use crate::kernel::{self, Kernel};
use crate::memory::{Buffer, Cache, Rows};

/// The widest head that kernels can do, in columns.
const WIDEST_HEAD: usize = 256;
/// Warps of a block of the attention kernels.
const ATTEND_WARPS: usize = 4;
/// Up to so many rows a block computes a head of a row, and not the whole row. Measured on an H200.
const MOST_ROWS_BY_HEAD: usize = 64;
/// From so many rows on a warp computes a row, and not a block. Measured on an H200.
const MANY_ROWS: usize = 1536;
/// Warps of a block of the kernel `align`.
const ALIGN_WARPS: usize = 8;

/// Attention weights, in the order of the lists of positions they belong to.
#[derive(Default)]
pub struct Weights {
    buffer: Option<Buffer>,
    count: usize,
}

impl Weights {
    pub(super) fn address(&self) -> Address {
        self.buffer.as_ref().map_or(0, |buffer| buffer.address)
    }

    /// Copies the weights to the host.
    pub(super) fn read(&self, device: &Arc<Device>, out: &mut Vec<f32>) -> Result<(), Error> {
        out.clear();
        let Some(buffer) = &self.buffer else { return Ok(()) };
        let answer = device.record(|segment| {
            let answer = segment.answer(self.count)?;
            let (from, to, words) = (buffer.address, answer.address, self.count as u64);
            let grid = [self.count.div_ceil(256).max(1), 1];
            let parameters = kernel::CopyWords { from, to, words };
            segment.launch(kernel::copy_words, grid, 256, 0, &parameters)?;
            Ok(answer)
        })?;
        let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
        let sent = device.send(answer)?;
        device.read(sent, self.count, read)?;
        device.reuse_answer(sent)
    }
}

/// Stores keys and values in the KV cache, at the positions `at`.
pub(super) fn store(
    device: &Device,
    x: &Rows,
    key_column: usize,
    at: &[u32],
    cache: &Cache,
) -> Result<(), Error> {
    let width = (x.width - key_column) / 2;
    device.record(|segment| {
        let places = segment.stage(at)?;
        let parameters = kernel::Store {
            x: x.address(),
            x_stride: x.stride(),
            key_column,
            at: places,
            keys: cache.keys.address(),
            values: cache.values.address(),
            stride: cache.keys.stride(),
            width,
            count: segment.count(at.len())?,
        };
        let kernel = if cache.fp8 { kernel::store_fp8 } else { kernel::store };
        segment.launch_rows(kernel, at.len(), &parameters)?;
        let (rows, keys) = (x.address(), cache.keys.address());
        let at = at.to_vec();
        segment.just_stored(Stored { rows, keys, key_column, at, staged_at: places });
        Ok(())
    })
}

/// Attention over a KV cache.
pub(super) fn attend(
    device: &Arc<Device>,
    queries: &Rows,
    to: &Attention<'_, Cuda>,
    out: &mut Rows,
) -> Result<(), Error> {
    let count = to.reads.len();
    out.shape(device, count, to.width)?;
    let teams = teams(to)?;
    device.record(|segment| {
        let staged = segment.reads(to.reads)?;
        let party =
            staged.parties.and_then(|parties| Some((parties, tile_kernel(device, to, parties)?)));
        // In a step of a decoder each row reads, last of all, the position it has just stored. Then one
        // kernel stores and attends.
        let own = segment.take_stored(to.reads, |stored| {
            let (rows, keys) = (queries.address(), to.cache.keys.address());
            party.is_none()
                && (stored.rows, stored.keys, stored.key_column) == (rows, keys, to.width)
        });
        let mut parameters = kernel::Attend {
            queries: queries.address(),
            keys: to.cache.keys.address(),
            values: to.cache.values.address(),
            at: own.unwrap_or(0),
            spans: staged.spans,
            lists: staged.list,
            out: out.address(),
            count: segment.count(count)?,
            query_stride: queries.stride(),
            stride: to.cache.keys.stride(),
            width: to.width,
            size: teams.size,
            team: teams.team,
            heads: to.heads,
            out_stride: out.stride(),
            early: (!segment.has_stored(to.cache.keys.address())).into(),
            parties: 0,
            rows: 0,
        };
        let grid = |blocks, heads| [bucket(blocks), to.heads.div_ceil(heads)];
        let single = match party {
            Some((parties, _)) => parties.single,
            None => Some((0, count)),
        };
        if let Some((rows, single)) = single {
            (parameters.rows, parameters.count) = (rows, segment.count(single)?);
            let (kernel, grid) = match (head_kernel(device, to), teams.by_warp) {
                (Some(kernel), _) if single <= MOST_ROWS_BY_HEAD => (kernel, grid(single, 1)),
                (_, Some(kernel)) if single >= MANY_ROWS => {
                    (kernel, grid(single.div_ceil(ATTEND_WARPS), teams.heads))
                }
                _ => (teams.kernel, grid(single, teams.heads)),
            };
            segment.launch(kernel, grid, 32 * ATTEND_WARPS, 0, &parameters)?;
        }
        if let Some((parties, kernel)) = party {
            parameters.parties = parties.address;
            let grid = grid(parties.count, ATTEND_WARPS);
            segment.launch(kernel, grid, 32 * ATTEND_WARPS, 0, &parameters)?;
        }
        Ok(())
    })
}

/// The mean of the attention weights of the first `heads` heads, for alignments.
pub(super) fn attention_weights(
    device: &Arc<Device>,
    queries: &Rows,
    to: &Attention<'_, Cuda>,
    heads: usize,
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    let lanes = (to.width / to.heads).div_ceil(8).next_power_of_two();
    let Teams { size, .. } = teams(to)?;
    let mut starts = Vec::with_capacity(to.reads.len());
    let (mut total, mut longest) = (0, 0);
    for row in 0..to.reads.len() {
        let length = to.reads.of(row).len();
        starts.push(total as u32);
        total += length;
        longest = longest.max(length);
    }
    // The scores of a row are in shared memory, or in global memory if they do not fit.
    let in_block = 4 * bucket(longest) <= device.most_shared();
    let shared = if in_block { 4 * bucket(longest) } else { 0 };
    let scratch = (!in_block).then(|| Buffer::new(device, 4 * bucket(total))).transpose()?;
    let answer = device.record(|segment| {
        let staged = segment.reads(to.reads)?;
        let answer = segment.answer(total)?;
        let parameters = kernel::AttentionWeights {
            queries: queries.address(),
            query_stride: queries.stride(),
            keys: to.cache.keys.address(),
            stride: to.cache.keys.stride(),
            spans: staged.spans,
            lists: staged.list,
            starts: segment.stage(&starts)?,
            size,
            team: lanes,
            heads,
            scratch: scratch.as_ref().map_or(0, |scratch| scratch.address),
            out: answer.address,
            count: segment.count(starts.len())?,
        };
        let (grid, threads) = ([bucket(starts.len()), 1], 32 * ATTEND_WARPS);
        let kernel = match to.cache.fp8 {
            true => kernel::attention_weights_fp8,
            false => kernel::attention_weights,
        };
        segment.launch(kernel, grid, threads, shared, &parameters)?;
        Ok(answer)
    })?;
    out.clear();
    let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
    let sent = device.send(answer)?;
    device.read(sent, total, read)?;
    device.reuse_answer(sent)
}

/// The attention weights of a recurrent network.
pub(super) fn align(
    device: &Arc<Device>,
    queries: &Rows,
    keys: &Rows,
    reads: &Reads,
    energy: Option<&Rows>,
    weights: &mut Weights,
) -> Result<(), Error> {
    let count = reads.positions().len();
    let enough = weights.buffer.as_ref().is_some_and(|buffer| buffer.bytes >= 4 * count);
    if !enough {
        weights.buffer = None;
        weights.buffer = Some(Buffer::new(device, 4 * bucket(count))?);
    }
    weights.count = count;
    let out = weights.address();
    device.record(|segment| {
        let staged = segment.reads(reads)?;
        let parameters = kernel::Align {
            queries: queries.address(),
            query_stride: queries.stride(),
            keys: keys.address(),
            stride: keys.stride(),
            spans: staged.spans,
            lists: staged.list,
            energy: energy.map_or(0, Rows::address),
            width: queries.width,
            weights: out,
            count: segment.count(reads.len())?,
        };
        let grid = [bucket(reads.len()), 1];
        segment.launch(kernel::align, grid, 32 * ALIGN_WARPS, 0, &parameters)
    })
}

/// The tensor-core kernel for rows that share lists, if there is one for this width of heads.
fn tile_kernel(
    device: &Device,
    to: &Attention<'_, Cuda>,
    parties: Parties,
) -> Option<Kernel<kernel::Attend>> {
    if device.precision.row_size() != 2 {
        return None;
    }
    let (plain, fp8) = match (to.width / to.heads, parties.large) {
        (32, false) => (kernel::attend_few_32, kernel::attend_few_32_fp8),
        (32, true) => (kernel::attend_tile_32, kernel::attend_tile_32_fp8),
        (64, false) => (kernel::attend_few_64, kernel::attend_few_64_fp8),
        (64, true) => (kernel::attend_tile_64, kernel::attend_tile_64_fp8),
        (128, false) => (kernel::attend_few_128, kernel::attend_few_128_fp8),
        (128, true) => (kernel::attend_tile_128, kernel::attend_tile_128_fp8),
        _ => return None,
    };
    Some(if to.cache.fp8 { fp8 } else { plain })
}

/// The kernel with a block a head of a row, if there is one for this width of heads.
fn head_kernel(device: &Device, to: &Attention<'_, Cuda>) -> Option<Kernel<kernel::Attend>> {
    if device.precision.row_size() != 2 || to.cache.fp8 {
        return None;
    }
    match to.width / to.heads {
        32 => Some(kernel::attend_head_32),
        64 => Some(kernel::attend_head_64),
        128 => Some(kernel::attend_head_128),
        _ => None,
    }
}

/// How the lanes of warps share heads.
struct Teams {
    /// A block a row, and a warp a row.
    kernel: Kernel<kernel::Attend>,
    by_warp: Option<Kernel<kernel::Attend>>,
    /// Lanes that share a head.
    team: usize,
    /// Columns of a head.
    size: usize,
    /// Heads of a block.
    heads: usize,
}

fn teams(to: &Attention<'_, Cuda>) -> Result<Teams, Error> {
    let size = to.width / to.heads;
    if size > WIDEST_HEAD {
        let text = format!("attention heads of {size} columns (at most {WIDEST_HEAD})");
        return Err(Error::Unsupported(text));
    }
    let lanes = size.div_ceil(8).next_power_of_two();
    if size != 8 * lanes {
        let heads = ATTEND_WARPS;
        return Ok(Teams { kernel: kernel::attend, by_warp: None, team: lanes, size, heads });
    }
    let (team, heads) = if size < 64 { (lanes, 32 / lanes) } else { (lanes / 2, 64 / lanes) };
    let (kernel, by_warp) = match (size < 64, to.cache.fp8) {
        (true, false) => (kernel::attend_wide_1, kernel::attend_rows_1),
        (true, true) => (kernel::attend_wide_1_fp8, kernel::attend_rows_1_fp8),
        (false, false) => (kernel::attend_wide_2, kernel::attend_rows_2),
        (false, true) => (kernel::attend_wide_2_fp8, kernel::attend_rows_2_fp8),
    };
    Ok(Teams { kernel, by_warp: Some(by_warp), team, size, heads })
}
