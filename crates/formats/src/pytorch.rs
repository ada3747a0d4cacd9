//! `pytorch_model.bin`: the state dictionary of a module, as `torch.save` writes it.
//!
//! Since PyTorch 1.6 the file is a ZIP archive of stored members under one folder of any name:
//!
//! ```text
//! NAME/data.pkl      a pickle of the dictionary; see `pickle.rs`
//! NAME/data/KEY      the elements of the storage KEY
//! NAME/byteorder     "little", in newer files
//! ```
//!
//! In the pickle a tensor is the call
//! `_rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)`, offset and strides
//! counted in elements, and `storage` the persistent identifier
//! `('storage', TypeStorage, KEY, device, elements)`. `_rebuild_parameter(tensor, …)` may wrap it; a tensor with
//! attributes is `_rebuild_from_type_v2(_rebuild_tensor_v2, Tensor, (storage, …), attributes)`.
//! Tensors may share a storage, and strides may be those of a transposed matrix.
//!
//! Before 1.6 the file was a sequence:
//!
//! ```text
//! pickle    the magic number
//! pickle    1001, the version
//! pickle    a dictionary about the machine, with little_endian
//! pickle    the state dictionary; identifiers have a sixth field, None
//! pickle    a list of all KEYs
//! for each KEY in that order: u64 number of elements, the elements
//! ```

use std::collections::HashMap;

use crate::pickle::{self, Global, Pickle, Sequence, Value};
use crate::reader::{Reader, quoted};
use crate::tensor::{MAX_RANK, byte_length};
use crate::zip::{self, Member};
use crate::{Bytes, DType, Error, Source, Tensor, Tensors};

/// The member that holds the pickle.
const PICKLE: &str = "data.pkl";
/// The pickled magic number with which legacy files begin.
const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
const LEGACY_VERSION: i64 = 1001;

/// Reads all tensors of a state dictionary. No code in the file is run. Checksums are verified; the
/// legacy format has none.
pub fn read(source: &Source) -> Result<Tensors, Error> {
    if source.bytes.starts_with(LEGACY_MAGIC) { read_legacy(source) } else { read_zip(source) }
}

fn read_zip(source: &Source) -> Result<Tensors, Error> {
    let members = zip::members(source)?;
    let tensors = read_members(source, &members);
    // Verify first: damage explains every other error.
    zip::verify(source, &members)?;
    tensors
}

fn read_members(source: &Source, members: &[Member]) -> Result<Tensors, Error> {
    let archive = Archive::new(source, members)?;
    archive.check_byte_order()?;
    let (name, pickled) = (archive.full_name(PICKLE), archive.stored(PICKLE)?);
    let pickle = pickle::load(&mut Reader::of_part(&source.path, &name, &pickled))?;
    let views = Views::new(source, &pickle)?;
    let mut storages = HashMap::new();
    for (&key, storage) in &views.storages {
        let name = format!("data/{key}");
        let data = storage.check(archive.stored(&name)?);
        storages.insert(key, data.map_err(|problem| archive.error(&name, problem))?);
    }
    views.tensors(&storages)
}

/// The members of the archive's folder, by their names within it.
struct Archive<'a> {
    source: &'a Source,
    folder: &'a str,
    members: HashMap<&'a str, &'a Member>,
}

impl<'a> Archive<'a> {
    /// Finds the folder that holds the pickle.
    fn new(source: &'a Source, members: &'a [Member]) -> Result<Self, Error> {
        let folder = members
            .iter()
            .filter_map(|member| member.name.strip_suffix(PICKLE))
            .find(|folder| folder.is_empty() || folder.ends_with('/'))
            .ok_or_else(|| {
                Error::new(&source.path, "", "no data.pkl inside: not a PyTorch file")
            })?;
        let members = members
            .iter()
            .filter_map(|member| Some((member.name.strip_prefix(folder)?, member)))
            .collect();
        Ok(Self { source, folder, members })
    }

    /// A member's data, which must not be compressed.
    fn stored(&self, name: &str) -> Result<Bytes, Error> {
        let Some(member) = self.members.get(name) else {
            return Err(self.error(name, "the member is missing"));
        };
        let problem = "the member is compressed, expected a stored one";
        member.stored().ok_or_else(|| self.error(name, problem))
    }

    fn check_byte_order(&self) -> Result<(), Error> {
        let name = "byteorder";
        if !self.members.contains_key(name) || self.stored(name)?.trim_ascii() == b"little" {
            return Ok(());
        }
        Err(self.error(name, "elements are not little-endian"))
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    fn error(&self, name: &str, problem: impl Into<String>) -> Error {
        Error::new(&self.source.path, self.full_name(name), problem)
    }
}

fn read_legacy(source: &Source) -> Result<Tensors, Error> {
    let mut reader = Reader::new(source);
    reader.take(LEGACY_MAGIC.len() as u64, "the magic number")?;
    let Value::Int(LEGACY_VERSION) = pickle::load(&mut reader)?.result else {
        return Err(reader.error(format!("not version {LEGACY_VERSION} of the legacy format")));
    };
    check_machine(&mut reader)?;
    let pickle = pickle::load(&mut reader)?;
    let views = Views::new(source, &pickle)?;
    let keys = pickle::load(&mut reader)?;
    let Value::List(list) = keys.result else {
        return Err(reader.error("the keys of the storages are no list"));
    };
    let mut storages = HashMap::new();
    for key in keys.items(list) {
        let Value::Text(key) = *key else {
            return Err(reader.error("the key of a storage is no text"));
        };
        let Some(storage) = views.storages.get(key) else {
            return Err(reader.error(format!("no tensor uses the storage {}", quoted(key))));
        };
        let elements = reader.u64("the number of elements of a storage")?;
        let length = elements.saturating_mul(storage.dtype.size() as u64);
        let data = storage.check(reader.view(length, "a storage")?);
        if storages.insert(key, data.map_err(|problem| reader.error(problem))?).is_some() {
            return Err(reader.error(format!("a second storage {}", quoted(key))));
        }
    }
    reader.expect_end("the last storage")?;
    views.tensors(&storages)
}

/// Checks that a legacy file was written on a little-endian machine.
fn check_machine(reader: &mut Reader<'_>) -> Result<(), Error> {
    let pickle = pickle::load(reader)?;
    let Value::Dict(about) = pickle.result else {
        return Err(reader.error("the description of the machine is no dictionary"));
    };
    let big_endian = pickle
        .entries(about)
        .any(|entry| matches!(entry, (Value::Text("little_endian"), Value::Bool(false))));
    if big_endian { Err(reader.error("elements are not little-endian")) } else { Ok(()) }
}

/// A storage as the pickle describes it.
struct Storage {
    dtype: DType,
    elements: usize,
}

impl Storage {
    /// The data, if it is as long as the pickle says.
    fn check(&self, data: Bytes) -> Result<Bytes, String> {
        let Storage { dtype, elements } = self;
        if byte_length(*dtype, &[*elements]) == Ok(data.len()) {
            return Ok(data);
        }
        let found = data.len();
        Err(format!("{found} bytes, expected {elements} elements of {}", dtype.name()))
    }
}

/// A tensor as the pickle describes it: a part of a storage.
struct View<'a> {
    key: &'a str,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// All tensors of a pickle, and the storages they are views of.
struct Views<'a> {
    source: &'a Source,
    views: Vec<(&'a str, View<'a>)>,
    storages: HashMap<&'a str, Storage>,
}

impl<'a> Views<'a> {
    fn new(source: &'a Source, pickle: &Pickle<'a>) -> Result<Self, Error> {
        let refuse = |place: &str, problem: &str| Error::new(&source.path, place, problem);
        let Value::Dict(dictionary) = pickle.result else {
            return Err(refuse("", "the pickle is no dictionary of tensors"));
        };
        let mut all = Self { source, views: Vec::new(), storages: HashMap::new() };
        for (key, value) in pickle.entries(dictionary) {
            let Value::Text(name) = key else {
                return Err(refuse("", "a name in the dictionary is no text"));
            };
            let view = all
                .read_view(pickle, value)
                .map_err(|problem| refuse(&tensor_place(name), &problem))?;
            all.views.push((name, view));
        }
        Ok(all)
    }

    fn read_view(&mut self, pickle: &Pickle<'a>, value: Value<'a>) -> Result<View<'a>, String> {
        let arguments = tensor_arguments(pickle, value).ok_or("not a tensor")?;
        let [Value::Persistent(identifier), Value::Int(offset), shape, strides, ..] =
            pickle.items(arguments)
        else {
            return Err("a tensor without storage, offset, shape and strides".into());
        };
        let view = View {
            key: self.read_storage(pickle.items(*identifier))?,
            offset: usize::try_from(*offset).map_err(|_| format!("offset {offset}"))?,
            shape: sizes(pickle, *shape, "shape")?,
            strides: sizes(pickle, *strides, "strides")?,
        };
        if view.shape.len() != view.strides.len() {
            return Err(format!("shape {:?}, but strides {:?}", view.shape, view.strides));
        }
        Ok(view)
    }

    /// Records the storage that an identifier names and returns its key.
    fn read_storage(&mut self, identifier: &[Value<'a>]) -> Result<&'a str, String> {
        let (&[kind, dtype, key, _device, elements]
        | &[kind, dtype, key, _device, elements, Value::None]) = identifier
        else {
            return Err("not the identifier of a storage".into());
        };
        let (
            Value::Text("storage"),
            Value::Global(Global::Storage(dtype)),
            Value::Text(key),
            Value::Int(elements),
        ) = (kind, dtype, key, elements)
        else {
            return Err("not the identifier of a storage with type, key and size".into());
        };
        let elements = usize::try_from(elements).map_err(|_| format!("{elements} elements"))?;
        let known = self.storages.entry(key).or_insert(Storage { dtype, elements });
        if (known.dtype, known.elements) != (dtype, elements) {
            return Err(format!("storage {} is described in two ways", quoted(key)));
        }
        Ok(key)
    }

    /// Cuts the tensors out of their storages.
    fn tensors(&self, storages: &HashMap<&str, Bytes>) -> Result<Tensors, Error> {
        let mut tensors = Tensors::new();
        let mut budget = copy_budget(self.source);
        for (name, view) in &self.views {
            let refuse =
                |problem: String| Error::new(&self.source.path, tensor_place(name), problem);
            let data = storages
                .get(view.key)
                .ok_or_else(|| refuse(format!("its storage {} is missing", quoted(view.key))))?;
            let dtype = self.storages[view.key].dtype;
            let tensor = view.tensor(dtype, data, &mut budget).map_err(refuse)?;
            if tensors.insert((*name).to_owned(), tensor).is_some() {
                return Err(refuse("a second tensor of this name".into()));
            }
        }
        Ok(tensors)
    }
}

fn tensor_place(name: &str) -> String {
    format!("tensor {}", quoted(name))
}

/// The arguments of the call that builds a tensor, which a parameter or one with attributes wraps.
fn tensor_arguments(pickle: &Pickle<'_>, value: Value<'_>) -> Option<Sequence> {
    let Value::Call(global, arguments) = value else { return None };
    match (global, pickle.items(arguments)) {
        (Global::RebuildTensor, _) => Some(arguments),
        (Global::RebuildParameter, &[Value::Call(Global::RebuildTensor, inner), ..]) => Some(inner),
        (
            Global::RebuildWithAttributes,
            &[
                Value::Global(Global::RebuildTensor),
                Value::Global(Global::TensorType),
                Value::Tuple(inner),
                ..,
            ],
        ) => Some(inner),
        _ => None,
    }
}

/// A tuple of sizes. Its length is bounded here, before it is copied for every tensor that uses it.
fn sizes(pickle: &Pickle<'_>, value: Value<'_>, what: &str) -> Result<Vec<usize>, String> {
    let Value::Tuple(tuple) = value else {
        return Err(format!("{what} is no tuple"));
    };
    let items = pickle.items(tuple);
    if items.len() > MAX_RANK {
        return Err(format!("{} dimensions, expected at most {MAX_RANK}", items.len()));
    }
    items
        .iter()
        .map(|item| match *item {
            Value::Int(size) => usize::try_from(size).map_err(|_| format!("{what} has {size}")),
            _ => Err(format!("{what} holds what is no integer")),
        })
        .collect()
}

/// The most bytes that may be copied for tensors that are not row-major. Without a limit a small
/// file could name any number of views of one storage, or repeat an element by a stride of 0.
fn copy_budget(source: &Source) -> usize {
    const FLAT: usize = 1 << 20;
    const RATIO: usize = 4;
    source.bytes.len().saturating_mul(RATIO).saturating_add(FLAT)
}

impl View<'_> {
    fn tensor(&self, dtype: DType, storage: &Bytes, budget: &mut usize) -> Result<Tensor, String> {
        let length = byte_length(dtype, &self.shape)?;
        let size = dtype.size();
        let within = self.end().is_some_and(|end| end <= storage.len() / size);
        if !within {
            let View { offset, shape, strides, .. } = self;
            let elements = storage.len() / size;
            return Err(format!(
                "offset {offset}, shape {shape:?}, strides {strides:?} reach beyond the {elements} \
                 elements of the storage"
            ));
        }
        let data = if length == 0 {
            Bytes::from_static(&[])
        } else if self.is_row_major() {
            let start = self.offset * size;
            storage.slice(start..start + length)
        } else {
            *budget = budget
                .checked_sub(length)
                .ok_or("strided tensors take up far more than the file holds")?;
            self.copy(storage, size, length).into()
        };
        Tensor::new(dtype, self.shape.clone(), data)
    }

    /// One more than the greatest index of an element.
    fn end(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let dimensions = self.shape.iter().zip(&self.strides);
        let last = dimensions.into_iter().try_fold(self.offset, |index, (&size, &stride)| {
            index.checked_add((size - 1).checked_mul(stride)?)
        });
        last?.checked_add(1)
    }

    fn is_row_major(&self) -> bool {
        let mut expected = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
    }

    /// The elements in row-major order; the caller has checked that all lie within the storage.
    fn copy(&self, storage: &[u8], size: usize, length: usize) -> Vec<u8> {
        // Dimensions of size 1 never move; without them, strides are known to be small.
        let moving = self.shape.iter().zip(&self.strides).filter(|(size, _)| **size > 1);
        let dimensions: Vec<(usize, usize)> =
            moving.map(|(&size, &stride)| (size, stride)).collect();
        let mut index = vec![0; dimensions.len()];
        let mut element = self.offset;
        let mut data = Vec::with_capacity(length);
        while data.len() < length {
            data.extend_from_slice(&storage[element * size..][..size]);
            // Counts up like an odometer, from the innermost dimension.
            for (position, &(size, stride)) in index.iter_mut().zip(&dimensions).rev() {
                *position += 1;
                element += stride;
                if *position < size {
                    break;
                }
                element -= size * stride;
                *position = 0;
            }
        }
        data
    }
}
