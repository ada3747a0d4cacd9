//! Which model, and how it is opened.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use peregrine::settings::{Settings, Tuning};
use peregrine::{
    Compat, Compute, Device, Error, Model, OpenOptions, ShortlistChoice, ShortlistFile, Translator,
    Tuner,
};

use crate::numbers::number;
use crate::settings::SettingArgs;
use crate::tuning_file;

/// Which model computes, and where.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Model file or directory of any format; several -m are an ensemble
    ///
    /// A directory's parts are found by their usual names.
    #[cfg_attr(
        feature = "builtin",
        doc = "Without a model the built-in English-Portuguese one is used."
    )]
    #[arg(short, long, value_name = "PATH")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    open: OpenArgs,

    /// Where to compute: the first NVIDIA GPU if there is one (`auto`), or the one named
    #[arg(long, value_parser = parse_device, value_name = "auto|cpu|cuda[:N]", default_value = "auto", hide_default_value = true)]
    device: Device,

    /// Precision of products: float32, bfloat16, int16, int8; on a GPU also tf32, float16, fp8
    ///
    /// On a CPU `auto` is int8 where the model is stored in int8, else float32. On a GPU `auto` is float16, and float32 is computed
    /// without tensor cores. A GPU has no int16.
    #[arg(long, value_parser = ["auto", "float32", "tf32", "float16", "bfloat16", "int16", "int8", "fp8"], default_value = "auto", hide_possible_values = true, value_name = "NAME")]
    precision: String,

    #[command(flatten)]
    settings: SettingArgs,
}

/// How a model is opened.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct OpenArgs {
    /// Source and target vocabulary (.spm, .yml, .json or a list of words), in place of what the
    /// model's configuration names
    #[arg(long, hide_short_help = true, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    vocab: Vec<PathBuf>,

    /// Configuration for Marian's decoder (decoder.yml) or Amun's (config.yml): models, vocabularies, search settings
    #[arg(short, long, hide_short_help = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How much each model of an ensemble counts [default: 1 each]
    #[arg(long, hide_short_help = true, value_name = "WEIGHT …", num_args = 1, allow_negative_numbers = true, value_parser = number(0.0..=1e6))]
    weights: Vec<f32>,

    /// Limit the target words: auto, off, vmap, or a table and its numbers
    ///
    /// `auto` is as the model's configuration says. `vmap` is the vmap.txt in a CTranslate2 directory. A table is text, Marian's
    /// binary .bin, or CTranslate2's vmap*.txt. For text the number of first words always allowed [100], of translations kept for
    /// a word [100], and the probability they must exceed [0] may follow.
    #[arg(
        long,
        num_args = 1,
        value_name = "NAME|FILE [FIRST [BEST [PRUNE]]]",
        default_value = "auto",
        hide_default_value = true
    )]
    shortlist: Vec<String>,

    /// Follow an original tool's behaviour (docs/exactness.md has the names)
    #[arg(long, hide_short_help = true, value_name = "NAME", value_delimiter = ',')]
    compat: Vec<String>,
}

impl ModelArgs {
    /// Reads the model and packs it for this machine.
    pub fn open(&self) -> anyhow::Result<Translator> {
        self.open_tuned(self.tuner()?)
    }

    /// The tuner, if the settings turn it on, with the choices stored beside the model or none.
    pub fn tuner(&self) -> anyhow::Result<Option<Tuner>> {
        tuning_file::tuner(&self.settings(), self.model.first().map(PathBuf::as_path))
    }

    /// A tuner without choices.
    pub fn new_tuner(&self) -> Tuner {
        tuning_file::new_tuner(self.settings().tuning)
    }

    /// The file of the tuner's choices, beside the first model.
    pub fn tuning_file(&self) -> Option<PathBuf> {
        tuning_file::beside(self.model.first()?)
    }

    /// The instruction set of products.
    pub fn isa(&self) -> &'static str {
        tuning_file::isa(&self.settings())
    }

    /// Whether an original tool's behaviour is followed.
    pub fn follows_tool(&self) -> bool {
        !self.open.compat.is_empty()
    }

    /// The laboratory settings.
    pub fn settings(&self) -> Settings {
        self.settings.settings()
    }

    /// Whether a laboratory setting was named.
    pub fn sets(&self, name: &str) -> bool {
        self.settings.names(name)
    }

    /// Like [`Self::open`], with the given tuner.
    pub fn open_tuned(&self, tuner: Option<Tuner>) -> anyhow::Result<Translator> {
        self.prepare(self.read()?, tuner)
    }

    /// Reads another model, which shares only the options of `--compat` with this one.
    pub fn read_other(&self, path: &Path) -> anyhow::Result<Model> {
        let compat = self.open.open_options()?.compat;
        let options = OpenOptions { compat, ..OpenOptions::default() };
        Ok(peregrine::model::open(&[path.to_owned()], &options)?)
    }

    /// Packs a model for this machine.
    pub fn prepare(&self, model: Model, tuner: Option<Tuner>) -> anyhow::Result<Translator> {
        let compute = Compute { tuner, ..self.compute()? };
        Translator::prepare(model, &compute).map_err(|error| match error {
            Error::Gpu(reason) if self.device == Device::Auto => {
                let name = &self.precision;
                anyhow!("--precision {name}: only a GPU has it, and none can be used: {reason}")
            }
            other => other.into(),
        })
    }

    /// The files that options name, each with its option. A directory stands for the files in it.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
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
    pub fn read(&self) -> anyhow::Result<Model> {
        self.open.read(&self.model)
    }

    /// The options of computing, without a tuner.
    pub fn compute(&self) -> anyhow::Result<Compute> {
        let name = self.precision.as_str();
        let mut device = self.device;
        let settings = self.settings();
        if settings.tuning == Tuning::Precisions {
            if !matches!(name, "auto" | "float32" | "int16") {
                bail!("--set tune=precisions: float32 and int16 compete, not {name}");
            }
            match device {
                Device::Cuda(_) => bail!("--set tune=precisions: not on a GPU"),
                _ => device = Device::Cpu,
            }
        }
        settings.compute.on(device, name).map_err(|problem| anyhow!("--precision {problem}"))
    }
}

impl OpenArgs {
    /// Reads a model; the built-in one if no path is given.
    pub fn read(&self, paths: &[PathBuf]) -> anyhow::Result<Model> {
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
    pub fn shortlist(&self) -> anyhow::Result<ShortlistChoice> {
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

/// A shortlist from its name, or from a file and its numbers.
pub fn parse_shortlist(values: &[String]) -> anyhow::Result<ShortlistChoice> {
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

/// Reads the name of a device. A build without the GPU backend refuses GPUs.
fn parse_device(name: &str) -> Result<Device, String> {
    match name.parse()? {
        Device::Cuda(_) if cfg!(not(feature = "cuda")) => {
            Err("this build has no CUDA backend".to_owned())
        }
        device => Ok(device),
    }
}
