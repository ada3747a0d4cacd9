//! Nematus models of the Theano era: an npz without options, perhaps with a JSON file beside it.
//!
//! The parameters determine the network; the JSON names the dictionaries and the options that
//! parameters do not show.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::marian::recurrent::Shape;
use crate::marian::stored::Stored;
use crate::{CellKind, EncoderKind, ModelError, RecurrentNorm, files};

/// `model.npz.json` beside `model.npz`, if it exists.
fn options_beside(model: &Path) -> Option<PathBuf> {
    let mut name = model.as_os_str().to_owned();
    name.push(".json");
    Some(PathBuf::from(name)).filter(|path| path.is_file())
}

fn read_options(model: &Path) -> Result<Option<(PathBuf, Value)>, ModelError> {
    let Some(path) = options_beside(model) else { return Ok(None) };
    let bytes = files::read(&path)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        ModelError::invalid(&path, format!("not a Nematus configuration: {error}"))
    })?;
    Ok(Some((path, value)))
}

/// The dictionaries that the JSON names, if they exist at that path or beside the JSON.
pub(crate) fn dictionaries(model: &Path) -> Result<Option<(PathBuf, PathBuf)>, ModelError> {
    let Some((path, options)) = read_options(model)? else { return Ok(None) };
    let names: Vec<&str> = options["dictionaries"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let [source, target] = names[..] else { return Ok(None) };
    let folder = files::folder_of(&path);
    let find = |name: &str| {
        let named = PathBuf::from(name);
        let beside = folder.join(&named);
        let moved = named.file_name().map(|file| folder.join(file));
        [Some(named.clone()), Some(beside), moved].into_iter().flatten().find(|path| path.is_file())
    };
    Ok(find(source).zip(find(target)))
}

/// The shape of the network, from its parameters (under Marian's names).
pub(crate) fn shape(path: &Path, stored: &Stored) -> Result<Shape, ModelError> {
    if let Some((json, options)) = read_options(path)? {
        refuse(&json, &options)?;
    }
    if stored.has("Wemb1") {
        return Err(ModelError::unsupported(path, "source factors (Wemb1) are not supported"));
    }
    // Transition cells are numbered without gaps, and no model has a thousand.
    let cells = |prefix: &str, first: usize| {
        (first..1000).take_while(|j| stored.has(&format!("{prefix}{j}_U"))).count()
    };
    let forward = 1 + cells("encoder_bi_cell", 2);
    let backward = 1 + cells("encoder_bi_r_cell", 2);
    let base = 2 + cells("decoder_cell", 3);
    let norm = if stored.has("encoder_bi_U_lns") {
        RecurrentNorm::Nematus
    } else if stored.has("encoder_bi_gamma2") {
        RecurrentNorm::Marian
    } else {
        RecurrentNorm::None
    };
    Ok(Shape {
        encoder_kind: EncoderKind::Bidirectional,
        encoder_layers: 1,
        forward: vec![CellKind::Gru; forward],
        backward: vec![CellKind::Gru; backward],
        base: vec![CellKind::Gru; base],
        high_layers: 0,
        high: vec![CellKind::Gru],
        skip: false,
        cell_norm: norm,
        dense_norm: norm,
        amun: false,
        needs_output_bias: true,
    })
}

/// Refuses options of Nematus that change the network in an unsupported way.
fn refuse(path: &Path, options: &Value) -> Result<(), ModelError> {
    let unsupported = |key: &str| {
        let what = format!("{key}: {} is not supported", options[key]);
        Err(ModelError::unsupported(path, what))
    };
    for key in ["enc_depth", "dec_depth", "factors"] {
        if options[key].as_u64().is_some_and(|value| value > 1) {
            return unsupported(key);
        }
    }
    for key in ["weight_normalisation", "dec_deep_context", "concatenate_lm_decoder"] {
        if options[key].as_bool() == Some(true) {
            return unsupported(key);
        }
    }
    for (key, usual) in [("encoder", "gru"), ("decoder", "gru_cond")] {
        if options[key].as_str().is_some_and(|value| value != usual) {
            return unsupported(key);
        }
    }
    Ok(())
}
