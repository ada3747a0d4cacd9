//! `decoder.yml`: the files of a model and the search settings for Marian's decoder.

use std::path::{Path, PathBuf};

use crate::marian::yaml::{Yaml, switch};
use crate::shortlist::ShortlistFile;
use crate::{ModelError, Search};

/// A configuration for Marian's decoder.
pub(crate) struct DecoderConfig {
    /// The configuration itself, for messages.
    pub path: PathBuf,
    pub models: Vec<PathBuf>,
    /// Source and target vocabulary.
    pub vocabularies: Option<(PathBuf, PathBuf)>,
    pub weights: Vec<f32>,
    pub shortlist: Option<ShortlistFile>,
    /// Whether control characters may be produced.
    pub allow_special: bool,
    pub notes: Vec<String>,
    settings: Settings,
}

/// The search settings that override the defaults.
struct Settings {
    beam: Option<usize>,
    normalize: Option<f32>,
    word_penalty: Option<f32>,
    max_length_factor: Option<f32>,
    max_source: Option<usize>,
    allow_unk: bool,
}

/// Keys that change Marian's output and are not supported here.
const NOT_FOLLOWED: [&str; 5] =
    ["no-spm-encode", "no-spm-decode", "force-decode", "output-sampling", "output-approx-knn"];

/// Whether a file is a decoder's configuration: it names models, and no training data.
pub(crate) fn is_decoder_config(path: &Path) -> bool {
    let Ok(text) = std::fs::read(path) else { return false };
    let Ok(yaml) = Yaml::parse(path, &text) else { return false };
    !yaml.has("train-sets") && (yaml.has("models") || yaml.has("model"))
}

impl DecoderConfig {
    /// Reads a configuration and finds the files it names.
    pub(crate) fn read(path: &Path) -> Result<DecoderConfig, ModelError> {
        let text = std::fs::read(path).map_err(ModelError::io(path))?;
        let yaml = Yaml::parse(path, &text)?;
        let mut files = Files::new(&yaml)?;
        let models_key = if yaml.has("models") { "models" } else { "model" };
        let models = files.find_all(models_key)?;
        let vocabularies = match &files.find_all("vocabs")?[..] {
            [] => None,
            [both] => Some((both.clone(), both.clone())),
            [source, target] => Some((source.clone(), target.clone())),
            _ => return Err(yaml.complain("vocabs", "expected one source and one target")),
        };
        let shortlist = shortlist(&yaml, &mut files)?;
        let weights: Vec<f32> = yaml.numbers("weights")?;
        if !weights.is_empty() && weights.len() != models.len() {
            return Err(yaml.complain("weights", &format!("expected {} numbers", models.len())));
        }
        let mut notes = files.notes;
        for key in NOT_FOLLOWED {
            if yaml.has(key) && yaml.flag(key).unwrap_or(true) {
                notes.push(format!("{}: {key} is not followed", path.display()));
            }
        }
        let allow_special = yaml.flag("allow-special")?;
        let settings = settings(&yaml)?;
        Ok(DecoderConfig {
            path: path.into(),
            models,
            vocabularies,
            weights,
            shortlist,
            allow_special,
            notes,
            settings,
        })
    }

    /// Overrides the configured search settings and leaves the others.
    pub(crate) fn apply(&self, search: &mut Search) {
        let s = &self.settings;
        search.beam = s.beam.unwrap_or(search.beam);
        search.normalize = s.normalize.unwrap_or(search.normalize);
        search.word_penalty = s.word_penalty.unwrap_or(search.word_penalty);
        search.max_length_factor = s.max_length_factor.or(search.max_length_factor);
        search.max_source = s.max_source.unwrap_or(search.max_source);
        search.allow_unk |= s.allow_unk;
    }
}

fn settings(yaml: &Yaml) -> Result<Settings, ModelError> {
    let positive = |key| match yaml.count(key)? {
        Some(0) => Err(yaml.complain(key, "expected at least 1")),
        count => Ok(count),
    };
    Ok(Settings {
        beam: positive("beam-size")?,
        normalize: normalize(yaml)?,
        word_penalty: yaml.number("word-penalty")?,
        max_length_factor: match yaml.number("max-length-factor")? {
            Some(factor) if factor <= 0.0 => {
                return Err(yaml.complain("max-length-factor", "expected a positive number"));
            }
            factor => factor,
        },
        max_source: positive("max-length")?,
        allow_unk: yaml.flag("allow-unk")?,
    })
}

/// Reads `normalize`: a number, or a switch that means 1.
fn normalize(yaml: &Yaml) -> Result<Option<f32>, ModelError> {
    match yaml.text("normalize")?.as_deref().and_then(switch) {
        Some(on) => Ok(Some(f32::from(u8::from(on)))),
        None => yaml.number("normalize"),
    }
}

/// Reads `shortlist`: `path first best prune`, or for a binary file `path check`.
fn shortlist(yaml: &Yaml, files: &mut Files) -> Result<Option<ShortlistFile>, ModelError> {
    let fields = yaml.list("shortlist")?;
    let Some(path) = fields.first() else { return Ok(None) };
    let mut file = ShortlistFile::new(files.find("shortlist", path)?);
    if file.is_binary() {
        return Ok(Some(file));
    }
    let wrong = || yaml.complain("shortlist", "expected: path first best prune");
    let number = |i: usize| fields.get(i).map(|text| text.parse::<usize>()).transpose();
    if let Some(first) = number(1).map_err(|_| wrong())? {
        file.first = first;
    }
    if let Some(best) = number(2).map_err(|_| wrong())? {
        file.best = best;
    }
    if let Some(prune) = fields.get(3) {
        file.prune = prune.parse().map_err(|_| wrong())?;
    }
    Ok(Some(file))
}

/// Resolves the paths of a configuration.
struct Files<'a> {
    yaml: &'a Yaml,
    folder: PathBuf,
    relative: bool,
    interpolate: bool,
    notes: Vec<String>,
}

impl Files<'_> {
    fn new(yaml: &Yaml) -> Result<Files<'_>, ModelError> {
        Ok(Files {
            yaml,
            folder: yaml.path().parent().unwrap_or(Path::new("")).into(),
            relative: yaml.flag("relative-paths")?,
            interpolate: yaml.flag("interpolate-env-vars")?,
            notes: Vec::new(),
        })
    }

    fn find_all(&mut self, key: &str) -> Result<Vec<PathBuf>, ModelError> {
        self.yaml.list(key)?.iter().map(|name| self.find(key, name)).collect()
    }

    fn find(&mut self, key: &str, name: &str) -> Result<PathBuf, ModelError> {
        let name = if self.interpolate { self.interpolated(key, name)? } else { name.into() };
        let named = PathBuf::from(&name);
        let beside = self.folder.join(&named);
        let file_name = named.file_name().map(|file| self.folder.join(file));
        if self.relative {
            return if beside.exists() { Ok(beside) } else { Err(self.missing(key, &beside)) };
        }
        if named.exists() {
            return Ok(named);
        }
        // Training writes absolute paths, which no longer exist once a model is moved.
        let moved = Some(beside).into_iter().chain(file_name).find(|path| path.exists());
        let found = moved.ok_or_else(|| self.missing(key, &named))?;
        let config = self.yaml.path().display();
        self.notes.push(format!("{config}: {key}: {name} not found, using {}", found.display()));
        Ok(found)
    }

    fn missing(&self, key: &str, path: &Path) -> ModelError {
        let problem = format!("{key}: there is no file {}", path.display());
        ModelError::invalid(self.yaml.path(), problem)
    }

    /// Replaces `${NAME}` by the environment's value.
    fn interpolated(&self, key: &str, text: &str) -> Result<String, ModelError> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, tail)) = after.split_once('}') else { break };
            let value = std::env::var(name)
                .map_err(|_| self.yaml.complain(key, &format!("environment has no {name}")))?;
            out.push_str(before);
            out.push_str(&value);
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }
}
