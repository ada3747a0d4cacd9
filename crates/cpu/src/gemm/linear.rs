//! A dense layer, packed in the precision of its products.

use std::cell::RefCell;
use std::ops::Range;

use peregrine_model::{Activation, Precision};
use peregrine_nn::{Dense, profile};

use crate::elementwise::activate;
use crate::gemm::bfloat16::{self, PackedBfloat16, Rounded};
use crate::gemm::float32::{self, PackedFloat32};
use crate::gemm::int8::{self, NonZeros, PackedInt8, QuantisedInt8, ScoreSink};
use crate::gemm::int16::{self, PackedInt16, QuantisedInt16};
use crate::gemm::split;
use crate::isa::Isa;
use crate::isa::float16::Float16;
use crate::isa::lanes::LANES;
use crate::memory::arena::{Aligned, Arena};
use crate::memory::matrix::Matrix;
use crate::memory::working_set;
use crate::technique::Technique;
use crate::tuning::precision_trial::PrecisionTrial;
use crate::tuning::tuner::Tuner;

/// Concatenated dense layers that share their input, packed.
pub enum Linear {
    /// Products in float32.
    Float32(PackedFloat32),
    /// Products in int8, summed exactly.
    Int8(PackedInt8),
    /// Products in 16-bit fixed point, summed exactly.
    Int16(PackedInt16),
    /// Products in bfloat16, summed in float32.
    Bfloat16(PackedBfloat16),
    /// Products in float32 or in 16-bit fixed point, whichever auto-tuning finds faster.
    Trial(Box<PrecisionTrial<Linear>>),
}

thread_local! {
    /// Quantised inputs. A worker's products come one after the other.
    static QUANTISED: RefCell<QuantisedInt8> = RefCell::default();
    /// Quantised activations between the two products of a feed-forward block.
    static HIDDEN: RefCell<QuantisedInt8> = RefCell::default();
    /// Activations that are not zero.
    static NON_ZEROS: RefCell<NonZeros> = RefCell::default();
    /// Feed-forward activations in float16, and the rows that must be recomputed in float32.
    static FLOAT16_HIDDEN: RefCell<(Aligned<Float16>, Vec<usize>)> = RefCell::default();
    /// Inputs in 16-bit fixed point.
    static QUANTISED_16: RefCell<QuantisedInt16> = RefCell::default();
    /// Inputs rounded to bfloat16.
    static ROUNDED: RefCell<Rounded> = RefCell::default();
    /// Scores of a block of words.
    static BLOCK: RefCell<Vec<f32>> = RefCell::default();
}

impl Linear {
    /// Packs layers. Precisions without a kernel are computed in float32.
    pub(crate) fn prepare(parts: &[Dense<'_>], precision: Precision, arena: &Arena) -> Linear {
        match precision {
            Precision::Int8 => {
                let mut packed = PackedInt8::from_dense(parts, arena);
                packed.options.alpha = common_alpha(parts);
                Linear::Int8(packed)
            }
            Precision::Int16 => match PackedInt16::from_dense(parts, arena) {
                Some(packed) => Linear::Int16(packed),
                None => Linear::Float32(PackedFloat32::from_dense(parts, arena)),
            },
            Precision::Bfloat16 => Linear::Bfloat16(PackedBfloat16::from_dense(parts, arena)),
            _ => Linear::Float32(PackedFloat32::from_dense(parts, arena)),
        }
    }

    /// Packs layers in float32 and in 16-bit fixed point, for auto-tuning across precisions. If a weight does not fit 16 bits they
    /// are packed in float32 only.
    pub(crate) fn prepare_trial(parts: &[Dense<'_>], tuner: &Tuner, arena: &Arena) -> Linear {
        let int16 = Linear::prepare(parts, Precision::Int16, arena);
        if matches!(int16, Linear::Float32(_)) {
            return int16;
        }
        let float32 = Linear::prepare(parts, Precision::Float32, arena);
        let shape = tuner.shape(int16.inputs(), int16.outputs());
        Linear::Trial(Box::new(PrecisionTrial::new(float32, int16, shape)))
    }

    /// Lets a tuner pick the kernels of an int8 layer.
    pub(crate) fn tuned(mut self, tuner: &Tuner) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.tuning = Some(tuner.shape(packed.inputs(), packed.outputs()));
        }
        self
    }

    /// Makes an int8 layer sum in int16, which saturates.
    pub(crate) fn saturating(mut self) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.options.saturating = true;
        }
        self
    }

    /// Keeps the feed-forward activations that an int8 layer takes in float32 until they are quantised.
    pub(crate) fn with_float_hidden(mut self) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.options.float_hidden = true;
        }
        self
    }

    /// A layer with a selection of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> Linear {
        match self {
            Linear::Float32(packed) => Linear::Float32(packed.select(outputs)),
            Linear::Int8(packed) => Linear::Int8(packed.select(outputs)),
            Linear::Int16(packed) => Linear::Int16(packed.select(outputs)),
            Linear::Bfloat16(packed) => Linear::Bfloat16(packed.select(outputs)),
            Linear::Trial(trial) => {
                Linear::Trial(Box::new(trial.map(|layer| layer.select(outputs))))
            }
        }
    }

    /// Packs the layer anew if [`Technique::PackedOnce`] is off, to measure what engines pay that pack weights for every product.
    fn repacked(&self, isa: Isa) -> Option<Linear> {
        let outputs = || (0..self.outputs() as u32).collect::<Vec<_>>();
        (!isa.uses(Technique::PackedOnce)).then(|| self.select(&outputs()))
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.outputs(),
            Linear::Int8(packed) => packed.outputs(),
            Linear::Int16(packed) => packed.outputs(),
            Linear::Bfloat16(packed) => packed.outputs(),
            Linear::Trial(trial) => trial.float32().outputs(),
        }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.inputs(),
            Linear::Int8(packed) => packed.inputs(),
            Linear::Int16(packed) => packed.inputs(),
            Linear::Bfloat16(packed) => packed.inputs(),
            Linear::Trial(trial) => trial.float32().inputs(),
        }
    }

    /// Bytes of the weights.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.bytes(),
            Linear::Int8(packed) => packed.bytes(),
            Linear::Int16(packed) => packed.bytes(),
            Linear::Bfloat16(packed) => packed.bytes(),
            Linear::Trial(trial) => trial.float32().bytes(),
        }
    }

    fn panels(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.panels(),
            Linear::Int8(packed) => packed.panels(),
            Linear::Int16(packed) => packed.panels(),
            Linear::Bfloat16(packed) => packed.panels(),
            Linear::Trial(trial) => trial.float32().panels(),
        }
    }

    /// `out = activation(x · Wᵀ + b)`, row by row.
    pub(crate) fn multiply(&self, isa: Isa, activation: Activation, x: &[f32], out: &mut [f32]) {
        working_set::count(self.bytes() + size_of_val(x) + size_of_val(out));
        let shape = (self.inputs(), self.outputs());
        let repacked = self.repacked(isa);
        match repacked.as_ref().unwrap_or(self) {
            Linear::Float32(packed) => {
                split::multiply_panels(0..packed.panels(), shape, out, &|panels, out| {
                    float32::multiply(isa, x, packed, panels, out);
                });
                activate(isa, activation, out);
            }
            Linear::Int8(packed) => QUANTISED.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                multiply_quantised(isa, (quantised, packed), activation, out);
            }),
            Linear::Int16(packed) => QUANTISED_16.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                split::multiply_panels(0..packed.panels(), shape, out, &|panels, out| {
                    int16::multiply(isa, quantised, packed, panels, out);
                });
                activate(isa, activation, out);
            }),
            Linear::Bfloat16(packed) => ROUNDED.with_borrow_mut(|rounded| {
                rounded.fill(isa, x, packed.inputs());
                split::multiply_panels(0..packed.panels(), shape, out, &|panels, out| {
                    bfloat16::multiply(isa, rounded, packed, panels, out);
                });
                activate(isa, activation, out);
            }),
            Linear::Trial(trial) => trial.run(x.len() / self.inputs().max(1), |linear| {
                linear.multiply(isa, activation, x, out);
            }),
        }
    }

    /// The two products of a feed-forward block: `out = last(activation(x · Wᵀ + b) · Wᵀ + b)`. `hidden` is scratch memory.
    ///
    /// In int8, rows of activations after a ReLU are rounded to float16 before they are quantised, where float16
    /// [suits](Float16::suits) them: in float32, those of many rows would not stay in cache beside the weights. Others are
    /// quantised a block at a time.
    pub(crate) fn feed_forward(
        isa: Isa,
        x: &[f32],
        (first, activation): (&Linear, Activation),
        (second, last): (&Linear, Activation),
        hidden: &mut Matrix,
        out: &mut [f32],
    ) {
        let inputs = first.inputs().max(1);
        let Linear::Int8(packed) = second else {
            hidden.shape(x.len() / inputs, first.outputs());
            first.multiply(isa, activation, x, hidden.values_mut());
            return second.multiply(isa, last, hidden.values(), out);
        };
        let repacked = second.repacked(isa);
        let packed = if let Some(Linear::Int8(repacked)) = &repacked { repacked } else { packed };
        let options = packed.options;
        let rounds =
            activation == Activation::Relu && options.alpha.is_none() && !options.float_hidden;
        HIDDEN.with_borrow_mut(|quantised| {
            let rows = x.len() / inputs;
            quantised.reserve(isa, rows, packed);
            match first {
                Linear::Int8(int8)
                    if rounds && int8::can_write_float16(isa, rows, int8, packed) =>
                {
                    working_set::count(int8.bytes() + size_of_val(x));
                    let repacked = first.repacked(isa);
                    let int8 =
                        if let Some(Linear::Int8(repacked)) = &repacked { repacked } else { int8 };
                    quantise_hidden_via_float16(isa, x, int8, quantised, hidden);
                }
                _ => {
                    for (i, x) in x.chunks(int8::BLOCK_ROWS * inputs).enumerate() {
                        hidden.shape(x.len() / inputs, first.outputs());
                        first.multiply(isa, activation, x, hidden.values_mut());
                        let row = i * int8::BLOCK_ROWS;
                        if rounds {
                            quantised.fill_hidden_from(isa, row, hidden.values_mut(), packed);
                        } else {
                            quantised.fill_from(isa, row, hidden.values(), packed);
                        }
                    }
                }
            }
            let product = (&*quantised, packed);
            if activation != Activation::Relu || !multiply_sparse(isa, product, last, out) {
                working_set::count(packed.bytes() + quantised.bytes.len() + size_of_val(out));
                multiply_quantised(isa, product, last, out);
            }
        });
    }

    /// The product in blocks of at most `block_panels` panels. The sink gets the scores of all rows before the next block is
    /// computed. With `in_registers`, and where there is a kernel for it, it gets them while they are in registers.
    pub(crate) fn multiply_in_blocks(
        &self,
        isa: Isa,
        x: &[f32],
        block_panels: usize,
        in_registers: bool,
        sink: &mut impl ScoreSink,
    ) {
        let rows = x.len() / self.inputs().max(1);
        if let Linear::Trial(trial) = self {
            return trial.run(rows, |linear| {
                linear.multiply_in_blocks(isa, x, block_panels, in_registers, sink);
            });
        }
        let repacked = self.repacked(isa);
        let this = repacked.as_ref().unwrap_or(self);
        if let Linear::Int8(packed) = this
            && in_registers
            && int8::can_feed_sink(isa, rows, packed)
        {
            QUANTISED.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                int8::multiply_to_sink(isa, quantised, packed, 0..packed.panels(), sink);
            });
            return profile::lap("output layer");
        }
        this.each_block(isa, x, block_panels, |columns, scores| {
            sink.take_block(isa, columns, scores);
        });
    }

    /// Computes the product in blocks of at most `block_panels` panels. `take(columns, scores)` gets the scores of all rows, row by
    /// row, and may change them.
    pub(crate) fn each_block(
        &self,
        isa: Isa,
        x: &[f32],
        block_panels: usize,
        mut take: impl FnMut(Range<usize>, &mut [f32]),
    ) {
        let rows = x.len() / self.inputs().max(1);
        let starts = (0..self.panels()).step_by(block_panels);
        let blocks = starts.map(|start| start..(start + block_panels).min(self.panels()));
        let shape = (self.inputs(), self.outputs());
        let mut block = BLOCK.take();
        let each = |multiply: &mut dyn FnMut(Range<usize>, &mut [f32])| {
            for panels in blocks {
                let columns = panels.start * LANES..(panels.end * LANES).min(self.outputs());
                block.resize(rows * columns.len(), 0.0);
                multiply(panels, &mut block);
                take(columns, &mut block);
            }
        };
        match self {
            Linear::Float32(packed) => each(&mut |panels, out| {
                split::multiply_panels(panels, shape, out, &|panels, out| {
                    float32::multiply(isa, x, packed, panels, out);
                });
            }),
            Linear::Int8(packed) => QUANTISED.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                each(&mut |panels, out| {
                    split::multiply_panels(panels, shape, out, &|panels, out| {
                        int8::multiply(isa, quantised, packed, panels, false, out);
                    });
                });
            }),
            Linear::Int16(packed) => QUANTISED_16.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                each(&mut |panels, out| {
                    split::multiply_panels(panels, shape, out, &|panels, out| {
                        int16::multiply(isa, quantised, packed, panels, out);
                    });
                });
            }),
            Linear::Bfloat16(packed) => ROUNDED.with_borrow_mut(|rounded| {
                rounded.fill(isa, x, packed.inputs());
                each(&mut |panels, out| {
                    split::multiply_panels(panels, shape, out, &|panels, out| {
                        bfloat16::multiply(isa, rounded, packed, panels, out);
                    });
                });
            }),
            Linear::Trial(_) => unreachable!("the caller has chosen a layer"),
        }
        BLOCK.set(block);
    }
}

/// As [`multiply_quantised`] for one row after a ReLU, if most of it is zero. Returns whether it was.
fn multiply_sparse(
    isa: Isa,
    (x, packed): (&QuantisedInt8, &PackedInt8),
    activation: Activation,
    out: &mut [f32],
) -> bool {
    let relu = activation == Activation::Relu;
    let done =
        NON_ZEROS.with_borrow_mut(|found| int8::multiply_sparse(isa, x, packed, relu, found, out));
    if done && !relu {
        activate(isa, activation, out);
    }
    done
}

/// The whole product of quantised rows, and the activation.
fn multiply_quantised(
    isa: Isa,
    (x, packed): (&QuantisedInt8, &PackedInt8),
    activation: Activation,
    out: &mut [f32],
) {
    let relu = activation == Activation::Relu;
    split::multiply_panels(
        0..packed.panels(),
        (packed.inputs(), packed.outputs()),
        out,
        &|panels, out| {
            int8::multiply(isa, x, packed, panels, relu, out);
        },
    );
    if !relu {
        activate(isa, activation, out);
    }
}

/// Computes the activations of a feed-forward block in float16 and quantises them.
fn quantise_hidden_via_float16(
    isa: Isa,
    x: &[f32],
    packed: &PackedInt8,
    quantised: &mut QuantisedInt8,
    hidden: &mut Matrix,
) {
    let (inputs, outputs) = (packed.inputs(), packed.outputs());
    let (mut float16, mut unsuited) = FLOAT16_HIDDEN.take();
    unsuited.clear();
    QUANTISED.with_borrow_mut(|x_quantised| {
        x_quantised.fill(isa, x, packed);
        float16.reshape(x.len() / inputs * outputs, 0);
        let pieces = float16.as_chunks_mut().0;
        int8::multiply_to_float16(isa, x_quantised, packed, pieces);
        quantised.fill_from_float16(pieces, &mut unsuited);
        // Few rows of few networks: these are recomputed in float32.
        if !unsuited.is_empty() {
            let x: Vec<f32> =
                unsuited.iter().flat_map(|row| &x[row * inputs..][..inputs]).copied().collect();
            x_quantised.fill(isa, &x, packed);
            hidden.shape(unsuited.len(), outputs);
            let product = (&*x_quantised, packed);
            multiply_quantised(isa, product, Activation::Relu, hidden.values_mut());
            let rows = unsuited.iter().zip(hidden.iter());
            rows.for_each(|(&row, hidden)| quantised.fill_one(row, hidden));
        }
    });
    FLOAT16_HIDDEN.set((float16, unsuited));
}

/// Quantises the rows of `x` in row-major layout and calls `work` with them and a buffer for scores.
pub(crate) fn with_quantised_rows<T>(
    isa: Isa,
    x: &[f32],
    packed: &PackedInt8,
    work: impl FnOnce(&QuantisedInt8, &mut Vec<f32>) -> T,
) -> T {
    let mut block = BLOCK.take();
    let result = QUANTISED.with_borrow_mut(|quantised| {
        quantised.fill_rows(isa, x, packed);
        work(quantised, &mut block)
    });
    BLOCK.set(block);
    result
}

/// The smallest multiplier of the parts' inputs, with which all fit, if each part has one.
fn common_alpha(parts: &[Dense<'_>]) -> Option<f32> {
    let alphas: Option<Vec<f32>> = parts.iter().map(|part| part.alpha).collect();
    let usable = |alpha: &f32| alpha.is_finite() && *alpha > 0.0;
    alphas?.into_iter().reduce(f32::min).filter(usable)
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__m512;

    use peregrine_model::Weight;

    use super::*;
    use crate::gemm::int8::Piece;
    #[cfg(target_arch = "x86_64")]
    use crate::gemm::int8::RegisterSink;

    struct Blocks(Vec<f32>);

    #[cfg(target_arch = "x86_64")]
    #[derive(Clone, Copy)]
    struct NoRegisterSink;

    #[cfg(target_arch = "x86_64")]
    impl RegisterSink for NoRegisterSink {
        unsafe fn accept(self, _: usize, _: [__m512; 2]) -> bool {
            unreachable!("these precisions compute blocks");
        }
    }

    // SAFETY: no function computes a product, and there is no register sink.
    unsafe impl ScoreSink for Blocks {
        #[cfg(target_arch = "x86_64")]
        type RegisterSink = NoRegisterSink;

        fn rows(&self) -> usize {
            unreachable!("these precisions compute blocks");
        }

        fn take_block(&mut self, _: Isa, _: Range<usize>, outputs: &[f32]) {
            self.0.extend_from_slice(outputs);
        }

        #[cfg(target_arch = "x86_64")]
        fn register_sink(&mut self, _: usize) -> Option<NoRegisterSink> {
            unreachable!("these precisions compute blocks");
        }

        fn threshold(&self, _: usize) -> f32 {
            unreachable!("these precisions compute blocks");
        }

        fn take_piece<const FMA: bool>(&mut self, _: usize, _: usize, _: (Piece, u32), _: bool) {
            unreachable!("these precisions compute blocks");
        }

        fn end(&mut self, _: Range<usize>, _: usize) {
            unreachable!("these precisions compute blocks");
        }
    }

    #[test]
    fn precisions_alternate_until_one_is_settled() {
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
        let trial = Linear::prepare_trial(&[dense], &tuner, &arena);
        assert_eq!((trial.inputs(), trial.outputs()), (9, 20));
        let mut runs = [0; 2];
        while tuner.choices().is_empty() {
            let got = product(&trial);
            runs[known.iter().position(|known| *known == got).expect("one of the two")] += 1;
        }
        assert_eq!(runs[0], runs[1]);
        let settled = usize::from(tuner.choices()[0].kernel == "int16");
        assert_eq!(product(&trial), known[settled]);
        let mut blocks = Blocks(Vec::new());
        trial.multiply_in_blocks(isa, &x, 8, false, &mut blocks);
        assert_eq!(blocks.0, known[settled]);
        let words = [3, 17];
        let part = product(&trial.select(&words));
        let expected = known[settled].chunks(20).flat_map(|row| words.map(|w| row[w as usize]));
        assert_eq!(part, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_trial_of_weights_beyond_int16_is_float32_alone() {
        let weight = Weight::from_f32(vec![1, 2], &[0.5, 40.0]);
        let dense = Dense { weight: &weight, bias: None, alpha: None };
        let linear =
            Linear::prepare_trial(&[dense], &Tuner::across_precisions(), &Arena::default());
        assert!(matches!(linear, Linear::Float32(_)));
    }
}
