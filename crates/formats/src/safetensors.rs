//! `.safetensors`: a JSON header and data.
//!
//! ```text
//! 0    u64 n, the length of the header, at most 100 MB
//! 8    n bytes of JSON, starting with `{`; may end in blanks
//!      {"__metadata__": {"format": "pt"},
//!       "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
//! 8+n  data: row-major, little-endian; offsets count from here
//! ```
//!
//! Tensors fill the data without gaps or overlaps, and their names are distinct. Large models are
//! split into several files with an index beside them, which the caller reads.
//!
//! Files written here are aligned: the header is padded with blanks until data starts at a multiple
//! of 64, and tensors are sorted by descending element size. Every tensor of a mapped file is thus
//! aligned to its elements. (A larger alignment would need gaps between tensors, which the format
//! forbids.)

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::reader::{Reader, quoted};
use crate::writer::write_file;
use crate::{Bytes, DType, Error, Source, Tensor, Tensors};

const LONGEST_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";
const DATA_ALIGNMENT: usize = 64;

const TYPES: [(&str, DType); 13] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::Bool),
];

/// The content of a `.safetensors` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// The tensors by name.
    pub tensors: Tensors,
    /// The header's `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

/// Reads a file. Tensors are views of it.
pub fn read(source: &Source) -> Result<File, Error> {
    let mut reader = Reader::new(source);
    let header = read_header(&mut reader)?;
    let data = reader.rest();
    check_layout(&reader, &header.entries, data.len())?;
    let mut tensors = Tensors::new();
    for (name, entry) in header.entries {
        let tensor =
            entry.tensor(&data).map_err(|problem| tensor_error(&reader, &name, problem))?;
        tensors.insert(name, tensor);
    }
    Ok(File { tensors, metadata: header.metadata })
}

fn read_header(reader: &mut Reader<'_>) -> Result<Header, Error> {
    let length = reader.u64("the length of the header")?;
    if length > LONGEST_HEADER {
        let problem = format!("a header of {length} bytes, expected at most {LONGEST_HEADER}");
        return Err(reader.error_at("byte 0", problem));
    }
    let start = reader.position();
    let text = reader.take(length, "the header")?;
    if !text.starts_with(b"{") {
        return Err(reader.error_at(format!("byte {start}"), "the header is not a JSON object"));
    }
    serde_json::from_slice(text).map_err(|cause| reader.error_at("header", cause.to_string()))
}

#[derive(Default)]
struct Header {
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Entry {
    fn tensor(self, data: &Bytes) -> Result<Tensor, String> {
        let dtype = TYPES
            .iter()
            .find(|(name, _)| *name == self.dtype)
            .map(|&(_, dtype)| dtype)
            .ok_or_else(|| format!("unknown type {}", quoted(&self.dtype)))?;
        let [begin, end] = self.data_offsets;
        Tensor::new(dtype, self.shape, data.slice(begin..end))
    }
}

/// Written by hand, because serde's maps silently keep the last of several equal names.
impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        header.metadata = map.next_value()?;
                        continue;
                    }
                    match header.entries.entry(name) {
                        btree_map::Entry::Vacant(vacant) => {
                            vacant.insert(map.next_value()?);
                        }
                        btree_map::Entry::Occupied(known) => {
                            let problem = format!("a second tensor {}", quoted(known.key()));
                            return Err(de::Error::custom(problem));
                        }
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// Checks that the tensors fill the data from its first byte to its last, each where the one
/// before it ends. After this, all offsets are known to lie within the data.
fn check_layout(
    reader: &Reader<'_>,
    entries: &BTreeMap<String, Entry>,
    length: usize,
) -> Result<(), Error> {
    let mut ranges: Vec<_> =
        entries.iter().map(|(name, entry)| (entry.data_offsets, name)).collect();
    ranges.sort_unstable();
    let mut reached = 0;
    for ([begin, end], name) in ranges {
        if begin != reached || end < begin || end > length {
            let problem = format!(
                "data_offsets [{begin}, {end}], expected to begin at {reached}, where the tensor \
                 before ends, and to end within the {length} bytes of data"
            );
            return Err(tensor_error(reader, name, problem));
        }
        reached = end;
    }
    if reached != length {
        let problem = format!("{length} bytes of data, but the tensors end at {reached}");
        return Err(reader.error_at("data", problem));
    }
    Ok(())
}

fn tensor_error(reader: &Reader<'_>, name: &str, problem: String) -> Error {
    reader.error_at(format!("tensor {}", quoted(name)), problem)
}

/// A tensor whose data is made when it is written, so that a large file is never in memory.
pub struct PlannedTensor<'a> {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Makes its data.
    pub data: Box<dyn Fn() -> Bytes + 'a>,
}

impl<'a> From<Tensor> for PlannedTensor<'a> {
    fn from(tensor: Tensor) -> PlannedTensor<'a> {
        let Tensor { dtype, shape, data } = tensor;
        PlannedTensor { dtype, shape, data: Box::new(move || data.clone()) }
    }
}

impl PlannedTensor<'_> {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

/// Writes a file, its tensors in the given order after a stable sort by descending element size.
pub fn write(
    path: &Path,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let planned = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.clone().into());
    write_planned(path, &tensors.iter().map(planned).collect::<Vec<_>>(), metadata)
}

/// [`write()`] for tensors whose data is made one after another.
pub fn write_planned(
    path: &Path,
    tensors: &[(String, PlannedTensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.size()));
    write_file(path, |writer| {
        let header = render_header(&ordered, metadata).map_err(|problem| writer.error(problem))?;
        writer.u64(header.len() as u64)?;
        writer.bytes(header.as_bytes())?;
        ordered.iter().try_for_each(|(_, tensor)| writer.bytes(&(tensor.data)()))
    })
}

fn render_header(
    tensors: &[&(String, PlannedTensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<String, String> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert(METADATA.to_owned(), json!(metadata));
    }
    let mut begin = 0;
    for (name, tensor) in tensors {
        let end = begin + tensor.bytes();
        let entry = json!({
            "dtype": type_name(tensor.dtype),
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        });
        if name == METADATA || header.insert(name.clone(), entry).is_some() {
            return Err(format!("a second tensor {}", quoted(name)));
        }
        begin = end;
    }
    let mut text = Value::Object(header).to_string();
    let before = size_of::<u64>();
    let padded = (before + text.len()).next_multiple_of(DATA_ALIGNMENT) - before;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    Ok(text)
}

fn type_name(dtype: DType) -> &'static str {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(name, _)| *name).expect("the table has every type")
}
