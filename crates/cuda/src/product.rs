//! Dense layers (GEMM): weights in the precision of products, and the choice of a kernel.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::Dense;

use crate::Error;
use crate::device::{Device, Normed, Segment, bucket};
use crate::driver::{Address, Map, Matrix};
use crate::kernel::{self, Kernel};
use crate::memory::{Buffer, FEW_ROWS, Rows, stride};
use crate::precision::GpuPrecision;

/// Bytes of k that kernels take at a time. Rows of weights are padded to whole chunks.
const CHUNK: usize = 64;

/// Columns of a block of the kernel for few rows.
const FEW_COLUMNS: usize = 8;

/// The widest rows that a product normalises itself.
const WIDEST_NORMED: usize = 1024;

/// Whether a product can normalise its own rows.
pub(crate) fn norms(device: &Device, rows: usize, width: usize) -> bool {
    let precision = device.precision;
    bucket(rows) <= FEW_ROWS
        && (width * precision.product_size()).is_multiple_of(CHUNK)
        && width <= WIDEST_NORMED
        && precision.uses_tensor_cores()
        && !precision.quantises()
}

/// One dense layer, or several concatenated ones.
pub struct Linear {
    precision: GpuPrecision,
    weights: Buffer,
    /// The quantisation scale of each output, in quantised precisions.
    scales: Option<Buffer>,
    bias: Option<Buffer>,
    /// The TMA tensor maps of the weights for `wgmma`: of narrow tiles and of wider ones.
    maps: Option<[Map; 2]>,
    inputs: usize,
    pub(crate) outputs: usize,
}

/// Rows of the boxes that TMA copies of x and w: `X_BOX` and `W_BOX` of the kernels.
const BOX: usize = 64;
const NARROW_BOX: usize = 16;

/// The left operand of a product, quantised where the precision needs it.
pub(crate) struct Operand {
    pub(crate) address: Address,
    scales: Address,
    /// Bytes from row to row.
    stride: usize,
    /// The capacity in rows.
    room: usize,
    /// Memory that is kept until all is recorded.
    _quantised: Option<(Buffer, Buffer)>,
}

/// Where a product is written, and its epilogue.
pub(crate) struct Target {
    pub(crate) out: Address,
    pub(crate) stride: usize,
    pub(crate) activation: Activation,
    pub(crate) input: Address,
    /// Whether it is written in float32, whatever rows are stored in.
    pub(crate) exact: bool,
    /// Whether the layer's bias is added.
    pub(crate) bias: bool,
}

impl Linear {
    /// Uploads weights and has the device convert them.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        precision: GpuPrecision,
        parts: &[Dense<'_>],
    ) -> Result<Linear, Error> {
        let inputs = parts.first().map_or(0, |part| part.weight.columns());
        let outputs: usize = parts.iter().map(|part| part.weight.rows()).sum();
        let row = (inputs * precision.product_size()).next_multiple_of(CHUNK);
        let weights = Buffer::new(device, row * outputs)?;
        let scales = precision.quantises().then(|| Buffer::new(device, 4 * outputs)).transpose()?;
        let mut first = 0;
        for part in parts {
            let rows = part.weight.rows();
            let floats = Buffer::of_floats(device, &part.weight.to_f32())?;
            device.record_as(precision, |segment| {
                let parameters = kernel::Pack {
                    w: floats.address,
                    out: weights.address + (first * row) as Address,
                    stride: row,
                    scales: scales.as_ref().map_or(0, |s| s.address + 4 * first as Address),
                    k: inputs,
                    count: segment.count(rows)?,
                };
                segment.launch_rows(kernel::pack, rows, &parameters)
            })?;
            first += rows;
        }
        let bias = joined_bias(parts).map(|b| Buffer::of_floats(device, &b)).transpose()?;
        let map = |box_rows| {
            let (address, rows) = (weights.address, outputs);
            device.map(&Matrix { address, bytes: row, stride: row, rows, box_rows })
        };
        let maps = match device.has_warpgroups(precision) {
            true => Some([map(NARROW_BOX)?, map(BOX)?]),
            false => None,
        };
        Ok(Linear { precision, weights, scales, bias, maps, inputs, outputs })
    }

    /// `out = activation(x · Wᵀ + b) + input`.
    pub(crate) fn multiply_to(
        &self,
        device: &Arc<Device>,
        x: &Rows,
        target: &Target,
    ) -> Result<(), Error> {
        let operand = self.operand(device, x)?;
        device.record_as(self.precision, |segment| {
            let rows = bucket(x.count);
            let normed = segment.take_normed(|normed| {
                normed.out == operand.address
                    && (normed.rows, normed.width) == (x.count, x.width)
                    && norms(device, x.count, x.width)
            });
            let p = self.product(segment, &operand, target, x.count)?;
            let tile = self.tile(device, rows, target);
            let grid = tile.grid(device, rows, self.outputs);
            if let Some(Normed { raw, norm, .. }) = normed {
                let kernel = match x.width {
                    0..=512 => kernel::product_normed_512,
                    _ => kernel::product_normed_1024,
                };
                let parameters = kernel::NormedProduct { p, raw, norm, width: x.width };
                return segment.launch(kernel, grid, tile.threads, tile.shared, &parameters);
            }
            let maps = match tile.kernel.maps {
                true => self.carried(device, &operand, tile.columns)?,
                false => None,
            };
            let threads = tile.threads + maps.map_or(0, |_| tile.producers);
            segment.launch_mapped(tile.kernel, grid, threads, tile.shared, (&p, maps))
        })
    }

    /// The tensor maps that kernels of many rows take, where they use `wgmma`.
    pub(crate) fn carried(
        &self,
        device: &Device,
        operand: &Operand,
        columns: usize,
    ) -> Result<Option<[Map; 2]>, Error> {
        let Some(maps) = &self.maps else { return Ok(None) };
        let x = Matrix {
            address: operand.address,
            bytes: stride(self.inputs) * self.precision.product_size(),
            stride: operand.stride,
            rows: operand.room,
            box_rows: BOX,
        };
        let map = maps[usize::from(columns >= BOX)];
        Ok(Some([device.map(&x)?, map]))
    }

    pub(crate) fn bias(&self) -> Address {
        self.bias.as_ref().map_or(0, |bias| bias.address)
    }

    /// The left operand of a product.
    pub(crate) fn operand(&self, device: &Arc<Device>, x: &Rows) -> Result<Operand, Error> {
        debug_assert_eq!(x.width, self.inputs);
        if !self.precision.quantises() {
            let stride = x.stride() * self.precision.row_size();
            let room = x.capacity(device);
            return Ok(Operand { address: x.address(), scales: 0, stride, room, _quantised: None });
        }
        let room = bucket(x.count).max(FEW_ROWS);
        let rows = Buffer::new(device, room * x.stride())?;
        let scales = Buffer::new(device, room * 4)?;
        device.record(|segment| {
            let parameters = kernel::Quantise {
                x: x.address(),
                stride: x.stride(),
                out: rows.address,
                out_stride: x.stride(),
                scales: scales.address,
                width: x.width,
                count: segment.count(x.count)?,
            };
            segment.launch_rows(kernel::quantise, x.count, &parameters)
        })?;
        Ok(Operand {
            address: rows.address,
            scales: scales.address,
            stride: x.stride(),
            room,
            _quantised: Some((rows, scales)),
        })
    }

    /// The parameters of a product of `count` rows.
    pub(crate) fn product(
        &self,
        segment: &mut Segment<'_>,
        operand: &Operand,
        target: &Target,
        count: usize,
    ) -> Result<kernel::Product, Error> {
        let size = segment.precision().product_size();
        Ok(kernel::Product {
            x: operand.address,
            w: self.weights.address,
            x_scale: operand.scales,
            w_scale: self.scales.as_ref().map_or(0, |scales| scales.address),
            bias: if target.bias { self.bias() } else { 0 },
            input: target.input,
            out: target.out,
            words: 0,
            count: segment.count(count)?,
            x_stride: operand.stride,
            w_stride: (self.inputs * size).next_multiple_of(CHUNK),
            bytes: stride(self.inputs) * size,
            columns: self.outputs,
            out_stride: target.stride,
            activation: activation_code(target.activation),
            exact_out: target.exact.into(),
        })
    }

    /// The fastest tile. All tiles give the same sums.
    fn tile(&self, device: &Device, rows: usize, target: &Target) -> Tile {
        if !self.precision.uses_tensor_cores() {
            return match rows {
                0..=16 => Tile::new(kernel::product_16, (16, 64), 256, 0),
                _ => Tile::new(kernel::product_64, (64, 64), 256, 0),
            };
        }
        let row_bytes = (self.inputs * self.precision.product_size()).next_multiple_of(CHUNK);
        let few_bytes = (FEW_ROWS + FEW_COLUMNS) * (row_bytes + CHUNK / 2);
        if rows <= FEW_ROWS && few_bytes <= device.most_shared() {
            return Tile::new(kernel::product_few, (FEW_ROWS, FEW_COLUMNS), 128, few_bytes);
        }
        // Large tiles read less, but should keep almost all multiprocessors busy. Measured on an H200.
        let processors = device.properties.processors;
        let enough = |tile: &Tile, eighths: usize| {
            8 * tile.count(rows, self.outputs) >= eighths * processors
        };
        // What `finishes_in_registers` asks in the kernels: this one has no other epilogue.
        let simple = matches!(target.activation, Activation::Identity | Activation::Relu);
        let for_huge =
            self.maps.is_some() && self.outputs.is_multiple_of(8) && !target.exact && simple;
        let huge = Tile::PERSISTENT;
        let large = Tile::staged(kernel::product_large, (128, 128), 256, 3);
        let tall = Tile::staged(kernel::product_tall, (128, 64), 256, 4);
        let middle = Tile::staged(kernel::product_middle, (64, 64), 128, 5);
        let slim = Tile::staged(kernel::product_slim, (64, 32), 128, 6);
        match () {
            () if for_huge && enough(&huge, 5) => huge,
            () if enough(&large, 10) => large,
            () if enough(&tall, 4) => tall,
            () if enough(&middle, 6) => middle,
            () if enough(&slim, 4) => slim,
            () => Tile::staged(kernel::product_thin, (64, 16), 128, 8),
        }
    }
}

/// A kernel, and the tile that a block of it computes.
struct Tile {
    kernel: Kernel<kernel::Product>,
    rows: usize,
    columns: usize,
    /// Threads that multiply, and those that issue the copies of operands where TMA does that.
    threads: usize,
    producers: usize,
    shared: usize,
    /// Whether a block computes one tile after the other.
    persistent: bool,
}

/// Bytes of shared memory of a tile: `stages` pairs of chunks of the rows of x and w.
const fn tile_bytes(rows: usize, columns: usize, stages: usize) -> usize {
    (rows + columns) * 2 * CHUNK * stages
}
pub(crate) const MIDDLE_BEST_BYTES: usize = tile_bytes(64, 128, 3);
pub(crate) const LARGE_BYTES: usize = tile_bytes(128, 128, 3);
/// Threads of the warp that issues TMA copies.
pub(crate) const PRODUCER: usize = 32;

/// Threads of a block of a persistent kernel, and its bytes of shared memory.
pub(crate) const PERSISTENT_THREADS: usize = 384;
pub(crate) const PERSISTENT_BYTES: usize = Tile::PERSISTENT.shared;

/// The blocks of a persistent kernel: one a multiprocessor, if there are tiles for it.
pub(crate) fn persistent_grid(device: &Device, rows: usize, outputs: usize) -> [usize; 2] {
    [Tile::PERSISTENT.count(rows, outputs).min(device.properties.processors), 1]
}

impl Tile {
    const fn new(
        kernel: Kernel<kernel::Product>,
        (rows, columns): (usize, usize),
        threads: usize,
        shared: usize,
    ) -> Tile {
        Tile { kernel, rows, columns, threads, producers: PRODUCER, shared, persistent: false }
    }

    /// That of `product_huge`. Its producer is a whole warpgroup, which leaves its registers to the others.
    const PERSISTENT: Tile = Tile {
        producers: PERSISTENT_THREADS - 256,
        persistent: true,
        ..Tile::staged(kernel::product_huge, (256, 128), 256, 4)
    };

    /// The number of tiles of a product.
    fn count(&self, rows: usize, outputs: usize) -> usize {
        rows.div_ceil(self.rows) * outputs.div_ceil(self.columns)
    }

    /// The blocks of a product.
    fn grid(&self, device: &Device, rows: usize, outputs: usize) -> [usize; 2] {
        if self.persistent {
            return persistent_grid(device, rows, outputs);
        }
        [outputs.div_ceil(self.columns), rows.div_ceil(self.rows)]
    }

    /// A tile that copies so many stages into shared memory ahead.
    const fn staged(
        kernel: Kernel<kernel::Product>,
        (rows, columns): (usize, usize),
        threads: usize,
        stages: usize,
    ) -> Tile {
        Tile::new(kernel, (rows, columns), threads, tile_bytes(rows, columns, stages))
    }
}

/// The concatenated biases of layers; a layer without one has zeros.
fn joined_bias(parts: &[Dense<'_>]) -> Option<Vec<f32>> {
    parts.iter().any(|part| part.bias.is_some()).then(|| {
        let of = |part: &Dense<'_>| match part.bias {
            Some(bias) => bias.to_f32().into_owned(),
            None => vec![0.0; part.weight.rows()],
        };
        parts.iter().flat_map(of).collect()
    })
}

/// The number of an activation in the kernels.
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
