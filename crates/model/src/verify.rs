//! Verification of a model's files.
//!
//! npz and PyTorch archives have a checksum for each member, which is verified whenever they are
//! opened; `.peregrine` files have one for each tensor, which is verified only here. Other formats
//! have none; for them the check is that every weight is finite.

use std::path::Path;

use peregrine_formats::{Source, verify_archive};

use crate::{Member, Model, ModelError, Precision, Weight, huggingface, peregrine_file};

/// Verifies the checksums of all files that hold weights of a model. The result has a line for each
/// file that says what was verified.
pub fn checksums(model: &Model) -> Result<Vec<String>, ModelError> {
    let mut lines = Vec::new();
    for member in &model.members {
        // A model in memory, such as the built-in one, has no file.
        let files = match member.path.exists() {
            true => huggingface::shards(&member.path)?,
            false => Vec::new(),
        };
        for file in files {
            lines.push(format!("{}: {}", file.display(), compare(&file)?));
        }
    }
    Ok(lines)
}

fn compare(file: &Path) -> Result<String, ModelError> {
    let source = Source::open(file)?;
    let (count, what) = match verify_archive(&source)? {
        Some(members) => (members, "members"),
        None if has_ending(file, &["peregrine", "safetensors"]) => {
            (peregrine_file::verify(&source)?, "tensors")
        }
        None => (0, ""),
    };
    Ok(match count {
        0 => "has no checksums".into(),
        _ => format!("the checksums of {count} {what} are right"),
    })
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known))
}

/// Checks that every weight of a model is finite. The result has a line for each network with the
/// number of weights.
pub fn numbers(model: &Model) -> Result<Vec<String>, ModelError> {
    model.members.iter().map(numbers_of).collect()
}

fn numbers_of(member: &Member) -> Result<String, ModelError> {
    for (name, weight) in member.weights.iter() {
        if let Some(at) = first_odd(weight) {
            let columns = weight.columns().max(1);
            let (row, column) = (at / columns, at % columns);
            let problem = format!(
                "tensor {name}, row {row}, column {column}: not a finite number: the data is damaged"
            );
            return Err(ModelError::invalid(&member.path, problem));
        }
    }
    let (path, parameters) = (member.path.display(), member.parameters());
    Ok(format!("{path}: all {parameters} parameters are finite numbers"))
}

/// The index of the first infinity or NaN, whose exponent bits are all ones. Integers have none,
/// and their scales were checked when the file was opened.
fn first_odd(weight: &Weight) -> Option<usize> {
    let data = &weight.data;
    let sixteen_bits = |mask: u16| {
        data.as_chunks().0.iter().position(|&bytes| u16::from_le_bytes(bytes) & mask == mask)
    };
    match weight.precision {
        Precision::Float32 => {
            data.as_chunks().0.iter().position(|&bytes| !f32::from_le_bytes(bytes).is_finite())
        }
        Precision::Float16 => sixteen_bits(0x7c00),
        Precision::Bfloat16 => sixteen_bits(0x7f80),
        Precision::Int16 | Precision::Int8 => None,
    }
}
