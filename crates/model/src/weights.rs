//! Weights in canonical form: named, (outputs, inputs), in whatever precision the file stores.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use half::{bf16, f16};
use peregrine_formats::Bytes;
use serde::{Deserialize, Serialize};

/// The type in which weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary16.
    Float16,
    /// bfloat16: the first 16 bits of a float32.
    Bfloat16,
    /// 16-bit integers with a quantisation scale.
    Int16,
    /// 8-bit integers with quantisation scales.
    Int8,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Precision; 5] = [
        Precision::Int8,
        Precision::Int16,
        Precision::Bfloat16,
        Precision::Float16,
        Precision::Float32,
    ];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Precision::Float32 => 4,
            Precision::Float16 | Precision::Bfloat16 | Precision::Int16 => 2,
            Precision::Int8 => 1,
        }
    }

    /// The name used on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Float32 => "float32",
            Precision::Float16 => "float16",
            Precision::Bfloat16 => "bfloat16",
            Precision::Int16 => "int16",
            Precision::Int8 => "int8",
        }
    }
}

/// A matrix or a vector. Cloning shares the bytes.
#[derive(Clone)]
pub struct Weight {
    /// (outputs, inputs), or one dimension.
    pub shape: Vec<usize>,
    /// The type of the elements.
    pub precision: Precision,
    /// Row-major, little-endian; always `elements() * precision.size()` bytes.
    pub data: Bytes,
    /// The quantisation scales of integers, one for all or one a row: weight = integer · scale.
    pub scales: Option<Arc<[f32]>>,
}

impl Weight {
    /// A float32 weight.
    pub fn from_f32(shape: Vec<usize>, values: &[f32]) -> Weight {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let data = Bytes::from(bytemuck::cast_slice(values).to_vec());
        Weight { shape, precision: Precision::Float32, data, scales: None }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Length of the first dimension.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Length of a row.
    pub fn columns(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Whether two weights are the same bytes in memory, as tied embeddings are.
    pub fn shares_data_with(&self, other: &Weight) -> bool {
        std::ptr::eq(self.data.as_ptr(), other.data.as_ptr()) && self.data.len() == other.data.len()
    }

    /// The elements in float32; borrowed if they are stored in float32.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        if self.precision == Precision::Float32
            && let Ok(values) = bytemuck::try_cast_slice(&self.data)
        {
            return Cow::Borrowed(values);
        }
        let mut values = vec![0.0; self.elements()];
        let columns = self.columns().max(1);
        for (row, out) in values.chunks_mut(columns).enumerate() {
            self.read_row(row, out);
        }
        Cow::Owned(values)
    }

    /// Writes row `row` to `out` as float32. `out` is as long as a row.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        let size = self.precision.size();
        let bytes = &self.data[row * out.len() * size..][..out.len() * size];
        let scale = self.scale(row);
        match self.precision {
            Precision::Float32 => {
                for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *o = f32::from_le_bytes(*b);
                }
            }
            Precision::Float16 => {
                for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *o = f16::from_le_bytes(*b).to_f32();
                }
            }
            Precision::Bfloat16 => {
                for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *o = bf16::from_le_bytes(*b).to_f32();
                }
            }
            Precision::Int16 => {
                for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *o = f32::from(i16::from_le_bytes(*b)) * scale;
                }
            }
            Precision::Int8 => {
                for (o, b) in out.iter_mut().zip(bytes) {
                    *o = f32::from(*b as i8) * scale;
                }
            }
        }
    }

    /// The quantisation scale of row `row`; 1 for floats.
    pub fn scale(&self, row: usize) -> f32 {
        match self.scales.as_deref() {
            None => 1.0,
            Some([one]) => *one,
            Some(many) => many[row],
        }
    }

    /// Converts to another precision. Quantisation to integers is symmetric: int8 with a scale a
    /// row (`max|row| / 127`), int16 with one for all (`max|w| / 1024`, as in Devlin's paper and
    /// CTranslate2).
    pub fn convert(&self, precision: Precision) -> Weight {
        if precision == self.precision {
            return self.clone();
        }
        let from = |data, scales| {
            let shape = self.shape.clone();
            Weight { shape, precision, data: Bytes::from(data), scales }
        };
        let values = || self.to_f32();
        match precision {
            Precision::Float32 => Weight::from_f32(self.shape.clone(), &values()),
            Precision::Float16 => {
                from(values().iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(), None)
            }
            Precision::Bfloat16 => {
                from(values().iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(), None)
            }
            Precision::Int16 => {
                let (data, scales) = quantise_int16(&values());
                from(data, scales)
            }
            Precision::Int8 => self.to_int8(),
        }
    }

    /// Quantises row by row, so that a large matrix has no copy in float32.
    fn to_int8(&self) -> Weight {
        let columns = self.columns().max(1);
        let mut data = vec![0; self.elements()];
        let mut row = vec![0.0; columns];
        let mut quantise = |(number, integers): (usize, &mut [u8])| {
            self.read_row(number, &mut row[..integers.len()]);
            quantise_row(&row[..integers.len()], integers)
        };
        let scales = data.chunks_mut(columns).enumerate().map(&mut quantise).collect();
        let (shape, precision) = (self.shape.clone(), Precision::Int8);
        Weight { shape, precision, data: Bytes::from(data), scales: Some(scales) }
    }
}

/// The largest magnitude. Eight running maxima hide the latency of the comparisons.
fn largest(values: &[f32]) -> f32 {
    let most = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0f32; 8];
    for chunk in chunks {
        for i in 0..8 {
            lanes[i] = most(lanes[i], chunk[i].abs());
        }
    }
    lanes.iter().chain(rest).fold(0.0, |a, b| most(a, b.abs()))
}

/// The quantisation scale for which the largest value becomes `integer`; 1 if all are zero.
fn quantisation_scale(values: &[f32], integer: f32) -> f32 {
    let most = largest(values);
    if most > 0.0 && most.is_finite() { most / integer } else { 1.0 }
}

/// Quantises a row to int8: writes the integers' bits and returns the scale.
pub fn quantise_row(row: &[f32], integers: &mut [u8]) -> f32 {
    // Adding 1.5 · 2²³ rounds to even and leaves the integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let scale = quantisation_scale(row, 127.0);
    let inverse = 1.0 / scale;
    for (integer, v) in integers.iter_mut().zip(row) {
        *integer = (v * inverse + ROUND).to_bits() as u8;
    }
    scale
}

fn quantise_int16(values: &[f32]) -> (Vec<u8>, Option<Arc<[f32]>>) {
    let scale = quantisation_scale(values, 1024.0);
    let round = |v: &f32| ((v / scale).round_ties_even() as i16).to_le_bytes();
    (values.iter().flat_map(round).collect(), Some([scale].into()))
}

/// All weights of a network by canonical name. Tied weights are entries that share bytes.
#[derive(Clone, Default)]
pub struct Weights {
    by_name: BTreeMap<String, Weight>,
}

impl Weights {
    /// The weight of that name.
    pub fn get(&self, name: &str) -> Option<&Weight> {
        self.by_name.get(name)
    }

    /// Adds or replaces a weight.
    pub fn insert(&mut self, name: impl Into<String>, weight: Weight) {
        self.by_name.insert(name.into(), weight);
    }

    /// All weights, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Weight)> {
        self.by_name.iter().map(|(name, weight)| (name.as_str(), weight))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}
