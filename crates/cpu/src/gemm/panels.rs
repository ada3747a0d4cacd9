//! Weights packed into panels of sixteen outputs, the layout of every kernel.
//!
//! A panel is a sequence of lines. A line has a lane for each output, which holds one float32 weight, or the weights of
//! neighbouring inputs that make up four bytes.
//!
//! ```text
//! panel 0:  w[0][first inputs] … w[15][first inputs] │ w[0][next inputs] … w[15][next inputs] │ …
//! panel 1:  w[16][first inputs] …
//! ```

use bytemuck::Zeroable;
use peregrine_model::Weight;
use peregrine_nn::Dense;

use crate::gemm::parallel;
use crate::isa::lanes::LANES;
use crate::memory::arena::{Arena, Store};

/// A value for each output of a panel, on a cache line of its own.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Lanes<T>(pub(crate) [T; LANES]);

// SAFETY: all zeros are a value of `T`, hence of the array; padding may have any bits.
unsafe impl<T: Zeroable> Zeroable for Lanes<T> {}

/// A row of a weight matrix: the weights of one output.
pub(crate) type Row<'a> = (&'a Weight, usize);

/// Packed weights and biases of concatenated dense layers.
pub struct Panels<T> {
    pub(crate) lines: Store<Lanes<T>>,
    pub(crate) bias: Vec<Lanes<f32>>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    groups: usize,
}

impl<T: Copy + Zeroable + Send> Panels<T> {
    /// Allocates panels and fills in the biases. `groups` maps the number of inputs to the number of lines of a panel.
    pub(crate) fn new(
        parts: &[Dense<'_>],
        groups: impl Fn(usize) -> usize,
        arena: &Arena,
    ) -> Panels<T> {
        let outputs = parts.iter().map(|part| part.weight.rows()).sum();
        let inputs = parts.first().map_or(0, |part| part.weight.columns());
        let bias = biases(parts, outputs);
        let groups = groups(inputs);
        Panels { lines: arena.zeroed(bias.len() * groups), bias, outputs, inputs, groups }
    }

    /// Packs the weights on several cores. `pack(rows, lines, extra)` gets up to sixteen rows of weights, the lines of their panel and
    /// the panel's item of `extras`.
    pub(crate) fn pack<E: Send>(
        &mut self,
        parts: &[Dense<'_>],
        extras: Vec<E>,
        pack: impl Fn(&[Row<'_>], &mut [Lanes<T>], E) + Sync,
    ) {
        let rows = parts.iter().map(|part| part.weight);
        let rows = rows.flat_map(|weight| (0..weight.rows()).map(move |row| (weight, row)));
        let rows: Vec<Row<'_>> = rows.collect();
        let panels = rows.chunks(LANES).zip(self.lines.chunks_mut(self.groups.max(1))).zip(extras);
        let weights = parts.iter().map(|part| part.weight.elements()).sum();
        parallel::for_each(panels.collect(), weights, |((rows, lines), extra)| {
            pack(rows, lines, extra);
        });
        parts.iter().for_each(|part| part.weight.data.release());
    }

    /// Packs weights that are first converted to float32. `pack(floats, lines, lane, extra)` gets the weights of one output.
    pub(crate) fn pack_floats<E: Send>(
        &mut self,
        parts: &[Dense<'_>],
        extras: Vec<E>,
        pack: impl Fn(&[f32], &mut [Lanes<T>], usize, &mut E) + Sync,
    ) {
        let inputs = self.inputs;
        self.pack(parts, extras, |rows, lines, mut extra| {
            let mut floats = vec![0.0; inputs];
            for (lane, &(weight, row)) in rows.iter().enumerate() {
                weight.read_row(row, &mut floats);
                pack(&floats, lines, lane, &mut extra);
            }
        });
    }

    /// Bytes of the weights.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// A layer with the same outputs and biases, and weights of another type that are still zero. A panel has `groups` lines.
    pub(crate) fn with_weights<U: Copy + Zeroable>(&self, groups: usize) -> Panels<U> {
        let lines = Store::zeroed(self.bias.len() * groups, self.lines.pages());
        let bias = self.bias.clone();
        Panels { lines, bias, outputs: self.outputs, inputs: self.inputs, groups }
    }

    /// A layer with a selection of the outputs.
    pub(crate) fn select(&self, outputs: &[u32]) -> Panels<T> {
        let bias = gather(&self.bias, outputs);
        let mut lines = Store::zeroed(bias.len() * self.groups, self.lines.pages());
        gather_lines(&self.lines, self.groups, outputs, &mut lines);
        Panels { lines, bias, outputs: outputs.len(), ..*self }
    }
}

impl<T> Panels<T> {
    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn panels(&self) -> usize {
        self.bias.len()
    }

    /// The number of lines of a panel.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }
}

/// Writes the weights of one output, those of `N` neighbouring inputs to a lane. Padding at the end stays as it is.
pub(crate) fn set_lane<T: Copy, const N: usize>(
    lines: &mut [Lanes<[T; N]>],
    lane: usize,
    weights: &[T],
) {
    let (whole, rest) = weights.as_chunks();
    for (line, group) in lines.iter_mut().zip(whole) {
        line.0[lane] = *group;
    }
    if let Some(line) = lines.get_mut(whole.len()) {
        line.0[lane][..rest.len()].copy_from_slice(rest);
    }
}

/// The biases of concatenated layers; zero where a layer has none.
fn biases(parts: &[Dense<'_>], outputs: usize) -> Vec<Lanes<f32>> {
    let mut all = vec![Lanes::zeroed(); outputs.div_ceil(LANES)];
    let mut first = 0;
    for part in parts {
        let numbers = part.bias.map(Weight::to_f32).unwrap_or_default();
        for (i, &bias) in numbers.iter().enumerate() {
            all[(first + i) / LANES].0[(first + i) % LANES] = bias;
        }
        first += part.weight.rows();
    }
    all
}

/// Copies the values of some outputs, in this order, to new panels of one line each.
pub(crate) fn gather<T: Copy + Zeroable>(from: &[Lanes<T>], outputs: &[u32]) -> Vec<Lanes<T>> {
    let mut to = vec![Lanes::zeroed(); outputs.len().div_ceil(LANES)];
    gather_lines(from, 1, outputs, &mut to);
    to
}

/// Copies some outputs, in this order, from panels of `groups` lines to others.
fn gather_lines<T: Copy>(from: &[Lanes<T>], groups: usize, outputs: &[u32], to: &mut [Lanes<T>]) {
    for (place, &output) in outputs.iter().enumerate() {
        let output = output as usize;
        let source = &from[output / LANES * groups..][..groups];
        let target = &mut to[place / LANES * groups..][..groups];
        for (target, source) in target.iter_mut().zip(source) {
            target.0[place % LANES] = source.0[output % LANES];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_and_bias_has_its_place() {
        let number = |output: usize, input: usize| (output * 100 + input) as f32;
        let layer = |first: usize, outputs: usize| {
            let weights =
                (0..outputs * 7).map(|i| number(first + i / 7, i % 7)).collect::<Vec<_>>();
            Weight::from_f32(vec![outputs, 7], &weights)
        };
        let (left, right) = (layer(0, 18), layer(18, 20));
        let bias = Weight::from_f32(vec![20], &(0..20).map(|i| i as f32).collect::<Vec<_>>());
        let parts = [
            Dense { weight: &left, bias: None, alpha: None },
            Dense { weight: &right, bias: Some(&bias), alpha: None },
        ];
        let mut panels: Panels<[f32; 2]> =
            Panels::new(&parts, |inputs| inputs.div_ceil(2), &Arena::default());
        assert_eq!((panels.outputs(), panels.inputs()), (38, 7));
        panels.lines.fill(Lanes([[-1.0; 2]; LANES]));
        panels.pack_floats(&parts, vec![(); 3], |floats, lines, lane, ()| {
            set_lane(lines, lane, floats);
        });
        let words = [37, 0, 17];
        let selected = panels.select(&words);
        for output in 0..48 {
            let (panel, lane) = (output / LANES, output % LANES);
            for input in 0..8 {
                let known = output < 38 && input < 7;
                let expected = if known { number(output, input) } else { -1.0 };
                assert_eq!(panels.lines[panel * 4 + input / 2].0[lane][input % 2], expected);
                if let Some(place) = words.iter().position(|&word| word as usize == output) {
                    assert_eq!(selected.lines[input / 2].0[place][input % 2], expected);
                }
            }
            let expected = if (18..38).contains(&output) { (output - 18) as f32 } else { 0.0 };
            assert_eq!(panels.bias[panel].0[lane], expected);
        }
    }
}
