//! A dense layer in the precision it is computed in.

use std::cell::RefCell;
use std::ops::Range;

use peregrine_model::{Activation, Precision};
use peregrine_nn::{Dense, profile};

use crate::elementwise::activate;
use crate::gemm::bfloat16::{self, PackedBfloat16, Rounded};
use crate::gemm::float32::{self, PackedFloat32};
use crate::gemm::int8::{self, PackedInt8, QuantisedInt8, ScoreSink};
use crate::gemm::int16::{self, PackedInt16, QuantisedInt16};
use crate::gemm::split;
use crate::isa::Isa;
use crate::isa::float16::{Float16, round_rows};
use crate::isa::lanes::LANES;
use crate::memory::arena::{Aligned, Arena};
use crate::memory::matrix::Matrix;
use crate::technique::Technique;
use crate::tuning::precision_trial::PrecisionTrial;
use crate::tuning::tuner::Tuner;

/// Dense layers side by side, packed.
pub enum Linear {
    /// Computed in float32.
    Float32(PackedFloat32),
    /// Computed in int8, summed exactly.
    Int8(PackedInt8),
    /// Computed in 16-bit fixed point, summed exactly.
    Int16(PackedInt16),
    /// Computed in bfloat16, summed in float32.
    Bfloat16(PackedBfloat16),
    /// Computed in float32 or in 16-bit fixed point, whatever is faster.
    Trial(Box<PrecisionTrial>),
}

thread_local! {
    /// Quantised inputs; a worker's products come one after the other.
    static QUANTISED: RefCell<QuantisedInt8> = RefCell::default();
    /// Between the two products of a feed-forward block.
    static HIDDEN: RefCell<QuantisedInt8> = RefCell::default();
    /// As these are made, and those of them that want more precision.
    static HALVES: RefCell<(Aligned<Float16>, Vec<usize>)> = RefCell::default();
    static QUANTISED_16: RefCell<QuantisedInt16> = RefCell::default();
    static ROUNDED: RefCell<Rounded> = RefCell::default();
    /// Scores of a block of words.
    static BLOCK: RefCell<Vec<f32>> = RefCell::default();
}

impl Linear {
    /// Packs layers; precisions without a kernel of their own are computed in float32.
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

    /// The same with a tuner that picks its kernels.
    pub(crate) fn tuned(mut self, tuner: &Tuner) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.tuning = Some(tuner.shape(packed.inputs(), packed.outputs()));
        }
        self
    }

    /// The same with sums in 16 bits, which saturate, where it is computed in int8.
    pub(crate) fn saturating(mut self) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.options.saturating = true;
        }
        self
    }

    /// The same with inputs from within a feed-forward block that keep the precision of floats until they are quantised.
    pub(crate) fn with_float_hidden(mut self) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.options.float_hidden = true;
        }
        self
    }

    /// A layer with some of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> Linear {
        match self {
            Linear::Float32(packed) => Linear::Float32(packed.select(outputs)),
            Linear::Int8(packed) => Linear::Int8(packed.select(outputs)),
            Linear::Int16(packed) => Linear::Int16(packed.select(outputs)),
            Linear::Bfloat16(packed) => Linear::Bfloat16(packed.select(outputs)),
            Linear::Trial(trial) => Linear::Trial(Box::new(trial.select(outputs))),
        }
    }

    /// The same layer, packed anew: what engines pay at every product that do not keep their packed
    /// weights.
    fn packed_again(&self, isa: Isa) -> Option<Linear> {
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
            Linear::Trial(trial) => trial.usual().outputs(),
        }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.inputs(),
            Linear::Int8(packed) => packed.inputs(),
            Linear::Int16(packed) => packed.inputs(),
            Linear::Bfloat16(packed) => packed.inputs(),
            Linear::Trial(trial) => trial.usual().inputs(),
        }
    }

    fn panels(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.panels(),
            Linear::Int8(packed) => packed.panels(),
            Linear::Int16(packed) => packed.panels(),
            Linear::Bfloat16(packed) => packed.panels(),
            Linear::Trial(trial) => trial.usual().panels(),
        }
    }

    /// `out = activation(x · Wᵀ + b)`, row by row.
    pub(crate) fn multiply(&self, isa: Isa, activation: Activation, x: &[f32], out: &mut [f32]) {
        let shape = (self.inputs(), self.outputs());
        let again = self.packed_again(isa);
        match again.as_ref().unwrap_or(self) {
            Linear::Float32(packed) => {
                split::panels(0..packed.panels(), shape, out, &|panels, out| {
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
                split::panels(0..packed.panels(), shape, out, &|panels, out| {
                    int16::multiply(isa, quantised, packed, panels, out);
                });
                activate(isa, activation, out);
            }),
            Linear::Bfloat16(packed) => ROUNDED.with_borrow_mut(|rounded| {
                rounded.fill(isa, x, packed.inputs());
                split::panels(0..packed.panels(), shape, out, &|panels, out| {
                    bfloat16::multiply(isa, rounded, packed, panels, out);
                });
                activate(isa, activation, out);
            }),
            Linear::Trial(trial) => trial.run(x.len() / self.inputs().max(1), |linear| {
                linear.multiply(isa, activation, x, out);
            }),
        }
    }

    /// Two products, one after the other: `out = last(activation(x · Wᵀ + b) · Wᵀ + b)`. `hidden` is working memory.
    ///
    /// In int8, hidden rows without negative numbers are rounded to half precision before they are quantised, where that
    /// [suits](Half::suits) them: as floats, those of many rows would not stay in cache beside the weights. Others are quantised
    /// a block at a time.
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
        let again = second.packed_again(isa);
        let packed = if let Some(Linear::Int8(again)) = &again { again } else { packed };
        let options = packed.options;
        let rounds =
            activation == Activation::Relu && options.alpha.is_none() && !options.float_hidden;
        HIDDEN.with_borrow_mut(|quantised| {
            let rows = x.len() / inputs;
            quantised.reserve(isa, rows, packed);
            match first {
                Linear::Int8(int8) if rounds && int8::goes_to_halves(isa, rows, int8, packed) => {
                    let again = first.packed_again(isa);
                    let int8 = if let Some(Linear::Int8(again)) = &again { again } else { int8 };
                    hidden_in_halves(isa, x, int8, quantised, hidden);
                }
                _ => {
                    for (i, x) in x.chunks(int8::BLOCK_ROWS * inputs).enumerate() {
                        hidden.shape(x.len() / inputs, first.outputs());
                        first.multiply(isa, activation, x, hidden.values_mut());
                        if rounds {
                            round_rows(isa, first.outputs(), hidden.values_mut());
                        }
                        let row = i * int8::BLOCK_ROWS;
                        quantised.fill_from(isa, row, hidden.values(), packed);
                    }
                }
            }
            multiply_quantised(isa, (quantised, packed), last, out);
        });
    }

    /// The product in blocks of at most `block_panels` panels. `take` is handed the scores of all rows before the next
    /// block is computed: as soon as they are in registers, if that may be and there is a kernel for it.
    pub(crate) fn multiply_in_blocks(
        &self,
        isa: Isa,
        x: &[f32],
        block_panels: usize,
        in_registers: bool,
        take: &mut impl ScoreSink,
    ) {
        let rows = x.len() / self.inputs().max(1);
        if let Linear::Trial(trial) = self {
            return trial.run(rows, |linear| {
                linear.multiply_in_blocks(isa, x, block_panels, in_registers, take);
            });
        }
        let again = self.packed_again(isa);
        let this = again.as_ref().unwrap_or(self);
        let starts = (0..self.panels()).step_by(block_panels);
        let blocks = starts.map(|start| start..(start + block_panels).min(self.panels()));
        if let Linear::Int8(packed) = this
            && in_registers
            && int8::hands_out_pieces(isa, rows, packed)
        {
            QUANTISED.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                int8::multiply_in_pieces(isa, quantised, packed, take);
            });
            return profile::lap("output layer");
        }
        let shape = (self.inputs(), self.outputs());
        let mut block = BLOCK.take();
        let each = |multiply: &mut dyn FnMut(Range<usize>, &mut [f32])| {
            for panels in blocks {
                let columns = panels.start * LANES..(panels.end * LANES).min(self.outputs());
                block.resize(rows * columns.len(), 0.0);
                multiply(panels, &mut block);
                take.block(isa, columns, &block);
            }
        };
        match this {
            Linear::Float32(packed) => each(&mut |panels, out| {
                split::panels(panels, shape, out, &|panels, out| {
                    float32::multiply(isa, x, packed, panels, out);
                });
            }),
            Linear::Int8(packed) => QUANTISED.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                each(&mut |panels, out| {
                    split::panels(panels, shape, out, &|panels, out| {
                        int8::multiply(isa, quantised, packed, panels, false, out);
                    });
                });
            }),
            Linear::Int16(packed) => QUANTISED_16.with_borrow_mut(|quantised| {
                quantised.fill(isa, x, packed);
                each(&mut |panels, out| {
                    split::panels(panels, shape, out, &|panels, out| {
                        int16::multiply(isa, quantised, packed, panels, out);
                    });
                });
            }),
            Linear::Bfloat16(packed) => ROUNDED.with_borrow_mut(|rounded| {
                rounded.fill(isa, x, packed.inputs());
                each(&mut |panels, out| {
                    split::panels(panels, shape, out, &|panels, out| {
                        bfloat16::multiply(isa, rounded, packed, panels, out);
                    });
                });
            }),
            Linear::Trial(_) => unreachable!("dealt with above"),
        }
        BLOCK.set(block);
    }
}

/// A whole product of rows that are quantised already, with what comes after it.
fn multiply_quantised(
    isa: Isa,
    (x, packed): (&QuantisedInt8, &PackedInt8),
    activation: Activation,
    out: &mut [f32],
) {
    let relu = activation == Activation::Relu;
    split::panels(0..packed.panels(), (packed.inputs(), packed.outputs()), out, &|panels, out| {
        int8::multiply(isa, x, packed, panels, relu, out);
    });
    if !relu {
        activate(isa, activation, out);
    }
}

/// Quantises the hidden rows of a feed-forward block, which are kept in half precision in between.
fn hidden_in_halves(
    isa: Isa,
    x: &[f32],
    packed: &PackedInt8,
    quantised: &mut QuantisedInt8,
    hidden: &mut Matrix,
) {
    let (inputs, outputs) = (packed.inputs(), packed.outputs());
    let (mut halves, mut left) = HALVES.take();
    left.clear();
    QUANTISED.with_borrow_mut(|x_quantised| {
        x_quantised.fill(isa, x, packed);
        halves.reshape(x.len() / inputs * outputs, 0);
        let halves = halves.as_chunks_mut().0;
        int8::multiply_to_halves(isa, x_quantised, packed, halves);
        quantised.fill_from_halves(halves, &mut left);
        // Few rows in few networks: these are computed once more.
        if !left.is_empty() {
            let x: Vec<f32> =
                left.iter().flat_map(|row| &x[row * inputs..][..inputs]).copied().collect();
            x_quantised.fill(isa, &x, packed);
            hidden.shape(left.len(), outputs);
            let product = (&*x_quantised, packed);
            multiply_quantised(isa, product, Activation::Relu, hidden.values_mut());
            let rows = left.iter().zip(hidden.iter());
            rows.for_each(|(&row, hidden)| quantised.fill_one(row, hidden));
        }
    });
    HALVES.set((halves, left));
}

/// Quantises the rows of `x` in row order, for kernels that read them one by one, and lends them to `work` with a buffer for
/// scores.
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

/// The multiplier with which all parts' inputs fit, if each has one.
fn common_alpha(parts: &[Dense<'_>]) -> Option<f32> {
    let alphas: Option<Vec<f32>> = parts.iter().map(|part| part.alpha).collect();
    let usable = |alpha: &f32| alpha.is_finite() && *alpha > 0.0;
    alphas?.into_iter().reduce(f32::min).filter(usable)
}
