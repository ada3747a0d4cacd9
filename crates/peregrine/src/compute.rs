//! How products are computed.

use peregrine_cpu::Level;
use peregrine_model::{Model, Precision};

/// How products are computed. The default is what the model and the machine are best at.
#[derive(Debug, Clone, Default)]
pub struct Compute {
    /// In int8 or float32; by default int8 where most of a model is stored in int8.
    pub precision: Option<Precision>,
    /// With which instructions; by default the best there are.
    pub isa: Option<Level>,
}

impl Compute {
    /// In float32, as the tools that made the models compute.
    pub fn float32() -> Compute {
        Compute { precision: Some(Precision::Float32), isa: None }
    }

    /// In int8.
    pub fn int8() -> Compute {
        Compute { precision: Some(Precision::Int8), isa: None }
    }

    pub(crate) fn precision_for(&self, model: &Model) -> Precision {
        let stored = model.members.first().map(|member| member.stored_precision());
        match self.precision.or(stored) {
            Some(Precision::Int8) => Precision::Int8,
            _ => Precision::Float32,
        }
    }
}
