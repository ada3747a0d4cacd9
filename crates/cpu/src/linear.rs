//! A dense layer in the precision it is computed in.

use peregrine_model::Weight;
use peregrine_nn::Dense;

use crate::isa::Isa;
use crate::product::{Packed, Task, multiply};

/// Dense layers side by side, packed.
pub enum Linear {
    /// Computed in float32.
    Float32(Packed),
}

impl Linear {
    pub(crate) fn prepare(parts: &[Dense<'_>]) -> Linear {
        Linear::Float32(Packed::from_dense(parts))
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.outputs(),
        }
    }

    /// `out = x · Wᵀ + b`, row by row.
    pub(crate) fn multiply(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        match self {
            Linear::Float32(packed) => multiply(isa, Task::all(x, packed), out),
        }
    }
}

impl Packed {
    /// Packs dense layers that share their input.
    pub(crate) fn from_dense(parts: &[Dense<'_>]) -> Packed {
        let outputs = parts.iter().map(|p| p.weight.rows()).sum();
        let inputs = parts.first().map_or(0, |p| p.weight.columns());
        let mut packed = Packed::new(outputs, inputs);
        let mut row = vec![0.0; inputs];
        let mut output = 0;
        for part in parts {
            let bias = vector(part.bias);
            for i in 0..part.weight.rows() {
                part.weight.read_row(i, &mut row);
                packed.set(output, &row, bias.get(i).copied().unwrap_or(0.0));
                output += 1;
            }
        }
        packed
    }
}

/// A weight's numbers; none if there is no weight.
pub(crate) fn vector(weight: Option<&Weight>) -> Vec<f32> {
    weight.map(|w| w.to_f32().into_owned()).unwrap_or_default()
}
