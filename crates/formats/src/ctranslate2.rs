//! CTranslate2's `model.bin`, versions 2 to 6.
//!
//! A text is a u16 length, which counts a final NUL, the UTF-8 bytes and the NUL.
//!
//! ```text
//! u32 version
//! text name of the specification, u32 its revision
//! u32 number of variables, and for each
//!     text name, u8 rank, rank × u32 dimensions
//!     version ≥ 4:  u8 type, u32 number of bytes
//!     version ≤ 3:  u8 size of an element, u32 number of elements
//!     the elements, row-major, without any alignment
//! version ≥ 3: u32 number of aliases, and for each
//!     text alias, text name of a variable
//! ```
//!
//! Types: 0 float32, 1 int8, 2 int16, 3 int32, 4 float16, 5 bfloat16. Before version 4 the size of
//! an element gives the type: 4 float32, 2 int16, 1 int8. Variables and aliases are written sorted
//! by name. An alias stands for a variable and for what belongs to it: that `A` is `B` implies that
//! `A_scale` is `B_scale` and `A_zero` is `B_zero`, where these exist. Aliases of variables that do
//! not exist are ignored, as CTranslate2 does.

use std::collections::BTreeMap;
use std::path::Path;

use crate::reader::{Reader, quoted};
use crate::writer::{Writer, write_file};
use crate::{DType, Error, Source, Tensor, Tensors};

const OLDEST_VERSION: u32 = 2;
const NEWEST_VERSION: u32 = 6;
const FIRST_VERSION_WITH_ALIASES: u32 = 3;
const FIRST_VERSION_WITH_TYPES: u32 = 4;

/// Element types by type code.
const TYPES: [DType; 6] = [DType::F32, DType::I8, DType::I16, DType::I32, DType::F16, DType::BF16];

/// Element types before version 4, identified by the size of an element.
const TYPES_BY_SIZE: [DType; 3] = [DType::I8, DType::I16, DType::F32];

/// Suffixes of the variables that belong to a quantised variable and are aliased with it.
const COMPANIONS: [&str; 2] = ["_scale", "_zero"];

/// The content of a `model.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The version of the layout, which some of the arithmetic depends on.
    pub version: u32,
    /// The name of the specification, such as `TransformerSpec`.
    pub spec: String,
    /// The revision of the specification.
    pub revision: u32,
    /// Variables by name. Aliases are here too, as views of the same bytes.
    pub variables: Tensors,
    /// The variable of each alias stated in the file.
    pub aliases: BTreeMap<String, String>,
}

/// Reads a model.
pub fn read(source: &Source) -> Result<Model, Error> {
    let mut reader = Reader::new(source);
    let version = reader.u32("the version")?;
    if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&version) {
        let reason = match version {
            1 => "convert the model again",
            7..100 => "written by a newer CTranslate2",
            _ => "not a CTranslate2 model",
        };
        let expected = format!("expected {OLDEST_VERSION} to {NEWEST_VERSION}");
        let problem = format!("version {version}, {expected}: {reason}");
        return Err(reader.error_at("byte 0", problem));
    }
    let spec = read_text(&mut reader, "the name of the specification")?.to_owned();
    let revision = reader.u32("the revision of the specification")?;
    let mut variables = read_variables(&mut reader, version)?;
    let mut aliases = BTreeMap::new();
    if version >= FIRST_VERSION_WITH_ALIASES {
        aliases = read_aliases(&mut reader, &mut variables)?;
    }
    reader.expect_end("the last variable or alias")?;
    Ok(Model { version, spec, revision, variables, aliases })
}

fn read_variables(reader: &mut Reader<'_>, version: u32) -> Result<Tensors, Error> {
    let mut variables = Tensors::new();
    for _ in 0..reader.u32("the number of variables")? {
        let name = read_text(reader, "a variable's name")?;
        let variable = read_variable(reader, version, name)?;
        if variables.insert(name.to_owned(), variable).is_some() {
            return Err(variable_error(reader, name, "a second variable of this name"));
        }
    }
    Ok(variables)
}

fn read_variable(reader: &mut Reader<'_>, version: u32, name: &str) -> Result<Tensor, Error> {
    let rank = reader.u8("a variable's rank")?;
    let shape = (0..rank)
        .map(|_| reader.u32("a dimension").map(|dimension| dimension as usize))
        .collect::<Result<Vec<_>, _>>()?;
    let type_number = reader.u8("a variable's type")?;
    let count = u64::from(reader.u32("the size of a variable")?);
    let (dtype, length) = if version >= FIRST_VERSION_WITH_TYPES {
        (TYPES.get(usize::from(type_number)).copied(), count)
    } else {
        let size = usize::from(type_number);
        let dtype = TYPES_BY_SIZE.into_iter().find(|dtype| dtype.size() == size);
        (dtype, count * u64::from(type_number))
    };
    let Some(dtype) = dtype else {
        let problem = match version {
            FIRST_VERSION_WITH_TYPES.. => format!("type {type_number}, expected 0 to 5"),
            _ => format!("elements of {type_number} bytes, expected 1, 2 or 4"),
        };
        return Err(variable_error(reader, name, problem));
    };
    let data = reader.view(length, &format!("the data of variable {}", quoted(name)))?;
    Tensor::new(dtype, shape, data).map_err(|problem| variable_error(reader, name, problem))
}

fn read_aliases(
    reader: &mut Reader<'_>,
    variables: &mut Tensors,
) -> Result<BTreeMap<String, String>, Error> {
    let mut aliases = BTreeMap::new();
    for _ in 0..reader.u32("the number of aliases")? {
        let alias = read_text(reader, "an alias")?;
        let name = read_text(reader, "the variable of an alias")?;
        let Some(variable) = variables.get(name).cloned() else { continue };
        if variables.insert(alias.to_owned(), variable).is_some() {
            return Err(variable_error(reader, alias, "an alias of this name too"));
        }
        for companion in COMPANIONS {
            let companion_of = |owner: &str| format!("{owner}{companion}");
            if let Some(tensor) = variables.get(&companion_of(name)).cloned() {
                variables.entry(companion_of(alias)).or_insert(tensor);
            }
        }
        aliases.insert(alias.to_owned(), name.to_owned());
    }
    Ok(aliases)
}

fn read_text<'a>(reader: &mut Reader<'a>, what: &str) -> Result<&'a str, Error> {
    let place = format!("byte {}", reader.position());
    let length = reader.u16(what)?;
    let text = match reader.take(length.into(), what)? {
        [text @ .., 0] => str::from_utf8(text).ok(),
        _ => None,
    };
    text.ok_or_else(|| reader.error_at(place, format!("{what} is not UTF-8 ended by a NUL")))
}

fn variable_error(reader: &Reader<'_>, name: &str, problem: impl Into<String>) -> Error {
    reader.error_at(format!("variable {}", quoted(name)), problem)
}

/// Writes a model in the layout of its version. Aliases are written as such where the version has
/// them, and as copies of their variable where it has not.
pub fn write(path: &Path, model: &Model) -> Result<(), Error> {
    write_file(path, |writer| {
        let version = model.version;
        if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&version) {
            return Err(writer.error(format!("no layout is known for version {version}")));
        }
        let with_aliases = version >= FIRST_VERSION_WITH_ALIASES;
        writer.u32(version)?;
        write_text(writer, &model.spec)?;
        writer.u32(model.revision)?;
        let stated: Vec<_> = model
            .variables
            .iter()
            .filter(|(name, _)| !with_aliases || !model.is_alias(name))
            .collect();
        writer.u32(writer.narrow(stated.len(), "the number of variables")?)?;
        for (name, variable) in stated {
            write_variable(writer, version, name, variable)?;
        }
        if with_aliases {
            write_aliases(writer, &model.aliases)?;
        }
        Ok(())
    })
}

impl Model {
    /// Whether a name is left out of the file because an alias, stated or implied, provides it.
    fn is_alias(&self, name: &str) -> bool {
        self.aliases.contains_key(name)
            || COMPANIONS.iter().any(|companion| {
                name.strip_suffix(companion)
                    .and_then(|owner| self.aliases.get(owner))
                    .and_then(|target| self.variables.get(&format!("{target}{companion}")))
                    .is_some_and(|tensor| Some(tensor) == self.variables.get(name))
            })
    }
}

fn write_variable(
    writer: &mut Writer<'_>,
    version: u32,
    name: &str,
    variable: &Tensor,
) -> Result<(), Error> {
    write_text(writer, name)?;
    writer.u8(writer.narrow(variable.shape.len(), "the rank of a variable")?)?;
    for &dimension in &variable.shape {
        writer.u32(writer.narrow(dimension, "a dimension")?)?;
    }
    let size = variable.dtype.size();
    let type_number = if version >= FIRST_VERSION_WITH_TYPES {
        TYPES.iter().position(|dtype| *dtype == variable.dtype)
    } else {
        TYPES_BY_SIZE.contains(&variable.dtype).then_some(size)
    };
    let Some(type_number) = type_number else {
        let dtype = variable.dtype.name();
        let problem = format!("{name} is of type {dtype}, which version {version} has not");
        return Err(writer.error(problem));
    };
    let length = variable.data.len();
    let count = if version >= FIRST_VERSION_WITH_TYPES { length } else { length / size };
    writer.u8(writer.narrow(type_number, "a type")?)?;
    writer.u32(writer.narrow(count, "the size of a variable")?)?;
    writer.bytes(&variable.data)
}

fn write_aliases(writer: &mut Writer<'_>, aliases: &BTreeMap<String, String>) -> Result<(), Error> {
    writer.u32(writer.narrow(aliases.len(), "the number of aliases")?)?;
    for (alias, name) in aliases {
        write_text(writer, alias)?;
        write_text(writer, name)?;
    }
    Ok(())
}

fn write_text(writer: &mut Writer<'_>, text: &str) -> Result<(), Error> {
    writer.u16(writer.narrow(text.len() + 1, "the length of a text")?)?;
    writer.bytes(text.as_bytes())?;
    writer.u8(0)
}
