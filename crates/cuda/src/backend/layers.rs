//! Embeddings, norms, dense layers and element-wise operations, and moves of rows.

use std::sync::{Arc, Mutex, PoisonError};

use peregrine_model::{Activation, Weight};
use peregrine_nn::{Embed, Epilogue, NormWeights, PositionTable, PreparedOp, Reads};

use super::Cuda;
use crate::Error;
use crate::device::{Device, Normed};
use crate::driver::Address;
use crate::kernel;
use crate::memory::{Buffer, FEW_ROWS, FOLLOWS, NONE, Rows, stride};
use crate::product::{self, Linear, Target};

/// An embedding table.
pub struct Table {
    buffer: Buffer,
    words: usize,
    width: usize,
    /// Position vectors that embeddings have added so far, the longest last. Shorter ones stay, since
    /// kernels in flight may read them.
    positions: Mutex<Vec<Positions>>,
}

/// The first vectors of a [`PositionTable`], on the device.
struct Positions {
    /// The identity of the table.
    identity: u64,
    buffer: Buffer,
    rows: usize,
}

impl Table {
    pub(super) fn prepare(device: &Arc<Device>, table: &Weight) -> Result<Table, Error> {
        let buffer = Buffer::of_floats(device, &table.to_f32())?;
        let (words, width) = (table.rows(), table.columns());
        Ok(Table { buffer, words, width, positions: Mutex::default() })
    }

    /// Where the vectors of these positions are on the device.
    fn position_vectors(
        &self,
        device: &Arc<Device>,
        table: &PositionTable,
        at: &[u32],
    ) -> Result<Address, Error> {
        /// At least so many vectors are computed at a time.
        const FIRST: usize = 256;
        let needed = at.iter().max().map_or(0, |&most| most as usize + 1);
        let mut known = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let long_enough =
            |known: &&Positions| known.identity == table.identity() && known.rows >= needed;
        if let Some(positions) = known.iter().rfind(long_enough) {
            return Ok(positions.buffer.address);
        }
        // Kernels do not check where the vectors end.
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

/// A layer norm or an RMS norm.
pub struct Norm {
    scale: Buffer,
    bias: Option<Buffer>,
    width: usize,
    epsilon: f32,
    centred: bool,
}

impl Norm {
    pub(super) fn prepare(device: &Arc<Device>, norm: NormWeights<'_>) -> Result<Norm, Error> {
        let upload = |weight: &Weight| Buffer::of_floats(device, &weight.to_f32());
        Ok(Norm {
            width: norm.scale.elements(),
            scale: upload(norm.scale)?,
            bias: norm.bias.map(upload).transpose()?,
            epsilon: norm.epsilon,
            centred: norm.centred,
        })
    }

    fn parameters(&self) -> kernel::Norm {
        kernel::Norm {
            scale: self.scale.address,
            bias: self.bias.as_ref().map_or(0, |bias| bias.address),
            epsilon: self.epsilon,
            centred: self.centred.into(),
        }
    }
}

/// Looks words up. Every pass through a network begins with an embedding, so one recorded segment ends here.
pub(super) fn embed(
    device: &Arc<Device>,
    table: &Table,
    request: Embed<'_>,
    out: &mut Rows,
) -> Result<(), Error> {
    let count = request.ids.len();
    device.new_segment(request.follows.iter().any(Option::is_some))?;
    out.shape(device, count, table.width)?;
    let positions = match request.positions {
        Some(positions) => table.position_vectors(device, positions, request.at)?,
        None => 0,
    };
    let follows = request.follows.iter().copied().chain(std::iter::repeat(None));
    let id = |(id, follows): (&Option<u32>, Option<u32>)| match follows {
        Some(place) => FOLLOWS | place,
        None => id.unwrap_or(NONE),
    };
    let ids: Vec<u32> = request.ids.iter().zip(follows).map(id).collect();
    device.record(|segment| {
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
    })
}

/// A dense layer with its epilogue. The kernel of the product adds a residual input. A norm needs
/// whole rows and follows the product; where the next product can normalise its own input
/// (`few_normed` in the kernels), the norm is not computed in place.
pub(super) fn linear(
    device: &Arc<Device>,
    x: &Rows,
    linear: &Linear,
    after: Epilogue<'_, Cuda>,
    out: &mut Rows,
) -> Result<(), Error> {
    let (input, ops) = match (after.ops, after.input) {
        ([PreparedOp::Add, rest @ ..], Some(input)) => (Some(input), rest),
        (ops, _) => (None, ops),
    };
    let raw = match ops {
        [PreparedOp::Norm(norm), ..] if product::norms(device, x.count, norm.width) => {
            let bytes = FEW_ROWS * stride(linear.outputs) * device.precision.row_size();
            Some(device.record(|segment| segment.raw(bytes))?)
        }
        _ => None,
    };
    multiply(device, x, linear, (after.activation, input), raw, out)?;
    apply(device, raw, ops, after.input, out)
}

/// Applies ops to `x` and writes the result to `out`.
pub(super) fn process(
    device: &Arc<Device>,
    x: &Rows,
    ops: &[PreparedOp<Cuda>],
    input: Option<&Rows>,
    out: &mut Rows,
) -> Result<(), Error> {
    out.shape(device, x.count, x.width)?;
    apply(device, Some(x.address()), ops, input, out)
}

/// Applies ops to `y`. If the argument of the first op is not in `y` yet, `from` is its address.
fn apply(
    device: &Arc<Device>,
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
                add_norm(device, here, input.address(), y.address(), whole)?;
                rest
            }
            ([PreparedOp::Add, rest @ ..], Some(input)) => {
                add(device, here, input.address(), y)?;
                rest
            }
            ([PreparedOp::Norm(norm), rest @ ..], _) => {
                add_norm(device, here, 0, y.address(), (norm, rows, width, stride))?;
                rest
            }
            (_, _) if x.is_some() => {
                add(device, here, 0, y)?;
                ops
            }
            ([PreparedOp::Norms(norms), rest @ ..], _) => {
                let mut offset = 0;
                for norm in norms {
                    let size = device.precision.row_size();
                    let group = y.address() + (offset * size) as Address;
                    add_norm(device, group, 0, group, (norm, rows, norm.width, stride))?;
                    offset += norm.width;
                }
                rest
            }
            ([PreparedOp::Tanh, rest @ ..], _) => {
                element(device, Element::Tanh, y, [0; 3], [0.0; 2])?;
                rest
            }
            ([PreparedOp::Clamp { least, most }, rest @ ..], _) => {
                element(device, Element::Clamp, y, [0; 3], [*least, *most])?;
                rest
            }
            ([PreparedOp::Highway(linear), rest @ ..], Some(input)) => {
                let mut gate = Rows::default();
                multiply(device, input, linear, (Activation::Sigmoid, None), None, &mut gate)?;
                let operands = [gate.address(), input.address(), 0];
                element(device, Element::Highway, y, operands, [0.0; 2])?;
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

/// A product shaped like `out`, written to `elsewhere` if that is given.
fn multiply(
    device: &Arc<Device>,
    x: &Rows,
    linear: &Linear,
    (activation, input): (Activation, Option<&Rows>),
    elsewhere: Option<Address>,
    out: &mut Rows,
) -> Result<(), Error> {
    out.shape(device, x.count, linear.outputs)?;
    let target = Target {
        out: elsewhere.unwrap_or(out.address()),
        stride: out.stride(),
        activation,
        input: input.map_or(0, Rows::address),
        exact: false,
        bias: true,
    };
    linear.multiply_to(device, x, &target)
}

/// `out = norm(x + input)`.
fn add_norm(
    device: &Device,
    x: Address,
    input: Address,
    out: Address,
    (norm, rows, width, stride): (&Norm, usize, usize, usize),
) -> Result<(), Error> {
    // The first two kernels keep whole rows in registers.
    let eight = 8 * device.precision.row_size() as Address;
    let aligned = (x | input | out).is_multiple_of(eight);
    let kernel = match width {
        _ if !aligned || !width.is_multiple_of(8) => kernel::add_norm_any,
        0..=512 => kernel::add_norm_512,
        513..=2048 => kernel::add_norm_2048,
        _ => kernel::add_norm_any,
    };
    device.record(|segment| {
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
fn add(device: &Device, x: Address, input: Address, y: &Rows) -> Result<(), Error> {
    device.record(|segment| {
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

/// What the kernel `element` does; the numbers are those of the kernel.
#[derive(Clone, Copy)]
pub(super) enum Element {
    Tanh = 0,
    /// Clamps to `[a, b]`.
    Clamp = 1,
    /// A highway connection with gate `p` and input `q`.
    Highway = 2,
    /// `p∘q + r∘y`.
    Mix = 3,
}

/// An element-wise operation on `y`, in place.
pub(super) fn element(
    device: &Device,
    kind: Element,
    y: &Rows,
    [p, q, r]: [Address; 3],
    [a, b]: [f32; 2],
) -> Result<(), Error> {
    device.record(|segment| {
        let parameters = kernel::Element {
            kind: kind as usize,
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

/// Copies `count` rows: from row `from_at[i]` to row `to_at[i]`, where a missing list stands for `i`,
/// and to columns from `column` on.
pub(super) fn move_rows(
    device: &Device,
    (from, from_at): (&Rows, Option<&[u32]>),
    (to, to_at, column): (&Rows, Option<&[u32]>, usize),
    count: usize,
) -> Result<(), Error> {
    device.record(|segment| {
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

/// The mean of the rows each row reads, or, where `weights` is not 0, their weighted sum.
pub(super) fn gather_sum(
    device: &Arc<Device>,
    rows: &Rows,
    reads: &Reads,
    weights: Address,
    out: &mut Rows,
) -> Result<(), Error> {
    out.shape(device, reads.len(), rows.width)?;
    device.record(|segment| {
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
