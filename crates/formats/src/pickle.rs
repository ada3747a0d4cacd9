//! The part of Python's pickle that a PyTorch state dictionary needs, as data.
//!
//! A pickle is a program for a small stack machine, and a full machine can call any function, so a
//! hostile file could run code. This one cannot. It has the instructions that build
//! numbers, texts, tuples, lists and dictionaries, and a closed list of global names. A call of one
//! of these becomes a [`Value::Call`], which is a record of name and arguments; everything else is
//! an error.
//!
//! ```text
//! 80 02                        PROTO 2
//! c collections\nOrderedDict\n push a global name;  q 00  put it into the memo at 0
//! ) R                          push an empty tuple, call: an empty dictionary
//! ( X 01 00 00 00 a K 05 u     mark, text "a", number 5, set items down to the mark
//! .                            stop: the value on top is the result
//! ```
//!
//! Values refer to tuples, lists and dictionaries by number. A pickle can nest them a million deep
//! or make them contain themselves; in this form neither recursion nor a leak comes of it.

use std::collections::HashMap;

use crate::reader::{Reader, quoted};
use crate::{DType, Error};

/// The most instructions a state dictionary may have; a tensor takes about 25.
const MOST_INSTRUCTIONS: usize = 1 << 20;

/// A value of a pickle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float,
    Text(&'a str),
    Global(Global),
    Tuple(Sequence),
    List(Sequence),
    /// Alternating keys and values.
    Dict(Sequence),
    /// An object outside the pickle, given by its persistent identifier (a tuple).
    Persistent(Sequence),
    /// A call that is recorded and never made.
    Call(Global, Sequence),
}

/// The number of a sequence of values in its [`Pickle`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence(usize);

/// The global names that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    RebuildWithAttributes,
    TensorType,
    Storage(DType),
}

const GLOBALS: [(&str, &str, Global); 16] = [
    ("collections", "OrderedDict", Global::OrderedDict),
    ("torch._utils", "_rebuild_tensor_v2", Global::RebuildTensor),
    ("torch._utils", "_rebuild_parameter", Global::RebuildParameter),
    // A parameter with attributes, which come behind the others' arguments.
    ("torch._utils", "_rebuild_parameter_with_state", Global::RebuildParameter),
    // A tensor with attributes: the call that builds it and its type come as arguments.
    ("torch._tensor", "_rebuild_from_type_v2", Global::RebuildWithAttributes),
    ("torch", "Tensor", Global::TensorType),
    ("torch", "DoubleStorage", Global::Storage(DType::F64)),
    ("torch", "FloatStorage", Global::Storage(DType::F32)),
    ("torch", "HalfStorage", Global::Storage(DType::F16)),
    ("torch", "BFloat16Storage", Global::Storage(DType::BF16)),
    ("torch", "LongStorage", Global::Storage(DType::I64)),
    ("torch", "IntStorage", Global::Storage(DType::I32)),
    ("torch", "ShortStorage", Global::Storage(DType::I16)),
    ("torch", "CharStorage", Global::Storage(DType::I8)),
    ("torch", "ByteStorage", Global::Storage(DType::U8)),
    ("torch", "BoolStorage", Global::Storage(DType::Bool)),
];

/// A pickle's result and the sequences it is made of.
pub(crate) struct Pickle<'a> {
    pub(crate) result: Value<'a>,
    sequences: Vec<Vec<Value<'a>>>,
}

impl<'a> Pickle<'a> {
    pub(crate) fn items(&self, sequence: Sequence) -> &[Value<'a>] {
        &self.sequences[sequence.0]
    }

    /// Keys and values of a dictionary.
    pub(crate) fn entries(
        &self,
        sequence: Sequence,
    ) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        self.items(sequence).as_chunks().0.iter().map(|&[key, value]| (key, value))
    }
}

/// Reads one pickle up to and including its last instruction.
pub(crate) fn load<'a>(reader: &mut Reader<'a>) -> Result<Pickle<'a>, Error> {
    let mut machine = Machine::default();
    for _ in 0..MOST_INSTRUCTIONS {
        let start = reader.position();
        match machine.step(reader) {
            Ok(None) => {}
            Ok(Some(result)) => return Ok(Pickle { result, sequences: machine.sequences }),
            Err(Failure::Read(error)) => return Err(error),
            Err(Failure::Refused(problem)) => {
                return Err(reader.error_at(format!("byte {start}"), problem));
            }
        }
    }
    Err(reader.error(format!("a pickle of over {MOST_INSTRUCTIONS} instructions")))
}

/// Why an instruction failed: the bytes end, or it is not allowed.
enum Failure {
    Read(Error),
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Read(error)
    }
}

impl From<&str> for Failure {
    fn from(problem: &str) -> Self {
        Failure::Refused(problem.to_owned())
    }
}

/// The stack machine.
#[derive(Default)]
struct Machine<'a> {
    stack: Vec<Value<'a>>,
    /// Heights of the stack at which marks were set.
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    sequences: Vec<Vec<Value<'a>>>,
}

impl<'a> Machine<'a> {
    /// Performs the next instruction; `STOP` gives the result.
    fn step(&mut self, reader: &mut Reader<'a>) -> Result<Option<Value<'a>>, Failure> {
        let value = match reader.u8("an instruction")? {
            b'.' => return Ok(Some(self.pop()?)),
            0x80 => return self.protocol(reader.u8("PROTO")?),
            b'(' => return self.set_mark(),
            b'q' => return self.put(reader.u8("BINPUT")?.into()),
            b'r' => return self.put(reader.u32("LONG_BINPUT")?),
            b'a' => return self.append_one(),
            b'e' => return self.append_marked(),
            b's' => return self.set_item(),
            b'u' => return self.set_items(),
            b'b' => return self.build(),
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(reader.u8("BININT1")?.into()),
            b'M' => Value::Int(reader.u16("BININT2")?.into()),
            b'J' => Value::Int(i32::from_le_bytes(reader.array("BININT")?).into()),
            0x8a => long(reader)?,
            b'G' => float(reader)?,
            b'X' => text(reader.u32("BINUNICODE")?.into(), reader)?,
            0x8c => text(reader.u8("SHORT_BINUNICODE")?.into(), reader)?,
            b'c' => Value::Global(global(reader)?),
            b')' => Value::Tuple(self.sequence(Vec::new())),
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => self.marked_tuple()?,
            b']' => Value::List(self.sequence(Vec::new())),
            b'}' => Value::Dict(self.sequence(Vec::new())),
            b'h' => self.get(reader.u8("BINGET")?.into())?,
            b'j' => self.get(reader.u32("LONG_BINGET")?)?,
            b'Q' => self.persistent()?,
            b'R' => self.reduce()?,
            other => {
                let problem = format!("pickle instruction {other:#04x} is not allowed in a model");
                return Err(Failure::Refused(problem));
            }
        };
        self.stack.push(value);
        Ok(None)
    }

    fn protocol(&self, version: u8) -> Result<Option<Value<'a>>, Failure> {
        match version {
            2.. => Ok(None),
            _ => Err("the pickle's protocol is below 2".into()),
        }
    }

    fn pop(&mut self) -> Result<Value<'a>, Failure> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() > floor
            && let Some(value) = self.stack.pop()
        {
            return Ok(value);
        }
        Err("the pickle takes a value from an empty stack".into())
    }

    fn sequence(&mut self, items: Vec<Value<'a>>) -> Sequence {
        self.sequences.push(items);
        Sequence(self.sequences.len() - 1)
    }

    fn set_mark(&mut self) -> Result<Option<Value<'a>>, Failure> {
        self.marks.push(self.stack.len());
        Ok(None)
    }

    /// Takes all values above the last mark.
    fn pop_marked(&mut self) -> Result<Vec<Value<'a>>, Failure> {
        let mark = self.marks.pop().ok_or("the pickle refers to a mark that is not set")?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, length: usize) -> Result<Value<'a>, Failure> {
        let mut items = (0..length).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        Ok(Value::Tuple(self.sequence(items)))
    }

    fn marked_tuple(&mut self) -> Result<Value<'a>, Failure> {
        let items = self.pop_marked()?;
        Ok(Value::Tuple(self.sequence(items)))
    }

    fn put(&mut self, index: u32) -> Result<Option<Value<'a>>, Failure> {
        let &value = self.stack.last().ok_or("the pickle memorises a value from an empty stack")?;
        self.memo.insert(index, value);
        Ok(None)
    }

    fn get(&self, index: u32) -> Result<Value<'a>, Failure> {
        let problem = || Failure::Refused(format!("nothing was memorised as {index}"));
        self.memo.get(&index).copied().ok_or_else(problem)
    }

    fn append_one(&mut self) -> Result<Option<Value<'a>>, Failure> {
        let item = self.pop()?;
        self.extend_list(&[item])
    }

    fn append_marked(&mut self) -> Result<Option<Value<'a>>, Failure> {
        let items = self.pop_marked()?;
        self.extend_list(&items)
    }

    fn extend_list(&mut self, items: &[Value<'a>]) -> Result<Option<Value<'a>>, Failure> {
        match self.stack.last() {
            Some(Value::List(list)) => self.sequences[list.0].extend_from_slice(items),
            _ => return Err("the pickle appends to what is no list".into()),
        }
        Ok(None)
    }

    fn set_item(&mut self) -> Result<Option<Value<'a>>, Failure> {
        let value = self.pop()?;
        let key = self.pop()?;
        self.extend_dict(&[key, value])
    }

    fn set_items(&mut self) -> Result<Option<Value<'a>>, Failure> {
        let items = self.pop_marked()?;
        if items.len() % 2 != 0 {
            return Err("the pickle sets a key without a value".into());
        }
        self.extend_dict(&items)
    }

    fn extend_dict(&mut self, items: &[Value<'a>]) -> Result<Option<Value<'a>>, Failure> {
        match self.stack.last() {
            Some(Value::Dict(dict)) => self.sequences[dict.0].extend_from_slice(items),
            _ => return Err("the pickle sets items of what is no dictionary".into()),
        }
        Ok(None)
    }

    /// Attaches attributes to an object. PyTorch does so to keep module versions, which mean
    /// nothing here, and only with dictionaries: no code would run in Python either.
    fn build(&mut self) -> Result<Option<Value<'a>>, Failure> {
        match (self.pop()?, self.stack.last()) {
            (Value::Dict(_), Some(Value::Dict(_))) => Ok(None),
            _ => Err("the pickle sets attributes of what is no dictionary".into()),
        }
    }

    fn persistent(&mut self) -> Result<Value<'a>, Failure> {
        match self.pop()? {
            Value::Tuple(identifier) => Ok(Value::Persistent(identifier)),
            _ => Err("a persistent identifier is no tuple".into()),
        }
    }

    /// Records a call; an ordered dictionary is made at once, because it is filled later.
    fn reduce(&mut self) -> Result<Value<'a>, Failure> {
        let arguments = self.pop()?;
        let Value::Tuple(arguments) = arguments else {
            return Err("the arguments of a call are no tuple".into());
        };
        match self.pop()? {
            Value::Global(Global::OrderedDict) if self.sequences[arguments.0].is_empty() => {
                Ok(Value::Dict(self.sequence(Vec::new())))
            }
            Value::Global(
                global @ (Global::RebuildTensor
                | Global::RebuildParameter
                | Global::RebuildWithAttributes),
            ) => Ok(Value::Call(global, arguments)),
            _ => Err("the pickle calls what is no known function".into()),
        }
    }
}

/// Reads an integer of any length, in two's complement; more than 64 bits are refused.
fn long<'a>(reader: &mut Reader<'a>) -> Result<Value<'a>, Failure> {
    let length = reader.u8("LONG1")?;
    let bytes = reader.take(length.into(), "LONG1")?;
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    let Some(low) = wide.get_mut(..bytes.len()) else {
        return Err("an integer of over 64 bits".into());
    };
    low.copy_from_slice(bytes);
    Ok(Value::Int(i64::from_le_bytes(wide)))
}

/// Skips a float, whose value is not used.
fn float<'a>(reader: &mut Reader<'a>) -> Result<Value<'a>, Failure> {
    reader.take(8, "BINFLOAT")?;
    Ok(Value::Float)
}

fn text<'a>(length: u64, reader: &mut Reader<'a>) -> Result<Value<'a>, Failure> {
    match str::from_utf8(reader.take(length, "a text")?) {
        Ok(text) => Ok(Value::Text(text)),
        Err(_) => Err("a text is not UTF-8".into()),
    }
}

fn global(reader: &mut Reader<'_>) -> Result<Global, Failure> {
    let module = String::from_utf8_lossy(reader.line("the module of a global name")?);
    let name = String::from_utf8_lossy(reader.line("a global name")?);
    let known = GLOBALS.iter().find(|known| (known.0, known.1) == (&module, &name));
    known.map(|known| known.2).ok_or_else(|| {
        let full = quoted(&format!("{module}.{name}"));
        Failure::Refused(format!("the pickle refers to {full}, which is not allowed in a model"))
    })
}
