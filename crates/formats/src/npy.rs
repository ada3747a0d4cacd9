//! One array as numpy stores it: the members of `.npz` files.
//!
//! ```text
//! 0    \x93NUMPY
//! 6    u8 major version (1, 2 or 3), u8 minor version
//! 8    length of the header: u16 in version 1, u32 in versions 2 and 3
//! …    header: the text of a Python dictionary, blanks, \n
//!      {'descr': '<f4', 'fortran_order': False, 'shape': (2000, 64), }
//! …    the elements, to the end
//! ```
//!
//! `descr` is a byte order (`<` little, `>` big, `|` none, for single bytes; Marian writes `<` for
//! these too), a kind (`f i u b`) and a number of bytes. Anything else (`|O`, which is pickled
//! objects, texts, dates, structures) has no place in a model. Row-major data has `fortran_order`
//! false. Marian pads the header to a multiple of 16 bytes, numpy to one of 64; readers do not care.

use std::path::Path;

use crate::reader::{Reader, quoted};
use crate::{Bytes, DType, Error, Tensor};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Kinds of elements as `descr` names them, without the byte order.
const KINDS: [(&str, DType); 12] = [
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("b1", DType::Bool),
];

/// Reads an array that is a part of a file.
pub(crate) fn read(file: &Path, part: &str, bytes: &Bytes) -> Result<Tensor, Error> {
    let mut reader = Reader::of_part(file, part, bytes);
    let magic = reader.take(MAGIC.len() as u64, "the signature of an array")?;
    if magic != MAGIC {
        let found = magic.escape_ascii();
        return Err(reader.error_at("byte 0", format!("\"{found}\", expected \"\\x93NUMPY\"")));
    }
    let [version, _] = reader.array("the version")?;
    let length = match version {
        1 => reader.u16("the length of the header")?.into(),
        2 | 3 => reader.u32("the length of the header")?,
        _ => return Err(reader.error(format!("array version {version}, expected 1, 2 or 3"))),
    };
    let start = reader.position();
    let text = String::from_utf8_lossy(reader.take(length.into(), "the header")?);
    parse_header(&text)
        .and_then(|header| Tensor::new(header.dtype, header.shape, reader.rest()))
        .map_err(|problem| reader.error_at(format!("byte {start}"), problem))
}

/// Everything before the elements, as Marian writes it; `None` for types that numpy lacks.
pub(crate) fn header(tensor: &Tensor) -> Option<Vec<u8>> {
    const ALIGNMENT: usize = 16;
    let &(kind, _) = KINDS.iter().find(|&&(_, dtype)| dtype == tensor.dtype)?;
    let dimensions: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
    let comma = if dimensions.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", dimensions.join(", "));
    let mut text = format!("{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    let total = (before + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.extend(std::iter::repeat_n(' ', total - before - text.len() - 1));
    text.push('\n');
    // A text of MAX_RANK dimensions is far below 64 kilobytes.
    let length = u16::try_from(text.len()).ok()?;
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(length.to_le_bytes());
    header.extend(text.as_bytes());
    Some(header)
}

struct Header {
    dtype: DType,
    shape: Vec<usize>,
}

fn parse_header(text: &str) -> Result<Header, String> {
    let mut literal = Literal { rest: text };
    let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
    literal.expect("{")?;
    while !literal.eat("}") {
        let key = literal.string()?;
        literal.expect(":")?;
        match key {
            "descr" => dtype = Some(parse_kind(literal.string()?)?),
            "fortran_order" => fortran_order = Some(literal.boolean()?),
            "shape" => shape = Some(literal.tuple()?),
            _ => return Err(format!("the header has an unknown key {}", quoted(key))),
        }
        if !literal.eat(",") {
            literal.expect("}")?;
            break;
        }
    }
    if fortran_order == Some(true) {
        return Err("the array is in column-major (Fortran) order, expected row-major".into());
    }
    match (dtype, fortran_order, shape) {
        (Some(dtype), Some(false), Some(shape)) => Ok(Header { dtype, shape }),
        _ => Err("the header lacks one of descr, fortran_order and shape".into()),
    }
}

fn parse_kind(descr: &str) -> Result<DType, String> {
    let unsupported = |what| Err(format!("type {}: {what}", quoted(descr)));
    let Some(kind) = descr.strip_prefix(['<', '|']) else {
        return unsupported("expected little-endian numbers such as '<f4'");
    };
    if kind.starts_with('O') {
        return unsupported("an array of Python objects, which could run code, is refused");
    }
    match KINDS.iter().find(|(name, _)| *name == kind) {
        Some(&(_, dtype)) => Ok(dtype),
        None => unsupported("expected one of f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1"),
    }
}

/// The few Python literals that occur in a header.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    /// Skips blanks, then the token if it comes next; returns whether it did.
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(token)) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat("\"") { '"' } else { '\'' };
        if quote == '\'' {
            self.expect("'")?;
        }
        let (string, rest) = self.rest.split_once(quote).ok_or("the header has an open quote")?;
        self.rest = rest;
        Ok(string)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.eat("True") {
            Ok(true)
        } else if self.eat("False") {
            Ok(false)
        } else {
            Err(self.unexpected("True or False"))
        }
    }

    /// A tuple of sizes such as `()`, `(3,)` or `(3, 4)`.
    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut items = Vec::new();
        self.expect("(")?;
        while !self.eat(")") {
            items.push(self.size()?);
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(items)
    }

    fn size(&mut self) -> Result<usize, String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let size = digits.parse().map_err(|_| self.unexpected("a size"))?;
        self.rest = rest;
        self.eat("L"); // Python 2 marks long integers
        Ok(size)
    }

    fn unexpected(&self, expected: &str) -> String {
        format!("the header has {}, expected {expected}", quoted(self.rest.trim_start()))
    }
}
