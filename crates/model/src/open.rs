//! Opening a model: a file or a directory, of any dialect, alone or as an ensemble.

use std::path::{Path, PathBuf};

use peregrine_formats::{Bytes, Source};
use peregrine_text::Tokenizer;

use crate::discover::{Kind, config_beside, discover};
use crate::marian::{self, DecoderConfig};
use crate::shortlist::{Shortlist, ShortlistChoice, ShortlistFile};
use crate::{
    Compat, Dialect, Model, ModelError, Precision, amun, belonging, check, ctranslate2,
    huggingface, nematus, peregrine_file, rnnfc_file,
};

/// Options of opening a model.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Source and target vocabulary. For CTranslate2 the first is the SentencePiece model.
    pub vocabularies: Option<(PathBuf, PathBuf)>,
    /// A configuration for Marian's decoder. Paths given to [`open`] override its models.
    pub config: Option<PathBuf>,
    /// The weight of each network of an ensemble; empty means 1 each, or the configured weights.
    pub member_weights: Vec<f32>,
    /// The shortlist.
    pub shortlist: ShortlistChoice,
    /// Switches that follow another tool.
    pub compat: Vec<Compat>,
}

/// Opens a model: a file or directory of any format; several are an ensemble.
///
/// Tokenizers, search settings and shortlist are those of the first path. No path is needed if
/// the options name a configuration.
pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Model, ModelError> {
    let amun = options.config.as_deref().filter(|path| amun::is_config(path));
    let mut opened = match (paths, amun) {
        (_, Some(config)) => vec![open_amun(config, paths, options)?],
        ([], None) => vec![open_config_only(options)?],
        _ => open_all(paths, options)?,
    };
    let rest = opened.split_off(1);
    let Some(Opened { mut model, shortlist }) = opened.pop() else {
        return Err(ModelError::Option("no model was given".into()));
    };
    for other in rest {
        join(&mut model, other.model)?;
    }
    set_weights(&mut model, options)?;
    check::model(&mut model)?;
    choose(&mut model, &options.shortlist, shortlist)?;
    for compat in &options.compat {
        compat.apply(&mut model);
    }
    Ok(model)
}

/// Opens a `.peregrine` file in memory; messages call it `name`.
pub fn open_bytes(name: &str, bytes: Bytes) -> Result<Model, ModelError> {
    let mut model = peregrine_file::open(&Source::new(name, bytes))?;
    check::model(&mut model)?;
    Ok(model)
}

/// Saves a model of one network as a file whose name must end in `.peregrine`. With a precision,
/// its matrices are stored in that precision; vectors and position tables are not converted.
pub fn save(model: &Model, path: &Path, precision: Option<Precision>) -> Result<(), ModelError> {
    peregrine_file::save(model, path, precision)
}

/// A model, and the shortlist its configuration names.
struct Opened {
    model: Model,
    shortlist: Option<ShortlistFile>,
}

impl From<Model> for Opened {
    fn from(model: Model) -> Opened {
        Opened { model, shortlist: None }
    }
}

fn open_config_only(options: &OpenOptions) -> Result<Opened, ModelError> {
    match &options.config {
        Some(path) => open_configured(&DecoderConfig::read(path)?, options),
        None => Err(ModelError::Option("no model was given".into())),
    }
}

/// Opens the model of an Amun configuration; networks of the command line replace its scorers.
fn open_amun(
    path: &Path,
    networks: &[PathBuf],
    options: &OpenOptions,
) -> Result<Opened, ModelError> {
    let config = amun::Config::read(path, networks, options.vocabularies.as_ref())?;
    let (mut model, shortlist) = config.open()?;
    if let Some(given) = &options.vocabularies
        && let Ok(own) = amun::Config::read(path, networks, None)
    {
        model.notes.extend(belonging::vocabularies(given, &own.vocabularies()));
    }
    Ok(Opened { model, shortlist })
}

fn open_all(paths: &[PathBuf], options: &OpenOptions) -> Result<Vec<Opened>, ModelError> {
    let mut opened: Vec<Opened> = Vec::new();
    // A network without vocabularies uses those of the network before it.
    let mut vocabularies = options.vocabularies.clone();
    for path in paths {
        let mut notes = Vec::new();
        let mut one = match discover(path, &mut notes)? {
            Kind::MarianConfig(config) => {
                let config = override_config(DecoderConfig::read(&config)?, options)?;
                vocabularies = vocabularies.or_else(|| config.vocabularies.clone());
                open_configured(&config, options)?
            }
            Kind::AmunConfig(config) => open_amun(&config, &[], options)?,
            Kind::RnnFc(file) => {
                let Some((source, target)) = &vocabularies else {
                    rnnfc_file::examine(&file)?;
                    return Err(no_vocabulary(&file));
                };
                rnnfc_file::open(&file, &marian::pair(source, target)?)?.into()
            }
            Kind::MarianFile(file) => {
                open_marian_file(&file, &mut vocabularies, options, &mut notes)?
            }
            Kind::Ctranslate2(folder) => {
                let spm = options.vocabularies.as_ref().map(|(source, _)| source.as_path());
                let raw = options.compat.contains(&Compat::RawSource);
                ctranslate2::open(&folder, spm, raw)?.into()
            }
            Kind::HuggingFace(folder) => complete(huggingface::open(&folder)?, options),
            Kind::Peregrine(file) => {
                complete(peregrine_file::open(&Source::open(&file)?)?, options)
            }
        };
        one.model.notes.splice(0..0, notes);
        opened.push(one);
    }
    Ok(opened)
}

/// A model that comes with its tokenizers.
fn complete(mut model: Model, options: &OpenOptions) -> Opened {
    if options.vocabularies.is_some() {
        let path = model.members[0].path.display();
        model.notes.push(format!("{path}: has its own vocabularies; those given are not used"));
    }
    model.into()
}

/// Opens the model of a `decoder.yml`.
fn open_configured(config: &DecoderConfig, options: &OpenOptions) -> Result<Opened, ModelError> {
    if config.models.is_empty() {
        return Err(ModelError::invalid(&config.path, "names no models"));
    }
    let vocabularies = options.vocabularies.as_ref().or(config.vocabularies.as_ref());
    let Some((source, target)) = vocabularies else {
        let problem = "names no vocabs; name them there or with --vocab SOURCE TARGET";
        return Err(ModelError::invalid(&config.path, problem));
    };
    let mut model = marian::open(&config.models, &marian::pair(source, target)?, Some(config))?;
    if let (Some(given), Some(own)) = (&options.vocabularies, &config.vocabularies) {
        model.notes.extend(belonging::vocabularies(given, own));
    }
    Ok(Opened { model, shortlist: config.shortlist.clone() })
}

/// A configuration that the user names replaces the one that was found, except for the models.
fn override_config(
    found: DecoderConfig,
    options: &OpenOptions,
) -> Result<DecoderConfig, ModelError> {
    let Some(path) = &options.config else { return Ok(found) };
    let mut config = DecoderConfig::read(path)?;
    config.models = found.models;
    Ok(config)
}

/// Opens a network, with the configuration beside it if that names the network.
fn open_marian_file(
    file: &Path,
    vocabularies: &mut Option<(PathBuf, PathBuf)>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Opened, ModelError> {
    let config = options.config.clone().or_else(|| config_beside(file, notes));
    let config = config.map(|path| DecoderConfig::read(&path)).transpose()?;
    let configured = config.as_ref().and_then(|config| config.vocabularies.clone());
    let named = match configured {
        Some(configured) => Some(configured),
        None => nematus::dictionaries(file)?,
    };
    let found = match vocabularies.take().or_else(|| named.clone()) {
        Some(found) => Some(found),
        None => marian::beside(file)?,
    };
    if let Some(given) = &options.vocabularies
        && let Some(own) = named.or_else(|| marian::trained_with(file))
    {
        notes.extend(belonging::vocabularies(given, &own));
    }
    let files = [file.to_path_buf()];
    let Some((source, target)) = found else {
        // Report an error of the network rather than a missing vocabulary.
        marian::examine(file)?;
        return Err(no_vocabulary(file));
    };
    let model = marian::open(&files, &marian::pair(&source, &target)?, config.as_ref())?;
    *vocabularies = Some((source, target));
    Ok(Opened { model, shortlist: config.and_then(|config| config.shortlist) })
}

fn no_vocabulary(model: &Path) -> ModelError {
    let problem = "no vocabularies found beside it; name them with --vocab SOURCE TARGET";
    ModelError::invalid(model, problem)
}

/// Adds the networks of another model to an ensemble.
fn join(model: &mut Model, other: Model) -> Result<(), ModelError> {
    let size = |model: &Model| model.members[0].architecture.target_vocabulary();
    if size(model) != size(&other) {
        let problem = format!(
            "{} target words, but {} has {}: an ensemble shares its vocabulary",
            size(&other),
            model.members[0].path.display(),
            size(model)
        );
        return Err(ModelError::invalid(&other.members[0].path, problem));
    }
    pad_weights(model);
    model.member_weights.extend(other.member_weights);
    model.members.extend(other.members);
    model.notes.extend(other.notes);
    Ok(())
}

/// Gives members without a weight the weight 1, as in Marian.
fn pad_weights(model: &mut Model) {
    model.member_weights.resize(model.members.len(), 1.0);
}

fn set_weights(model: &mut Model, options: &OpenOptions) -> Result<(), ModelError> {
    pad_weights(model);
    let given = &options.member_weights;
    if given.is_empty() {
        if model.dialect == Dialect::Devlin {
            // Ensembles of this dialect average their members.
            model.member_weights.fill(1.0 / model.members.len() as f32);
        }
        return Ok(());
    }
    let networks = model.members.len();
    if given.len() != networks {
        let weights = given.len();
        let problem = format!("weights: {weights} for {networks} networks, expected one for each");
        return Err(ModelError::Option(problem));
    }
    // Refuse negative weights, which would prefer the worst words.
    let sum: f32 = given.iter().sum();
    if given.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)) || sum == 0.0 {
        let problem = format!("weights {given:?}: expected numbers of at least 0, one above it");
        return Err(ModelError::Option(problem));
    }
    model.member_weights = given.clone();
    Ok(())
}

/// Gives an open model another shortlist.
pub fn choose_shortlist(model: &mut Model, choice: &ShortlistChoice) -> Result<(), ModelError> {
    choose(model, choice, None)
}

fn choose(
    model: &mut Model,
    choice: &ShortlistChoice,
    configured: Option<ShortlistFile>,
) -> Result<(), ModelError> {
    let file = match choice {
        ShortlistChoice::Off => {
            model.shortlist = None;
            return Ok(());
        }
        ShortlistChoice::Auto => match configured {
            // A `.peregrine` file has its own shortlist.
            None => {
                if let Some(vmap) = vmap_of(model).filter(|_| model.shortlist.is_none()) {
                    let vmap = vmap.display();
                    model
                        .notes
                        .push(format!("{vmap}: not used unless asked for: --shortlist vmap"));
                }
                return Ok(());
            }
            Some(file) => file,
        },
        ShortlistChoice::Vmap => match vmap_of(model) {
            Some(vmap) => ShortlistFile::new(vmap),
            None => {
                let problem = "there is no CTranslate2 vmap.txt beside it";
                return Err(ModelError::invalid(&model.members[0].path, problem));
            }
        },
        ShortlistChoice::File(file) => file.clone(),
    };
    let shared = same_words(&model.source, &model.target);
    let (source, target) = (&model.source, &model.target);
    let list = Shortlist::read(&file, source, target, shared, &mut model.notes)?;
    model.shortlist = Some(list);
    Ok(())
}

/// The vocabulary map of a CTranslate2 model.
fn vmap_of(model: &Model) -> Option<PathBuf> {
    let network = (model.dialect == Dialect::Ctranslate2).then(|| &model.members[0].path)?;
    ctranslate2::vmap(network)
}

/// Whether every source id means the same word on the target side.
fn same_words(source: &Tokenizer, target: &Tokenizer) -> bool {
    std::ptr::eq(source, target)
        || (source.size() <= target.size()
            && (0..source.size() as u32).all(|id| source.token(id) == target.token(id)))
}
