//! `.peregrine`: a whole model in one file.
//!
//! A safetensors file. Its metadata key `peregrine` holds a JSON [`Header`]; the tensors are
//!
//! * weights under their canonical names; of tied ones only the first, the header names the others;
//! * for integer weights NAME`.scales`, float32, one number or one a row;
//! * `text.N`: the files of the tokenizers, as bytes, equal ones once;
//! * `shortlist.offsets`, `shortlist.lists` and, for phrases, `shortlist.phrases`, uint32.
//!
//! The writer puts wide types first, so that every tensor is aligned to its elements. Opening copies no
//! weight.
//!
//! The metadata key `checksums` holds a JSON map of tensors to CRC-32, in hexadecimal, of the line
//! `NAME TYPE SHAPE` and the data; under `peregrine`, that of the [`Header`]'s text. With a
//! checksum for each tensor, all cores can verify a file and the damaged tensor is known; CRC-32
//! runs at memory speed. Opening does not verify them, because that would read every page of the
//! mapped file: [`verify`] does. Files without checksums are valid.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use peregrine_formats::checksum::{self, Checked, crc32};
use peregrine_formats::safetensors::PlannedTensor;
use peregrine_formats::{Bytes, DType, Source, Tensor, Tensors, safetensors};
use peregrine_text::{Description, Recipe, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::check::{self, Lookup};
use crate::shortlist::{Parts, Rules, Shortlist};
use crate::tensors::{float_weight, integer_weight, stored};
use crate::{
    Architecture, Dialect, Languages, Member, Model, ModelError, Precision, Search, Weight, Weights,
};

/// The metadata key of the header, and its name among the checksums.
pub(crate) const KEY: &str = "peregrine";
/// The metadata key of the checksums.
const CHECKSUMS: &str = "checksums";
/// The version that is written, and the newest that can be read.
const FORMAT_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format_version: u32,
    dialect: Dialect,
    architecture: Architecture,
    search: Search,
    /// Canonical name to the name under which the same bytes are stored.
    aliases: BTreeMap<String, String>,
    source: Text,
    target: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shortlist: Option<Rules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    languages: Option<Languages>,
}

/// A tokenizer: its recipe and its tensors.
#[derive(Serialize, Deserialize, PartialEq)]
struct Text {
    description: serde_json::Value,
    /// The name of each part in the recipe, and its tensor.
    parts: Vec<(String, String)>,
}

/// The header's version alone, which is checked before the rest is parsed.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

/// Opens a file in memory or mapped.
pub(crate) fn open(source: &Source) -> Result<Model, ModelError> {
    // If reading fails, verify: damage explains every other error.
    read(source).or_else(|error| verify(source).and(Err(error)))
}

/// The languages of a file's model. Weights are not read.
pub(crate) fn languages(path: &Path) -> Result<Option<Languages>, ModelError> {
    let file = safetensors::read(&Source::open(path)?)?;
    let header = file.metadata.get(KEY).and_then(|json| serde_json::from_str::<Header>(json).ok());
    Ok(header.and_then(|header| header.languages))
}

fn read(source: &Source) -> Result<Model, ModelError> {
    let path = &source.path;
    let file = safetensors::read(source)?;
    let Some(json) = file.metadata.get(KEY) else {
        return Err(ModelError::invalid(
            path,
            "no `peregrine` in the metadata: not a Peregrine model",
        ));
    };
    let bad = |error: serde_json::Error| ModelError::invalid(path, format!("metadata: {error}"));
    let Version { format_version } = serde_json::from_str(json).map_err(bad)?;
    if format_version > FORMAT_VERSION {
        let what = format!("format version {format_version}; this program reads {FORMAT_VERSION}");
        return Err(ModelError::unsupported(path, what));
    }
    let header: Header = serde_json::from_str(json).map_err(bad)?;
    let tensors = &file.tensors;
    let mut weights = check::gather_any(path, &header.architecture, |expected| {
        let stored = header.aliases.get(&expected.name).unwrap_or(&expected.name);
        Ok(Lookup { stored: stored.clone(), weight: weight(path, tensors, stored)? })
    })?;
    add_multipliers(path, tensors, &mut weights)?;
    let source_side = tokenizer(path, tensors, &header.source)?;
    let target_side = match header.source == header.target {
        true => source_side.clone(),
        false => tokenizer(path, tensors, &header.target)?,
    };
    let words = header.architecture.target_vocabulary();
    let shortlist =
        header.shortlist.map(|rules| shortlist(path, tensors, rules, words)).transpose()?;
    Ok(Model {
        dialect: header.dialect,
        members: vec![Member { path: path.clone(), architecture: header.architecture, weights }],
        member_weights: vec![1.0],
        source: source_side,
        target: target_side,
        search: header.search,
        shortlist,
        languages: header.languages,
        notes: Vec::new(),
    })
}

fn weight(path: &Path, tensors: &Tensors, name: &str) -> Result<Option<Weight>, ModelError> {
    let Some(tensor) = tensors.get(name) else { return Ok(None) };
    let precision = match tensor.dtype {
        DType::I8 => Precision::Int8,
        DType::I16 => Precision::Int16,
        _ => return float_weight(path, name, tensor).map(Some),
    };
    let scales = tensors.get(&format!("{name}.scales")).and_then(Tensor::to_f32);
    let scales = scales
        .ok_or_else(|| ModelError::invalid(path, format!("tensor {name}: no {name}.scales")))?;
    let data = tensor.data.clone();
    integer_weight(path, name, precision, &tensor.shape, data, scales).map(Some)
}

/// Adds the activation multipliers that the file has.
fn add_multipliers(
    path: &Path,
    tensors: &Tensors,
    weights: &mut Weights,
) -> Result<(), ModelError> {
    for (name, tensor) in tensors {
        let Some(linear) = name.strip_suffix(".alpha") else { continue };
        if weights.get(&format!("{linear}.weight")).is_none() {
            continue;
        }
        match tensor.to_f32().as_deref() {
            Some(&[alpha]) if alpha.is_finite() && alpha > 0.0 => {
                weights.insert(name, Weight::from_f32(vec![1], &[alpha]));
            }
            _ => {
                let problem = format!("tensor {name} is not one positive number");
                return Err(ModelError::invalid(path, problem));
            }
        }
    }
    Ok(())
}

fn tokenizer(path: &Path, tensors: &Tensors, text: &Text) -> Result<Arc<Tokenizer>, ModelError> {
    let description: Description = serde_json::from_value(text.description.clone())
        .map_err(|error| ModelError::invalid(path, format!("metadata: tokenizer: {error}")))?;
    let mut parts = Vec::new();
    for (file, name) in &text.parts {
        let tensor = tensors.get(name).filter(|tensor| tensor.dtype == DType::U8);
        let Some(tensor) = tensor else {
            let problem = format!("metadata: {file} should be in tensor {name}, which is missing");
            return Err(ModelError::invalid(path, problem));
        };
        parts.push((file.clone(), Arc::from(&*tensor.data)));
    }
    let tokenizer = Tokenizer::from_recipe(&Recipe { description, parts });
    tokenizer.map(Arc::new).map_err(|error| ModelError::invalid(path, error.to_string()))
}

/// Reads the shortlist of a network.
fn shortlist(
    path: &Path,
    tensors: &Tensors,
    rules: Rules,
    words: usize,
) -> Result<Shortlist, ModelError> {
    if rules.target_size > words {
        let size = rules.target_size;
        let problem = format!("the shortlist is for {size} target words, the network has {words}");
        return Err(ModelError::invalid(path, problem));
    }
    let numbers = |name: &str| -> Result<Vec<u32>, ModelError> {
        let values = tensors.get(name).and_then(Tensor::to_i64);
        let numbers = values.and_then(|v| v.into_iter().map(|n| u32::try_from(n).ok()).collect());
        numbers.ok_or_else(|| ModelError::invalid(path, format!("tensor {name}: no whole numbers")))
    };
    let name = "shortlist.phrases";
    let phrases = if tensors.contains_key(name) { numbers(name)? } else { Vec::new() };
    let (offsets, lists) = (numbers("shortlist.offsets")?, numbers("shortlist.lists")?);
    Shortlist::from_parts(path, Parts { rules, offsets, lists, phrases })
}

/// Writes a model of one network. With a precision, its matrices are stored in that precision.
pub(crate) fn save(
    model: &Model,
    path: &Path,
    precision: Option<Precision>,
) -> Result<(), ModelError> {
    let [member] = model.members.as_slice() else {
        let problem = format!("an ensemble of {} networks cannot be saved", model.members.len());
        return Err(ModelError::Option(problem));
    };
    if path.extension().is_none_or(|ending| ending != "peregrine") {
        let problem = "models are saved as .peregrine files: let the name end in .peregrine";
        return Err(ModelError::invalid(path, problem));
    }
    let mut writer = Writer::default();
    writer.weights(&member.weights, precision);
    let header = Header {
        format_version: FORMAT_VERSION,
        dialect: model.dialect,
        architecture: member.architecture.clone(),
        search: model.search.clone(),
        source: writer.text(path, &model.source)?,
        target: writer.text(path, &model.target)?,
        shortlist: model.shortlist.as_ref().map(|shortlist| writer.shortlist(shortlist)),
        languages: model.languages.clone(),
        aliases: writer.aliases,
    };
    let json = serde_json::to_string(&header)
        .map_err(|error| ModelError::invalid(path, error.to_string()))?;
    writer.checksums.insert(KEY.into(), crc32(json.as_bytes(), &[]));
    let checksums = writer.checksums.iter();
    let checksums: serde_json::Value =
        checksums.map(|(name, checksum)| (name.clone(), format!("{checksum:08x}"))).collect();
    let metadata = BTreeMap::from([(KEY.into(), json), (CHECKSUMS.into(), checksums.to_string())]);
    Ok(safetensors::write_planned(path, &writer.tensors, &metadata)?)
}

/// The description of a tensor that is hashed before its data.
fn line(name: &str, tensor: &Tensor) -> Vec<u8> {
    format!("{name} {} {:?}\n", tensor.dtype.name(), tensor.shape).into_bytes()
}

/// Verifies the checksums of a file and returns the number of verified tensors: all or, in a file
/// without checksums, 0.
pub(crate) fn verify(source: &Source) -> Result<usize, ModelError> {
    let file = safetensors::read(source)?;
    let (Some(header), Some(json)) = (file.metadata.get(KEY), file.metadata.get(CHECKSUMS)) else {
        return Ok(0);
    };
    let bad = |problem: String| ModelError::invalid(&source.path, format!("checksums: {problem}"));
    let stated: BTreeMap<String, String> =
        serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
    let checked = |name: &str, head: Vec<u8>, data: Bytes| {
        let text = stated.get(name).ok_or_else(|| bad(format!("none of {name}")))?;
        let checksum = u32::from_str_radix(text, 16)
            .map_err(|_| bad(format!("{name}: {text:?} is not a hexadecimal number")))?;
        Ok::<_, ModelError>(Checked { name: name.into(), head, data, checksum })
    };
    let mut parts = vec![checked(KEY, header.clone().into_bytes(), Bytes::from_static(&[]))?];
    for (name, tensor) in &file.tensors {
        parts.push(checked(name, line(name, tensor), tensor.data.clone())?);
    }
    checksum::verify(&source.path, parts)?;
    Ok(file.tensors.len())
}

/// The tensors of a file. A matrix that is converted is converted twice, for its checksum and when it is written: the
/// header, with all checksums, comes before the data, and a large model does not fit the memory.
#[derive(Default)]
struct Writer<'w> {
    tensors: Vec<(String, PlannedTensor<'w>)>,
    checksums: BTreeMap<String, u32>,
    aliases: BTreeMap<String, String>,
    /// The tensor of each weight already written, by address and length of its data.
    stored: HashMap<(usize, usize), String>,
    parts: Vec<(Arc<[u8]>, String)>,
}

impl<'w> Writer<'w> {
    fn push(&mut self, name: String, tensor: Tensor) {
        self.checksums.insert(name.clone(), crc32(&line(&name, &tensor), &tensor.data));
        self.tensors.push((name, tensor.into()));
    }

    fn weights(&mut self, weights: &'w Weights, precision: Option<Precision>) {
        for (name, weight) in weights.iter() {
            let place = (weight.data.as_ptr() as usize, weight.data.len());
            if let Some(first) = self.stored.get(&place) {
                self.aliases.insert(name.into(), first.clone());
                continue;
            }
            self.stored.insert(place, name.into());
            let is_matrix = weight.shape.len() == 2 && !name.ends_with(".positions");
            match precision {
                Some(precision) if is_matrix && precision != weight.precision => {
                    self.converted(name, weight, precision);
                }
                _ => {
                    self.push(name.into(), stored(weight));
                    self.scales(name, weight);
                }
            }
        }
    }

    fn converted(&mut self, name: &str, weight: &'w Weight, precision: Precision) {
        let converted = weight.convert(precision);
        let tensor = stored(&converted);
        self.checksums.insert(name.into(), crc32(&line(name, &tensor), &tensor.data));
        let data = Box::new(move || weight.convert(precision).data);
        let Tensor { dtype, shape, .. } = tensor;
        self.tensors.push((name.into(), PlannedTensor { dtype, shape, data }));
        self.scales(name, &converted);
    }

    fn scales(&mut self, name: &str, weight: &Weight) {
        if let Some(scales) = &weight.scales {
            self.push(format!("{name}.scales"), Tensor::from_f32(vec![scales.len()], scales));
        }
    }

    fn text(&mut self, path: &Path, tokenizer: &Tokenizer) -> Result<Text, ModelError> {
        let recipe = tokenizer.recipe();
        let description = serde_json::to_value(&recipe.description)
            .map_err(|error| ModelError::invalid(path, error.to_string()))?;
        let parts = recipe.parts.into_iter().map(|(file, bytes)| (file, self.part(bytes)));
        Ok(Text { description, parts: parts.collect() })
    }

    /// The tensor that holds these bytes.
    fn part(&mut self, bytes: Arc<[u8]>) -> String {
        if let Some((_, name)) = self.parts.iter().find(|(known, _)| *known == bytes) {
            return name.clone();
        }
        let name = format!("text.{}", self.parts.len());
        self.push(name.clone(), Tensor::from_u8(vec![bytes.len()], &bytes));
        self.parts.push((bytes, name.clone()));
        name
    }

    fn shortlist(&mut self, shortlist: &Shortlist) -> Rules {
        let Parts { rules, offsets, lists, phrases } = shortlist.parts();
        let tables = [("offsets", offsets), ("lists", lists), ("phrases", phrases)];
        // Most tables have no phrases, and older readers know none.
        for (name, numbers) in tables.into_iter().filter(|(n, t)| *n != "phrases" || !t.is_empty())
        {
            let data = Bytes::from(bytemuck::cast_slice(&numbers).to_vec());
            let tensor = Tensor { dtype: DType::U32, shape: vec![numbers.len()], data };
            self.push(format!("shortlist.{name}"), tensor);
        }
        rules
    }
}
