//! The named parameters of a Marian model file, `.npz` or `.bin`.

use std::collections::BTreeMap;
use std::path::Path;

use peregrine_formats::marian_bin::{self, Dialect as BinDialect, Item, Kind};
use peregrine_formats::{Bytes, Source, Tensor, npz};

use crate::marian::yaml::Yaml;
use crate::tensors::{float_weight, integer_weight, transposed};
use crate::{ModelError, Precision, Weight};

/// The name under which a model's options are stored.
pub(crate) const OPTIONS: &str = "special:model.yml";

/// The parameters of a file.
pub(crate) struct Stored {
    items: BTreeMap<String, Parameter>,
}

enum Parameter {
    Plain(Tensor),
    Quantised(Quantised),
}

/// An intgemm matrix: integers and one multiplier, usually stored transposed.
struct Quantised {
    precision: Precision,
    /// (inputs, outputs), as in a float file.
    shape: [usize; 2],
    /// Whether the integers are laid out (outputs, inputs).
    transposed: bool,
    /// Whether mainline Marian wrote it, which transposes matrices of odd sizes incorrectly.
    mainline: bool,
    data: Bytes,
    multiplier: f32,
}

impl Stored {
    /// Reads a file by the ending of its name.
    pub(crate) fn read(source: &Source) -> Result<Stored, ModelError> {
        let is_bin = source.path.extension().is_some_and(|ending| ending == "bin");
        let items = if is_bin { from_bin(source)? } else { from_npz(source)? };
        Ok(Stored { items })
    }

    /// The options inside the file.
    pub(crate) fn options(&self, path: &Path) -> Result<Yaml, ModelError> {
        let Some(Parameter::Plain(tensor)) = self.items.get(OPTIONS) else {
            return Err(no_options(path));
        };
        let text: &[u8] = &tensor.data;
        let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Yaml::parse(path, &text[..end])
    }

    /// Whether the file has options inside.
    pub(crate) fn has_options(&self) -> bool {
        self.items.contains_key(OPTIONS)
    }

    /// Renames all parameters; those without a new name are dropped.
    pub(crate) fn rename(&mut self, name: impl Fn(&str) -> Option<String>) {
        let items = std::mem::take(&mut self.items);
        let renamed = items.into_iter().filter_map(|(old, item)| match old.as_str() {
            OPTIONS => Some((old, item)),
            _ => Some((name(&old)?, item)),
        });
        self.items = renamed.collect();
    }

    /// Whether a parameter of that name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.items.contains_key(name)
    }

    /// Length of a parameter's first dimension.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        match self.items.get(name)? {
            Parameter::Plain(tensor) => tensor.shape.first().copied(),
            Parameter::Quantised(item) => Some(item.shape[0]),
        }
    }

    /// A parameter or, with `transpose`, its transpose. Copies the data only if it is not stored in
    /// that orientation.
    pub(crate) fn weight(
        &self,
        path: &Path,
        name: &str,
        transpose: bool,
    ) -> Result<Option<Weight>, ModelError> {
        match self.items.get(name) {
            None => Ok(None),
            Some(Parameter::Plain(tensor)) => {
                let weight = float_weight(path, name, tensor)?;
                Ok(Some(if transpose { transposed(&weight) } else { weight }))
            }
            Some(Parameter::Quantised(item)) => item.weight(path, name, transpose).map(Some),
        }
    }

    /// A tuned multiplier of activations (`X_QuantMultA`).
    pub(crate) fn multiplier(&self, path: &Path, name: &str) -> Result<Option<f32>, ModelError> {
        let Some(weight) = self.weight(path, name, false)? else { return Ok(None) };
        match weight.to_f32().first() {
            Some(&alpha) if weight.elements() == 1 && alpha.is_finite() && alpha > 0.0 => {
                Ok(Some(alpha))
            }
            _ => Err(ModelError::invalid(path, format!("{name} is not one positive number"))),
        }
    }
}

impl Quantised {
    fn weight(&self, path: &Path, name: &str, transpose: bool) -> Result<Weight, ModelError> {
        let [inputs, outputs] = self.shape;
        if self.mainline && !(inputs.is_multiple_of(16) && outputs.is_multiple_of(16)) {
            let problem = format!(
                "{name} ({inputs}, {outputs}) is corrupt: Marian's converter to intgemm only works \
                 for multiples of 16; convert the original again with another --gemm-type"
            );
            return Err(ModelError::invalid(path, problem));
        }
        let shape = if self.transposed { [outputs, inputs] } else { [inputs, outputs] };
        let scale = vec![1.0 / self.multiplier];
        let stored = integer_weight(path, name, self.precision, &shape, self.data.clone(), scale)?;
        Ok(if self.transposed == transpose { stored } else { transposed(&stored) })
    }
}

fn no_options(path: &Path) -> ModelError {
    ModelError::invalid(path, format!("no {OPTIONS} inside: not a Marian model, or a very old one"))
}

fn from_npz(source: &Source) -> Result<BTreeMap<String, Parameter>, ModelError> {
    let tensors = npz::read(source)?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, Parameter::Plain(tensor))).collect())
}

fn from_bin(source: &Source) -> Result<BTreeMap<String, Parameter>, ModelError> {
    marian_bin::read(source)?
        .into_iter()
        .map(|item| Ok((item.name.clone(), parameter(&source.path, item)?)))
        .collect()
}

fn parameter(path: &Path, item: Item) -> Result<Parameter, ModelError> {
    let (precision, multiplier) = match item.kind {
        Kind::Plain(dtype) => {
            return Ok(Parameter::Plain(Tensor { dtype, shape: item.shape, data: item.data }));
        }
        Kind::IntGemm8 { multiplier } => (Precision::Int8, multiplier),
        Kind::IntGemm16 { multiplier } => (Precision::Int16, multiplier),
    };
    let &[inputs, outputs] = item.shape.as_slice() else {
        let problem =
            format!("{}: a quantised matrix of {} dimensions", item.name, item.shape.len());
        return Err(ModelError::invalid(path, problem));
    };
    let mainline = item.dialect == Some(BinDialect::Mainline);
    Ok(Parameter::Quantised(Quantised {
        precision,
        shape: [inputs, outputs],
        // Bergamot stores embeddings by word, as look-ups need them.
        transposed: mainline || !item.name.contains("Wemb"),
        mainline,
        data: item.data,
        multiplier,
    }))
}
