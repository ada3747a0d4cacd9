//! Detects the format of a path: a file by its ending and first bytes, a directory by its content.

use std::path::{Path, PathBuf};

use crate::marian::{DecoderConfig, is_decoder_config};
use crate::{ModelError, amun, files, huggingface, rnnfc_file};

/// The detected format and its path.
pub(crate) enum Kind {
    /// A Marian configuration such as `decoder.yml`, which names files.
    MarianConfig(PathBuf),
    /// Amun's `config.yml`.
    AmunConfig(PathBuf),
    /// A single RNN+FC network.
    RnnFc(PathBuf),
    /// A single Marian network.
    MarianFile(PathBuf),
    /// A directory.
    Ctranslate2(PathBuf),
    /// A directory.
    HuggingFace(PathBuf),
    /// A `.peregrine` file.
    Peregrine(PathBuf),
}

/// Detects the format of a path. An ambiguous choice gets a note.
pub(crate) fn discover(path: &Path, notes: &mut Vec<String>) -> Result<Kind, ModelError> {
    let metadata = std::fs::metadata(path).map_err(ModelError::io(path))?;
    if metadata.is_dir() { directory(path, notes) } else { file(path) }
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn file(path: &Path) -> Result<Kind, ModelError> {
    match ending(path) {
        "peregrine" => Ok(Kind::Peregrine(path.into())),
        "yml" | "yaml" => Ok(config(path.into())),
        "npz" => Ok(Kind::MarianFile(path.into())),
        "bin" => match Magic::of(path)? {
            Magic::MarianBin => Ok(Kind::MarianFile(path.into())),
            // PyTorch files are ZIP archives or, if old, pickles.
            _ if huggingface::is_checkpoint(&files::folder_of(path)) => {
                Ok(Kind::HuggingFace(files::folder_of(path)))
            }
            Magic::Ctranslate2 => Ok(Kind::Ctranslate2(files::folder_of(path))),
            Magic::Shortlist => {
                Err(ModelError::invalid(path, "a shortlist, not a model: name it with --shortlist"))
            }
            Magic::Other => Err(unknown(path)),
        },
        // A checkpoint has a configuration beside its weights; the metadata of other files says
        // what they are.
        "safetensors" if huggingface::is_checkpoint(&files::folder_of(path)) => {
            Ok(Kind::HuggingFace(files::folder_of(path)))
        }
        "safetensors" if rnnfc_file::is_network(path)? => Ok(Kind::RnnFc(path.into())),
        "safetensors" => Ok(Kind::Peregrine(path.into())),
        _ => Err(unknown(path)),
    }
}

/// A configuration for Marian or for Amun.
fn config(path: PathBuf) -> Kind {
    if amun::is_config(&path) { Kind::AmunConfig(path) } else { Kind::MarianConfig(path) }
}

fn unknown(path: &Path) -> ModelError {
    let known = ".npz, .bin, .peregrine, .safetensors, .yml or a directory";
    ModelError::invalid(path, format!("not a model file: expected {known}"))
}

/// The configuration beside a network that names that network and nothing else.
pub(crate) fn config_beside(network: &Path, notes: &mut Vec<String>) -> Option<PathBuf> {
    let mut configs = decoder_configs(&files::folder_of(network)).ok()?;
    let same = |model: &PathBuf| model.canonicalize().ok() == network.canonicalize().ok();
    configs.retain(|(_, path)| {
        let models = DecoderConfig::read(path).map(|config| config.models);
        models.is_ok_and(|models| matches!(&models[..], [one] if same(one)))
    });
    first(configs, notes)
}

fn directory(folder: &Path, notes: &mut Vec<String>) -> Result<Kind, ModelError> {
    if let Some(config) = first(decoder_configs(folder)?, notes) {
        return Ok(self::config(config));
    }
    let model_bin = folder.join("model.bin");
    if model_bin.is_file() && Magic::of(&model_bin)? == Magic::Ctranslate2 {
        return Ok(Kind::Ctranslate2(folder.into()));
    }
    if huggingface::is_checkpoint(folder) {
        return Ok(Kind::HuggingFace(folder.into()));
    }
    let entries = files::list(folder)?;
    let ours: Vec<_> = entries.iter().filter(|path| ending(path) == "peregrine").collect();
    if !ours.is_empty() {
        return Ok(Kind::Peregrine(the_only(folder, &ours)?));
    }
    let networks: Vec<_> = entries.iter().filter(|path| is_marian_network(path)).collect();
    if !networks.is_empty() {
        return Ok(Kind::MarianFile(the_only(folder, &networks)?));
    }
    // Argos packages keep the model in a folder of its own.
    let inner = folder.join("model");
    if inner.is_dir() {
        return directory(&inner, notes);
    }
    let looked = "decoder.yml, model.bin, config.json, *.peregrine, *.npz";
    Err(ModelError::invalid(folder, format!("no model in this directory: looked for {looked}")))
}

/// The only file found, or else the one called `model`.
fn the_only(folder: &Path, found: &[&PathBuf]) -> Result<PathBuf, ModelError> {
    let plain = found.iter().find(|path| path.file_stem().is_some_and(|stem| stem == "model"));
    match (found, plain) {
        ([only], _) => Ok((*only).clone()),
        (_, Some(plain)) => Ok((*plain).clone()),
        _ => {
            let names: Vec<_> = found.iter().map(|path| files::name_of(path)).collect();
            let problem = format!("several models ({}): name one of them", names.join(", "));
            Err(ModelError::invalid(folder, problem))
        }
    }
}

/// Whether a file is a Marian network. Training leaves files beside a model that look like one.
fn is_marian_network(path: &Path) -> bool {
    let name = files::name_of(path);
    match ending(path) {
        "npz" => !name.contains(".optimizer.") && !name.contains(".orig."),
        "bin" => Magic::of(path).is_ok_and(|magic| magic == Magic::MarianBin),
        _ => false,
    }
}

/// All of `decoder.yml`, `config*.yml` and `*.decoder.yml`, in this order, each with its rank in
/// it.
fn decoder_configs(folder: &Path) -> Result<Vec<(usize, PathBuf)>, ModelError> {
    let rank = |path: &PathBuf| {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned())?;
        let is_yaml = matches!(ending(path), "yml" | "yaml");
        let rank = match stem.as_str() {
            "decoder" => 0,
            stem if stem.starts_with("config") => 1,
            stem if stem.ends_with(".decoder") => 2,
            _ => return None,
        };
        is_yaml.then_some(rank)
    };
    let mut configs: Vec<_> = files::list(folder)?
        .into_iter()
        .filter_map(|path| rank(&path).map(|rank| (rank, path)))
        .filter(|(_, path)| is_decoder_config(path) || amun::is_config(path))
        .collect();
    configs.sort();
    Ok(configs)
}

/// The first configuration. Others of the same rank get a note and no error: packages have one for
/// each precision, training writes one for each validation metric, and any of them works.
fn first(configs: Vec<(usize, PathBuf)>, notes: &mut Vec<String>) -> Option<PathBuf> {
    let (kind, taken) = configs.first()?;
    let others = configs[1..].iter().filter(|(other, _)| other == kind);
    let others: Vec<String> = others.map(|(_, path)| files::name_of(path)).collect();
    if !others.is_empty() {
        let (taken, others) = (taken.display(), others.join(", "));
        notes.push(format!("{taken} is used; there is also {others}: name the one you mean"));
    }
    Some(taken.clone())
}

/// The format of a `.bin` file, by its first bytes.
#[derive(PartialEq)]
enum Magic {
    MarianBin,
    Ctranslate2,
    Shortlist,
    Other,
}

impl Magic {
    fn of(path: &Path) -> Result<Magic, ModelError> {
        let head = files::head::<8>(path)?;
        let Ok(head) = <[u8; 8]>::try_from(head) else { return Ok(Magic::Other) };
        Ok(match u64::from_le_bytes(head) {
            // 2 is an encrypted header, which the reader refuses by name.
            1 | 2 => Magic::MarianBin,
            0xF11A_48D5_0134_17F5 => Magic::Shortlist,
            // A 32-bit version, then the length of a name, which is never zero.
            other if (2..=64).contains(&(other as u32)) => Magic::Ctranslate2,
            _ => Magic::Other,
        })
    }
}
