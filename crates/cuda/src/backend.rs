//! The verbs on a GPU.

use std::sync::{Arc, Mutex, PoisonError};

use peregrine_model::{Activation, CellKind, Weight};
use peregrine_nn::{
    After, Ahead, Attention, Backend, Choices, Dense, Embed, Fault, Grow, Moves, NormWeights, Of,
    PositionTable, Question, Reads, Source, Step, Term, Terms,
};

use crate::Error;
use crate::device::{
    Arguments, Beside, Device, Normed, Parties, Properties, Segment, Stored, bucket,
};
use crate::driver::Address;
use crate::logits::{self, OutputLayer};
use crate::memory::{Buffer, Cache, FEW_ROWS, FOLLOWS, NONE, Rows, stride};
use crate::output::{self, Output, Pending, Selection};
use crate::past::Past;
use crate::precision::Numbers;
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
    /// The structure `Norm` of the kernels.
    fn push(&self, arguments: Arguments) -> Arguments {
        arguments
            .address(self.scale.address)
            .address(self.bias.as_ref().map_or(0, |bias| bias.address))
            .float(self.epsilon)
            .number(self.centred.into())
            .end()
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
    pub fn open(number: usize, numbers: Numbers) -> Result<Cuda, Error> {
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
    pub fn numbers(&self) -> Numbers {
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
            _ if !aligned || !width.is_multiple_of(8) => "add_norm_any",
            0..=512 => "add_norm_512",
            513..=2048 => "add_norm_2048",
            _ => "add_norm_any",
        };
        self.device.record(|segment| {
            let arguments =
                Arguments::default().address(x).address(input).address(out).number(stride);
            let arguments = norm.push(arguments).number(width).address(segment.count(rows)?);
            segment.launch_rows(kernel, rows, &arguments)?;
            if input == 0 && x != out {
                let norm = norm.push(Arguments::default());
                segment.just_normed(Normed { raw: x, out, rows, width, norm });
            }
            Ok(())
        })
    }

    /// `y = x + input`.
    fn add(&self, x: Address, input: Address, y: &Rows) -> Result<(), Error> {
        self.device.record(|segment| {
            let arguments = Arguments::default()
                .address(x)
                .address(input)
                .address(y.address())
                .number(y.stride())
                .number(y.width)
                .address(segment.count(y.count)?);
            segment.launch_columns("add_rows", y.count, y.width, &arguments)
        })
    }

    fn element(
        &self,
        kind: usize,
        y: &Rows,
        operands: [Address; 3],
        bounds: [f32; 2],
    ) -> Result<(), Error> {
        self.device.record(|segment| {
            let arguments = Arguments::default()
                .number(kind)
                .address(y.address())
                .address(operands[0])
                .address(operands[1])
                .address(operands[2])
                .float(bounds[0])
                .float(bounds[1])
                .number(y.stride())
                .number(y.width)
                .address(segment.count(y.count)?);
            segment.launch_columns("element", y.count, y.width, &arguments)
        })
    }

    /// Applies ops to `y`. `from` is where their argument is if it is not there yet: the first op
    /// takes it from there.
    fn apply(
        &self,
        mut from: Option<Address>,
        ops: &[Step<Cuda>],
        input: Option<&Rows>,
        y: &mut Rows,
    ) -> Result<(), Error> {
        let mut ops = ops;
        let (rows, width, stride) = (y.count, y.width, y.stride());
        while !ops.is_empty() || from.is_some() {
            let x = from.take();
            let here = x.unwrap_or(y.address());
            ops = match (ops, input) {
                ([Step::Add, Step::Norm(norm), rest @ ..], Some(input)) => {
                    let whole = (norm, rows, width, stride);
                    self.norm(here, input.address(), y.address(), whole)?;
                    rest
                }
                ([Step::Add, rest @ ..], Some(input)) => {
                    self.add(here, input.address(), y)?;
                    rest
                }
                ([Step::Norm(norm), rest @ ..], _) => {
                    self.norm(here, 0, y.address(), (norm, rows, width, stride))?;
                    rest
                }
                (_, _) if x.is_some() => {
                    self.add(here, 0, y)?;
                    ops
                }
                ([Step::Norms(norms), rest @ ..], _) => {
                    let mut offset = 0;
                    for norm in norms {
                        let size = self.device.numbers.row_size();
                        let group = y.address() + (offset * size) as Address;
                        self.norm(group, 0, group, (norm, rows, norm.width, stride))?;
                        offset += norm.width;
                    }
                    rest
                }
                ([Step::Tanh, rest @ ..], _) => {
                    self.element(0, y, [0; 3], [0.0; 2])?;
                    rest
                }
                ([Step::Clamp { least, most }, rest @ ..], _) => {
                    self.element(1, y, [0; 3], [*least, *most])?;
                    rest
                }
                ([Step::Highway(linear), rest @ ..], Some(input)) => {
                    let mut gate = Rows::default();
                    self.multiply(input, linear, (Activation::Sigmoid, None), None, &mut gate)?;
                    self.element(2, y, [gate.address(), input.address(), 0], [0.0; 2])?;
                    rest
                }
                ([Step::Add | Step::Highway(_), rest @ ..], None) => {
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
    fn tiles(&self, to: &Attention<'_, Cuda>, parties: Parties) -> Option<&'static str> {
        if self.numbers().row_size() != 2 {
            return None;
        }
        Some(match (to.width / to.heads, parties.large) {
            (32, false) => "attend_few_32",
            (32, true) => "attend_tile_32",
            (64, false) => "attend_few_64",
            (64, true) => "attend_tile_64",
            (128, false) => "attend_few_128",
            (128, true) => "attend_tile_128",
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
            let arguments = Arguments::default()
                .address(from.address())
                .number(from.stride())
                .address(from_at)
                .address(to.address())
                .number(to.stride())
                .address(to_at)
                .number(column)
                .number(from.width)
                .address(segment.count(count)?);
            segment.launch_columns("move_rows", count, from.width, &arguments)
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
            let arguments = Arguments::default()
                .address(rows.address())
                .number(rows.stride())
                .address(staged.spans)
                .address(staged.list)
                .address(weights)
                .address(out.address())
                .number(out.stride())
                .number(rows.width)
                .address(segment.count(reads.len())?);
            segment.launch_columns("gather_sum", reads.len(), rows.width, &arguments)
        })
    }
}

/// How warps share heads.
struct Teams {
    kernel: &'static str,
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
        _ if size != 8 * lanes => ("attend", lanes, ATTEND_WARPS),
        0..64 => ("attend_wide_1", lanes, 32 / lanes),
        _ => ("attend_wide_2", lanes / 2, 64 / lanes),
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

    type Beside = Beside;

    fn abandon(&self) {
        done(self.device.abandon());
    }

    fn works_beside(&self) -> bool {
        !self.in_turn
    }

    fn beside(&self, work: impl FnOnce()) -> Beside {
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
    fn ahead(&self) -> Ahead {
        match self.output_layer {
            OutputLayer::Epilogue => Ahead::Beams,
            _ => Ahead::Greedy,
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
            let arguments = Arguments::default()
                .address(buffer.address)
                .address(answer.address)
                .address(weights.count as Address);
            segment.launch("copy_words", [weights.count.div_ceil(256), 1], 256, 0, &arguments)?;
            Ok(answer)
        }));
        let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
        let sent = done(self.device.send(answer));
        done(self.device.read(sent, weights.count, read));
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
            let arguments = Arguments::default()
                .address(out.address())
                .number(out.stride())
                .address(table.buffer.address)
                .number(table.words)
                .number(table.width)
                .address(segment.stage(&ids)?)
                .address(segment.followed().0)
                .address(positions)
                .address(segment.stage(request.at)?)
                .float(request.scale)
                .address(segment.count(count)?);
            segment.launch_columns("embed", count, table.width, &arguments)?;
            segment.just_embedded(count);
            Ok(())
        }));
    }

    fn linear(&self, x: &Rows, linear: &Linear, after: After<'_, Cuda>, out: &mut Rows) {
        // A sum that follows belongs to the product; a norm needs whole rows and comes after it. Where
        // the product after that may do it, it is not done in place: see `few_normed` in the kernels.
        let (input, ops) = match (after.ops, after.input) {
            ([Step::Add, rest @ ..], Some(input)) => (Some(input), rest),
            (ops, _) => (None, ops),
        };
        let raw = match ops {
            [Step::Norm(norm), ..] if product::norms(&self.device, x.count, norm.width) => {
                let bytes = FEW_ROWS * stride(linear.outputs) * self.device.numbers.row_size();
                Some(done(self.device.record(|segment| segment.raw(bytes))))
            }
            _ => None,
        };
        done(self.multiply(x, linear, (after.activation, input), raw, out));
        done(self.apply(raw, ops, after.input, out));
    }

    fn process(&self, x: &Rows, ops: &[Step<Cuda>], input: Option<&Rows>, out: &mut Rows) {
        done(out.shape(&self.device, x.count, x.width));
        done(self.apply(Some(x.address()), ops, input, out));
    }

    fn grow(&self, step: Grow<'_>, past: &mut Past) {
        done(past.grow(&self.device, step));
    }

    fn store(&self, x: &Rows, key_column: usize, at: &[u32], cache: &mut Cache) {
        let width = (x.width - key_column) / 2;
        done(self.device.record(|segment| {
            let places = segment.stage(at)?;
            let arguments = Arguments::default()
                .address(x.address())
                .number(x.stride())
                .number(key_column)
                .address(places)
                .address(cache.keys.address())
                .address(cache.values.address())
                .number(stride(width))
                .number(width)
                .address(segment.count(at.len())?);
            segment.launch_rows("store", at.len(), &arguments)?;
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
            let arguments = Arguments::default()
                .address(queries.address())
                .address(to.cache.keys.address())
                .address(to.cache.values.address())
                .address(own.unwrap_or(0))
                .address(staged.spans)
                .address(staged.list)
                .address(out.address())
                .address(segment.count(count)?)
                .number(queries.stride())
                .number(to.cache.keys.stride())
                .number(to.width)
                .number(teams.size)
                .number(teams.team)
                .number(to.heads)
                .number(out.stride())
                .number((!segment.has_stored(to.cache.keys.address())).into())
                .address(party.map_or(0, |(parties, _)| parties.address))
                .end();
            let (kernel, blocks, heads) = match party {
                Some((parties, kernel)) => (kernel, parties.count, ATTEND_WARPS),
                None => (teams.kernel, count, teams.heads),
            };
            let grid = [bucket(blocks), to.heads.div_ceil(heads)];
            segment.launch(kernel, grid, 32 * ATTEND_WARPS, 0, &arguments)
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
        let mut total = 0;
        for row in 0..to.reads.len() {
            starts.push(total as u32);
            total += to.reads.of(row).len();
        }
        let answer = done(self.device.record(|segment| {
            let staged = segment.reads(to.reads)?;
            let answer = segment.answer(total)?;
            let arguments = Arguments::default()
                .address(queries.address())
                .number(queries.stride())
                .address(to.cache.keys.address())
                .number(to.cache.keys.stride())
                .address(staged.spans)
                .address(staged.list)
                .address(segment.stage(&starts)?)
                .number(size)
                .number(lanes)
                .number(heads)
                .address(answer.address)
                .address(segment.count(starts.len())?);
            let grid = [bucket(starts.len()), 1];
            let shared = 4 * staged.longest;
            segment.launch("attention_weights", grid, 32 * ATTEND_WARPS, shared, &arguments)?;
            Ok(answer)
        }));
        out.clear();
        let read = |words: &[u32]| out.extend(words.iter().map(|&word| f32::from_bits(word)));
        let sent = done(self.device.send(answer));
        done(self.device.read(sent, total, read));
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
            let arguments = Arguments::default()
                .address(x.address())
                .address(out.address())
                .number(out.stride())
                .address(state.address());
            let arguments = push_sources(arguments, segment, moves)?
                .address(segment.stage(moves.to)?)
                .address(segment.stage(before)?)
                .number(x.width)
                .address(segment.count(x.count)?);
            segment.launch_columns("average", x.count, x.width, &arguments)
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
            let arguments = Arguments::default()
                .address(candidate.address())
                .address(forget.address())
                .address(out.address())
                .number(out.stride())
                .address(state.address());
            let arguments = push_sources(arguments, segment, moves)?
                .address(segment.stage(moves.to)?)
                .number(out.width)
                .address(segment.count(out.count)?);
            segment.launch_columns("ssru", out.count, out.width, &arguments)
        }));
    }

    fn mix(&self, a: &Rows, x: &Rows, b: &Rows, y: &mut Rows) {
        done(self.element(3, y, [a.address(), x.address(), b.address()], [0.0; 2]));
    }

    fn load(&self, state: &Rows, moves: Moves<'_>, out: &mut Rows) {
        let count = moves.from.len();
        done(out.shape(&self.device, count, state.width));
        done(self.device.record(|segment| {
            let arguments = Arguments::default().address(state.address()).number(state.stride());
            let arguments = push_sources(arguments, segment, moves)?
                .address(out.address())
                .number(state.width)
                .address(segment.count(count)?);
            segment.launch_columns("load_states", count, state.width, &arguments)
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
        let code = match kind {
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
            let (x, s, raw) = (term(&terms.x)?, term(&terms.s)?, term(&terms.raw)?);
            let arguments = Arguments::default()
                .number(code)
                .address(h.address())
                .address(c.map_or(0, |c| c.address()))
                .number(h.stride())
                .number(h.width)
                .address(x.0)
                .number(x.1)
                .address(x.2)
                .number(x.3)
                .address(s.0)
                .number(s.1)
                .address(s.2)
                .number(s.3)
                .address(raw.0)
                .number(raw.1)
                .address(raw.2)
                .address(segment.count(h.count)?);
            segment.launch_columns("recur", h.count, h.width, &arguments)
        }));
    }

    fn modulate(&self, a: Term<'_, Cuda>, s: Term<'_, Cuda>, h: &mut Rows) {
        done(self.device.record(|segment| {
            let mut at = |term: &Term<'_, Cuda>| match term.of {
                Of::At(at) => segment.stage(at),
                Of::Same | Of::First => Ok(0),
            };
            let (a_at, s_at) = (at(&a)?, at(&s)?);
            let arguments = Arguments::default()
                .address(h.address())
                .number(h.stride())
                .number(h.width)
                .address(a.rows.address())
                .number(a.rows.stride())
                .address(a_at)
                .address(s.rows.address())
                .number(s.rows.stride())
                .address(s_at)
                .address(segment.count(h.count)?);
            segment.launch_columns("modulate", h.count, h.width, &arguments)
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
            let arguments = Arguments::default()
                .address(queries.address())
                .number(queries.stride())
                .address(keys.address())
                .number(keys.stride())
                .address(staged.spans)
                .address(staged.list)
                .address(energy.map_or(0, Rows::address))
                .number(queries.width)
                .address(out)
                .address(segment.count(reads.len())?);
            let grid = [bucket(reads.len()), 1];
            segment.launch("align", grid, 32 * ALIGN_WARPS, 0, &arguments)
        }));
    }

    fn weigh(&self, weights: &Weights, reads: &Reads, values: &Rows, out: &mut Rows) {
        let address = weights.buffer.as_ref().map_or(0, |buffer| buffer.address);
        done(self.gathered(values, reads, address, out));
    }

    fn ask(
        &self,
        x: &Rows,
        output: &Output,
        selections: &[Option<&Selection>],
        question: Question<'_>,
        pending: &mut Pending,
    ) {
        let shortlists = selections.iter().any(Option::is_some);
        done(match self.output_layer.answering(question, shortlists) {
            OutputLayer::Epilogue => {
                output::ask(&self.device, x, output, selections, question, pending)
            }
            layer => logits::ask(&self.device, layer, x, output, question, pending),
        });
    }

    fn answer(&self, pending: &mut Pending, answer: &mut Choices) {
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

/// What states are read from: the structure `Sources` of the kernels.
fn push_sources(
    arguments: Arguments,
    segment: &mut Segment<'_>,
    moves: Moves<'_>,
) -> Result<Arguments, Error> {
    let from = |source: &Source| match *source {
        Source::Zero => NONE,
        Source::State(row) => row,
        Source::Place(place) => FOLLOWS | place,
    };
    let from: Vec<u32> = moves.from.iter().map(from).collect();
    let (_, parents) = segment.followed();
    Ok(arguments
        .address(segment.stage(&from)?)
        .address(segment.stage(moves.before)?)
        .address(parents))
}
