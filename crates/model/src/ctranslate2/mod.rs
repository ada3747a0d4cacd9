//! CTranslate2 model directories: `model.bin`, `config.json` and vocabularies.
//!
//! | file | what it does |
//! |---|---|
//! | `variables.rs` | the contents of `model.bin` |
//! | `names.rs` | canonical names to variables |
//! | `config.rs` | where each version keeps its options |
//! | `text.rs` | vocabularies and SentencePiece models as tokenizers |
//! | `languages.rs` | the languages of multilingual models, by their vocabulary |

mod config;
mod languages;
pub(crate) mod names;
mod text;
mod variables;

use std::path::{Path, PathBuf};

use peregrine_formats::{Source, ctranslate2 as format};
use peregrine_text::Tokenizer;

use crate::check::{self, Lookup};
use crate::ctranslate2::config::Config;
use crate::ctranslate2::variables::Variables;
use crate::tensors::rows_of;
use crate::{
    Activation, AlignmentHeads, Architecture, Autoregression, Dialect, FeedForward, Languages,
    Member, Model, ModelError, Op, Positions, Search, SelfKeys, SourceFrame, Spacing, Stack, Start,
    Transformer, files,
};

/// The supported revisions. Revision 1 used other names; later ones differ in where attributes are.
const REVISIONS: std::ops::RangeInclusive<u32> = 2..=7;

/// Opens a directory. `spm` overrides the SentencePiece model of the directory. With `raw`, source
/// lines are the library's input, pieces separated by blanks, and no SentencePiece model is used.
pub(crate) fn open(folder: &Path, spm: Option<&Path>, raw: bool) -> Result<Model, ModelError> {
    let path = folder.join("model.bin");
    let file = format::read(&Source::open(&path)?)?;
    let default_heads = check_specification(&path, &file)?;
    let variables = Variables::new(&path, &file);
    let config = Config::read(folder, file.version, &variables)?;
    let mut notes = Vec::new();
    let (source, target) = match raw {
        true => text::without_spm(folder)?,
        false => text::tokenizers(folder, spm, &mut notes)?,
    };
    let context =
        Context { path: &path, variables: &variables, config: &config, default_heads, raw };
    let start = context.start(&target)?;
    let languages = match raw {
        true => None,
        false => languages::find(&config, &source, start),
    };
    let (source, target) = text::hiding_languages((source, target), languages.as_ref());
    let frame = context.frame(&source, &target, languages.is_some(), start, &mut notes)?;
    let description = context.describe(frame, start)?;
    let weights = check::gather(&path, &description, |expected| {
        let Some(place) = names::place(&expected.name) else {
            return Ok(Lookup { stored: expected.name.clone(), weight: None });
        };
        let mut weight = variables.weight(&place)?;
        if expected.name.ends_with(".positions") {
            // Both sides get the length of the shorter table.
            weight = weight.map(|table| rows_of(&table, 0, expected.shape[0]).unwrap_or(table));
        }
        Ok(Lookup { stored: place.name, weight })
    })?;
    refuse_unused(&path, &variables)?;
    let search = search(&description);
    let architecture = Architecture::Transformer(description);
    Ok(Model {
        dialect: Dialect::Ctranslate2,
        members: vec![Member { path, architecture, weights }],
        member_weights: Vec::new(),
        source,
        target,
        search,
        shortlist: None,
        languages,
        notes,
    })
}

/// The languages of a directory, by its vocabulary. Weights are not read.
pub(crate) fn languages(folder: &Path) -> Result<Option<Languages>, ModelError> {
    let path = folder.join("model.bin");
    let file = format::read(&Source::open(&path)?)?;
    let variables = Variables::new(&path, &file);
    let config = Config::read(folder, file.version, &variables)?;
    let (source, target) = text::without_spm(folder)?;
    let context = Context {
        path: &path,
        variables: &variables,
        config: &config,
        default_heads: 8,
        raw: false,
    };
    Ok(languages::find(&config, &source, context.start(&target)?))
}

/// The vocabulary map beside a `model.bin`. The library uses it only with `use_vmap`.
pub(crate) fn vmap(network: &Path) -> Option<PathBuf> {
    files::first_of(&files::folder_of(network), &["vmap.txt"])
}

/// The library's search defaults, limited to the rows of the position table.
fn search(description: &Transformer) -> Search {
    let mut search = Search::of(Dialect::Ctranslate2);
    if let Some(limit) = description.position_limit {
        search.max_source = search.max_source.min(limit);
        search.max_length = search.max_length.map(|most| most.min(limit));
    }
    search
}

/// Checks name and revision of the specification. Returns the number of heads for files too old to
/// store it.
fn check_specification(path: &Path, file: &format::Model) -> Result<i64, ModelError> {
    if !REVISIONS.contains(&file.revision) {
        let what = format!("revision {} of {} is not supported", file.revision, file.spec);
        return Err(ModelError::unsupported(path, what));
    }
    match file.spec.as_str() {
        "TransformerSpec" | "TransformerBase" | "" => Ok(8),
        "TransformerBig" => Ok(16),
        other => {
            let what = match other {
                "TransformerDecoderSpec" => "language models without an encoder",
                "TransformerEncoderSpec" => "encoders alone",
                "WhisperSpec" | "Wav2Vec2Spec" | "Wav2Vec2BertSpec" => "networks for speech",
                _ => "models of this kind",
            };
            let what = format!("{other}: {what} are not supported; TransformerSpec is");
            Err(ModelError::unsupported(path, what))
        }
    }
}

/// Refuses unused variables: they belong to a layer that this engine does not support.
fn refuse_unused(path: &Path, variables: &Variables) -> Result<(), ModelError> {
    match variables.unused().first() {
        None => Ok(()),
        Some(name) => {
            let what = format!("variable {name} belongs to a kind of layer that is not supported");
            Err(ModelError::unsupported(path, what))
        }
    }
}

struct Context<'a> {
    path: &'a Path,
    variables: &'a Variables<'a>,
    config: &'a Config,
    default_heads: i64,
    raw: bool,
}

impl Context<'_> {
    fn describe(&self, frame: SourceFrame, start: Start) -> Result<Transformer, ModelError> {
        self.refuse_unknown_parts()?;
        let rows = |name: &str| self.variables.rows(name).unwrap_or_default();
        let Some(embedding) = self.variables.get("decoder/embeddings/weight") else {
            let problem = "missing variable decoder/embeddings/weight";
            return Err(ModelError::invalid(self.path, problem));
        };
        let width = embedding.shape.get(1).copied().unwrap_or_default();
        let encoder = self.stack("encoder", width)?;
        let decoder = self.stack("decoder", width)?;
        let tables = ["encoder", "decoder"].map(|side| rows(&positions_of(side)));
        let limit = tables.into_iter().filter(|&rows| rows > 0).min();
        Ok(Transformer {
            width,
            source_vocabulary: rows("encoder/embeddings_0/weight"),
            target_vocabulary: rows("decoder/embeddings/weight"),
            source_frame: frame,
            autoregression: Autoregression::SelfAttention,
            decoder_parameters: (0..decoder.layers).collect(),
            start,
            alignment: self.alignment(&decoder)?,
            position_limit: limit,
            encoder,
            decoder,
        })
    }

    fn refuse_unknown_parts(&self) -> Result<(), ModelError> {
        let has = |name: &str| self.variables.has(name);
        if has("encoder/layer_norm/gamma") && !has("encoder/layer_norm/beta") {
            let what =
                "T5's networks (relative position bias, norms without a bias) are not supported";
            return Err(ModelError::unsupported(self.path, what));
        }
        if ["keys", "values"]
            .iter()
            .any(|part| has(&format!("encoder/layer_0/self_attention/relative_position_{part}")))
        {
            let what = "Shaw's relative positions are not supported";
            return Err(ModelError::unsupported(self.path, what));
        }
        for side in ["encoder", "decoder"] {
            for key in ["multi_query_attention", "alibi"] {
                if self.variables.flag(side, key, false)? {
                    let what = format!("{side}/{key} is not supported");
                    return Err(ModelError::unsupported(self.path, what));
                }
            }
            // These only modify alibi or several source embeddings, so they have no effect here.
            for key in ["alibi_use_positive_positions", "scale_alibi", "embeddings_merge"] {
                self.variables.attribute(side, key)?;
            }
        }
        Ok(())
    }

    fn stack(&self, side: &str, width: usize) -> Result<Stack, ModelError> {
        let has = |name: &str| self.variables.has(&format!("{side}/{name}"));
        let layers = (0..).take_while(|l| has(&format!("layer_{l}/ffn/linear_0/weight"))).count();
        let inner = self.variables.rows(&format!("{side}/layer_0/ffn/linear_0/weight"));
        let heads = self.variables.attribute(side, "num_heads")?.unwrap_or(self.default_heads);
        let pre_norm = self.variables.flag(side, "pre_norm", true)?;
        let norm_if = |there: bool| if there { vec![Op::Norm] } else { Vec::new() };
        Ok(Stack {
            layers,
            heads: usize::try_from(heads).unwrap_or_default(),
            feed_forward: FeedForward {
                width: inner.unwrap_or_default(),
                depth: 2,
                activation: self.activation(side)?,
            },
            embedding_scale: self.embedding_scale(side, width)?,
            positions: if has("position_encodings/encodings") {
                Positions::Table
            } else {
                Positions::Sinusoid { first: 1, spacing: Spacing::HalfLessOne }
            },
            after_embedding: norm_if(has("layernorm_embedding/gamma")),
            before_block: norm_if(pre_norm),
            after_block: if pre_norm { vec![Op::Add] } else { vec![Op::Add, Op::Norm] },
            after_stack: norm_if(has("layer_norm/gamma")),
            norm_epsilon: self.config.layer_norm_epsilon.unwrap_or(1e-5),
            attention_projection: true,
            self_keys: SelfKeys::Processed,
        })
    }

    fn activation(&self, side: &str) -> Result<Activation, ModelError> {
        match self.variables.attribute(side, "activation")?.unwrap_or(0) {
            0 => Ok(Activation::Relu),
            1 => Ok(Activation::GeluTanh),
            2 => Ok(Activation::Swish),
            3 => Ok(Activation::Gelu),
            4 => Ok(Activation::GeluSigmoid),
            5 => Ok(Activation::Tanh),
            6 => Ok(Activation::Sigmoid),
            other => {
                let what = format!("{side}/activation {other} is not supported");
                Err(ModelError::unsupported(self.path, what))
            }
        }
    }

    /// The embedding scale: a float is the factor itself; an integer says whether the factor is the
    /// square root of the width or 1.
    fn embedding_scale(&self, side: &str, width: usize) -> Result<f32, ModelError> {
        if let Some(factor) = self.variables.float(&format!("{side}/scale_embeddings")) {
            return Ok(factor);
        }
        let old = format!("{side}/embeddings");
        let flag = match self.variables.attribute(side, "scale_embeddings")? {
            None => self.variables.attribute(&old, "multiply_by_sqrt_depth")?,
            flag => flag,
        };
        Ok(if flag == Some(0) { 1.0 } else { (width as f32).sqrt() })
    }

    fn start(&self, target: &Tokenizer) -> Result<Start, ModelError> {
        if self.variables.flag("decoder", "start_from_zero_embedding", false)? {
            return Ok(Start::Zero);
        }
        let Some(token) = &self.config.decoder_start_token else {
            // mBART-25: the target language is the decoder's first input.
            if !self.raw && languages::is_mbart25(self.config, target) {
                return Ok(Start::Token(target.eos()));
            }
            let what =
                "no decoder_start_token: models that want it with each sentence are not supported";
            return Err(ModelError::unsupported(self.path, what));
        };
        let id = target.id(token).or_else(|| target.unk());
        id.map(Start::Token).ok_or_else(|| self.no_token("decoder_start_token", token))
    }

    fn frame(
        &self,
        source: &Tokenizer,
        target: &Tokenizer,
        multilingual: bool,
        start: Start,
        notes: &mut Vec<String>,
    ) -> Result<SourceFrame, ModelError> {
        let eos = &self.config.eos_token;
        for side in [source, target] {
            if side.id(eos) != Some(side.eos()) {
                return Err(self.no_token("eos_token", eos));
            }
        }
        let mut add_end = self.config.add_source_eos || multilingual;
        if !add_end && start == Start::Zero && !self.raw {
            // Converted from Hugging Face MarianMT, whose tokenizer appends the symbol itself.
            notes.push(format!("{}: {eos} is appended to the source", self.path.display()));
            add_end = true;
        }
        let begin = match self.config.add_source_bos {
            true => {
                let bos = &self.config.bos_token;
                let id = source.id(bos).or_else(|| source.unk());
                Some(id.ok_or_else(|| self.no_token("bos_token", bos))?)
            }
            false => None,
        };
        Ok(SourceFrame { begin, end: add_end.then(|| source.eos()), after_end: None })
    }

    fn no_token(&self, key: &str, token: &str) -> ModelError {
        ModelError::invalid(self.path, format!("{key} {token:?} is not that of the vocabulary"))
    }

    fn alignment(&self, decoder: &Stack) -> Result<AlignmentHeads, ModelError> {
        let layer = self.variables.attribute("decoder", "alignment_layer")?.unwrap_or(-1);
        let heads = self.variables.attribute("decoder", "alignment_heads")?.unwrap_or(1);
        let from_start = if layer < 0 { layer + decoder.layers as i64 } else { layer };
        let problem = || ModelError::invalid(self.path, format!("alignment_layer {layer}"));
        Ok(AlignmentHeads {
            layer: usize::try_from(from_start).map_err(|_| problem())?,
            heads: match usize::try_from(heads) {
                Ok(0) => decoder.heads,
                Ok(heads) => heads,
                Err(_) => return Err(problem()),
            },
        })
    }
}

fn positions_of(side: &str) -> String {
    format!("{side}/position_encodings/encodings")
}
