//! Sizes of the read-ahead and the batch by a memory budget.

use peregrine_decode::batching::BatchSize;
use peregrine_model::{Architecture, Autoregression};

use crate::part::SplitLine;
use crate::{Options, Translator, Workers};

/// The most bytes of lines in flight. A window of lines is translated from its longest sentence to its shortest, and at
/// its end batches run empty, so it should have room for many batches.
const MOST_LINES: usize = 64 << 20;
/// The same on a GPU, whose batches have 16 times as many sentences.
const MOST_LINES_ON_GPU: usize = 512 << 20;

/// Source tokens of a sentence that a budget must have room for. A longer one is translated all the
/// same.
const LEAST_TOKENS: usize = 64;

/// The bytes that a budget must have for lines in flight and for memory that is not counted.
const LEAST_LINES: usize = 8 << 20;

/// Target tokens for a source token, to estimate the size of the KV caches.
const TARGET_RATIO: f64 = 1.5;

/// Buffers grow by doubling, and caches have gaps.
const SLACK: f64 = 2.5;

/// Sizes that fit a budget.
pub(crate) struct Budget {
    /// For the lines in flight.
    pub(crate) lines: usize,
    /// For one worker.
    pub(crate) batch: BatchSize,
}

impl Budget {
    pub(crate) fn new(translator: &Translator, options: &Options, workers: &Workers) -> Budget {
        let batch = workers.batch;
        let most_lines = if translator.is_on_gpu() { MOST_LINES_ON_GPU } else { MOST_LINES };
        let Some(memory) = workers.memory else {
            return Budget { lines: most_lines, batch };
        };
        let in_use = memory_in_use().unwrap_or(0);
        let free = usize::try_from(memory.saturating_sub(in_use)).unwrap_or(usize::MAX);
        let free = free.max(LEAST_LINES);
        // A quarter for the text, half for the caches, and the rest for memory that is not counted.
        let share = (free / 2 / workers.threads.max(1)) as f64;
        let cost = CacheCost::new(translator, options);
        let tokens = share / cost.token;
        let sentences = share / (cost.sentence + 30.0 * cost.token);
        // A float cast saturates.
        let batch = BatchSize {
            sentences: batch.sentences.min(sentences as usize).max(1),
            tokens: batch.tokens.min(tokens as usize).max(1),
        };
        Budget { lines: (free / 4).min(most_lines), batch }
    }
}

impl Translator {
    /// The least [`Workers::memory`] that can be kept: what the process has now, the model
    /// included, and a batch of one short sentence for each worker. None if the system does not report it.
    pub fn least_memory(&self, options: &Options, workers: &Workers) -> Option<u64> {
        let cost = CacheCost::new(self, options);
        let batch = cost.sentence + LEAST_TOKENS as f64 * cost.token;
        let workers = workers.threads.max(1) as f64;
        Some(memory_in_use()? + (batch * workers) as u64 + LEAST_LINES as u64)
    }
}

/// Bytes of the caches and buffers.
struct CacheCost {
    /// The bytes of a source token and its target tokens.
    token: f64,
    /// The bytes of a sentence.
    sentence: f64,
}

impl CacheCost {
    fn new(translator: &Translator, options: &Options) -> CacheCost {
        const FLOAT: f64 = 4.0;
        let (mut token, mut sentence) = (0.0, 0.0);
        let beam = options.search.beam as f64;
        let members = &translator.model().members;
        for member in members {
            let (width, layers, attends, words) = match &member.architecture {
                Architecture::Transformer(t) => (
                    t.width,
                    t.decoder_parameters.len(),
                    matches!(t.autoregression, Autoregression::SelfAttention),
                    t.target_vocabulary,
                ),
                _ => (1024, 2, false, 32_000),
            };
            let layer = 2.0 * FLOAT * width as f64 * layers as f64;
            let past = layer * beam;
            // Activations of the encoder: a dozen rows of the network's width.
            token += layer + 12.0 * FLOAT * width as f64;
            if attends {
                token += past * TARGET_RATIO;
            } else {
                sentence += past;
            }
            if translator.model().shortlist.is_some() && options.shortlist {
                sentence += 1500.0 * FLOAT * width as f64;
            }
            if members.len() > 1 {
                sentence += FLOAT * beam * words as f64;
            }
        }
        CacheCost { token: SLACK * token.max(1.0), sentence: SLACK * sentence }
    }
}

/// The bytes of a line in flight: its text, its tokens on both sides, its shortlist.
pub(super) fn cost(text: &str, split: &SplitLine, options: &Options) -> usize {
    const LINE: usize = 500;
    const PART: usize = 300;
    const TOKEN: usize = 160;
    let parts = split.jobs.iter().map(|(_, job)| {
        let tokens = job.source.len();
        let words = job.words.as_ref().map_or(0, |words| words.len());
        let alignment = if options.alignments { 8 * tokens * tokens } else { 0 };
        PART + TOKEN * tokens * options.n_best.max(1) + 4 * words + alignment
    });
    LINE + text.len() + parts.sum::<usize>()
}

/// Bytes of memory of this process, if the system reports them.
pub(crate) fn memory_in_use() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
