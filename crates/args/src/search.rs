//! Options of search and speed. The default is the model's own configuration.

use peregrine::settings::Settings;
use peregrine::{BatchSize, Options, Request, Stats, Translation, Translator, Workers};

use crate::numbers::number;

/// How to search and how fast. What is left out is as the model's configuration says, or else as its tool does.
#[derive(clap::Args)]
#[command(next_help_heading = "Search")]
pub struct SearchArgs {
    /// Hypotheses kept for a sentence; 1 is greedy search
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    beam: Option<u32>,

    /// Divide scores by the length to this power
    #[arg(short, long, value_name = "POWER", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = number(0.0..=10.0))]
    normalize: Option<f32>,

    /// Take this off the score for every target token, before dividing
    #[arg(long, hide_short_help = true, value_name = "PENALTY", allow_negative_numbers = true, value_parser = number(-100.0..=100.0))]
    word_penalty: Option<f32>,

    /// Most target tokens for each source token, counted with the end symbols
    #[arg(long, hide_short_help = true, value_name = "FACTOR", value_parser = number(0.1..=1000.0))]
    max_length_factor: Option<f32>,

    /// Most target tokens of a sentence, counted with the end symbol
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_length: Option<u32>,

    /// Allow the unknown word in translations
    #[arg(long, hide_short_help = true)]
    allow_unk: bool,

    /// Early stopping: end a search when its best open hypothesis is this much worse than its best finished one
    #[arg(long, hide_short_help = true, value_name = "DELTA", num_args = 0..=1, require_equals = true, default_missing_value = "3", value_parser = number(0.0..=1000.0))]
    early_stop: Option<f32>,

    /// Workers, each with a batch of its own [default: auto]
    ///
    /// On a CPU `auto` is the number of physical cores this process may use, on a GPU 4. Translations do not depend on it.
    #[arg(short, long, help_heading = "Speed", value_name = "auto|N", value_parser = parse_threads, default_value = "auto", hide_default_value = true)]
    threads: Threads,

    /// Threads that share the products of each worker [default: 1]
    ///
    /// The first words of a single sentence come sooner; a text takes longer than with as many workers. Translations do not depend
    /// on it.
    #[arg(long, hide_short_help = true, help_heading = "Speed", value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads_per_sentence: u32,

    /// Most sentences in a batch [default: 64, on a GPU 1024]
    #[arg(long, help_heading = "Speed", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_sentences: Option<u32>,

    /// Most source tokens in a batch [default: 4096, on a GPU 32768]
    #[arg(long, hide_short_help = true, help_heading = "Speed", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_tokens: Option<u32>,
}

/// How many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// As many as suit the machine.
    Auto,
    /// This many.
    Number(usize),
}

impl Threads {
    /// The number of workers for a translator's device.
    pub fn number(self, translator: &Translator) -> usize {
        match self {
            Threads::Number(number) => number,
            Threads::Auto => translator.auto_threads(),
        }
    }
}

/// Reads a number of threads.
pub fn parse_threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        Ok(number @ 1..=1024) => Ok(Threads::Number(number)),
        _ if text == "auto" => Ok(Threads::Auto),
        _ => Err("expected auto or a number from 1 to 1024".to_owned()),
    }
}

impl SearchArgs {
    /// The model's options, overridden by those of the command line.
    pub fn options(&self, translator: &Translator) -> Options {
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
        if let Some(most) = self.max_length {
            search.max_length = Some(most as usize);
        }
        search.allow_unk |= self.allow_unk;
        search.early_stop = self.early_stop.or(search.early_stop);
        options
    }

    /// The device's default workers, overridden by the options of the command line.
    pub fn workers(&self, translator: &Translator, settings: &Settings) -> Workers {
        let mut workers = settings.apply_to(translator.workers());
        workers.batch = BatchSize {
            sentences: self.batch_sentences.map_or(workers.batch.sentences, |n| n as usize),
            tokens: self.batch_tokens.map_or(workers.batch.tokens, |n| n as usize),
        };
        workers.threads = self.threads.number(translator);
        workers.threads_per_sentence = self.threads_per_sentence as usize;
        workers
    }

    /// Options and workers.
    pub fn setup(&self, translator: &Translator, settings: &Settings) -> Setup {
        Setup { options: self.options(translator), workers: self.workers(translator, settings) }
    }
}

/// The options and the workers of a translation.
#[derive(Clone)]
pub struct Setup {
    /// Options of each request.
    pub options: Options,
    /// The workers.
    pub workers: Workers,
}

impl Setup {
    /// Translates requests.
    pub fn translate(
        &self,
        translator: &Translator,
        requests: &[Request<'_>],
    ) -> Result<Vec<Translation>, peregrine::Error> {
        translator.translate_batch_with(requests, &self.options, &self.workers, None)
    }

    /// Like [`Self::translate`]; adds the workers' statistics to `stats`.
    pub fn measure(
        &self,
        translator: &Translator,
        requests: &[Request<'_>],
        stats: &mut Stats,
    ) -> Result<Vec<Translation>, peregrine::Error> {
        translator.translate_batch_with(requests, &self.options, &self.workers, Some(stats))
    }
}
