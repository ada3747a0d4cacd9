//! The tokenizers of a checkpoint and its languages.
//!
//! | class | segmented by | numbered by |
//! |---|---|---|
//! | MarianMT | `source.spm`, `target.spm` | `vocab.json`, `target_vocab.json` |
//! | M2M-100 | `sentencepiece.bpe.model` | `vocab.json`, then its languages |
//! | NLLB, mBART | `sentencepiece.bpe.model`, or else `tokenizer.json` | `tokenizer.json`, or else fairseq's rule |

use std::path::Path;
use std::sync::Arc;

use peregrine_text::{
    PieceOptions, SentencePiece, Tokenizer, TokenizerJson, UserDefinedScore, Vocabulary,
    multilingual,
};
use serde_json::Value;

use crate::huggingface::class::Class;
use crate::huggingface::config::Config;
use crate::languages::Family;
use crate::{Languages, ModelError, SourcePlace, TargetPlace, belonging, files};

/// The SentencePiece model of multilingual classes.
const SPM: &str = "sentencepiece.bpe.model";
/// The most rows by which an embedding may exceed its vocabulary for padding.
const MOST_PADDING: usize = 64;
/// Control words that no text shows.
const CONTROL: [&str; 2] = ["<s>", "<mask>"];

/// Both tokenizers and the languages.
pub(crate) struct Text {
    pub source: Arc<Tokenizer>,
    pub target: Arc<Tokenizer>,
    pub languages: Option<Languages>,
}

/// Reads the tokenizer files of a class.
pub(crate) fn read(
    folder: &Path,
    class: Class,
    config: &Config,
    notes: &mut Vec<String>,
) -> Result<Text, ModelError> {
    match class {
        Class::MarianMt => marian_mt(folder),
        Class::M2m100 | Class::Mbart => Files::new(folder, class, config)?.read(notes),
    }
}

/// MarianMT. Models of several target languages have tokens `>>xx<<`.
fn marian_mt(folder: &Path) -> Result<Text, ModelError> {
    let vocabulary = folder.join("vocab.json");
    let target = files::first_of(folder, &["target_vocab.json"]);
    let target = target.as_deref().unwrap_or(&vocabulary);
    let options = PieceOptions { language_codes: true, drop_unknown: true };
    let source = pieces(&folder.join("source.spm"), &vocabulary, options)?;
    let target = pieces(&folder.join("target.spm"), target, options)?;
    let languages = Languages::marian_mt(&source);
    Ok(Text { source: Arc::new(source), target: Arc::new(target), languages })
}

fn pieces(spm: &Path, vocabulary: &Path, options: PieceOptions) -> Result<Tokenizer, ModelError> {
    let (spm_name, name) = (spm.display().to_string(), vocabulary.display().to_string());
    let spm = match spm.is_file() {
        true => Some((spm_name.as_str(), files::read(spm)?)),
        false => None,
    };
    Ok(Tokenizer::pieces(spm, (name.as_str(), files::read(vocabulary)?), options)?)
}

/// The files of a multilingual checkpoint.
struct Files<'a> {
    folder: &'a Path,
    class: Class,
    /// `tokenizer_config.json`, if there is one.
    config: Option<Config>,
    tokenizer_class: String,
    /// The number of rows of the embedding.
    rows: usize,
}

impl<'a> Files<'a> {
    fn new(folder: &'a Path, class: Class, model: &Config) -> Result<Files<'a>, ModelError> {
        let config = files::first_of(folder, &["tokenizer_config.json"]);
        let config = config.map(|path| Config::read(&path)).transpose()?;
        let stated = config.iter().chain([model]);
        let stated = stated.filter_map(|config| config.text("tokenizer_class").ok().flatten());
        let tokenizer_class = stated.map(str::to_owned).next().unwrap_or_default();
        let rows = model.count("vocab_size")?.unwrap_or_default();
        Ok(Files { folder, class, config, tokenizer_class, rows })
    }

    fn read(&self, notes: &mut Vec<String>) -> Result<Text, ModelError> {
        let Some(spm) = files::first_of(self.folder, &[SPM, "tokenizer.json"]) else {
            let problem = format!("no tokenizer: neither {SPM} nor tokenizer.json");
            return Err(ModelError::invalid(self.folder, problem));
        };
        let mut words = self.words(&spm)?;
        // fairseq pads its dictionary with words that have no text.
        let padding = words.len()..self.rows.min(words.len() + MOST_PADDING);
        words.extend(padding.map(|number| format!("madeupword-{number}")));
        let vocabulary = Value::from(words).to_string();
        let vocabulary = ("vocabulary.json", Arc::from(vocabulary.as_bytes()));
        let name = spm.display().to_string();
        let options = PieceOptions { language_codes: false, drop_unknown: true };
        let model = Some((name.as_str(), files::read(&spm)?));
        let tokenizer = Tokenizer::pieces(model, vocabulary, options)?;
        let languages = self.languages(&tokenizer)?;
        let is_hidden = |word: &str| CONTROL.contains(&word) || word.starts_with("madeupword");
        let control = (0..tokenizer.size() as u32).filter(|&id| is_hidden(tokenizer.token(id)));
        let hidden = languages.ids().into_iter().chain(control).collect();
        let tokenizer = Arc::new(tokenizer.hiding(hidden));
        notes.extend(belonging::pieces(&spm, &tokenizer));
        Ok(Text { source: tokenizer.clone(), target: tokenizer, languages: Some(languages) })
    }

    /// All words by id.
    fn words(&self, spm: &Path) -> Result<Vec<String>, ModelError> {
        let name = |path: &Path| path.display().to_string();
        if let Some(path) = files::first_of(self.folder, &["vocab.json"]) {
            let vocabulary = Vocabulary::from_json(&name(&path), &files::read(&path)?)?;
            let wmt21 = self.config.as_ref().and_then(|c| c.text("language_codes").ok().flatten());
            let codes: &[&str] = match wmt21 {
                Some("wmt21") => &multilingual::WMT21,
                _ => &multilingual::M2M_100,
            };
            return Ok(multilingual::m2m100_words(&vocabulary, codes));
        }
        if let Some(path) = files::first_of(self.folder, &["tokenizer.json"]) {
            let file = TokenizerJson::from_bytes(&name(&path), &files::read(&path)?)?;
            return Ok(file.sentencepiece.pieces().map(str::to_owned).collect());
        }
        let model =
            SentencePiece::from_bytes(&name(spm), &files::read(spm)?, UserDefinedScore::Zero)?;
        let stated = self.stated_codes();
        let codes = match (stated.is_empty(), self.class) {
            (false, _) => stated,
            (true, Class::Mbart) if self.is_mbart25() => multilingual::MBART_25.to_vec(),
            (true, Class::Mbart) => multilingual::MBART_50.to_vec(),
            (true, _) => multilingual::NLLB.to_vec(),
        };
        let extra = codes.into_iter().chain(["<mask>"]);
        Ok(multilingual::fairseq_words(&name(spm), &model, extra)?)
    }

    /// The language codes that `tokenizer_config.json` lists.
    fn stated_codes(&self) -> Vec<&str> {
        let Some(config) = &self.config else { return Vec::new() };
        let lists = ["additional_special_tokens", "extra_special_tokens"];
        let list = lists.iter().find_map(|key| config.get(key)?.as_array());
        let is_code = |word: &&str| {
            [Family::Nllb, Family::Mbart].iter().any(|family| family.code(word).is_some())
        };
        let words = list.into_iter().flatten().filter_map(Value::as_str);
        words.filter(is_code).collect()
    }

    /// mBART-25 has the source language behind the end symbol, and starts the decoder with the
    /// target language.
    fn is_mbart25(&self) -> bool {
        self.class == Class::Mbart && self.tokenizer_class.starts_with("MBartTokenizer")
    }

    fn languages(&self, tokenizer: &Tokenizer) -> Result<Languages, ModelError> {
        let family = match self.class {
            Class::Mbart => Family::Mbart,
            _ if self.folder.join("vocab.json").is_file() => Family::M2m100,
            _ => Family::Nllb,
        };
        let list = family.tokens(tokenizer);
        if list.is_empty() {
            let problem = "its vocabulary has no language tokens";
            return Err(ModelError::invalid(self.folder, problem));
        }
        // NLLB's first port.
        let legacy = match &self.config {
            Some(config) => config.flag("legacy_behaviour")? == Some(true),
            None => false,
        };
        let after = self.is_mbart25() || (family == Family::Nllb && legacy);
        Ok(Languages {
            list,
            source: if after { SourcePlace::AfterEnd } else { SourcePlace::Begin },
            target: if self.is_mbart25() { TargetPlace::Start } else { TargetPlace::First },
            default_target: None,
        })
    }
}
