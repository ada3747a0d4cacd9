//! The verbs on a GPU.

use std::sync::{Arc, Mutex, PoisonError};

use peregrine_model::{Activation, CellKind, Weight};
use peregrine_nn::{
    Attention, Backend, Choices, Dense, Embed, Epilogue, Fault, Moves, NormWeights, Of,
    PastExtension, PositionTable, PreparedOp, Question, Reads, RunAhead, Source, Term, Terms,
};

use crate::Error;
use crate::device::{Beside, Device, Normed, Parties, Properties, Segment, Stored, bucket};
use crate::driver::Address;
use crate::kernel::{self, Kernel};
use crate::logits::OutputLayer;
use crate::memory::{Buffer, Cache, FEW_ROWS, FOLLOWS, NONE, Rows, stride};
use crate::output::{self, Asking, Output, Pending, Selection};
use crate::past::Past;
use crate::precision::GpuPrecision;
use crate::product::{self, Linear, Target};

/// Head widths kernels can do.
const WIDEST_HEAD: usize = 256;
/// Warps of a block that attends.
const ATTEND_WARPS: usize = 4;
/// The same where the keys of a recurrent network are looked at.
const ALIGN_WARPS: usize = 8;

/// A GPU. Every thread has a queue of its own there.
#[derive(Clone)]
pub struct Cuda {
    device: Arc<Device>,
    output_layer: OutputLayer,
    in_turn: bool,
}

/// An embedding table.
pub struct Table {
    buffer: Buffer,
    words: usize,
    width: usize,
    /// Position vectors that were added to its rows, the longest last. Shorter ones stay, since work that is
    /// under way may read them.
    positions: Mutex<Vec<Positions>>,
}

/// The first vectors of a [`PositionTable`].
struct Positions {
    /// Of the table.
    identity: u64,
    buffer: Buffer,
    rows: usize,
}

impl Table {
    /// Where the vectors of these positions are on the device.
    fn position_vectors(
        &self,
        device: &Arc<Device>,
        table: &PositionTable,
        at: &[u32],
    ) -> Result<Address, Error> {
        /// Vectors computed at a time, at least.
        const FIRST: usize = 256;
        let needed = at.iter().max().map_or(0, |&most| most as usize + 1);
        let mut known = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let long_enough =
            |known: &&Positions| known.identity == table.identity() && known.rows >= needed;
        if let Some(positions) = known.iter().rfind(long_enough) {
            return Ok(positions.buffer.address);
        }
        // Kernels do not look where the vectors end.
        if needed > table.limit() || table.width() != self.width {
            let text = format!(
                "{needed} positions of {} columns (the model has {}, of {} columns)",
                self.width,
                table.limit(),
                table.width(),
            );
            return Err(Error::Unsupported(text));
        }
        let rows = needed.next_power_of_two().max(FIRST).min(table.limit());
        let mut values = Vec::with_capacity(rows * self.width);
        (0..rows).for_each(|row| values.extend_from_slice(table.row(row)));
        let buffer = Buffer::of_floats(device, &values)?;
        device.finish()?;
        let address = buffer.address;
        known.push(Positions { identity: table.identity(), buffer, rows });
        Ok(address)
    }
}

/// A norm.
pub struct Norm {
    scale: Buffer,
    bias: Option<Buffer>,
    width: usize,
    epsilon: f32,
    centred: bool,
}

impl Norm {
    fn parameters(&self) -> kernel::Norm {
        kernel::Norm {
            scale: self.scale.address,
            bias: self.bias.as_ref().map_or(0, |bias| bias.address),
            epsilon: self.epsilon,
            centred: self.centred.into(),
        }
    }
}

/// Attention weights, where their lists stand.
#[derive(Default)]
pub struct Weights {
    buffer: Option<Buffer>,
    count: usize,
}

impl Cuda {
    /// GPU `number`, computing with these numbers.
    pub fn open(number: usize, numbers: GpuPrecision) -> Result<Cuda, Error> {
        Ok(Cuda::on(Device::open(number, numbers)?))
    }

    pub(crate) fn on(device: Device) -> Cuda {
        let (device, output_layer) = (Arc::new(device), OutputLayer::default());
        Cuda { device, output_layer, in_turn: false }
    }

    /// The same with another way to find the best words.
    pub fn with_output_layer(self, output_layer: OutputLayer) -> Cuda {
        Cuda { output_layer, ..self }
    }

    /// The same, doing nothing beside other work: everything in turn.
    pub fn in_turn(self, in_turn: bool) -> Cuda {
        Cuda { in_turn, ..self }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Ends all work of this thread. What it prepared, other threads may use from here on.
    pub fn finish(&self) -> Result<(), Error> {
        self.device.finish()
    }

    /// What is computed with.
    pub fn numbers(&self) -> GpuPrecision {
        self.device.numbers
    }

    /// What the GPU is.
    pub fn properties(&self) -> &Properties {
        &self.device.properties
    }

    /// `out = norm(x + input)`.
    fn norm(
        &self,
        x: Address,
        input: Address,
        out: Address,
        (norm, rows, width, stride): (&Norm, usize, usize, usize),
    ) -> Result<(), Error> {
        // Whole rows stay in registers.
        let eight = 8 * self.device.numbers.row_size() as Address;
        let aligned = (x | input | out).is_multiple_of(eight);
        let kernel = match width {
            _ if !aligned || !width.is_multiple_of(8) => kernel::add_norm_any,
            0..=512 => kernel::add_norm_512,
            513..=2048 => kernel::add_norm_2048,
            _ => kernel::add_norm_any,
        };
        self.device.record(|segment| {
            let (norm, count) = (norm.parameters(), segment.count(rows)?);
            let parameters = kernel::AddNorm { x, input, out, stride, norm, width, count };
            segment.launch_rows(kernel, rows, &parameters)?;
            if input == 0 && x != out {
                segment.just_normed(Normed { raw: x, out, rows, width, norm });
            }
            Ok(())
        })
    }

    /// `y = x + input`.
    fn add(&self, x: Address, input: Address, y: &Rows) -> Result<(), Error> {
        self.device.record(|segment| {
            let parameters = kernel::AddRows {
                x,
                input,
                out: y.address(),
                stride: y.stride(),
                width: y.width,
                count: segment.count(y.count)?,
            };
            segment.launch_columns(kernel::add_rows, y.count, y.width, &parameters)
        })
    }

    fn element(
        &self,
        kind: usize,
        y: &Rows,
        [p, q, r]: [Address; 3],
        [a, b]: [f32; 2],
    ) -> Result<(), Error> {
        self.device.record(|segment| {
            let parameters = kernel::Element {
                kind,
                y: y.address(),
                p,
                q,
                r,
                a,
                b,
                stride: y.stride(),
                width: y.width,
                count: segment.count(y.count)?,
            };
            segment.launch_columns(kernel::element, y.count, y.width, &parameters)
        })
    }

    /// Applies ops to `y`. `from` is where their argument is if it is not there yet: the first op
    /// takes it from there.
    fn apply(
        &self,
        mut from: Option<Address>,
        ops: &[PreparedOp<Cuda>],
        input: Option<&Rows>,
        y: &mut Rows,
    ) -> Result<(), Error> {
        let mut ops = ops;
        let (rows, width, stride) = (y.count, y.width, y.stride());
        while !ops.is_empty() || from.is_some() {
            let x = from.take();
            let here = x.unwrap_or(y.address());
            ops = match (ops, input) {
                ([PreparedOp::Add, PreparedOp::Norm(norm), rest @ ..], Some(input)) => {
                    let whole = (norm, rows, width, stride);
                    self.norm(here, input.address(), y.address(), whole)?;
                    rest
                }
                ([PreparedOp::Add, rest @ ..], Some(input)) => {
                    self.add(here, input.address(), y)?;
                    rest
                }
                ([PreparedOp::Norm(norm), rest @ ..], _) => {
                    self.norm(here, 0, y.address(), (norm, rows, width, stride))?;
                    rest
                }
                (_, _) if x.is_some() => {
                    self.add(here, 0, y)?;
                    ops
                }
                ([PreparedOp::Norms(norms), rest @ ..], _) => {
                    let mut offset = 0;
                    for norm in norms {
                        let size = self.device.numbers.row_size();
                        let group = y.address() + (offset * size) as Address;
                        self.norm(group, 0, group, (norm, rows, norm.width, stride))?;
                        offset += norm.width;
                    }
                    rest
                }
                ([PreparedOp::Tanh, rest @ ..], _) => {
                    self.element(0, y, [0; 3], [0.0; 2])?;
                    rest
                }
                ([PreparedOp::Clamp { least, most }, rest @ ..], _) => {
                    self.element(1, y, [0; 3], [*least, *most])?;
                    rest
                }
                ([PreparedOp::Highway(linear), rest @ ..], Some(input)) => {
                    let mut gate = Rows::default();
                    self.multiply(input, linear, (Activation::Sigmoid, None), None, &mut gate)?;
                    self.element(2, y, [gate.address(), input.address(), 0], [0.0; 2])?;
                    rest
                }
                ([PreparedOp::Add | PreparedOp::Highway(_), rest @ ..], None) => {
                    debug_assert!(false, "an op has no input");
                    rest
                }
                ([], _) => &[],
            };
        }
        Ok(())
    }

    /// A product for `out`, which goes to `elsewhere` if that is given.
    fn multiply(
        &self,
        x: &Rows,
        linear: &Linear,
        (activation, input): (Activation, Option<&Rows>),
        elsewhere: Option<Address>,
        out: &mut Rows,
    ) -> Result<(), Error> {
        out.shape(&self.device, x.count, linear.outputs)?;
        let target = Target {
            out: elsewhere.unwrap_or(out.address()),
            stride: out.stride(),
            activation,
            input: input.map_or(0, Rows::address),
            exact: false,
            bias: true,
        };
        linear.multiply_to(&self.device, x, &target)
    }

    /// The kernel that serves such parties, if there is one.
    fn tiles(&self, to: &Attention<'_, Cuda>, parties: Parties) -> Option<Kernel<kernel::Attend>> {
        if self.numbers().row_size() != 2 {
            return None;
        }
        Some(match (to.width / to.heads, parties.large) {
            (32, false) => kernel::attend_few_32,
            (32, true) => kernel::attend_tile_32,
            (64, false) => kernel::attend_few_64,
            (64, true) => kernel::attend_tile_64,
            (128, false) => kernel::attend_few_128,
            (128, true) => kernel::attend_tile_128,
            _ => return None,
        })
    }

    fn moved(
        &self,
        (from, from_at): (&Rows, Option<&[u32]>),
        (to, to_at, column): (&Rows, Option<&[u32]>, usize),
        count: usize,
    ) -> Result<(), Error> {
        self.device.record(|segment| {
            let mut staged = |at: Option<&[u32]>| at.map_or(Ok(0), |at| segment.stage(at));
            let (from_at, to_at) = (staged(from_at)?, staged(to_at)?);
            let parameters = kernel::MoveRows {
                from: from.address(),
                from_stride: from.stride(),
                from_at,
                to: to.address(),
                to_stride: to.stride(),
                to_at,
                first: column,
                width: from.width,
                count: segment.count(count)?,
            };
            segment.launch_columns(kernel::move_rows, count, from.width, &parameters)
        })
    }

    fn gathered(
        &self,
        rows: &Rows,
        reads: &Reads,
        weights: Address,
        out: &mut Rows,
    ) -> Result<(), Error> {
        out.shape(&self.device, reads.len(), rows.width)?;
        self.device.record(|segment| {
            let staged = segment.reads(reads)?;
            let parameters = kernel::GatherSum {
                rows: rows.address(),
                stride: rows.stride(),
                spans: staged.spans,
                list: staged.list,
                weights,
                out: out.address(),
                out_stride: out.stride(),
                width: rows.width,
                count: segment.count(reads.len())?,
            };
            segment.launch_columns(kernel::gather_sum, reads.len(), rows.width, &parameters)
        })
    }
}

/// How warps share heads.
struct Teams {
    kernel: Kernel<kernel::Attend>,
    /// Lanes that share a head,
    team: usize,
    /// which is so wide.
    size: usize,
    /// Heads a block has.
    heads: usize,
}

fn teams(to: &Attention<'_, Cuda>) -> Result<Teams, Error> {
    let size = to.width / to.heads;
    if size > WIDEST_HEAD {
        let text = format!("attention heads of {size} columns (at most {WIDEST_HEAD})");
        return Err(Error::Unsupported(text));
    }
    let lanes = size.div_ceil(8).next_power_of_two();
    let (kernel, team, heads) = match size {
        _ if size != 8 * lanes => (kernel::attend, lanes, ATTEND_WARPS),
        0..64 => (kernel::attend_wide_1, lanes, 32 / lanes),
        _ => (kernel::attend_wide_2, lanes / 2, 64 / lanes),
    };
    Ok(Teams { kernel, team, size, heads })
}

/// Verbs have no way to fail; what a GPU can do to them ends the worker, and whoever runs it gets
/// the reason.
fn done<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        let out_of_memory = error == Error::OutOfMemory;
        std::panic::resume_unwind(Box::new(Fault { reason: error.to_string(), out_of_memory }))
    })
}

impl Backend for Cuda {
    type Rows = Rows;
    type Cache = Cache;
    type Linear = Linear;
    type Table = Table;
    type Norm = Norm;
    type Output = Output;
    type Selection = Selection;
    type Weights = Weights;
    type Pending = Pending;

    type Past = Past;

    type SideWork = Beside;

    fn abandon(&self) {
        done(self.device.abandon());
    }

    fn has_side_stream(&self) -> bool {
        !self.in_turn
    }

    fn on_side_stream(&self, work: impl FnOnce()) -> Beside {
        if self.in_turn {
            work();
            return Beside::default();
        }
        done(self.device.beside(work))
    }

    fn join(&self, beside: &Beside) {
        done(self.device.join(beside));
    }

    /// The papers' output layers leave no lists for a race.
    fn run_ahead(&self) -> RunAhead {
        match self.output_layer {
            OutputLayer::Epilogue => RunAhead::Beams,
            _ => RunAhead::Greedy,
        }
    }

    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Linear {
        done(Linear::prepare(&self.device, self.numbers(), parts))
    }

    fn prepare_source_linear(&self, parts: &[Dense<'_>]) -> Linear {
        done(Linear::prepare(&self.device, self.numbers().for_source(), parts))
    }

    fn prepare_table(&self, table: &Weight) -> Table {
        let buffer = done(Buffer::of_floats(&self.device, &table.to_f32()));
        let (words, width) = (table.rows(), table.columns());
        Table { buffer, words, width, positions: Mutex::default() }
    }

    fn prepare_norm(&self, norm: NormWeights<'_>) -> Norm {
        let upload = |weight: &Weight| done(Buffer::of_floats(&self.device, &weight.to_f32()));
        Norm {
            width: norm.scale.elements(),
            scale: upload(norm.scale),
            bias: norm.bias.map(upload),
            epsilon: norm.epsilon,
            centred: norm.centred,
        }
    }

    fn prepare_output(&self, layer: Dense<'_>) -> Output {
        Output { linear: self.prepare_linear(&[layer]) }
    }

    fn select(&self, output: &Output, words: &[u32]) -> Selection {
        done(output.select(&self.device, words))
    }

    fn rows(&self) -> Rows {
        Rows::default()
    }

    fn width(&self, rows: &Rows) -> usize {
        rows.width
    }

    fn reserve(&self, states: &mut Rows, rows: usize, width: usize) {
        done(states.reserve(&self.device, rows, width));
    }

    fn weights(&self) -> Weights {
        Weights::default()
    }

    fn read_weights(&self, weights: &Weights, out: &mut Vec<f32>) {
        out.clear();
        let Some(buffer) = &weights.buffer else { return };
        let answer = done(self.device.record(|segment| {
            let answer = segment.answer(weights.count)?;
            let (from, to, words) = (buffer.address, answer.address, weights.count as u64);
            let grid = [weights.count.div_ceil(256).max(1), 1];
            let parameters = kernel::CopyWords { from, to, words };
            segment.launch(kernel::copy_words, grid, 256, 0, &parameters)?;
            Ok(answer)
        }));
        let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
        let sent = done(self.device.send(answer));
        done(self.device.read(sent, weights.count, read));
        done(self.device.reuse_answer(sent));
    }

    fn cache(&self) -> Cache {
        Cache::default()
    }

    fn reserve_cache(&self, cache: &mut Cache, positions: usize, width: usize, _heads: usize) {
        done(cache.reserve(&self.device, positions, width));
    }

    /// A pass through a network begins with an embedding: here one recorded segment ends.
    fn embed(&self, table: &Table, request: Embed<'_>, out: &mut Rows) {
        let count = request.ids.len();
        done(self.device.new_segment(request.follows.iter().any(Option::is_some)));
        done(out.shape(&self.device, count, table.width));
        let positions = request.positions.map_or(0, |positions| {
            done(table.position_vectors(&self.device, positions, request.at))
        });
        let follows = request.follows.iter().copied().chain(std::iter::repeat(None));
        let id = |(id, follows): (&Option<u32>, Option<u32>)| match follows {
            Some(row) => FOLLOWS | row,
            None => id.unwrap_or(NONE),
        };
        let ids: Vec<u32> = request.ids.iter().zip(follows).map(id).collect();
        done(self.device.record(|segment| {
            let words = kernel::Embedding {
                out: out.address(),
                stride: out.stride(),
                table: table.buffer.address,
                words: table.words,
                width: table.width,
                ids: segment.stage(&ids)?,
                latest: segment.followed().0,
                positions,
                at: segment.stage(request.at)?,
                scale: request.scale,
                count: segment.count(count)?,
            };
            segment.launch_columns(kernel::embed, count, table.width, &words)?;
            segment.just_embedded(count, words);
            Ok(())
        }));
    }

    fn linear(&self, x: &Rows, linear: &Linear, after: Epilogue<'_, Cuda>, out: &mut Rows) {
        // A sum that follows belongs to the product; a norm needs whole rows and comes after it. Where
        // the product after that may do it, it is not done in place: see `few_normed` in the kernels.
        let (input, ops) = match (after.ops, after.input) {
            ([PreparedOp::Add, rest @ ..], Some(input)) => (Some(input), rest),
            (ops, _) => (None, ops),
        };
        let raw = match ops {
            [PreparedOp::Norm(norm), ..] if product::norms(&self.device, x.count, norm.width) => {
                let bytes = FEW_ROWS * stride(linear.outputs) * self.device.numbers.row_size();
                Some(done(self.device.record(|segment| segment.raw(bytes))))
            }
            _ => None,
        };
        done(self.multiply(x, linear, (after.activation, input), raw, out));
        done(self.apply(raw, ops, after.input, out));
    }

    fn process(&self, x: &Rows, ops: &[PreparedOp<Cuda>], input: Option<&Rows>, out: &mut Rows) {
        done(out.shape(&self.device, x.count, x.width));
        done(self.apply(Some(x.address()), ops, input, out));
    }

    fn extend_past(&self, step: PastExtension<'_>, past: &mut Past) {
        done(past.grow(&self.device, step));
    }

    fn store(&self, x: &Rows, key_column: usize, at: &[u32], cache: &mut Cache) {
        let width = (x.width - key_column) / 2;
        done(self.device.record(|segment| {
            let places = segment.stage(at)?;
            let parameters = kernel::Store {
                x: x.address(),
                x_stride: x.stride(),
                key_column,
                at: places,
                keys: cache.keys.address(),
                values: cache.values.address(),
                stride: stride(width),
                width,
                count: segment.count(at.len())?,
            };
            segment.launch_rows(kernel::store, at.len(), &parameters)?;
            let (rows, keys) = (x.address(), cache.keys.address());
            let at = at.to_vec();
            segment.just_stored(Stored { rows, keys, key_column, at, staged_at: places });
            Ok(())
        }));
    }

    fn attend(&self, queries: &Rows, to: Attention<'_, Cuda>, out: &mut Rows) {
        let count = to.reads.len();
        done(out.shape(&self.device, count, to.width));
        let teams = done(teams(&to));
        done(self.device.record(|segment| {
            let staged = segment.reads(to.reads)?;
            let party =
                staged.parties.and_then(|parties| Some((parties, self.tiles(&to, parties)?)));
            // A step of a decoder: of what was just stored each row reads its own, and last. Then
            // one kernel can store and attend.
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
                let grid = grid(single, teams.heads);
                segment.launch(teams.kernel, grid, 32 * ATTEND_WARPS, 0, &parameters)?;
            }
            if let Some((parties, kernel)) = party {
                parameters.parties = parties.address;
                let grid = grid(parties.count, ATTEND_WARPS);
                segment.launch(kernel, grid, 32 * ATTEND_WARPS, 0, &parameters)?;
            }
            Ok(())
        }));
    }

    fn attention_weights(
        &self,
        queries: &Rows,
        to: Attention<'_, Cuda>,
        heads: usize,
        out: &mut Vec<f32>,
    ) {
        let lanes = (to.width / to.heads).div_ceil(8).next_power_of_two();
        let Teams { size, .. } = done(teams(&to));
        let mut starts = Vec::with_capacity(to.reads.len());
        let (mut total, mut longest) = (0, 0);
        for row in 0..to.reads.len() {
            let length = to.reads.of(row).len();
            starts.push(total as u32);
            total += length;
            longest = longest.max(length);
        }
        // A row's scores are in a block's shared memory, unless they are too many for that.
        let in_block = 4 * bucket(longest) <= self.device.most_shared();
        let shared = if in_block { 4 * bucket(longest) } else { 0 };
        let scratch = (!in_block).then(|| done(Buffer::new(&self.device, 4 * bucket(total))));
        let answer = done(self.device.record(|segment| {
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
            segment.launch(kernel::attention_weights, grid, threads, shared, &parameters)?;
            Ok(answer)
        }));
        out.clear();
        let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
        let sent = done(self.device.send(answer));
        done(self.device.read(sent, total, read));
        done(self.device.reuse_answer(sent));
    }

    fn average(
        &self,
        x: &Rows,
        moves: Moves<'_>,
        before: &[u32],
        state: &mut Rows,
        out: &mut Rows,
    ) {
        done(out.shape(&self.device, x.count, x.width));
        done(self.device.record(|segment| {
            let parameters = kernel::Average {
                x: x.address(),
                out: out.address(),
                stride: out.stride(),
                state: state.address(),
                sources: sources(segment, moves)?,
                to: segment.stage(moves.to)?,
                before: segment.stage(before)?,
                width: x.width,
                count: segment.count(x.count)?,
            };
            segment.launch_columns(kernel::average, x.count, x.width, &parameters)
        }));
    }

    fn ssru(
        &self,
        candidate: &Rows,
        forget: &Rows,
        moves: Moves<'_>,
        state: &mut Rows,
        out: &mut Rows,
    ) {
        done(out.shape(&self.device, candidate.count, candidate.width));
        done(self.device.record(|segment| {
            let parameters = kernel::Ssru {
                candidate: candidate.address(),
                forget: forget.address(),
                out: out.address(),
                stride: out.stride(),
                state: state.address(),
                sources: sources(segment, moves)?,
                to: segment.stage(moves.to)?,
                width: out.width,
                count: segment.count(out.count)?,
            };
            segment.launch_columns(kernel::ssru, out.count, out.width, &parameters)
        }));
    }

    fn mix(&self, a: &Rows, x: &Rows, b: &Rows, y: &mut Rows) {
        done(self.element(3, y, [a.address(), x.address(), b.address()], [0.0; 2]));
    }

    fn load(&self, state: &Rows, moves: Moves<'_>, out: &mut Rows) {
        let count = moves.from.len();
        done(out.shape(&self.device, count, state.width));
        done(self.device.record(|segment| {
            let parameters = kernel::LoadStates {
                state: state.address(),
                stride: state.stride(),
                sources: sources(segment, moves)?,
                out: out.address(),
                width: state.width,
                count: segment.count(count)?,
            };
            segment.launch_columns(kernel::load_states, count, state.width, &parameters)
        }));
    }

    fn gather(&self, rows: &Rows, at: &[u32], out: &mut Rows) {
        done(out.shape(&self.device, at.len(), rows.width));
        done(self.moved((rows, Some(at)), (out, None, 0), at.len()));
    }

    fn scatter(&self, x: &Rows, at: &[u32], column: usize, out: &mut Rows) {
        done(self.moved((x, None), (out, Some(at), column), at.len()));
    }

    fn resize(&self, rows: &mut Rows, count: usize, width: usize) {
        done(rows.resize(&self.device, count, width));
    }

    fn mean(&self, rows: &Rows, reads: &Reads, out: &mut Rows) {
        done(self.gathered(rows, reads, 0, out));
    }

    fn recur(&self, kind: CellKind, terms: Terms<'_, Cuda>, h: &mut Rows, c: Option<&mut Rows>) {
        let kind = match kind {
            CellKind::Gru | CellKind::Mgru => 0,
            CellKind::Lstm | CellKind::Mlstm => 1,
            CellKind::Tanh => 2,
            CellKind::Relu => 3,
            CellKind::Sru => 4,
            CellKind::Ssru => 5,
        };
        done(self.device.record(|segment| {
            let mut term = |term: &Option<Term<'_, Cuda>>| {
                let Some(term) = term else { return Ok((0, 0, 0, 0)) };
                let (at, one) = match term.of {
                    Of::Same => (0, 0),
                    Of::At(at) => (segment.stage(at)?, 0),
                    Of::First => (0, 1),
                };
                Ok((term.rows.address(), term.rows.stride(), at, one))
            };
            let (x, x_stride, x_at, x_one) = term(&terms.x)?;
            let (s, s_stride, s_at, s_one) = term(&terms.s)?;
            let (raw, raw_stride, raw_at, _) = term(&terms.raw)?;
            let parameters = kernel::Recur {
                kind,
                h: h.address(),
                c: c.map_or(0, |c| c.address()),
                stride: h.stride(),
                d: h.width,
                x,
                x_stride,
                x_at,
                x_one,
                s,
                s_stride,
                s_at,
                s_one,
                raw,
                raw_stride,
                raw_at,
                count: segment.count(h.count)?,
            };
            segment.launch_columns(kernel::recur, h.count, h.width, &parameters)
        }));
    }

    fn modulate(&self, a: Term<'_, Cuda>, s: Term<'_, Cuda>, h: &mut Rows) {
        done(self.device.record(|segment| {
            let mut at = |term: &Term<'_, Cuda>| match term.of {
                Of::At(at) => segment.stage(at),
                Of::Same | Of::First => Ok(0),
            };
            let (a_at, s_at) = (at(&a)?, at(&s)?);
            let parameters = kernel::Modulate {
                h: h.address(),
                stride: h.stride(),
                width: h.width,
                a: a.rows.address(),
                a_stride: a.rows.stride(),
                a_at,
                s: s.rows.address(),
                s_stride: s.rows.stride(),
                s_at,
                count: segment.count(h.count)?,
            };
            segment.launch_columns(kernel::modulate, h.count, h.width, &parameters)
        }));
    }

    fn align(
        &self,
        queries: &Rows,
        keys: &Rows,
        reads: &Reads,
        energy: Option<&Rows>,
        weights: &mut Weights,
    ) {
        let count = reads.positions().len();
        let enough = weights.buffer.as_ref().is_some_and(|buffer| buffer.bytes >= 4 * count);
        if !enough {
            weights.buffer = None;
            weights.buffer = Some(done(Buffer::new(&self.device, 4 * bucket(count))));
        }
        weights.count = count;
        let out = weights.buffer.as_ref().map_or(0, |buffer| buffer.address);
        done(self.device.record(|segment| {
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
        }));
    }

    fn weigh(&self, weights: &Weights, reads: &Reads, values: &Rows, out: &mut Rows) {
        let address = weights.buffer.as_ref().map_or(0, |buffer| buffer.address);
        done(self.gathered(values, reads, address, out));
    }

    fn top_k(
        &self,
        x: &Rows,
        output: &Output,
        selections: &[Option<&Selection>],
        question: Question<'_>,
        pending: &mut Pending,
    ) {
        let (device, layer) = (&self.device, self.output_layer);
        done(Asking { device, layer, x, output, selections }.ask(question, pending));
    }

    fn take_top_k(&self, pending: &mut Pending, answer: &mut Choices) {
        done(pending.answer(&self.device, answer));
    }

    fn logits(
        &self,
        x: &Rows,
        output: &Output,
        selections: &[Option<&Selection>],
        out: &mut Vec<f32>,
    ) {
        done(output::logits(&self.device, x, output, selections, out));
    }
}

/// What states are read from.
fn sources(segment: &mut Segment<'_>, moves: Moves<'_>) -> Result<kernel::Sources, Error> {
    let from = |source: &Source| match *source {
        Source::Zero => NONE,
        Source::State(row) => row,
        Source::Place(place) => FOLLOWS | place,
    };
    let from: Vec<u32> = moves.from.iter().map(from).collect();
    let (_, parents) = segment.followed();
    Ok(kernel::Sources {
        from: segment.stage(&from)?,
        before: segment.stage(moves.before)?,
        parents,
    })
}
