//! The papers' output layers, over logits in memory, with which the epilogue is compared.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::TopKQuery;

use super::layer::{Output, OutputLayer};
use super::query::{Pending, asked};
use crate::Error;
use crate::device::{Answer, Device, Segment, bucket};
use crate::driver::Address;
use crate::kernel::{self, Asked};
use crate::memory::{Buffer, Rows};
use crate::product::Target;

/// Threads of a block.
const THREADS: usize = 256;
/// Words of a slab, which a block reads at a time.
const SLAB: usize = 32 * THREADS;
/// Words of a shard.
const SHARD: usize = 8 * THREADS;

/// Room for the top k of a row.
fn most(query: TopKQuery<'_>) -> usize {
    bucket(query.requests.iter().map(|request| request.count).max().unwrap_or(0).max(1))
}

/// Runs `query` for every row of `x`, over the whole vocabulary.
pub(crate) fn run(
    device: &Arc<Device>,
    layer: OutputLayer,
    x: &Rows,
    output: &Output,
    query: TopKQuery<'_>,
    pending: &mut Pending,
) -> Result<(), Error> {
    let layer = layer.answering(query.requests);
    let logits = Logits::new(device, layer, x, output)?;
    logits.multiply(device, x, output)?;
    let (rows, most) = (logits.rows, most(query));
    let answer = device.record(|segment| {
        let asked = asked(segment, query, most)?;
        logits.find(segment, layer, asked)
    })?;
    pending.send(device, answer, (rows, most), query)
}

/// Logits in memory, and what else their kernels need.
pub(crate) struct Logits {
    values: Buffer,
    bias: Address,
    /// Log-probabilities (`Separate`), or the best words of shards (`Best`).
    other: Option<Buffer>,
    /// The number of rows, rounded up.
    rows: usize,
    count: usize,
    columns: usize,
    stride: usize,
}

impl Logits {
    pub(crate) fn new(
        device: &Arc<Device>,
        layer: OutputLayer,
        x: &Rows,
        output: &Output,
    ) -> Result<Logits, Error> {
        let (rows, columns) = (bucket(x.count), output.linear.outputs);
        // Kernels read four words at a time.
        let stride = columns.next_multiple_of(4);
        let other = match layer {
            OutputLayer::Separate => Some(4 * rows * stride),
            OutputLayer::Best => Some(8 * rows * columns.div_ceil(SHARD)),
            OutputLayer::Fused | OutputLayer::Epilogue => None,
        };
        Ok(Logits {
            values: Buffer::new(device, 4 * rows * stride)?,
            bias: output.linear.bias(),
            other: other.map(|bytes| Buffer::new(device, bytes)).transpose()?,
            rows,
            count: x.count,
            columns,
            stride,
        })
    }

    /// The product, without bias.
    pub(crate) fn multiply(
        &self,
        device: &Arc<Device>,
        x: &Rows,
        output: &Output,
    ) -> Result<(), Error> {
        let target = Target {
            out: self.values.address,
            stride: self.stride,
            activation: Activation::Identity,
            input: 0,
            exact: true,
            bias: false,
        };
        output.linear.multiply_to(device, x, &target)
    }

    /// Records the kernels after the product.
    pub(crate) fn find(
        &self,
        segment: &mut Segment<'_>,
        layer: OutputLayer,
        asked: Asked,
    ) -> Result<Answer, Error> {
        match layer {
            OutputLayer::Separate => {
                self.add_bias(segment)?;
                self.softmax(segment, asked)?;
                self.k_best(segment, asked)
            }
            OutputLayer::Best => self.best_only(segment, asked),
            OutputLayer::Fused | OutputLayer::Epilogue => self.fused(segment, asked),
        }
    }

    pub(crate) fn add_bias(&self, segment: &mut Segment<'_>) -> Result<(), Error> {
        let l = self.parameters(segment)?;
        let grid = [self.rows, self.columns.div_ceil(SLAB)];
        segment.launch(kernel::add_bias, grid, THREADS, 0, &l)
    }

    pub(crate) fn softmax(&self, segment: &mut Segment<'_>, asked: Asked) -> Result<(), Error> {
        let l = self.parameters(segment)?;
        let parameters = kernel::Softmax { l, asked, probabilities: self.other() };
        segment.launch(kernel::softmax, [self.rows, 1], THREADS, 0, &parameters)
    }

    pub(crate) fn k_best(&self, segment: &mut Segment<'_>, asked: Asked) -> Result<Answer, Error> {
        let (l, probabilities) = (self.parameters(segment)?, self.other());
        let (answer, [words, scores, latest]) = self.answers(segment, asked)?;
        let parameters = kernel::KBest { l, asked, probabilities, words, scores, latest };
        segment.launch(kernel::k_best, [self.rows, 1], THREADS, 0, &parameters)?;
        Ok(answer)
    }

    fn fused(&self, segment: &mut Segment<'_>, asked: Asked) -> Result<Answer, Error> {
        let l = self.parameters(segment)?;
        let (answer, [words, scores, latest]) = self.answers(segment, asked)?;
        let parameters = kernel::FusedBest { l, asked, words, scores, latest };
        segment.launch(kernel::fused_best, [self.rows, 1], THREADS, 0, &parameters)?;
        Ok(answer)
    }

    fn best_only(&self, segment: &mut Segment<'_>, asked: Asked) -> Result<Answer, Error> {
        let shards = self.columns.div_ceil(SHARD);
        let (l, best_of) = (self.parameters(segment)?, self.other());
        let parameters = kernel::ShardBest { l, asked, best_of };
        segment.launch(kernel::shard_best, [self.rows, shards], THREADS, 0, &parameters)?;
        let (answer, [words, scores, latest]) = self.answers(segment, asked)?;
        let parameters = kernel::BestOfShards { l, asked, best_of, shards, words, scores, latest };
        segment.launch_rows(kernel::best_of_shards, self.count, &parameters)?;
        Ok(answer)
    }

    fn other(&self) -> Address {
        self.other.as_ref().map_or(0, |buffer| buffer.address)
    }

    fn parameters(&self, segment: &mut Segment<'_>) -> Result<kernel::Logits, Error> {
        Ok(kernel::Logits {
            values: self.values.address,
            bias: self.bias,
            stride: self.stride,
            columns: self.columns,
            count: segment.count(self.count)?,
        })
    }

    /// Memory for words and scores, and for the best word, where the next step reads it.
    fn answers(
        &self,
        segment: &mut Segment<'_>,
        asked: Asked,
    ) -> Result<(Answer, [Address; 3]), Error> {
        let room = self.rows * asked.most;
        let answer = segment.answer(2 * room)?;
        let (words, scores) = (answer.address, answer.address + 4 * room as Address);
        Ok((answer, [words, scores, segment.next_latest(self.rows)?]))
    }
}
