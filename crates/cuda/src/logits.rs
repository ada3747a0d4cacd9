//! The papers' output layers, over logits in memory: what the one in `output` is compared with.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::{Ask, Question, Scoring};

use crate::Error;
use crate::device::{Answer, Device, Segment, bucket};
use crate::driver::Address;
use crate::kernel::{self, Asked};
use crate::memory::{Buffer, Rows};
use crate::output::{self, Output, Pending};
use crate::product::Target;

/// Threads of a block.
const THREADS: usize = 256;
/// Words a block takes at a time.
const SLAB: usize = 32 * THREADS;
/// Words of a shard.
const SHARD: usize = 8 * THREADS;
/// Choices a row may ask for.
const MOST_CHOICES: usize = 32;

/// How the best words are found. All find the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputLayer {
    /// In the epilogue of the product: logits are never written.
    #[default]
    Epilogue,
    /// Bias, softmax and k best in one kernel that reads logits once (Amun's Algorithm 4).
    Fused,
    /// A kernel for each of bias, softmax and k best (Algorithm 3).
    Separate,
    /// The best only, without softmax (Algorithms 5 and 6); as `Fused` where more is asked for.
    Best,
}

impl OutputLayer {
    /// All of them.
    pub const ALL: [OutputLayer; 4] =
        [OutputLayer::Epilogue, OutputLayer::Fused, OutputLayer::Separate, OutputLayer::Best];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OutputLayer::Epilogue => "epilogue",
            OutputLayer::Fused => "fused",
            OutputLayer::Separate => "separate",
            OutputLayer::Best => "best",
        }
    }

    /// Whether it can answer a row: the papers know no shortlists, and their lists are short.
    pub(crate) fn can_answer(self, ask: &Ask<'_>, shortlist: bool) -> bool {
        self == OutputLayer::Epilogue || (!shortlist && ask.count <= MOST_CHOICES)
    }

    /// What answers rows that it can answer. Where one of them wants more than its best word all are answered by
    /// `Fused`, which gives the others the same bits as `Best`.
    pub(crate) fn answering(self, asks: &[Ask<'_>]) -> OutputLayer {
        let more = |ask: &Ask<'_>| ask.count > 1 || ask.scoring != Scoring::Logit;
        match self {
            OutputLayer::Best if asks.iter().any(more) => OutputLayer::Fused,
            layer => layer,
        }
    }
}

impl std::str::FromStr for OutputLayer {
    type Err = String;

    fn from_str(name: &str) -> Result<OutputLayer, String> {
        let found = OutputLayer::ALL.into_iter().find(|layer| layer.name() == name);
        found.ok_or_else(|| "expected epilogue, fused, separate or best".to_owned())
    }
}

/// Room for choices a row.
fn most(question: Question<'_>) -> usize {
    bucket(question.asks.iter().map(|ask| ask.count).max().unwrap_or(0).max(1))
}

/// Asks `question` of every row of `x`, all words being allowed.
pub(crate) fn ask(
    device: &Arc<Device>,
    layer: OutputLayer,
    x: &Rows,
    output: &Output,
    question: Question<'_>,
    pending: &mut Pending,
) -> Result<(), Error> {
    let layer = layer.answering(question.asks);
    let logits = Logits::new(device, layer, x, output)?;
    logits.multiply(device, x, output)?;
    let (rows, most) = (logits.rows, most(question));
    let answer = device.record(|segment| {
        let asked = output::asked(segment, question, most)?;
        logits.find(segment, layer, asked)
    })?;
    pending.send(device, answer, (rows, most), question)
}

/// Logits in memory, and what the kernels over them need beside.
pub(crate) struct Logits {
    values: Buffer,
    bias: Address,
    /// Log-probabilities, or the best of shards.
    other: Option<Buffer>,
    /// Rounded up.
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

    /// Records what follows the product.
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

    /// Where words and scores go, and where the next step finds the best word.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(&(count, scoring): &(usize, Scoring)) -> Ask<'static> {
        Ask { count, banned: &[], forced: None, path: 0.0, scoring }
    }

    #[test]
    fn a_layer_answers_what_it_can() {
        use OutputLayer::{Best, Epilogue, Fused, Separate};
        let (logit, probability) = (Scoring::Logit, Scoring::LogProbability);
        for (layer, count, shortlist, expected) in [
            (Fused, 32, false, true),
            (Fused, 33, false, false),
            (Separate, 1, true, false),
            (Best, 1, false, true),
            (Epilogue, 2000, true, true),
        ] {
            let found = layer.can_answer(&ask(&(count, logit)), shortlist);
            assert_eq!(found, expected, "{layer:?} {count}");
        }
        for (layer, asks, expected) in [
            (Best, &[(1, logit), (1, logit)][..], Best),
            (Best, &[(1, logit), (1, probability)], Fused),
            (Best, &[(2, logit), (1, logit)], Fused),
            (Separate, &[(1, logit), (4, probability)], Separate),
            (Fused, &[(1, logit)], Fused),
        ] {
            let of: Vec<Ask<'_>> = asks.iter().map(ask).collect();
            assert_eq!(layer.answering(&of), expected, "{layer:?} {asks:?}");
        }
    }

    #[test]
    fn names_lead_back() {
        for layer in OutputLayer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
        }
        assert!("softmax".parse::<OutputLayer>().is_err());
    }
}
