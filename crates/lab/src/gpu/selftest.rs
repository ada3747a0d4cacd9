//! `peregrine selftest`

use std::path::PathBuf;

use anyhow::{Context, bail};
use peregrine::measure::cuda::{Cuda, try_device_beams, try_output_layers};
use peregrine::model::{
    Architecture, OpenOptions, TransformerSize, fairseq_transformer, made_up_model,
    mbart_transformer, preset,
};
use peregrine::{
    BatchSize, Compute, Device, GpuPrecision, Model, Request, Translation, Translator,
};

use super::shared_batch::{Outcome, compare_in_shared_batch};
use peregrine_args::console::show;
use peregrine_args::languages::PairArgs;
use peregrine_args::lines::Lines;
use peregrine_args::search::Setup;

/// Compare a GPU with the processor, word by word
///
/// In float32 both must choose the same words; in every precision the words must not depend on the
/// size of the batch, on requests with other settings in it, nor on the output layer (`--set output-layer`). Without a model, random transformers
/// and recurrent networks are compared, and the built-in model.
#[derive(clap::Args)]
pub struct Args {
    /// Model file or directory; may be repeated, each is compared on its own
    #[arg(short, long, value_name = "PATH")]
    model: Vec<PathBuf>,

    /// Text to translate [default: a few sentences, or random words]
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,

    /// The GPU
    #[arg(long, value_name = "cuda[:N]", default_value = "cuda", value_parser = |name: &str| name.parse::<Device>())]
    device: Device,

    /// Beam
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    beam: usize,

    /// Precisions [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = |name: &str| name.parse::<GpuPrecision>())]
    precision: Vec<GpuPrecision>,

    /// One network of each family, and eight lines
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    languages: PairArgs,
}

/// The share of lines that must have the same words in float32.
const SAME: f64 = 0.995;
/// The largest relative difference of the log-probabilities of lines with the same words.
const CLOSE: f32 = 1e-4;
/// Batch sizes that must give the same words.
const BATCHES: [usize; 3] = [64, 1, 512];
/// A batch for the kernels of very many rows. The lines are repeated to fill it.
const CROWD: usize = 2048;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let Device::Cuda(number) = args.device else {
        bail!("--device: a GPU is compared with the processor")
    };
    let precisions = match args.precision.as_slice() {
        [] => &GpuPrecision::ALL,
        some => some,
    };
    let mut failures = 0;
    for (name, lines, open) in subjects(args) {
        let model = open()?;
        let mut lines = match &args.source {
            Some(path) => Lines::read_all(path)?,
            None => lines,
        };
        if args.quick {
            lines.truncate(8);
        }
        let subject = Subject { name: &name, lines, beam: args.beam };
        let prepare =
            |model, compute: &Compute| args.languages.apply(Translator::prepare(model, compute)?);
        let processor = prepare(model, &Compute::float32())?;
        let reference = subject.translate(&processor, BATCHES[0])?;
        let too = precisions.contains(&GpuPrecision::Float16);
        let setups = precisions.iter().map(|&precision| (precision, false));
        for (precision, fp8_cache) in setups.chain(too.then_some((GpuPrecision::Float16, true))) {
            let compute = Compute { fp8_cache, ..Compute::cuda(number, precision) };
            let gpu = prepare(open()?, &compute)?;
            let setup = if fp8_cache { "fp8 cache" } else { precision.name() };
            let exact = precision == GpuPrecision::Float32;
            failures += usize::from(!subject.compare(&reference, setup, exact, &gpu)?);
            failures += usize::from(!subject.shared_batch_agrees(setup, &gpu)?);
        }
    }
    for &precision in precisions {
        failures += usize::from(!output_layers_agree(number, precision, args.quick)?);
    }
    failures += usize::from(!device_beams_agree(number)?);
    if failures > 0 {
        bail!("{failures} comparisons failed");
    }
    show!("all as it should be");
    Ok(())
}

/// Whether all output layers find the words that the CPU finds in the same logits; prints a line.
fn output_layers_agree(
    number: usize,
    precision: GpuPrecision,
    quick: bool,
) -> anyhow::Result<bool> {
    let (questions, wrong) = try_output_layers(&Cuda::open(number, precision)?, quick)?;
    let verdict = if wrong.is_empty() { "agree" } else { "DIFFER" };
    show!("output layers {:9} {questions} questions, {verdict}", precision.name());
    wrong.iter().take(3).for_each(|difference| show!("  {difference}"));
    Ok(wrong.is_empty())
}

/// Whether the device's beam search continues the same hypotheses as the CPU's; prints a line.
fn device_beams_agree(number: usize) -> anyhow::Result<bool> {
    let (searches, wrong) = try_device_beams(&Cuda::open(number, GpuPrecision::Float32)?)?;
    let verdict = if wrong.is_empty() { "agree" } else { "DIFFER" };
    show!("beams on the device     {searches} searches, {verdict}");
    wrong.iter().take(3).for_each(|difference| show!("  {difference}"));
    Ok(wrong.is_empty())
}

type Open = Box<dyn Fn() -> anyhow::Result<Model>>;

/// The models to compare: name, text with words of the vocabulary, and a function that opens it.
fn subjects(args: &Args) -> Vec<(String, Vec<String>, Open)> {
    if !args.model.is_empty() {
        let open = |path: &PathBuf| -> (String, Vec<String>, Open) {
            let paths = vec![path.clone()];
            let open = move || Ok(peregrine::model::open(&paths, &OpenOptions::default())?);
            (path.display().to_string(), english(), Box::new(open))
        };
        return args.model.iter().map(open).collect();
    }
    let shapes: &[&str] = match args.quick {
        true => &["student", "mbart", "gru", "rnnfc-s3"],
        false => &[
            "student", "nllb", "mbart", "gru", "bideep", "mlstm", "rnnfc-s2", "rnnfc-s3",
            "rnnfc-s5",
        ],
    };
    let made_up = shapes.iter().map(|&shape| -> (String, Vec<String>, Open) {
        let open = move || Ok(made_up_model(architecture(shape).context("a known shape")?, 1)?);
        (shape.to_owned(), numbered_words(), Box::new(open))
    });
    let builtin: Open = Box::new(|| Ok(peregrine::builtin_model()?));
    let builtin = cfg!(feature = "builtin").then(|| ("built-in".to_owned(), english(), builtin));
    made_up.chain(builtin).collect()
}

/// A network to be filled with random numbers, with 2,000 words.
fn architecture(shape: &str) -> Option<Architecture> {
    // Families of large models, made small.
    let size = TransformerSize {
        width: 256,
        inner: 1024,
        heads: 8,
        encoder_layers: 3,
        decoder_layers: 3,
        words: 2000,
    };
    match shape {
        "nllb" => Some(Architecture::Transformer(fairseq_transformer(size))),
        "mbart" => Some(Architecture::Transformer(mbart_transformer(size, 256))),
        _ => preset(shape, Some(size.words)),
    }
}

fn english() -> Vec<String> {
    const SENTENCES: [&str; 8] = [
        "Two dogs play in the snow.",
        "Where is the station?",
        "",
        "The committee will meet again on Thursday to discuss the report and its consequences.",
        "Good morning!",
        "A man in a blue shirt is standing on a ladder cleaning a window.",
        "I would like to know whether the train has already left.",
        "No.",
    ];
    SENTENCES.map(str::to_owned).to_vec()
}

/// Lines of words that random models have.
fn numbered_words() -> Vec<String> {
    let line = |i: usize| {
        let words = (0..1 + i * 7 % 23).map(|j| format!("w{}", 10 + (i * 131 + j * 37) % 1900));
        words.collect::<Vec<_>>().join(" ")
    };
    (0..64).map(line).collect()
}

struct Subject<'a> {
    name: &'a str,
    lines: Vec<String>,
    beam: usize,
}

impl Subject<'_> {
    /// The lines' translations in batches of so many; of as many copies as a crowd has, one after the other.
    fn translate(
        &self,
        translator: &Translator,
        sentences: usize,
    ) -> Result<Vec<Translation>, peregrine::Error> {
        let copies = if sentences == CROWD { CROWD.div_ceil(self.lines.len().max(1)) } else { 1 };
        let lines = std::iter::repeat_n(&self.lines, copies).flatten();
        let requests: Vec<Request<'_>> = lines.map(|line| Request::new(line)).collect();
        let batch = BatchSize { sentences, tokens: 1 << 20 };
        let mut options = translator.options().with_beam(self.beam).with_scores(true);
        options.search.max_length_factor = Some(2.0);
        let workers = translator.workers().with_batch(batch);
        Setup { options, workers }.translate(translator, &requests)
    }

    /// Whether a precision passes all comparisons; prints a line.
    fn compare(
        &self,
        reference: &[Translation],
        setup: &str,
        exact: bool,
        gpu: &Translator,
    ) -> anyhow::Result<bool> {
        let first = self.translate(gpu, BATCHES[0])?;
        let agree = |(a, b): (&Translation, &Translation)| words(a) == words(b);
        let mut independent = true;
        for size in BATCHES[1..].iter().copied().chain([CROWD]) {
            let other = self.translate(gpu, size)?;
            independent &= other.iter().zip(first.iter().cycle()).all(agree);
        }
        let same = |(a, b): &(&Translation, &Translation)| words(a) == words(b);
        let pairs = || first.iter().zip(reference);
        let identical = pairs().filter(same).count();
        let apart = pairs().filter(same).map(|(a, b)| apart(a, b)).fold(0.0, f32::max);
        let exact = !exact || (identical as f64 >= SAME * reference.len() as f64 && apart <= CLOSE);
        show!(
            "{:12} {:9} same words {identical:4} of {:4}, scores within {apart:.1e}, batches of 1, 64, 512, 2048 {} {}",
            self.name,
            setup,
            reference.len(),
            if independent { "agree" } else { "DIFFER" },
            if exact { "" } else { "NOT AS ON THE PROCESSOR" },
        );
        Ok(exact && independent)
    }

    /// Whether requests in a shared batch have the translations that they have alone; prints a
    /// line.
    fn shared_batch_agrees(&self, setup: &str, gpu: &Translator) -> anyhow::Result<bool> {
        let outcome = compare_in_shared_batch(gpu, &self.lines)?;
        let Outcome { answered, wrong, exact, given_up } = outcome;
        let fine = wrong == 0 && answered > 0;
        show!(
            "{:12} {:9} in mixed company {answered} answered, {given_up} given up: {} ({exact} to the bit)",
            self.name,
            setup,
            if fine { "as alone" } else { "NOT AS ALONE" },
        );
        Ok(fine)
    }
}

fn words(translation: &Translation) -> Option<&[String]> {
    translation.alternatives.first().map(|best| best.tokens.as_slice())
}

/// Relative difference of two scores.
fn apart(a: &Translation, b: &Translation) -> f32 {
    let score = |t: &Translation| t.alternatives.first().map_or(0.0, |best| best.score);
    (score(a) - score(b)).abs() / score(b).abs().max(1.0)
}
