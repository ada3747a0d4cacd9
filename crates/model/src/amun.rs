//! Amun's `config.yml`: scorers, their weights, vocabularies, BPE codes, a softmax filter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine_text::Tokenizer;
use serde_norway::{Mapping, Value};

use crate::marian::recurrent::{self, Shape};
use crate::marian::yaml::Yaml;
use crate::shortlist::ShortlistFile;
use crate::{CellKind, Dialect, Model, ModelError, RecurrentNorm, Search, files, marian, nematus};

/// Whether a file is a configuration for Amun, which names scorers.
pub(crate) fn is_config(path: &Path) -> bool {
    let Ok(text) = std::fs::read(path) else { return false };
    Yaml::parse(path, &text).is_ok_and(|yaml| yaml.has("scorers"))
}

/// A configuration whose files exist.
pub(crate) struct Config {
    yaml: Yaml,
    scorers: Vec<Scorer>,
    source: PathBuf,
    target: PathBuf,
    codes: Option<PathBuf>,
    filter: Option<ShortlistFile>,
}

/// A network of the ensemble and its weight.
struct Scorer {
    path: PathBuf,
    weight: f32,
    cells: Cells,
}

/// The cells of a network: those of the encoder's two directions, and those of the decoder before
/// and after attention.
#[derive(Clone, Copy)]
struct Cells {
    forward: CellKind,
    backward: CellKind,
    first: CellKind,
    second: CellKind,
}

impl Config {
    /// Reads a configuration. `networks` and `vocabularies` of the command line replace those of
    /// the configuration.
    pub(crate) fn read(
        path: &Path,
        networks: &[PathBuf],
        vocabularies: Option<&(PathBuf, PathBuf)>,
    ) -> Result<Config, ModelError> {
        let text = std::fs::read(path).map_err(ModelError::io(path))?;
        let yaml = Yaml::parse(path, &text)?;
        let finder = Finder { yaml: &yaml, relative: yaml.flag("relative-paths")? };
        let scorers = match networks {
            [] => scorers(&finder)?,
            _ => networks.iter().map(|path| Scorer::plain(path)).collect(),
        };
        let (source, target) = match vocabularies {
            Some(given) => given.clone(),
            None => (finder.the_only("source-vocab")?, finder.the_only("target-vocab")?),
        };
        let codes = match yaml.has("bpe") {
            true => Some(finder.the_only("bpe")?),
            false => None,
        };
        let filter = filter(&finder)?;
        Ok(Config { scorers, source, target, codes, filter, yaml })
    }

    /// Source and target vocabulary.
    pub(crate) fn vocabularies(&self) -> (PathBuf, PathBuf) {
        (self.source.clone(), self.target.clone())
    }

    /// Opens the networks and vocabularies.
    pub(crate) fn open(&self) -> Result<(Model, Option<ShortlistFile>), ModelError> {
        let codes = self.codes.as_deref().map(files::read).transpose()?;
        let source = words(&self.source, codes)?;
        let joins = self.codes.is_some() && !self.yaml.flag("no-debpe")?;
        let target = words(&self.target, None)?.joining_bpe(joins);
        let mut members = Vec::new();
        for scorer in &self.scorers {
            let stored = marian::read(&scorer.path)?;
            let shape = scorer.shape(&stored)?;
            members.push(recurrent::member(&scorer.path, &stored, &shape, source.eos())?);
        }
        let model = Model {
            dialect: Dialect::Amun,
            members,
            member_weights: self.scorers.iter().map(|scorer| scorer.weight).collect(),
            source: Arc::new(source),
            target: Arc::new(target),
            search: self.search()?,
            shortlist: None,
            languages: None,
            notes: Vec::new(),
        };
        Ok((model, self.filter.clone()))
    }

    fn search(&self) -> Result<Search, ModelError> {
        let mut search = Search::of(Dialect::Amun);
        let yaml = &self.yaml;
        search.beam = yaml.count("beam-size")?.unwrap_or(search.beam);
        search.normalize = if yaml.flag("normalize")? { 1.0 } else { 0.0 };
        search.allow_unk = yaml.flag("allow-unk")?;
        search.max_length_factor = yaml.number("max-length-multiple")?.or(search.max_length_factor);
        search.max_source = yaml.count("max-length")?.unwrap_or(search.max_source);
        Ok(search)
    }
}

/// The tokenizer of a vocabulary, with BPE codes if there are any.
fn words(path: &Path, codes: Option<Arc<[u8]>>) -> Result<Tokenizer, ModelError> {
    Ok(Tokenizer::words(&path.display().to_string(), files::read(path)?, codes)?)
}

impl Scorer {
    fn plain(path: &Path) -> Scorer {
        let gru = CellKind::Gru;
        let cells = Cells { forward: gru, backward: gru, first: gru, second: gru };
        Scorer { path: path.into(), weight: 1.0, cells }
    }

    /// The shape of the network, from the parameters and the configured cells.
    fn shape(&self, stored: &marian::stored::Stored) -> Result<Shape, ModelError> {
        let mut shape = nematus::shape(&self.path, stored)?;
        let Cells { forward, backward, first, second } = self.cells;
        let all = [forward, backward, first, second];
        if all.iter().all(|&cell| cell == CellKind::Gru) {
            return Ok(shape);
        }
        if shape.cell_norm != RecurrentNorm::None {
            let what = "layer normalisation with LSTM cells is not supported";
            return Err(ModelError::unsupported(&self.path, what));
        }
        shape.forward[0] = forward;
        shape.backward[0] = backward;
        shape.base[0] = first;
        shape.base[1] = second;
        shape.amun = true;
        Ok(shape)
    }
}

/// Resolves the paths of a configuration.
struct Finder<'a> {
    yaml: &'a Yaml,
    relative: bool,
}

impl Finder<'_> {
    fn complain(&self, problem: String) -> ModelError {
        ModelError::invalid(self.yaml.path(), problem)
    }

    fn find(&self, key: &str, name: &str) -> Result<PathBuf, ModelError> {
        let path = match self.relative {
            true => files::folder_of(self.yaml.path()).join(name),
            false => PathBuf::from(name),
        };
        match path.is_file() {
            true => Ok(path),
            false => Err(self.complain(format!("{key}: there is no file {}", path.display()))),
        }
    }

    fn the_only(&self, key: &str) -> Result<PathBuf, ModelError> {
        match &self.yaml.list(key)?[..] {
            [only] => self.find(key, only),
            [] => Err(self.complain(format!("{key} is missing"))),
            _ => Err(self.yaml.unsupported(key)),
        }
    }
}

/// Reads `scorers` and `weights`, which must name the same scorers.
fn scorers(finder: &Finder<'_>) -> Result<Vec<Scorer>, ModelError> {
    let map = |key: &str| -> Result<Mapping, ModelError> {
        match finder.yaml.value(key) {
            Some(Value::Mapping(map)) if !map.is_empty() => Ok(map.clone()),
            _ => Err(finder.complain(format!("{key}: expected `NAME: …` lines"))),
        }
    };
    let weights = map("weights")?;
    let mut scorers = Vec::new();
    let described = map("scorers")?;
    for (name, description) in &described {
        let name = name.as_str().unwrap_or_default();
        let Some(weight) = weights.get(name) else {
            return Err(finder.complain(format!("scorers: {name} has no weight under `weights`")));
        };
        let Some(weight) = weight.as_f64().filter(|weight| weight.is_finite()) else {
            return Err(finder.complain(format!("weights: {name}: expected a number")));
        };
        scorers.push(scorer(finder, name, description, weight as f32)?);
    }
    match weights.keys().filter_map(Value::as_str).find(|name| !described.contains_key(*name)) {
        Some(name) => Err(finder.complain(format!("weights: {name}: there is no such scorer"))),
        None => Ok(scorers),
    }
}

fn scorer(
    finder: &Finder<'_>,
    name: &str,
    description: &Value,
    weight: f32,
) -> Result<Scorer, ModelError> {
    let key = format!("scorers: {name}");
    let text = |field: &str| description.get(field).and_then(Value::as_str);
    let Some(path) = text("path") else {
        return Err(finder.complain(format!("{key}: no path")));
    };
    let kind = text("type").unwrap_or("Nematus");
    if !matches!(kind, "Nematus" | "nematus" | "NEMATUS" | "nematus2") {
        let what = format!("{key}: type: {kind:?} is not supported; Nematus and nematus2 are");
        return Err(ModelError::unsupported(finder.yaml.path(), what));
    }
    if description.get("tab").and_then(Value::as_u64).is_some_and(|tab| tab > 0) {
        let what = format!("{key}: tab: several input streams are not supported");
        return Err(ModelError::unsupported(finder.yaml.path(), what));
    }
    let cell = |field: &str, default: CellKind| match text(field) {
        None => Ok(default),
        Some("gru") => Ok(CellKind::Gru),
        Some("lstm") => Ok(CellKind::Lstm),
        Some("mlstm") => Ok(CellKind::Mlstm),
        Some(other) => {
            Err(finder.complain(format!("{key}: {field}: {other:?}: expected gru, lstm or mlstm")))
        }
    };
    let forward = cell("enc-cell", CellKind::Gru)?;
    let first = cell("dec-cell", CellKind::Gru)?;
    let cells = Cells {
        forward,
        backward: cell("enc-cell-r", forward)?,
        first,
        second: cell("dec-cell-2", first)?,
    };
    Ok(Scorer { path: finder.find(&format!("{key}: path"), path)?, weight, cells })
}

/// Reads the softmax filter: `[file, most frequent words, translations of a word]`.
fn filter(finder: &Finder<'_>) -> Result<Option<ShortlistFile>, ModelError> {
    const KEY: &str = "softmax-filter";
    let fields = finder.yaml.list(KEY)?;
    let Some(name) = fields.first() else { return Ok(None) };
    let number = |i: usize, default: usize| match fields.get(i).map(|text| text.parse()) {
        None => Ok(default),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => {
            Err(finder.complain(format!("{KEY}: expected [file, words, translations]")))
        }
    };
    Ok(Some(ShortlistFile {
        path: finder.find(KEY, name)?,
        first: number(1, 10_000)?,
        best: number(2, 1000)?,
        prune: 0.0,
        amun: true,
    }))
}
