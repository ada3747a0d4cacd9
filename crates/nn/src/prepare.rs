//! From named weights to prepared ones.

use peregrine_model::{Op, Weight, Weights};

use crate::backend::{Backend, Dense, NormWeights, PreparedOp};

/// A weight that a network needs is not in its file.
#[derive(Debug, thiserror::Error)]
#[error("the weight {0} is missing")]
pub struct MissingWeight(pub String);

/// Looks weights up and hands them to a backend.
pub(crate) struct Preparer<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) weights: &'a Weights,
}

impl<'a, B: Backend> Preparer<'a, B> {
    pub(crate) fn weight(&self, name: &str) -> Result<&'a Weight, MissingWeight> {
        self.weights.get(name).ok_or_else(|| MissingWeight(name.to_owned()))
    }

    /// A weight of one number, if the file has it.
    pub(crate) fn number(&self, name: &str) -> Option<f32> {
        self.weights.get(name).and_then(|w| w.to_f32().first().copied())
    }

    pub(crate) fn dense(&self, name: &str) -> Result<Dense<'a>, MissingWeight> {
        Ok(Dense {
            weight: self.weight(&format!("{name}.weight"))?,
            bias: self.weights.get(&format!("{name}.bias")),
            alpha: self.number(&format!("{name}.alpha")),
        })
    }

    pub(crate) fn linear(&self, name: &str) -> Result<B::Linear, MissingWeight> {
        Ok(self.pack(name, &[self.dense(name)?]))
    }

    /// Packs dense layers of one input. `name` is the name of one of them.
    fn pack(&self, name: &str, parts: &[Dense<'_>]) -> B::Linear {
        match sees_source(name) {
            true => self.backend.prepare_source_linear(parts),
            false => self.backend.prepare_linear(parts),
        }
    }

    /// Several dense layers of one input, side by side.
    pub(crate) fn side_by_side(
        &self,
        block: &str,
        parts: &[&str],
    ) -> Result<B::Linear, MissingWeight> {
        let names: Vec<String> = parts.iter().map(|part| format!("{block}.{part}")).collect();
        let parts: Vec<Dense<'_>> =
            names.iter().map(|name| self.dense(name)).collect::<Result<_, _>>()?;
        Ok(self.pack(&names[0], &parts))
    }

    /// A dense layer without its bias.
    pub(crate) fn product(&self, name: &str) -> Result<B::Linear, MissingWeight> {
        Ok(self.pack(name, &[Dense { bias: None, ..self.dense(name)? }]))
    }

    pub(crate) fn steps(
        &self,
        place: &str,
        ops: &[Op],
        epsilon: f32,
    ) -> Result<Vec<PreparedOp<B>>, MissingWeight> {
        ops.iter()
            .map(|op| {
                Ok(match op {
                    Op::Add => PreparedOp::Add,
                    Op::Highway => PreparedOp::Highway(self.linear(&format!("{place}.highway"))?),
                    Op::Norm => PreparedOp::Norm(self.backend.prepare_norm(NormWeights {
                        scale: self.weight(&format!("{place}.norm.scale"))?,
                        bias: Some(self.weight(&format!("{place}.norm.bias"))?),
                        epsilon,
                        centred: true,
                    })),
                    Op::RmsNorm => PreparedOp::Norm(self.backend.prepare_norm(NormWeights {
                        scale: self.weight(&format!("{place}.rms.scale"))?,
                        bias: None,
                        epsilon,
                        centred: false,
                    })),
                })
            })
            .collect()
    }
}

/// Whether a layer sees the source only: the encoder's layers, and the projections to cross-attention's keys and values.
fn sees_source(name: &str) -> bool {
    let keys = name.ends_with(".cross.key") || name.ends_with(".cross.value");
    name.starts_with("encoder.") || keys
}
