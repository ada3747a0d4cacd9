//! Marian's auto-tuning: a layer kept both in float32 and in 16-bit fixed point, and computed in the one that
//! is faster for so many rows.
//!
//! The two round differently. What a sentence becomes may then depend on its batch, on the machine and on
//! the day, which nothing else here lets happen: only who asks for it gets it.

use std::sync::Arc;

use peregrine_model::Precision;
use peregrine_nn::Dense;

use crate::gemm::linear::Linear;
use crate::memory::arena::Arena;
use crate::tuning::tuner::{Kernel, Shape, Tuner};

/// A layer in two precisions.
pub struct PrecisionTrial {
    float32: Linear,
    int16: Linear,
    shape: Arc<Shape>,
}

impl PrecisionTrial {
    /// Packs layers twice; once only, in float32, if a weight does not fit 16 bits.
    pub(crate) fn prepare(parts: &[Dense<'_>], tuner: &Tuner, arena: &Arena) -> Linear {
        let int16 = Linear::prepare(parts, Precision::Int16, arena);
        if matches!(int16, Linear::Float32(_)) {
            return int16;
        }
        let float32 = Linear::prepare(parts, Precision::Float32, arena);
        let shape = tuner.shape(int16.inputs(), int16.outputs());
        Linear::Trial(Box::new(PrecisionTrial { float32, int16, shape }))
    }

    /// A layer with some of the outputs, computed as the whole one is.
    pub(crate) fn select(&self, outputs: &[u32]) -> PrecisionTrial {
        PrecisionTrial {
            float32: self.float32.select(outputs),
            int16: self.int16.select(outputs),
            shape: Arc::clone(&self.shape),
        }
    }

    /// The layer as it is without a choice.
    pub(crate) fn usual(&self) -> &Linear {
        &self.float32
    }

    /// Computes a product of so many rows with the layer that is faster, or has to be timed.
    pub(crate) fn run(&self, rows: usize, product: impl FnOnce(&Linear)) {
        self.shape.run(rows, &[Kernel::Float32, Kernel::Int16], |kernel| match kernel {
            Kernel::Int16 => product(&self.int16),
            _ => product(&self.float32),
        });
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__m512;
    use std::ops::Range;

    use peregrine_model::{Activation, Weight};

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::gemm::int8::RegisterSink;
    use crate::gemm::int8::{Piece, ScoreSink};
    use crate::isa::Isa;

    struct Blocks(Vec<f32>);

    #[cfg(target_arch = "x86_64")]
    #[derive(Clone, Copy)]
    struct Nobody;

    #[cfg(target_arch = "x86_64")]
    impl RegisterSink for Nobody {
        unsafe fn accept(self, _: usize, _: [__m512; 2]) -> bool {
            unreachable!("these precisions hand out blocks");
        }
    }

    // SAFETY: no function computes anything, and there is no ear.
    unsafe impl ScoreSink for Blocks {
        #[cfg(target_arch = "x86_64")]
        type RegisterSink = Nobody;

        fn rows(&self) -> usize {
            unreachable!("these precisions hand out blocks");
        }

        fn block(&mut self, _: Isa, _: Range<usize>, outputs: &[f32]) {
            self.0.extend_from_slice(outputs);
        }

        #[cfg(target_arch = "x86_64")]
        fn register_sink(&mut self, _: usize) -> Option<Nobody> {
            unreachable!("these precisions hand out blocks");
        }

        fn threshold(&self, _: usize) -> f32 {
            unreachable!("these precisions hand out blocks");
        }

        fn again<const FMA: bool>(&mut self, _: usize, _: usize, _: (Piece, u32), _: bool) {
            unreachable!("these precisions hand out blocks");
        }

        fn end(&mut self, _: Range<usize>, _: usize) {
            unreachable!("these precisions hand out blocks");
        }
    }

    #[test]
    fn each_precision_has_its_turn_until_one_is_settled_on() {
        let weights: Vec<f32> = (0..20 * 9).map(|i| (i % 23) as f32 * 0.037 - 0.4).collect();
        let weight = Weight::from_f32(vec![20, 9], &weights);
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let (tuner, arena, isa) = (Tuner::across_precisions(), Arena::default(), Isa::best());
        let x: Vec<f32> = (0..3 * 9).map(|i| i as f32 * 0.0317 - 0.4).collect();
        let product = |linear: &Linear| {
            let mut out = vec![0.0; 3 * linear.outputs()];
            linear.multiply(isa, Activation::Identity, &x, &mut out);
            out
        };
        let known = [Precision::Float32, Precision::Int16]
            .map(|precision| product(&Linear::prepare(&[dense], precision, &arena)));
        assert_ne!(known[0], known[1]);
        let either = PrecisionTrial::prepare(&[dense], &tuner, &arena);
        assert_eq!((either.inputs(), either.outputs()), (9, 20));
        let mut turns = [0; 2];
        while tuner.choices().is_empty() {
            let got = product(&either);
            turns[known.iter().position(|known| *known == got).expect("one of the two")] += 1;
        }
        assert_eq!(turns[0], turns[1]);
        let settled = usize::from(tuner.choices()[0].kernel == "int16");
        assert_eq!(product(&either), known[settled]);
        let mut blocks = Blocks(Vec::new());
        either.multiply_in_blocks(isa, &x, 8, false, &mut blocks);
        assert_eq!(blocks.0, known[settled]);
        let words = [3, 17];
        let part = product(&either.select(&words));
        let expected = known[settled].chunks(20).flat_map(|row| words.map(|w| row[w as usize]));
        assert_eq!(part, expected.collect::<Vec<_>>());
    }

    #[test]
    fn what_does_not_fit_16_bits_is_float32_alone() {
        let weight = Weight::from_f32(vec![1, 2], &[0.5, 40.0]);
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let linear =
            PrecisionTrial::prepare(&[dense], &Tuner::across_precisions(), &Arena::default());
        assert!(matches!(linear, Linear::Float32(_)));
    }
}
