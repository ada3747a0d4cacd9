//! Marian models: `.npz` and `.bin` files, Bergamot's int8 files, and the configurations beside them.
//!
//! | file | what it does |
//! |---|---|
//! | `stored.rs` | either container as named parameters |
//! | `yaml.rs` | Marian's dialect of YAML |
//! | `options.rs`, `version.rs` | the options inside a model as a description |
//! | `names.rs` | canonical names to Marian's |
//! | `recurrent.rs`, `theano.rs` | recurrent models, and Nematus' names for their parameters |
//! | `config.rs` | `decoder.yml` |
//! | `vocabulary.rs` | its vocabularies as tokenizers |

mod config;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod recurrent;
pub(crate) mod stored;
pub(crate) mod theano;
mod version;
mod vocabulary;
pub(crate) mod yaml;

use std::path::{Path, PathBuf};

use peregrine_formats::Source;

pub(crate) use config::{DecoderConfig, is_decoder_config};
pub(crate) use vocabulary::{Pair, beside, pair, trained_with};

use crate::check::{self, Lookup};
use crate::marian::names::{Place, place};
use crate::marian::options::{Described, Tied};
use crate::marian::stored::Stored;
use crate::{
    Architecture, Dialect, Member, Model, ModelError, Search, Weight, names as canonical, nematus,
};

/// Opens one or more Marian files that share vocabularies.
pub(crate) fn open(
    files: &[PathBuf],
    vocabularies: &Pair,
    config: Option<&DecoderConfig>,
) -> Result<Model, ModelError> {
    let Some(first) = files.first() else {
        return Err(ModelError::Option("no model file was given".into()));
    };
    let stored = files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let limit = match stored[0].has_options() {
        true => stored[0].options(first)?.numbers("dim-vocabs")?.first().copied().unwrap_or(0),
        // A file without options gives its vocabulary size only by the rows of the table.
        false => stored[0].rows("encoder_Wemb").or(stored[0].rows("Wemb")).unwrap_or(0),
    };
    let (source, target) = vocabularies.tokenizers(limit)?;
    let mut notes = Vec::new();
    let mut members = Vec::new();
    for (path, stored) in files.iter().zip(&stored) {
        members.push(member(path, stored, source.eos(), &mut notes)?);
    }
    let mut search = Search::of(Dialect::Marian);
    if config.is_none_or(|config| !config.allow_special) {
        search.suppress = target.suppressed();
    }
    if let Some(config) = config {
        config.apply(&mut search);
        notes.extend(config.notes.iter().cloned());
    }
    let member_weights = config.map(|config| config.weights.clone()).unwrap_or_default();
    Ok(Model {
        dialect: Dialect::Marian,
        members,
        member_weights,
        source,
        target,
        search,
        shortlist: None,
        languages: None,
        notes,
    })
}

/// A file's parameters under Marian's names.
pub(crate) fn read(path: &Path) -> Result<Stored, ModelError> {
    let mut stored = Stored::read(&Source::open(path)?)?;
    theano::rename(&mut stored);
    Ok(stored)
}

/// Checks that a file is a supported network, without its vocabularies.
pub(crate) fn examine(path: &Path) -> Result<(), ModelError> {
    member(path, &read(path)?, 0, &mut Vec::new()).map(|_| ())
}

/// Reads one network.
fn member(
    path: &Path,
    stored: &Stored,
    source_end: u32,
    notes: &mut Vec<String>,
) -> Result<Member, ModelError> {
    if !stored.has_options() && stored.has("decoder_cell2_W") {
        return recurrent::member(path, stored, &nematus::shape(path, stored)?, source_end);
    }
    let options = stored.options(path)?;
    if recurrent::is_recurrent(options.text("type")?.as_deref().unwrap_or("amun")) {
        options::refuse_unknown_parts(&options)?;
        return recurrent::member(path, stored, &recurrent::shape(&options)?, source_end);
    }
    let tied = options::tied(&options)?;
    let rows = |name: &str| {
        place(name, tied).and_then(|place| stored.rows(&place.name)).unwrap_or_default()
    };
    let sizes = (rows(canonical::SOURCE_EMBEDDING), rows(canonical::TARGET_EMBEDDING));
    let Described { transformer, tied, notes: new } =
        options::describe(&options, sizes, source_end)?;
    notes.extend(new);
    if stored.has("Wpos") {
        let what = "trained positions (Wpos) in a model of type transformer are not supported";
        return Err(ModelError::unsupported(path, what));
    }
    let mut weights = check::gather(path, &transformer, |expected| {
        let place = found_place(&expected.name, tied, stored);
        let weight = stored.weight(path, &place.name, place.transposed)?;
        Ok(Lookup { stored: place.name, weight })
    })?;
    let linear: Vec<String> =
        weights.iter().filter_map(|(name, _)| Some(name.strip_suffix(".weight")?.into())).collect();
    for name in linear {
        if let Some(alpha) = alpha(path, &name, tied, stored)? {
            weights.insert(format!("{name}.alpha"), Weight::from_f32(vec![1], &[alpha]));
        }
    }
    Ok(Member { path: path.into(), architecture: Architecture::Transformer(transformer), weights })
}

/// The place of a weight in this file. Old files may hold a transposed output matrix, which then
/// overrides the options.
fn found_place(name: &str, tied: Tied, stored: &Stored) -> Place {
    const OLD_OUTPUT: &str = "decoder_ff_logit_out_W";
    if name == canonical::OUTPUT_WEIGHT && stored.has(OLD_OUTPUT) {
        return Place { name: OLD_OUTPUT.into(), transposed: true };
    }
    place(name, tied).unwrap_or_else(|| Place { name: name.into(), transposed: false })
}

/// The fixed multiplier by which the input of a product is quantised, from tuning.
fn alpha(
    path: &Path,
    linear: &str,
    tied: Tied,
    stored: &Stored,
) -> Result<Option<f32>, ModelError> {
    let own = found_place(&format!("{linear}.weight"), tied, stored).name;
    if let Some(alpha) = stored.multiplier(path, &format!("{own}_QuantMultA"))? {
        return Ok(Some(alpha));
    }
    match linear {
        // Bergamot's name for the multiplier of the output layer, whose matrix is the embedding
        // table.
        "output" => stored.multiplier(path, "none_QuantMultA"),
        _ => Ok(None),
    }
}
