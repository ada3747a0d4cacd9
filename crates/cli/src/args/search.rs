//! How to search; what is not said is as the model's own configuration has it.

use peregrine::{
    BatchSize, Options, Policy, Request, Scope, Stats, Translation, Translator, Workers,
};

use crate::args::numbers::number;

/// How to search. What is left out is as the model's configuration says, or else as its tool does.
#[derive(clap::Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    /// Hypotheses kept for a sentence; 1 is greedy search
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    beam: Option<u32>,

    /// Divide scores by the length to this power
    #[arg(short, long, value_name = "POWER", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = number(0.0..=10.0))]
    normalize: Option<f32>,

    /// Take this off the score for every target token, before dividing
    #[arg(long, value_name = "PENALTY", allow_negative_numbers = true, value_parser = number(-100.0..=100.0))]
    word_penalty: Option<f32>,

    /// Most target tokens for each source token, counted with the end symbols
    #[arg(long, value_name = "FACTOR", value_parser = number(0.1..=1000.0))]
    max_length_factor: Option<f32>,

    /// Allow the unknown word in translations
    #[arg(long)]
    allow_unk: bool,

    /// End a search when its best open hypothesis is this much worse than its best finished one
    #[arg(long, value_name = "DELTA", num_args = 0..=1, require_equals = true, default_missing_value = "3", value_parser = number(0.0..=1000.0))]
    early_stop: Option<f32>,

    /// Sentences translated together [default: 64, on a GPU 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_sentences: Option<u32>,

    /// Most source tokens translated together [default: 4096, on a GPU 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_tokens: Option<u32>,

    /// Who is translated together: `naive` (ended sentences are computed on), `shrink` (they leave),
    /// `sorted` (by length), `top-up` (others take their places), or what is best. The translations
    /// are the same
    #[arg(long, value_name = "naive|shrink|sorted|top-up|auto", default_value = "auto")]
    batching: Policy,

    /// Refill a running batch only when at most this share of it is left (0.5 in the paper)
    /// [default: a free place is taken at once]
    #[arg(long, value_name = "SHARE", value_parser = number(0.0..=1.0))]
    top_up_threshold: Option<f32>,

    /// Which words a shortlist allows: those of the sentence, or, for comparison with other engines,
    /// those of all sentences that join the batch with it. With `batch` a translation depends on the
    /// sentences around it: contract 2 of docs/architecture.md is given up
    #[arg(long, value_name = "sentence|batch", default_value = "sentence")]
    shortlist_scope: Scope,

    /// Workers, each with a batch of its own
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Threads that share the products of each worker: the first words of a single sentence come
    /// sooner, a text takes longer than with as many workers. Translations are the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads_per_sentence: u32,
}

impl SearchArgs {
    /// The model's options with what the user said.
    pub(crate) fn options(&self, translator: &Translator) -> Options {
        let mut options = translator.options();
        let search = &mut options.search;
        if let Some(beam) = self.beam {
            search.beam = beam as usize;
        }
        if let Some(power) = self.normalize {
            search.normalize = power;
        }
        if let Some(penalty) = self.word_penalty {
            search.word_penalty = penalty;
        }
        if let Some(factor) = self.max_length_factor {
            search.max_length_factor = Some(factor);
        }
        search.allow_unk |= self.allow_unk;
        search.early_stop = self.early_stop.or(search.early_stop);
        options
    }

    /// Workers that suit the device, with what the user said.
    pub(crate) fn workers(&self, translator: &Translator) -> Workers {
        let mut workers = translator.workers();
        workers.batch = BatchSize {
            sentences: self.batch_sentences.map_or(workers.batch.sentences, |n| n as usize),
            tokens: self.batch_tokens.map_or(workers.batch.tokens, |n| n as usize),
        };
        workers.threads = self.threads as usize;
        workers.threads_per_sentence = self.threads_per_sentence as usize;
        workers.batching = self.batching;
        workers.top_up_threshold = self.top_up_threshold;
        workers.shortlist_scope = self.shortlist_scope;
        workers
    }

    /// Both.
    pub(crate) fn setup(&self, translator: &Translator) -> Setup {
        Setup { options: self.options(translator), workers: self.workers(translator) }
    }
}

/// How to translate, and who works.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) workers: Workers,
}

impl Setup {
    pub(crate) fn translate(
        &self,
        translator: &Translator,
        requests: &[Request<'_>],
    ) -> Result<Vec<Translation>, peregrine::Error> {
        translator.translate_batch_with(requests, &self.options, &self.workers, None)
    }

    /// The same; what the workers did is added to `stats`.
    pub(crate) fn measure(
        &self,
        translator: &Translator,
        requests: &[Request<'_>],
        stats: &mut Stats,
    ) -> Result<Vec<Translation>, peregrine::Error> {
        translator.translate_batch_with(requests, &self.options, &self.workers, Some(stats))
    }
}
