//! Which model, and how it is opened.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use peregrine::measure::{Int8Options, Technique};
use peregrine::{
    CachePrecision, Compat, Compute, Device, Error, GpuPrecision, Level, Model, OpenOptions,
    Precision, ShortlistChoice, ShortlistFile, Translator, Tuner,
};

use crate::args::numbers::number;
use crate::args::speedups::SpeedupArgs;
use crate::gpu::{GpuArgs, parse_device};
use crate::tune;

/// Which model computes, and where.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model file or directory of any format; several -m are an ensemble. A directory's parts are
    /// found by their usual names.
    #[cfg_attr(
        feature = "builtin",
        doc = "Without a model the built-in English-Portuguese one is used"
    )]
    #[arg(short, long, value_name = "PATH")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    open: OpenArgs,

    /// Where to compute: `auto` is the first NVIDIA GPU, if there is one, else the processor
    #[arg(long, value_parser = parse_device, value_name = "auto|cpu|cuda[:N]", default_value = "auto")]
    device: Device,

    /// Precision of products. A processor knows float32, bfloat16, int16 and int8, and `auto` is int8 where
    /// the model is stored in int8, else float32. A GPU knows float32 (without tensor cores), tf32,
    /// float16, bfloat16, int8 and fp8, and `auto` is float16
    #[arg(long, value_parser = ["auto", "float32", "tf32", "float16", "bfloat16", "int16", "int8", "fp8"], default_value = "auto", hide_possible_values = true, value_name = "NAME")]
    precision: String,

    #[command(flatten)]
    gpu: GpuArgs,

    /// Instructions to use [default: the best this processor has]
    #[arg(long, value_parser = parse_isa, value_name = "portable|neon|neon-dot|avx2|avx-vnni|avx512|avx512-vnni|amx")]
    isa: Option<Level>,

    /// Numbers in which attention keeps keys and values from step to step: those of fewer bits are faster in large
    /// batches and may change a word (docs/cpu.md) [default: int8 where products are in int8, float16 where they are in bfloat16, else float32]
    #[arg(long, value_parser = parse_cache, value_name = "float32|float16|bfloat16|int8")]
    cache: Option<CachePrecision>,

    /// Steps inputs are rounded to in int8: fit to each `row`, or those the `file` fixes (alphas), where
    /// it does
    #[arg(long, value_parser = ["row", "file"], default_value = "row")]
    input_steps: String,

    /// Sums in int8: `exact`, or in 16 bits (`saturating`), wrong where a sum does not fit
    #[arg(long, value_parser = ["exact", "saturating"], default_value = "exact")]
    sums: String,

    /// Numbers in which int8 keeps the hidden rows of a feed-forward block (with ReLU) before they become bytes
    #[arg(long, value_parser = ["float16", "float32"], default_value = "float16")]
    hidden: String,

    /// Follow up a product in blocks of rows that stay in cache, the output layer's as scores leave the registers
    #[arg(long, value_parser = ["on", "off"], default_value = "on")]
    row_blocks: String,

    /// In int8 and greedy search, a sentence at a time: find the words that can be the best from half of the
    /// output layer's bytes, then compute those (the same bits)
    #[arg(long, value_parser = ["on", "off"], default_value = "on")]
    screening: String,

    /// Time the kernels there are for each shape of a product and keep to the fastest (all give the same
    /// bits). `peregrine tune` does it ahead, and `auto` takes what it stored. `precisions` times float32
    /// against int16, as Marian does: what a sentence becomes may then depend on its batch and on the run
    #[arg(long, value_parser = ["auto", "on", "off", "precisions"], default_value = "auto")]
    tune: String,

    /// Turn off techniques that make a processor faster and leave results as they are, to see what each gives
    /// (docs/cpu.md): packed-once, prefetch, large-pages, joint-products, tile-order, two-panels, fused-norms,
    /// shared-reads, sixteen-rows
    #[arg(long, value_parser = parse_technique, value_name = "NAME,…", value_delimiter = ',')]
    without: Vec<Technique>,

    #[command(flatten)]
    speedups: SpeedupArgs,
}

/// How a model is opened.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct OpenArgs {
    /// Source and target vocabulary (.spm, .yml, .json or a list of words), in place of what the
    /// model's configuration names
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    vocab: Vec<PathBuf>,

    /// Configuration for Marian's decoder (decoder.yml) or Amun's (config.yml): models, vocabularies, search settings
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How much each model of an ensemble counts [default: 1 each]
    #[arg(long, value_name = "WEIGHT …", num_args = 1, allow_negative_numbers = true, value_parser = number(0.0..=1e6))]
    weights: Vec<f32>,

    /// Limit the target words: `auto` (as the model's configuration says), `off`, `vmap` (the
    /// vmap.txt in a CTranslate2 directory), or a table (text, Marian's binary .bin, or CTranslate2's
    /// vmap*.txt) and for text the number of first words always allowed [100], of translations kept
    /// for a word [100], and the probability they must exceed [0]
    #[arg(
        long,
        num_args = 1,
        value_name = "auto|off|vmap|FILE [FIRST [BEST [PRUNE]]]",
        default_value = "auto",
        hide_default_value = true
    )]
    shortlist: Vec<String>,

    /// Follow an original tool's behaviour: see docs/exactness.md for the names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    compat: Vec<String>,
}

impl ModelArgs {
    /// Reads the model and packs it for this machine.
    pub(crate) fn open(&self) -> anyhow::Result<Translator> {
        self.open_tuned(self.tuner()?)
    }

    /// The tuner asked for: one that knows what is written beside the model, or begins anew.
    pub(crate) fn tuner(&self) -> anyhow::Result<Option<Tuner>> {
        let stored = self.tuning_file().filter(|file| file.exists());
        if self.tune == "off" || (self.tune == "auto" && stored.is_none()) {
            return Ok(None);
        }
        let tuner = self.new_tuner();
        if let Some(file) = stored {
            tuner.restore(&tune::read(&file, self.isa())?);
        }
        Ok(Some(tuner))
    }

    /// A tuner that knows nothing yet.
    pub(crate) fn new_tuner(&self) -> Tuner {
        match self.tune.as_str() {
            "precisions" => Tuner::across_precisions(),
            _ => Tuner::default(),
        }
    }

    /// Where choices are stored: beside the first model.
    pub(crate) fn tuning_file(&self) -> Option<PathBuf> {
        let model = self.model.first()?;
        if model.is_dir() {
            return Some(model.join("peregrine.tuning.json"));
        }
        let mut name = model.file_name()?.to_owned();
        name.push(".tuning.json");
        Some(model.with_file_name(name))
    }

    /// The instructions products are computed with.
    pub(crate) fn isa(&self) -> &'static str {
        self.isa.map_or_else(peregrine::instruction_set, Level::name)
    }

    /// The same with a certain tuner.
    pub(crate) fn open_tuned(&self, tuner: Option<Tuner>) -> anyhow::Result<Translator> {
        self.prepare(self.read()?, tuner)
    }

    /// Packs a model for this machine.
    pub(crate) fn prepare(&self, model: Model, tuner: Option<Tuner>) -> anyhow::Result<Translator> {
        let compute = Compute { tuner, ..self.compute()? };
        Translator::prepare(model, &compute).map_err(|error| match error {
            Error::Gpu(reason) if self.device == Device::Auto => {
                let name = &self.precision;
                anyhow!("--precision {name}: only a GPU has it, and none can be used: {reason}")
            }
            other => other.into(),
        })
    }

    /// The files that options name, each with its option; of directories, the files in them.
    pub(crate) fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let models = self.model.iter().flat_map(|path| files_of(path));
        let mut files: Vec<_> = models.map(|path| ("--model", path)).collect();
        files.extend(self.open.vocab.iter().map(|path| ("--vocab", path.clone())));
        files.extend(self.open.config.iter().map(|path| ("--config", path.clone())));
        if let Ok(ShortlistChoice::File(file)) = self.open.shortlist() {
            files.push(("--shortlist", file.path));
        }
        files
    }

    /// Reads the model.
    pub(crate) fn read(&self) -> anyhow::Result<Model> {
        self.open.read(&self.model)
    }

    /// How products are computed, without a tuner.
    pub(crate) fn compute(&self) -> anyhow::Result<Compute> {
        let name = self.precision.as_str();
        let precision = match name {
            "float32" => Some(Precision::Float32),
            "bfloat16" => Some(Precision::Bfloat16),
            "int16" => Some(Precision::Int16),
            "int8" => Some(Precision::Int8),
            _ => None,
        };
        let numbers = match name.parse::<GpuPrecision>() {
            Err(reason) if name != "auto" && precision.is_none() => {
                bail!("--precision {name}: {reason}")
            }
            numbers => numbers.ok(),
        };
        let mut device = self.device;
        if self.tune == "precisions" {
            if !matches!(name, "auto" | "float32" | "int16") {
                bail!("--tune precisions: float32 and int16 compete, not {name}");
            }
            match device {
                Device::Cuda(_) => bail!("--tune precisions: not on a GPU"),
                _ => device = Device::Cpu,
            }
        }
        match (device, precision, numbers) {
            (_, None, None) | (Device::Auto, Some(_), Some(_)) => {}
            (Device::Cuda(_), _, None) => bail!("--precision {name}: not on a GPU"),
            (Device::Cpu, None, _) => bail!("--precision {name}: not on a processor"),
            // What only one of the two can do is a choice between them.
            (Device::Auto, None, _) => device = Device::Cuda(0),
            (Device::Auto, _, None) => device = Device::Cpu,
            (Device::Cpu | Device::Cuda(_), _, _) => {}
        }
        let (speedups, functions) = (self.speedups.speedups(), self.speedups.functions());
        Ok(self.gpu.apply(Compute {
            precision,
            isa: self.isa,
            cache: self.cache,
            integers: Int8Options {
                fixed_scales: self.input_steps == "file",
                saturating: self.sums == "saturating",
                float_hidden: self.hidden == "float32",
            },
            all_rows_at_once: self.row_blocks == "off",
            all_output_bytes: self.screening == "off",
            without: self.without.clone(),
            tuner: None,
            speedups,
            functions,
            device,
            numbers,
            ..Compute::default()
        }))
    }
}

impl OpenArgs {
    /// Reads a model: the built-in one where nothing is named.
    pub(crate) fn read(&self, paths: &[PathBuf]) -> anyhow::Result<Model> {
        let options = self.open_options()?;
        if paths.is_empty() && self.config.is_none() {
            let model = peregrine::builtin_model();
            let mut model = model.map_err(|reason| anyhow!("{reason}: name one by -m"))?;
            peregrine::model::choose_shortlist(&mut model, &options.shortlist)?;
            return Ok(model);
        }
        Ok(peregrine::model::open(paths, &options)?)
    }

    /// Where the shortlist comes from.
    pub(crate) fn shortlist(&self) -> anyhow::Result<ShortlistChoice> {
        parse_shortlist(&self.shortlist)
    }

    fn open_options(&self) -> anyhow::Result<OpenOptions> {
        let vocabularies = match self.vocab.as_slice() {
            [source, target] => Some((source.clone(), target.clone())),
            _ => None,
        };
        let compat = self.compat.iter().map(|name| name.parse::<Compat>());
        Ok(OpenOptions {
            vocabularies,
            config: self.config.clone(),
            member_weights: self.weights.clone(),
            shortlist: self.shortlist()?,
            compat: compat.collect::<Result<_, _>>()?,
        })
    }
}

fn parse_shortlist(values: &[String]) -> anyhow::Result<ShortlistChoice> {
    if let Some(value) = values.get(4) {
        bail!("--shortlist: {value:?} is one value too many");
    }
    let read = |i: usize, name: &str, range: RangeInclusive<f32>| -> anyhow::Result<Option<f32>> {
        let Some(value) = values.get(i) else { return Ok(None) };
        let read = number(range)(value);
        read.map(Some).map_err(|problem| anyhow!("--shortlist: {name} {value:?}: {problem}"))
    };
    Ok(match values.first().map(String::as_str) {
        None | Some("auto") => ShortlistChoice::Auto,
        Some("off") => ShortlistChoice::Off,
        Some("vmap") => ShortlistChoice::Vmap,
        Some(path) => {
            let mut file = ShortlistFile::new(path);
            // Whole numbers up to this are exact in float32.
            const MOST: f32 = 1e7;
            if let Some(first) = read(1, "FIRST", 0.0..=MOST)? {
                file.first = first as usize;
            }
            if let Some(best) = read(2, "BEST", 1.0..=MOST)? {
                file.best = best as usize;
            }
            if let Some(prune) = read(3, "PRUNE", 0.0..=1.0)? {
                file.prune = prune;
            }
            ShortlistChoice::File(file)
        }
    })
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    match path.read_dir() {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

fn parse_cache(name: &str) -> Result<CachePrecision, String> {
    let known = CachePrecision::ALL.into_iter().find(|keeping| keeping.name() == name);
    known.ok_or_else(|| "expected float32, float16, bfloat16 or int8".into())
}

fn parse_technique(name: &str) -> Result<Technique, String> {
    let found = Technique::ALL.into_iter().find(|technique| technique.name() == name);
    let names = || Technique::ALL.map(Technique::name).join(", ");
    found.ok_or_else(|| format!("expected some of {}", names()))
}

fn parse_isa(name: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|level| level.name() == name);
    let names = || Level::ALL.map(Level::name).join(", ");
    found.ok_or_else(|| format!("expected one of {}", names()))
}
