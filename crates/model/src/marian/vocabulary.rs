//! Marian's vocabularies as tokenizers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine_text::{PieceOptions, Tokenizer, UserDefinedScore};

use crate::marian::yaml::Yaml;
use crate::{ModelError, files};

/// The two vocabularies of a model. If both are the same file, they share one value.
pub(crate) struct Pair {
    source: Side,
    target: Side,
}

struct Side {
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl Pair {
    /// Whether both sides have the same words, which shortlists need to know.
    pub(crate) fn is_shared(&self) -> bool {
        self.source.path == self.target.path || self.source.bytes == self.target.bytes
    }

    /// Tokenizers of both sides. Source ids from `limit` on (0: no limit) have no embedding and
    /// become the unknown word.
    pub(crate) fn tokenizers(
        &self,
        limit: usize,
    ) -> Result<(Arc<Tokenizer>, Arc<Tokenizer>), ModelError> {
        let target = Arc::new(self.target.tokenizer("target.spm")?);
        let mut source = if self.is_shared() && !has_sibling(&self.source.path, "source.spm") {
            target.clone()
        } else {
            Arc::new(self.source.tokenizer("source.spm")?)
        };
        if limit > 0 && limit < source.size() {
            let mut limited = self.source.tokenizer("source.spm")?;
            limited.limit_source(limit);
            source = Arc::new(limited);
        }
        Ok((source, target))
    }
}

impl Side {
    fn read(path: &Path) -> Result<Side, ModelError> {
        if path.extension().is_some_and(|ending| ending == "fsv") {
            let what = "factored vocabularies (.fsv) are not supported";
            return Err(ModelError::unsupported(path, what));
        }
        Ok(Side { path: path.into(), bytes: files::read(path)? })
    }

    /// The tokenizer of one side. `spm` is the name of a SentencePiece model that OPUS-MT packages
    /// put beside a word list, which then gives the ids of its pieces.
    fn tokenizer(&self, spm: &str) -> Result<Tokenizer, ModelError> {
        let name = self.path.display().to_string();
        if self.path.extension().is_some_and(|ending| ending == "spm") {
            let score = UserDefinedScore::Marian;
            return Ok(Tokenizer::sentencepiece(&name, self.bytes.clone(), score)?);
        }
        if !has_sibling(&self.path, spm) {
            return Ok(Tokenizer::words(&name, self.bytes.clone(), None)?);
        }
        let spm = self.path.with_file_name(spm);
        let spm_name = spm.display().to_string();
        let options = PieceOptions { language_codes: true, drop_unknown: false };
        let vocabulary = (name.as_str(), self.bytes.clone());
        let pieces = Some((spm_name.as_str(), files::read(&spm)?));
        Ok(Tokenizer::pieces(pieces, vocabulary, options)?)
    }
}

fn has_sibling(path: &Path, name: &str) -> bool {
    path.extension().is_none_or(|ending| ending != "spm") && path.with_file_name(name).is_file()
}

/// Reads the two files.
pub(crate) fn pair(source: &Path, target: &Path) -> Result<Pair, ModelError> {
    Ok(Pair { source: Side::read(source)?, target: Side::read(target)? })
}

/// Vocabularies with usual names in a model's folder: one for both sides, or two whose names tell
/// the side (`vocab.en.spm` and `vocab.pt.spm` do not).
pub(crate) fn beside(model: &Path) -> Result<Option<(PathBuf, PathBuf)>, ModelError> {
    let folder = files::folder_of(model);
    let found: Vec<PathBuf> = files::list(&folder)?
        .into_iter()
        .filter(|path| is_vocabulary(&files::name_of(path)))
        .collect();
    let side = |words: [&str; 2]| {
        found.iter().find(|path| words.iter().any(|word| files::name_of(path).contains(word)))
    };
    match (&found[..], side(["source", "src"]), side(["target", "trg"])) {
        ([both], ..) => Ok(Some((both.clone(), both.clone()))),
        (_, Some(source), Some(target)) => Ok(Some((source.clone(), target.clone()))),
        _ => Ok(None),
    }
}

/// The vocabularies a network was trained with, as named by the training options beside it
/// (`model.npz.yml`); the paths as written there if the files are not found.
pub(crate) fn trained_with(model: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut options = model.as_os_str().to_owned();
    options.push(".yml");
    let options = PathBuf::from(options);
    let yaml = Yaml::parse(&options, &std::fs::read(&options).ok()?).ok()?;
    let folder = files::folder_of(model);
    let find = |name: &String| {
        let named = PathBuf::from(name);
        // Paths are those of the training machine.
        let beside = named.file_name().map(|file| folder.join(file));
        let places = [Some(named.clone()), Some(folder.join(&named)), beside];
        places.into_iter().flatten().find(|path| path.is_file()).unwrap_or(named)
    };
    match &yaml.list("vocabs").ok()?.iter().map(find).collect::<Vec<_>>()[..] {
        [both] => Some((both.clone(), both.clone())),
        [source, target] => Some((source.clone(), target.clone())),
        _ => None,
    }
}

fn is_vocabulary(name: &str) -> bool {
    let endings = [".spm", ".yml", ".yaml", ".json", ".fsv"];
    name.contains("vocab") && endings.iter().any(|ending| name.ends_with(ending))
}
