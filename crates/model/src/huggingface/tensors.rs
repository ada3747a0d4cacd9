//! A checkpoint's tensors, in one file or several, and the refusal of those that would change the
//! network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use peregrine_formats::{Source, Tensor, Tensors, pytorch, safetensors};
use serde::Deserialize;

use crate::huggingface::class::Class;
use crate::huggingface::names;
use crate::names::transformer_weights;
use crate::{ModelError, Transformer, files};

/// Names of weight files, preferred first: safetensors need no pickle interpreter. An index names
/// shards.
const FILES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// All tensors of a checkpoint, and the file that messages name.
pub(crate) fn read(folder: &Path) -> Result<(PathBuf, Tensors), ModelError> {
    let Some(path) = files::first_of(folder, &FILES) else {
        let problem = format!("no weights: none of {}", FILES.join(", "));
        return Err(ModelError::invalid(folder, problem));
    };
    let mut tensors = Tensors::new();
    for file in shards(&path)? {
        tensors.extend(read_file(&file)?);
    }
    Ok((path, tensors))
}

/// The weight files: those that an index names, or the file itself.
pub(crate) fn shards(path: &Path) -> Result<Vec<PathBuf>, ModelError> {
    if path.extension().is_none_or(|ending| ending != "json") {
        return Ok(vec![path.into()]);
    }
    let index: Index = serde_json::from_slice(&files::read(path)?)
        .map_err(|error| ModelError::invalid(path, error.to_string()))?;
    let names: BTreeSet<&String> = index.weight_map.values().collect();
    let shard = |name: &&String| match Path::new(name).file_name() {
        Some(file) if file == name.as_str() => Ok(path.with_file_name(file)),
        _ => Err(ModelError::invalid(path, format!("shard {name:?} is not a file name"))),
    };
    names.iter().map(shard).collect()
}

fn read_file(path: &Path) -> Result<Tensors, ModelError> {
    let source = Source::open(path)?;
    match path.extension() {
        Some(ending) if ending == "safetensors" => Ok(safetensors::read(&source)?.tensors),
        _ => Ok(pytorch::read(&source)?),
    }
}

/// Whether a tensor is a position table that the class computes. M2M-100 calls it `weights`.
fn is_position_table(name: &str) -> bool {
    name.ends_with(".embed_positions.weight") || name.ends_with(".embed_positions.weights")
}

/// Refuses tensors that the class does not have.
pub(crate) fn refuse_unknown(
    path: &Path,
    tensors: &Tensors,
    description: &Transformer,
    class: Class,
) -> Result<(), ModelError> {
    let expected = transformer_weights(description);
    let known: BTreeSet<String> = expected.iter().flat_map(|e| names::places(&e.name)).collect();
    match tensors.keys().find(|name| !known.contains(*name) && !is_position_table(name)) {
        None => Ok(()),
        Some(name) => {
            let what = format!("tensor {name} is not part of {}", class.name());
            Err(ModelError::unsupported(path, what))
        }
    }
}

/// Refuses trained positions. The class computes its positions, but some files hold the table as
/// well; one that differs from the sinusoids was trained.
pub(crate) fn refuse_trained_positions(
    path: &Path,
    tensors: &Tensors,
    width: usize,
) -> Result<(), ModelError> {
    let tables = tensors.iter().filter(|(name, _)| is_position_table(name));
    match tables.into_iter().find(|(_, table)| !is_sinusoidal(table, width)) {
        None => Ok(()),
        Some((name, _)) => {
            let what = format!("trained positions ({name}) are not supported");
            Err(ModelError::unsupported(path, what))
        }
    }
}

/// Whether a table is sinusoidal, by its first rows. The tolerance allows for float16.
fn is_sinusoidal(table: &Tensor, width: usize) -> bool {
    const ROWS: usize = 16;
    const TOLERANCE: f32 = 1e-2;
    let Some(values) = table.to_f32().filter(|_| table.shape.get(1) == Some(&width)) else {
        return false;
    };
    let half = (width / 2).max(1);
    values.chunks(width.max(1)).take(ROWS).enumerate().all(|(position, row)| {
        row.iter().enumerate().all(|(i, value)| {
            let angle = position as f64 * 10000f64.powf(-((i % half) as f64) / half as f64);
            let expected = if i < half { angle.sin() } else { angle.cos() };
            (expected as f32 - value).abs() < TOLERANCE
        })
    })
}
