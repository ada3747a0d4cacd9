//! Dense layers: weights in the precision of products, and the choice of a kernel.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::Dense;

use crate::Error;
use crate::device::{Arguments, Device, Segment, bucket};
use crate::driver::{Address, Map, Matrix};
use crate::memory::{Buffer, FEW_ROWS, Rows, stride};
use crate::precision::Numbers;

/// Bytes of k that kernels take at a time: rows of weights are padded to whole ones.
const CHUNK: usize = 64;

/// The widest rows that are normalised by whoever multiplies them.
const WIDEST_NORMED: usize = 1024;

/// Whether a product may do the norm of its rows.
pub(crate) fn norms(device: &Device, rows: usize, width: usize) -> bool {
    let numbers = device.numbers;
    bucket(rows) <= FEW_ROWS
        && (width * numbers.product_size()).is_multiple_of(CHUNK)
        && width <= WIDEST_NORMED
        && numbers.uses_tensor_cores()
        && !numbers.quantises()
}

/// One or several dense layers side by side.
pub struct Linear {
    numbers: Numbers,
    weights: Buffer,
    /// Quantised precisions: a scale for each output.
    scales: Option<Buffer>,
    bias: Option<Buffer>,
    /// Where products are done by warpgroups: for narrow tiles and for wider ones.
    maps: Option<[Map; 2]>,
    inputs: usize,
    pub(crate) outputs: usize,
}

/// Rows of the boxes in which the copy engine brings x and w: `X_BOX` and `W_BOX` of the kernels.
const BOX: usize = 64;
const NARROW_BOX: usize = 16;

/// A product's left side as its kernel wants it.
pub(crate) struct Operand {
    pub(crate) address: Address,
    scales: Address,
    /// Bytes from row to row.
    stride: usize,
    /// Rows there is room for.
    room: usize,
    /// Kept until all is recorded.
    _quantised: Option<(Buffer, Buffer)>,
}

/// Where a product goes.
pub(crate) struct Target {
    pub(crate) out: Address,
    pub(crate) stride: usize,
    pub(crate) activation: Activation,
    pub(crate) input: Address,
    /// Float32, however rows are stored.
    pub(crate) exact: bool,
    /// Whether the layer's bias is added.
    pub(crate) bias: bool,
}

impl Linear {
    /// Uploads weights and has the device convert them.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        numbers: Numbers,
        parts: &[Dense<'_>],
    ) -> Result<Linear, Error> {
        let inputs = parts.first().map_or(0, |part| part.weight.columns());
        let outputs: usize = parts.iter().map(|part| part.weight.rows()).sum();
        let row = (inputs * numbers.product_size()).next_multiple_of(CHUNK);
        let weights = Buffer::new(device, row * outputs)?;
        let scales = numbers.quantises().then(|| Buffer::new(device, 4 * outputs)).transpose()?;
        let mut first = 0;
        for part in parts {
            let rows = part.weight.rows();
            let floats = Buffer::of_floats(device, &part.weight.to_f32())?;
            device.record_as(numbers, |segment| {
                let scales = scales.as_ref().map_or(0, |s| s.address + 4 * first as Address);
                let arguments = Arguments::default()
                    .address(floats.address)
                    .address(weights.address + (first * row) as Address)
                    .number(row)
                    .address(scales)
                    .number(inputs)
                    .address(segment.count(rows)?);
                segment.launch_rows("pack", rows, &arguments)
            })?;
            first += rows;
        }
        let bias = joined_bias(parts).map(|b| Buffer::of_floats(device, &b)).transpose()?;
        let map = |box_rows| {
            let (address, rows) = (weights.address, outputs);
            device.map(&Matrix { address, bytes: row, stride: row, rows, box_rows })
        };
        let maps = match device.has_warpgroups(numbers) {
            true => Some([map(NARROW_BOX)?, map(BOX)?]),
            false => None,
        };
        Ok(Linear { numbers, weights, scales, bias, maps, inputs, outputs })
    }

    /// `out = activation(x · Wᵀ + b) + input`.
    pub(crate) fn multiply_to(
        &self,
        device: &Arc<Device>,
        x: &Rows,
        target: &Target,
    ) -> Result<(), Error> {
        let operand = self.operand(device, x)?;
        device.record_as(self.numbers, |segment| {
            let rows = bucket(x.count);
            let mut kernel = self.kernel(device, rows);
            let normed = segment.take_normed(|normed| {
                normed.out == operand.address
                    && (normed.rows, normed.width) == (x.count, x.width)
                    && norms(device, x.count, x.width)
            });
            let mut arguments = self.arguments(segment, &operand, target, x.count)?;
            if let Some(normed) = normed {
                kernel.name = match x.width {
                    0..=512 => "product_normed_512",
                    _ => "product_normed_1024",
                };
                arguments = arguments.address(normed.raw).append(&normed.norm).number(x.width);
            }
            let mut threads = kernel.threads;
            if kernel.grouped {
                let tile = (kernel.columns, threads);
                (arguments, threads) = self.carried(device, &operand, tile, arguments)?;
            }
            let grid = [self.outputs.div_ceil(kernel.columns), rows.div_ceil(kernel.rows)];
            segment.launch(kernel.name, grid, threads, kernel.shared, &arguments)
        })
    }

    /// What kernels of many rows take in the end, and their threads: with warpgroups goes a warp that has
    /// the copy engine serve them.
    pub(crate) fn carried(
        &self,
        device: &Device,
        operand: &Operand,
        (columns, threads): (usize, usize),
        arguments: Arguments,
    ) -> Result<(Arguments, usize), Error> {
        let Some(maps) = &self.maps else { return Ok((arguments, threads)) };
        let x = Matrix {
            address: operand.address,
            bytes: stride(self.inputs) * self.numbers.product_size(),
            stride: operand.stride,
            rows: operand.room,
            box_rows: BOX,
        };
        let map = &maps[usize::from(columns >= BOX)];
        Ok((arguments.map(&device.map(&x)?).map(map), threads + 32))
    }

    pub(crate) fn bias(&self) -> Address {
        self.bias.as_ref().map_or(0, |bias| bias.address)
    }

    /// The rows of a product, quantised where the precision has it so.
    pub(crate) fn operand(&self, device: &Arc<Device>, x: &Rows) -> Result<Operand, Error> {
        debug_assert_eq!(x.width, self.inputs);
        if !self.numbers.quantises() {
            let stride = x.stride() * self.numbers.row_size();
            let room = x.capacity(device);
            return Ok(Operand { address: x.address(), scales: 0, stride, room, _quantised: None });
        }
        let room = bucket(x.count).max(FEW_ROWS);
        let rows = Buffer::new(device, room * x.stride())?;
        let scales = Buffer::new(device, room * 4)?;
        device.record(|segment| {
            let arguments = Arguments::default()
                .address(x.address())
                .number(x.stride())
                .address(rows.address)
                .number(x.stride())
                .address(scales.address)
                .number(x.width)
                .address(segment.count(x.count)?);
            segment.launch_rows("quantise", x.count, &arguments)
        })?;
        Ok(Operand {
            address: rows.address,
            scales: scales.address,
            stride: x.stride(),
            room,
            _quantised: Some((rows, scales)),
        })
    }

    /// The structure `Product` of the kernels.
    pub(crate) fn arguments(
        &self,
        segment: &mut Segment<'_>,
        operand: &Operand,
        target: &Target,
        count: usize,
    ) -> Result<Arguments, Error> {
        let size = segment.numbers().product_size();
        let address = |buffer: &Option<Buffer>| buffer.as_ref().map_or(0, |b| b.address);
        Ok(Arguments::default()
            .address(operand.address)
            .address(self.weights.address)
            .address(operand.scales)
            .address(address(&self.scales))
            .address(if target.bias { self.bias() } else { 0 })
            .address(target.input)
            .address(target.out)
            .address(0)
            .address(segment.count(count)?)
            .number(operand.stride)
            .number((self.inputs * size).next_multiple_of(CHUNK))
            .number(stride(self.inputs) * size)
            .number(self.outputs)
            .number(target.stride)
            .number(activation_code(target.activation))
            .number(target.exact.into())
            .end())
    }

    /// All give the same sums: this is only about speed.
    fn kernel(&self, device: &Device, rows: usize) -> Kernel {
        if !self.numbers.uses_tensor_cores() {
            return match rows {
                0..=16 => Kernel::new("product_16", (16, 64), 256, 0),
                _ => Kernel::new("product_64", (64, 64), 256, 0),
            };
        }
        let row_bytes = (self.inputs * self.numbers.product_size()).next_multiple_of(CHUNK);
        let few_bytes = FEW_ROWS * (row_bytes + CHUNK / 2);
        if rows <= FEW_ROWS && few_bytes <= device.most_shared() {
            return Kernel::new("product_few", (FEW_ROWS, 8), 128, few_bytes);
        }
        // Large tiles read less, but should keep about all processors busy: measured on an H200.
        let processors = device.properties.processors;
        let enough = |kernel: &Kernel, share: usize| {
            let tiles = rows.div_ceil(kernel.rows) * self.outputs.div_ceil(kernel.columns);
            4 * tiles >= share * processors
        };
        let large = Kernel::tile("product_large", (128, 128), 256, 3);
        let tall = Kernel::tile("product_tall", (128, 64), 256, 4);
        let middle = Kernel::tile("product_middle", (64, 64), 128, 5);
        let slim = Kernel::tile("product_slim", (64, 32), 128, 6);
        match () {
            () if enough(&large, 5) => large,
            () if enough(&tall, 2) => tall,
            () if enough(&middle, 3) => middle,
            () if enough(&slim, 2) => slim,
            () => Kernel::tile("product_thin", (64, 16), 128, 8),
        }
    }
}

/// A kernel and the tile a block of it computes.
struct Kernel {
    name: &'static str,
    rows: usize,
    columns: usize,
    threads: usize,
    shared: usize,
    /// Whether it is done by warpgroups where there are any.
    grouped: bool,
}

/// Shared memory of tiles: pairs of chunks under way, of so many rows of x and w.
const fn tile_bytes(rows: usize, columns: usize, stages: usize) -> usize {
    (rows + columns) * 2 * CHUNK * stages
}
pub(crate) const MIDDLE_BEST_BYTES: usize = tile_bytes(64, 128, 3);
pub(crate) const LARGE_BYTES: usize = tile_bytes(128, 128, 3);

impl Kernel {
    const fn new(
        name: &'static str,
        (rows, columns): (usize, usize),
        threads: usize,
        shared: usize,
    ) -> Kernel {
        Kernel { name, rows, columns, threads, shared, grouped: false }
    }

    const fn tile(
        name: &'static str,
        (rows, columns): (usize, usize),
        threads: usize,
        stages: usize,
    ) -> Kernel {
        let shared = tile_bytes(rows, columns, stages);
        Kernel { name, rows, columns, threads, shared, grouped: true }
    }
}

/// The biases of layers side by side; a layer without one has zeros.
fn joined_bias(parts: &[Dense<'_>]) -> Option<Vec<f32>> {
    parts.iter().any(|part| part.bias.is_some()).then(|| {
        let of = |part: &Dense<'_>| match part.bias {
            Some(bias) => bias.to_f32().into_owned(),
            None => vec![0.0; part.weight.rows()],
        };
        parts.iter().flat_map(of).collect()
    })
}

/// Its number in the kernels.
pub(crate) fn activation_code(activation: Activation) -> usize {
    match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Swish => 2,
        Activation::Gelu => 3,
        Activation::GeluTanh => 4,
        Activation::GeluSigmoid => 5,
        Activation::Sigmoid => 6,
        Activation::Tanh => 7,
    }
}
