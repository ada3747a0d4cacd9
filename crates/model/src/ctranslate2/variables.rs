//! The variables of a `model.bin`: weights with their scales, attributes of any integer type, and a
//! record of which were used, so that an unknown layer is reported.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use peregrine_formats::{DType, Tensor, ctranslate2};

use crate::ctranslate2::names::Place;
use crate::tensors::{float_weight, integer_weight, row_group};
use crate::{ModelError, Precision, Weight};

/// The scale of int16 weights in files that store none.
const OLD_INT16_SCALE: f32 = 1000.0;

/// A file's variables.
pub(crate) struct Variables<'a> {
    path: &'a Path,
    file: &'a ctranslate2::Model,
    used: RefCell<BTreeSet<String>>,
}

impl Variables<'_> {
    pub(crate) fn new<'a>(path: &'a Path, file: &'a ctranslate2::Model) -> Variables<'a> {
        Variables { path, file, used: RefCell::default() }
    }

    /// A variable, which then counts as used.
    pub(crate) fn get(&self, name: &str) -> Option<&Tensor> {
        let found = self.file.variables.get(name)?;
        self.used.borrow_mut().insert(name.into());
        Some(found)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.variables.contains_key(name)
    }

    /// Length of a variable's first dimension.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        self.file.variables.get(name)?.shape.first().copied()
    }

    /// An attribute of the encoder or decoder; old revisions have one for both.
    pub(crate) fn attribute(&self, side: &str, key: &str) -> Result<Option<i64>, ModelError> {
        let own = format!("{side}/{key}");
        let name = if self.has(&own) { own } else { key.into() };
        let Some(tensor) = self.get(&name) else { return Ok(None) };
        match tensor.to_i64().as_deref() {
            Some(&[value]) => Ok(Some(value)),
            _ => Err(self.complain(&name, "is not one whole number")),
        }
    }

    /// Like [`Self::attribute`], as a boolean.
    pub(crate) fn flag(&self, side: &str, key: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.attribute(side, key)?.map_or(default, |value| value != 0))
    }

    /// A float attribute. `None` where it is missing or an integer.
    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        let tensor = self.get(name)?;
        match tensor.dtype {
            DType::F32 | DType::F16 | DType::BF16 => tensor.to_f32()?.first().copied(),
            _ => None,
        }
    }

    /// A text, which is stored as bytes.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let tensor = self.get(name)?;
        Some(String::from_utf8_lossy(&tensor.data).into_owned())
    }

    fn complain(&self, name: &str, problem: &str) -> ModelError {
        ModelError::invalid(self.path, format!("variable {name} {problem}"))
    }

    /// A weight, or a group of its rows, in the precision it is stored in.
    pub(crate) fn weight(&self, place: &Place) -> Result<Option<Weight>, ModelError> {
        let name = &place.name;
        let Some(tensor) = self.get(name) else { return Ok(None) };
        let weight = match tensor.dtype {
            DType::I8 => self.integers(name, tensor, Precision::Int8)?,
            DType::I16 => self.integers(name, tensor, Precision::Int16)?,
            _ => float_weight(self.path, name, tensor)?,
        };
        let group = row_group(&weight, place.part, place.parts);
        let problem = format!("has {} rows, not {} equal groups", weight.rows(), place.parts);
        group.map(Some).ok_or_else(|| self.complain(name, &problem))
    }

    /// A quantised weight. CTranslate2 divides by its scales, while weights here are multiplied by
    /// theirs.
    fn integers(
        &self,
        name: &str,
        tensor: &Tensor,
        precision: Precision,
    ) -> Result<Weight, ModelError> {
        let scales = match (self.get(&format!("{name}_scale")), precision) {
            (Some(scales), _) => scales.to_f32(),
            (None, Precision::Int16) => Some(vec![OLD_INT16_SCALE]),
            (None, _) => None,
        };
        let scales = scales.ok_or_else(|| self.complain(name, "has no scales"))?;
        let ours = scales.iter().map(|scale| 1.0 / scale).collect();
        integer_weight(self.path, name, precision, &tensor.shape, tensor.data.clone(), ours)
    }

    /// All variables that the importer did not read, except those without effect.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let used = self.used.borrow();
        let matters = |(name, tensor): (&String, &Tensor)| {
            let off = tensor.shape.is_empty() && tensor.to_i64().as_deref() == Some(&[0]);
            !off && !used.contains(name.as_str()) && !is_scale_of_used(name, &used)
        };
        self.file
            .variables
            .iter()
            .filter(|entry| matters(*entry))
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

/// Whether a variable is the scale or zero point of a weight that was read, perhaps by an alias.
fn is_scale_of_used(name: &str, used: &BTreeSet<String>) -> bool {
    let weight = name.strip_suffix("_scale").or_else(|| name.strip_suffix("_zero"));
    weight.is_some_and(|weight| used.contains(weight))
}
