//! Marian's `.bin`, version 1, a layout for memory mapping.
//!
//! ```text
//! 0    u64 version = 1            (2: the header is encrypted)
//! 8    u64 n, the number of items
//! 16   n × { u64 name length, u64 type, u64 number of dimensions, u64 data length }
//! …    n names, each ended by a NUL that its length counts
//! …    n shapes, each of i32
//! …    u64 padding, and that many zeros: data starts at a multiple of 256
//! …    n × data, back to back, in the order of the headers
//! ```
//!
//! An item's data length is its content's rounded up to a multiple of 256 (old files leave the last
//! item unrounded); the padding is zero or garbage. The configuration is the last item, the int8
//! text `special:model.yml`.
//!
//! A type is a class and, in its low byte, the size of an element:
//!
//! | code | type |
//! |---|---|
//! | `0x0101 0x0102 0x0104 0x0108` | int8 … int64 |
//! | `0x0201 0x0202 0x0204 0x0208` | uint8 … uint64 |
//! | `0x0402 0x0404 0x0408` | float16, float32, float64 |
//! | `0x10001 0x10002` | integer matrices of mainline Marian, 8 and 16 bit |
//! | `0x4101 0x4102` | the same of Bergamot (Firefox) |
//! | others, see `PACKED_TYPES` | packed for one kind of processor: refused |
//!
//! An integer matrix of shape (K, N) is K·N integers and then, at whatever alignment, a float32
//! multiplier m: a weight is integer / m. The integers are stored as N rows of K, but for
//! Bergamot's embeddings, which are stored as the shape says. This module returns them as they are.

use std::collections::HashSet;
use std::path::Path;

use crate::reader::{Reader, quoted};
use crate::tensor::byte_length;
use crate::writer::{Writer, write_file};
use crate::{Bytes, DType, Error, Source};

/// The type of an item's content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Elements of one type.
    Plain(DType),
    /// 8-bit integers; a weight is integer / multiplier.
    IntGemm8 {
        /// The factor that weights were multiplied by before rounding.
        multiplier: f32,
    },
    /// 16-bit integers; a weight is integer / multiplier.
    IntGemm16 {
        /// The factor that weights were multiplied by before rounding.
        multiplier: f32,
    },
}

/// The program that wrote an integer matrix. The two differ in type codes and in which parameters
/// they quantise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Marian as released by its authors.
    Mainline,
    /// The fork behind Firefox Translations.
    Bergamot,
}

/// A named part of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The parameter's name.
    pub name: String,
    /// The type of the content, with the multiplier of an integer matrix.
    pub kind: Kind,
    /// The program that wrote an integer matrix; `None` for other items.
    pub dialect: Option<Dialect>,
    /// The shape field: (K, N) also where the integers are stored as N rows of K.
    pub shape: Vec<usize>,
    /// Exactly the content, without multiplier and padding.
    pub data: Bytes,
}

impl Kind {
    /// The type of the stored elements.
    pub fn dtype(self) -> DType {
        match self {
            Kind::Plain(dtype) => dtype,
            Kind::IntGemm8 { .. } => DType::I8,
            Kind::IntGemm16 { .. } => DType::I16,
        }
    }

    fn multiplier(self) -> Option<f32> {
        match self {
            Kind::Plain(_) => None,
            Kind::IntGemm8 { multiplier } | Kind::IntGemm16 { multiplier } => Some(multiplier),
        }
    }
}

const VERSION: u64 = 1;
const ENCRYPTED_VERSION: u64 = 2;
const ALIGNMENT: u64 = 256;
const MULTIPLIER_LENGTH: usize = size_of::<f32>();

const PLAIN_TYPES: [(u64, DType); 11] = [
    (0x0101, DType::I8),
    (0x0102, DType::I16),
    (0x0104, DType::I32),
    (0x0108, DType::I64),
    (0x0201, DType::U8),
    (0x0202, DType::U16),
    (0x0204, DType::U32),
    (0x0208, DType::U64),
    (0x0402, DType::F16),
    (0x0404, DType::F32),
    (0x0408, DType::F64),
];

/// Type codes of integer matrices in a layout that is the same on every machine.
const INTEGER_TYPES: [(u64, DType, Dialect); 4] = [
    (0x10001, DType::I8, Dialect::Mainline),
    (0x10002, DType::I16, Dialect::Mainline),
    (0x4101, DType::I8, Dialect::Bergamot),
    (0x4102, DType::I16, Dialect::Bergamot),
];

/// Type codes of layouts that are packed for one kind of processor, with their names.
const PACKED_TYPES: [(u64, &str); 10] = [
    (0x0802, "packed16"),
    (0x1801, "packed8avx2"),
    (0x2801, "packed8avx512"),
    (0x18001, "intgemm8ssse3"),
    (0x11001, "intgemm8avx2"),
    (0x12001, "intgemm8avx512"),
    (0x13001, "intgemm8avx512vnni"),
    (0x14002, "intgemm16sse2"),
    (0x11002, "intgemm16avx2"),
    (0x12002, "intgemm16avx512"),
];

/// A readable type: that of the elements and, for an integer matrix, its dialect.
#[derive(Clone, Copy)]
struct Type {
    dtype: DType,
    dialect: Option<Dialect>,
}

impl Type {
    fn from_code(code: u64) -> Result<Self, String> {
        if let Some(&(_, dtype)) = PLAIN_TYPES.iter().find(|(known, _)| *known == code) {
            return Ok(Self { dtype, dialect: None });
        }
        if let Some(&(_, dtype, dialect)) = INTEGER_TYPES.iter().find(|(known, ..)| *known == code)
        {
            return Ok(Self { dtype, dialect: Some(dialect) });
        }
        match PACKED_TYPES.iter().find(|(known, _)| *known == code) {
            Some((_, name)) => Err(format!(
                "type {name} ({code:#x}) is packed for one kind of processor; convert the original \
                 model again with marian-conv --gemm-type intgemm8, or float32"
            )),
            None => Err(format!("unknown type {code:#x}")),
        }
    }

    fn code(self) -> Option<u64> {
        match self.dialect {
            None => PLAIN_TYPES.iter().find(|known| known.1 == self.dtype).map(|known| known.0),
            Some(dialect) => INTEGER_TYPES
                .iter()
                .find(|known| (known.1, known.2) == (self.dtype, dialect))
                .map(|known| known.0),
        }
    }
}

/// Reads all items, in the order of the file.
pub fn read(source: &Source) -> Result<Vec<Item>, Error> {
    let mut reader = Reader::new(source);
    let headers = read_headers(&mut reader)?;
    let names = read_names(&mut reader, &headers)?;
    let shapes = headers
        .iter()
        .zip(&names)
        .map(|(header, name)| read_shape(&mut reader, header, name))
        .collect::<Result<Vec<_>, _>>()?;
    let padding = reader.u64("the length of the padding")?;
    reader.take(padding, "the padding")?;
    let mut items = Vec::new();
    for ((header, name), shape) in headers.into_iter().zip(names).zip(shapes) {
        items.push(read_item(&mut reader, &header, name, shape)?);
    }
    reader.expect_end("the last item")?;
    Ok(items)
}

struct Header {
    name_length: u64,
    type_code: u64,
    rank: u64,
    data_length: u64,
}

fn read_headers(reader: &mut Reader<'_>) -> Result<Vec<Header>, Error> {
    match reader.u64("the version")? {
        VERSION => {}
        ENCRYPTED_VERSION => {
            let problem = "version 2, an encrypted model; expected version 1: decrypt it first";
            return Err(reader.error_at("byte 0", problem));
        }
        version => {
            let problem = format!("version {version}, expected 1: not a Marian .bin model");
            return Err(reader.error_at("byte 0", problem));
        }
    }
    // The count is not trusted: memory grows with the headers that are read.
    let count = reader.u64("the number of items")?;
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push(Header {
            name_length: reader.u64("the length of an item's name")?,
            type_code: reader.u64("an item's type")?,
            rank: reader.u64("an item's number of dimensions")?,
            data_length: reader.u64("the length of an item's data")?,
        });
    }
    Ok(headers)
}

fn read_names(reader: &mut Reader<'_>, headers: &[Header]) -> Result<Vec<String>, Error> {
    let mut names = Vec::with_capacity(headers.len());
    let mut seen = HashSet::new();
    for header in headers {
        let place = format!("byte {}", reader.position());
        let name = match reader.take(header.name_length, "an item's name")? {
            [name @ .., 0] => str::from_utf8(name).ok(),
            _ => None,
        };
        let Some(name) = name else {
            return Err(reader.error_at(place, "an item's name is not UTF-8 ended by a NUL"));
        };
        if !seen.insert(name) {
            return Err(reader.error_at(place, format!("a second item {}", quoted(name))));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn read_shape(reader: &mut Reader<'_>, header: &Header, name: &str) -> Result<Vec<usize>, Error> {
    let length = header.rank.saturating_mul(size_of::<i32>() as u64);
    let (dimensions, _) = reader.take(length, "an item's shape")?.as_chunks();
    dimensions
        .iter()
        .map(|&bytes| {
            let dimension = i32::from_le_bytes(bytes);
            usize::try_from(dimension)
                .map_err(|_| item_error(reader, name, format!("a dimension is {dimension}")))
        })
        .collect()
}

fn read_item(
    reader: &mut Reader<'_>,
    header: &Header,
    name: String,
    shape: Vec<usize>,
) -> Result<Item, Error> {
    let refuse = |reader: &Reader<'_>, problem| item_error(reader, &name, problem);
    let Type { dtype, dialect } =
        Type::from_code(header.type_code).map_err(|problem| refuse(reader, problem))?;
    let length = byte_length(dtype, &shape).map_err(|problem| refuse(reader, problem))?;
    let whole = reader.view(header.data_length, &format!("the data of item {}", quoted(&name)))?;
    let Some((content, behind)) = whole.split_at_checked(length) else {
        let problem = format!(
            "{} bytes of data, but {} of shape {shape:?} takes {length}",
            whole.len(),
            dtype.name()
        );
        return Err(refuse(reader, problem));
    };
    let data = whole.slice(0..content.len());
    if dialect.is_none() {
        return Ok(Item { name, kind: Kind::Plain(dtype), dialect, shape, data });
    }
    let Some(&multiplier) = behind.first_chunk::<MULTIPLIER_LENGTH>() else {
        return Err(refuse(reader, "no room for the multiplier behind the integers".to_owned()));
    };
    let multiplier = f32::from_le_bytes(multiplier);
    let kind = match dtype {
        DType::I8 => Kind::IntGemm8 { multiplier },
        _ => Kind::IntGemm16 { multiplier },
    };
    Ok(Item { name, kind, dialect, shape, data })
}

fn item_error(reader: &Reader<'_>, name: &str, problem: String) -> Error {
    reader.error_at(format!("item {}", quoted(name)), problem)
}

/// Writes items in the given order, each padded so that the next one is aligned.
pub fn write(path: &Path, items: &[Item]) -> Result<(), Error> {
    write_file(path, |writer| {
        writer.u64(VERSION)?;
        writer.u64(items.len() as u64)?;
        for item in items {
            write_header(writer, item)?;
        }
        for item in items {
            writer.bytes(item.name.as_bytes())?;
            writer.u8(0)?;
        }
        for &dimension in items.iter().flat_map(|item| &item.shape) {
            let dimension: i32 = writer.narrow(dimension, "a dimension")?;
            writer.bytes(&dimension.to_le_bytes())?;
        }
        write_padding(writer)?;
        items.iter().try_for_each(|item| write_data(writer, item))
    })
}

fn write_header(writer: &mut Writer<'_>, item: &Item) -> Result<(), Error> {
    let kind = Type { dtype: item.kind.dtype(), dialect: item.dialect };
    let has_multiplier = item.kind.multiplier().is_some();
    let Some(code) = kind.code().filter(|_| has_multiplier == item.dialect.is_some()) else {
        let Item { name, kind, dialect, .. } = item;
        return Err(writer.error(format!("item {name}: no type for {kind:?}, dialect {dialect:?}")));
    };
    if byte_length(kind.dtype, &item.shape) != Ok(item.data.len()) {
        let problem = format!("item {}: data of another length than its shape's", item.name);
        return Err(writer.error(problem));
    }
    writer.u64(item.name.len() as u64 + 1)?;
    writer.u64(code)?;
    writer.u64(item.shape.len() as u64)?;
    writer.u64(data_length(item))
}

/// The bytes of an item in the file: content, multiplier if it has one, padding.
fn data_length(item: &Item) -> u64 {
    let multiplier = item.kind.multiplier().map_or(0, |_| MULTIPLIER_LENGTH);
    ((item.data.len() + multiplier) as u64).next_multiple_of(ALIGNMENT)
}

/// Writes between 1 and 256 zeros, even where none are needed, as Marian does.
fn write_padding(writer: &mut Writer<'_>) -> Result<(), Error> {
    let position = writer.position() + size_of::<u64>() as u64;
    let padding = (position / ALIGNMENT + 1) * ALIGNMENT - position;
    writer.u64(padding)?;
    writer.zeros(padding)
}

fn write_data(writer: &mut Writer<'_>, item: &Item) -> Result<(), Error> {
    let end = writer.position() + data_length(item);
    writer.bytes(&item.data)?;
    if let Some(multiplier) = item.kind.multiplier() {
        writer.bytes(&multiplier.to_le_bytes())?;
    }
    writer.zeros(end - writer.position())
}
