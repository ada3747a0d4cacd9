//! Typed, shaped views of bytes.

use std::collections::BTreeMap;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::Bytes;

/// The most dimensions a tensor may have: far above any model's, and low enough that a shape
/// shared by many tensors cannot be used to exhaust memory.
pub(crate) const MAX_RANK: usize = 16;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say all
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl DType {
    /// Bytes an element takes.
    pub fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in messages, such as `float32`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "float64",
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::I16 => "int16",
            DType::I8 => "int8",
            DType::U64 => "uint64",
            DType::U32 => "uint32",
            DType::U16 => "uint16",
            DType::U8 => "uint8",
            DType::Bool => "bool",
        }
    }
}

/// A row-major, little-endian array. Readers return only tensors whose `data` holds exactly the
/// elements of `shape` and `dtype`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of the elements.
    pub dtype: DType,
    /// The dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements, not necessarily aligned.
    pub data: Bytes,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

impl Tensor {
    /// A tensor over bytes, whose number must be that of the shape. The error says what was found
    /// and expected, without the place.
    pub(crate) fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Self, String> {
        let expected = byte_length(dtype, &shape)?;
        if data.len() != expected {
            return Err(format!(
                "{} bytes of data, but {} of shape {shape:?} takes {expected}",
                data.len(),
                dtype.name()
            ));
        }
        Ok(Self { dtype, shape, data })
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// The elements as 32-bit floats, or `None` unless they are of a float type.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        match self.dtype {
            DType::F64 => Some(self.map(|bytes| f64::from_le_bytes(bytes) as f32)),
            DType::F32 => Some(self.map(f32::from_le_bytes)),
            DType::F16 => Some(self.map(|bytes| f16::from_le_bytes(bytes).to_f32())),
            DType::BF16 => Some(self.map(|bytes| bf16::from_le_bytes(bytes).to_f32())),
            _ => None,
        }
    }

    /// The elements as 64-bit integers, or `None` if they are of a float type or too large.
    /// Booleans count as 0 and 1.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        match self.dtype {
            DType::I64 => Some(self.map(i64::from_le_bytes)),
            DType::I32 => Some(self.map(|bytes| i32::from_le_bytes(bytes).into())),
            DType::I16 => Some(self.map(|bytes| i16::from_le_bytes(bytes).into())),
            DType::I8 => Some(self.map(|bytes| i8::from_le_bytes(bytes).into())),
            DType::U64 => self
                .map(|bytes| i64::try_from(u64::from_le_bytes(bytes)).ok())
                .into_iter()
                .collect(),
            DType::U32 => Some(self.map(|bytes| u32::from_le_bytes(bytes).into())),
            DType::U16 => Some(self.map(|bytes| u16::from_le_bytes(bytes).into())),
            DType::U8 => Some(self.map(|[byte]| byte.into())),
            DType::Bool => Some(self.map(|[byte]| (byte != 0).into())),
            _ => None,
        }
    }

    /// A float32 tensor.
    ///
    /// # Panics
    ///
    /// Like the other constructors from values, if the shape does not fit the number of values.
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        Self::from_values(DType::F32, shape.into(), values)
    }

    /// A float64 tensor.
    pub fn from_f64(shape: impl Into<Vec<usize>>, values: &[f64]) -> Self {
        Self::from_values(DType::F64, shape.into(), values)
    }

    /// A float16 tensor with the nearest values.
    pub fn from_f32_as_f16(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        let bits: Vec<u16> = values.iter().map(|&value| f16::from_f32(value).to_bits()).collect();
        Self::from_values(DType::F16, shape.into(), &bits)
    }

    /// A bfloat16 tensor with the nearest values.
    pub fn from_f32_as_bf16(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        let bits: Vec<u16> = values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect();
        Self::from_values(DType::BF16, shape.into(), &bits)
    }

    /// An int8 tensor.
    pub fn from_i8(shape: impl Into<Vec<usize>>, values: &[i8]) -> Self {
        Self::from_values(DType::I8, shape.into(), values)
    }

    /// An int16 tensor.
    pub fn from_i16(shape: impl Into<Vec<usize>>, values: &[i16]) -> Self {
        Self::from_values(DType::I16, shape.into(), values)
    }

    /// An int32 tensor.
    pub fn from_i32(shape: impl Into<Vec<usize>>, values: &[i32]) -> Self {
        Self::from_values(DType::I32, shape.into(), values)
    }

    /// An int64 tensor.
    pub fn from_i64(shape: impl Into<Vec<usize>>, values: &[i64]) -> Self {
        Self::from_values(DType::I64, shape.into(), values)
    }

    /// A uint8 tensor.
    pub fn from_u8(shape: impl Into<Vec<usize>>, values: &[u8]) -> Self {
        Self::from_values(DType::U8, shape.into(), values)
    }

    fn from_values<T: Pod>(dtype: DType, shape: Vec<usize>, values: &[T]) -> Self {
        let data = bytemuck::cast_slice::<T, u8>(values).to_vec();
        Self::new(dtype, shape, data.into()).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Applies a function to the bytes of each element, which need not be aligned.
    fn map<const N: usize, T>(&self, function: impl Fn([u8; N]) -> T) -> Vec<T> {
        debug_assert_eq!(N, self.dtype.size());
        self.data.as_chunks().0.iter().map(|&bytes| function(bytes)).collect()
    }
}

/// The number of bytes of a tensor, or the reason why its shape is impossible.
pub(crate) fn byte_length(dtype: DType, shape: &[usize]) -> Result<usize, String> {
    if shape.len() > MAX_RANK {
        return Err(format!("{} dimensions, expected at most {MAX_RANK}", shape.len()));
    }
    shape
        .iter()
        .try_fold(dtype.size(), |product, &dimension| product.checked_mul(dimension))
        .ok_or_else(|| format!("shape {shape:?} is too large for any file"))
}
