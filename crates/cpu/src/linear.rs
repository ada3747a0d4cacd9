//! A dense layer in the precision it is computed in.

use std::cell::RefCell;
use std::ops::Range;

use peregrine_model::{Activation, Precision};
use peregrine_nn::{Dense, profile};

use crate::arena::{Aligned, Arena};
use crate::bfloat16::{self, PackedHalf, Rounded};
use crate::either::Either;
use crate::elementwise::activate;
use crate::half::{Half, round_rows};
use crate::int8::rows::{Picked8, Rows8};
use crate::int8::screen::{Sample, Screen};
use crate::int8::shared::{self, Guests, Table};
use crate::int8::{self, Packed8, Quantised, Take};
use crate::int16::{self, Packed16, Quantised16};
use crate::isa::Isa;
use crate::lanes::LANES;
use crate::matrix::Matrix;
use crate::product::{self, Packed};
use crate::split;
use crate::technique::Technique;
use crate::tuner::Tuner;

/// Dense layers side by side, packed.
pub enum Linear {
    /// Computed in float32.
    Float32(Packed),
    /// Computed in int8, summed exactly.
    Int8(Packed8),
    /// Computed in 16-bit fixed point, summed exactly.
    Int16(Packed16),
    /// Computed in bfloat16, summed in float32.
    Bfloat16(PackedHalf),
    /// Computed in float32 or in 16-bit fixed point, whatever is faster.
    Either(Box<Either>),
}

thread_local! {
    /// Quantised inputs; a worker's products come one after the other.
    static QUANTISED: RefCell<Quantised> = RefCell::default();
    /// Between the two products of a feed-forward block.
    static HIDDEN: RefCell<Quantised> = RefCell::default();
    /// As these are made, and those of them that want more precision.
    static HALVES: RefCell<(Aligned<Half>, Vec<usize>)> = RefCell::default();
    static QUANTISED_16: RefCell<Quantised16> = RefCell::default();
    static ROUNDED: RefCell<Rounded> = RefCell::default();
    /// Scores of a block of words.
    static BLOCK: RefCell<Vec<f32>> = RefCell::default();
}

impl Linear {
    /// Packs layers; precisions without a kernel of their own are computed in float32.
    pub(crate) fn prepare(parts: &[Dense<'_>], precision: Precision, arena: &Arena) -> Linear {
        match precision {
            Precision::Int8 => {
                let mut packed = Packed8::from_dense(parts, arena);
                packed.ways.alpha = common_alpha(parts);
                Linear::Int8(packed)
            }
            Precision::Int16 => match Packed16::from_dense(parts, arena) {
                Some(packed) => Linear::Int16(packed),
                None => Linear::Float32(Packed::from_dense(parts, arena)),
            },
            Precision::Bfloat16 => Linear::Bfloat16(PackedHalf::from_dense(parts, arena)),
            _ => Linear::Float32(Packed::from_dense(parts, arena)),
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
            packed.ways.saturating = true;
        }
        self
    }

    /// The same with inputs from within a feed-forward block that keep the precision of floats until they are quantised.
    pub(crate) fn with_float_hidden(mut self) -> Linear {
        if let Linear::Int8(packed) = &mut self {
            packed.ways.float_hidden = true;
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
            Linear::Either(either) => Linear::Either(Box::new(either.select(outputs))),
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
            Linear::Either(either) => either.usual().outputs(),
        }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.inputs(),
            Linear::Int8(packed) => packed.inputs(),
            Linear::Int16(packed) => packed.inputs(),
            Linear::Bfloat16(packed) => packed.inputs(),
            Linear::Either(either) => either.usual().inputs(),
        }
    }

    fn panels(&self) -> usize {
        match self {
            Linear::Float32(packed) => packed.panels(),
            Linear::Int8(packed) => packed.panels(),
            Linear::Int16(packed) => packed.panels(),
            Linear::Bfloat16(packed) => packed.panels(),
            Linear::Either(either) => either.usual().panels(),
        }
    }

    /// `out = activation(x · Wᵀ + b)`, row by row.
    pub(crate) fn multiply(&self, isa: Isa, activation: Activation, x: &[f32], out: &mut [f32]) {
        let shape = (self.inputs(), self.outputs());
        let again = self.packed_again(isa);
        match again.as_ref().unwrap_or(self) {
            Linear::Float32(packed) => {
                split::panels(0..packed.panels(), shape, out, &|panels, out| {
                    product::multiply(isa, x, packed, panels, out);
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
            Linear::Either(either) => either.run(x.len() / self.inputs().max(1), |linear| {
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
        let ways = packed.ways;
        let rounds = activation == Activation::Relu && ways.alpha.is_none() && !ways.float_hidden;
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
        take: &mut impl Take,
    ) {
        let rows = x.len() / self.inputs().max(1);
        if let Linear::Either(either) = self {
            return either.run(rows, |linear| {
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
                    product::multiply(isa, x, packed, panels, out);
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
            Linear::Either(_) => unreachable!("dealt with above"),
        }
        BLOCK.set(block);
    }
}

/// A whole product of rows that are quantised already, with what comes after it.
fn multiply_quantised(
    isa: Isa,
    (x, packed): (&Quantised, &Packed8),
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
    packed: &Packed8,
    quantised: &mut Quantised,
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

/// Products of rows with outputs that are read where they are.
pub(crate) struct ScatteredProducts<'a> {
    isa: Isa,
    x: &'a Quantised,
    block: &'a mut Vec<f32>,
}

/// Quantises the rows of `x` for such products, which `work` computes.
pub(crate) fn multiply_scattered(
    isa: Isa,
    x: &[f32],
    packed: &Packed8,
    work: impl FnOnce(&mut ScatteredProducts<'_>),
) {
    let mut block = BLOCK.take();
    QUANTISED.with_borrow_mut(|quantised| {
        quantised.fill_rows(isa, x, packed);
        work(&mut ScatteredProducts { isa, x: quantised, block: &mut block });
    });
    BLOCK.set(block);
}

impl ScatteredProducts<'_> {
    /// Has the scores of words that some lists share looked at, see [`shared::multiply`].
    pub(crate) fn share(
        &self,
        layer: (&Packed8, &Rows8),
        table: &Table,
        guests: &mut Guests,
        rise: &mut impl FnMut(usize, u32, f32) -> f32,
    ) {
        shared::multiply(self.isa, self.x, layer, table, guests, rise);
    }

    /// Has some columns of a selection taken, for some of the rows.
    pub(crate) fn take(
        &mut self,
        of: Range<usize>,
        (rows, picked): (&Rows8, &Picked8),
        columns: Range<usize>,
        take: &mut impl Take,
    ) {
        if !columns.is_empty() {
            self.block.resize(of.len() * columns.len(), 0.0);
            int8::rows::multiply(self.isa, (self.x, of), rows, picked, columns.clone(), self.block);
            take.block(self.isa, columns, self.block);
        }
    }
}

/// The words that can be the best for one row, see [`Screen::survivors`].
pub(crate) fn survivors(
    isa: Isa,
    x: &[f32],
    (packed, rows, screen): (&Packed8, &Rows8, &Screen),
    banned: &[u32],
    words: &mut Vec<u32>,
) -> bool {
    BLOCK.with_borrow_mut(|bounds| {
        QUANTISED.with_borrow_mut(|quantised| {
            quantised.fill_rows(isa, x, packed);
            screen.survivors(isa, (quantised, packed, rows), banned, (bounds, words))
        })
    })
}

/// Has a sample of the words look at one row, see [`Sample::look`].
pub(crate) fn look(isa: Isa, x: &[f32], packed: &Packed8, sample: &Sample, best: f32) {
    BLOCK.with_borrow_mut(|bounds| {
        QUANTISED.with_borrow_mut(|quantised| {
            quantised.fill_rows(isa, x, packed);
            sample.look(isa, quantised, best, bounds);
        });
    });
}

/// The multiplier with which all parts' inputs fit, if each has one.
fn common_alpha(parts: &[Dense<'_>]) -> Option<f32> {
    let alphas: Option<Vec<f32>> = parts.iter().map(|part| part.alpha).collect();
    let usable = |alpha: &f32| alpha.is_finite() && *alpha > 0.0;
    alphas?.into_iter().reduce(f32::min).filter(usable)
}
