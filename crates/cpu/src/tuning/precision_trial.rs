//! Auto-tuning across precisions, as Marian does it: a layer is packed in float32 and in int16, and each product uses the
//! one that is faster for its number of rows.
//!
//! The two round differently. A translation may then depend on its batch, on the machine and on timing, which nothing else in
//! this engine allows, so this is only used on request.

use std::sync::Arc;

use crate::tuning::tuner::{Kernel, Shape};

/// A layer packed in two precisions.
pub struct PrecisionTrial<L> {
    float32: L,
    int16: L,
    shape: Arc<Shape>,
}

impl<L> PrecisionTrial<L> {
    pub(crate) fn new(float32: L, int16: L, shape: Arc<Shape>) -> PrecisionTrial<L> {
        PrecisionTrial { float32, int16, shape }
    }

    /// The same trial with changed layers, such as a selection of the outputs. Both share the timings.
    pub(crate) fn map(&self, change: impl Fn(&L) -> L) -> PrecisionTrial<L> {
        PrecisionTrial::new(change(&self.float32), change(&self.int16), Arc::clone(&self.shape))
    }

    /// The layer in float32.
    pub(crate) fn float32(&self) -> &L {
        &self.float32
    }

    /// Computes a product of `rows` rows with the faster layer, or with one that is still to be timed.
    pub(crate) fn run(&self, rows: usize, product: impl FnOnce(&L)) {
        self.shape.run(rows, &[Kernel::Float32, Kernel::Int16], |kernel| match kernel {
            Kernel::Int16 => product(&self.int16),
            _ => product(&self.float32),
        });
    }
}
