//! The networks of "Sharp Models on Dull Hardware" (Devlin, 2017): a recurrent layer with
//! attention at the bottom, dense layers above it, and a dense or recurrent layer on top.
//!
//! ```text
//! q = tanh(h Wa + x Va),  d_j = q · tanh(s_j Ua),  α = softmax(d),  c = Σ α_j s_j
//! h' = cell(x V + c U + b, h)
//! y_k = min(max(0, y_{k−1} W + b [+ y_{k−2} for odd k ≥ 3]), 10),  y_0 = h'
//! y = y_K | tanh(y_K W + b) | cells stacked on y_K;   output = log softmax(y Wo + bo)
//! ```
//!
//! The start state is `tanh(mean(s) W + b)`; that of the top cells is zero. Canonical names, cells
//! as in [`recurrent`](crate::Recurrent) (gates r, z, candidate; f, i, candidate, o):
//!
//! | name | shape |
//! |---|---|
//! | `source.embedding`, `target.embedding`, `output.weight`, `output.bias` | (V, E), (V, E), (V, T), (V) |
//! | `encoder.{forward,backward}.L.{input,state}.weight`, `….input.bias` | cell of layer L |
//! | `start.{weight,bias}` | (R, C), (R) |
//! | `decoder.{input,state}.weight`, `decoder.input.bias`, `decoder.context.weight` | (G·R, E), (G·R, R), (G·R), (G·R, C) |
//! | `attention.{state,input,key}.weight` | (A, R), (A, E), (A, C) |
//! | `dense.K.{weight,bias}` | layer K |
//! | `top.{weight,bias}` or `top.K.{input,state}.weight`, `top.K.input.bias` | dense or cells |

use serde::{Deserialize, Serialize};

use crate::names::{Expected, OUTPUT_BIAS, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};
use crate::recurrent::push;
use crate::{CellKind, SourceFrame};

/// An RNN+FC network, as described by Devlin (2017).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RnnFc {
    /// Rows of the source embedding.
    pub source_vocabulary: usize,
    /// Rows of the target embedding and of the output layer.
    pub target_vocabulary: usize,
    /// The ids added around the source ids.
    pub source_frame: SourceFrame,
    /// Width of source embeddings.
    pub source_embedding: usize,
    /// Width of target embeddings.
    pub target_embedding: usize,
    /// The recurrent cell of both sides: GRU or LSTM.
    pub cell: CellKind,
    /// Width of a source state, for each direction.
    pub source_width: usize,
    /// Number of bidirectional source layers, whose outputs are concatenated.
    pub source_layers: usize,
    /// Number of source layers above the bidirectional ones, which read left to right and have
    /// twice the width.
    pub source_single_layers: usize,
    /// Width of the attentional layer (R).
    pub width: usize,
    /// Width of attention's keys and queries.
    pub attention_width: usize,
    /// Number of dense layers above the attentional one.
    pub dense_layers: usize,
    /// Width of the dense layers.
    pub dense_width: usize,
    /// The layers on top.
    pub top: Top,
    /// Width of a top layer.
    pub top_width: usize,
}

/// The layers between the dense layers and the output layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Top {
    /// Nothing.
    None,
    /// A dense layer with tanh.
    Tanh,
    /// The given number of recurrent layers with the network's cell.
    Recurrent(usize),
}

impl RnnFc {
    /// Width of a source vector (C).
    pub fn context_width(&self) -> usize {
        2 * self.source_width
    }

    /// Width of the input of the top layers.
    pub fn inner_width(&self) -> usize {
        if self.dense_layers > 0 { self.dense_width } else { self.width }
    }

    /// Width of the input of the output layer (T).
    pub fn output_width(&self) -> usize {
        if self.top == Top::None { self.inner_width() } else { self.top_width }
    }

    /// Number of recurrent top layers.
    pub fn top_cells(&self) -> usize {
        match self.top {
            Top::Recurrent(layers) => layers,
            _ => 0,
        }
    }

    pub(crate) fn nonsense(&self) -> Option<String> {
        let sizes = [
            ("source vocabulary", self.source_vocabulary),
            ("target vocabulary", self.target_vocabulary),
            ("source embedding width", self.source_embedding),
            ("target embedding width", self.target_embedding),
            ("source width", self.source_width),
            ("source layers", self.source_layers),
            ("width", self.width),
            ("attention width", self.attention_width),
            ("dense width", self.inner_width()),
            ("output width", self.output_width()),
        ];
        if let Some((name, value)) = sizes.iter().find(|(_, v)| *v == 0 || *v > 1 << 26) {
            return Some(format!("{name} {value} is out of range"));
        }
        if self.source_layers + self.source_single_layers + self.dense_layers + self.top_cells()
            > 1000
        {
            return Some("more layers than make sense".into());
        }
        if !matches!(self.cell, CellKind::Gru | CellKind::Lstm) {
            return Some(format!("{:?} cells: expected gru or lstm", self.cell));
        }
        let frame = self.source_frame;
        let mut ids = frame.begin.iter().chain(&frame.end).copied();
        let id = ids.find(|&id| id as usize >= self.source_vocabulary)?;
        Some(format!("source frame word {id} is not in the vocabulary"))
    }

    /// Prefix, input width and state width of the source cells, the bidirectional ones first.
    pub fn source_cells(&self) -> Vec<(String, usize, usize)> {
        let both = 2 * self.source_width;
        let input = |layer| if layer == 0 { self.source_embedding } else { both };
        let mut cells = Vec::new();
        for layer in 0..self.source_layers {
            for side in ["forward", "backward"] {
                cells.push((format!("encoder.{side}.{layer}"), input(layer), self.source_width));
            }
        }
        for layer in 0..self.source_single_layers {
            cells.push((format!("encoder.top.{layer}"), both, both));
        }
        cells
    }
}

/// Every weight an RNN+FC network needs.
pub fn rnnfc_weights(r: &RnnFc) -> Vec<Expected> {
    let mut list = Vec::new();
    let g = r.cell.parts();
    let (c, w, a, e) = (r.context_width(), r.width, r.attention_width, r.target_embedding);
    let matrix = |list: &mut Vec<Expected>, name: String, outputs: usize, inputs: usize| {
        push(list, format!("{name}.weight"), vec![outputs, inputs], false);
    };
    let bias = |list: &mut Vec<Expected>, name: String, outputs: usize| {
        push(list, format!("{name}.bias"), vec![outputs], true);
    };
    let cell = |list: &mut Vec<Expected>, prefix: &str, inputs: usize, width: usize| {
        matrix(list, format!("{prefix}.input"), g * width, inputs);
        bias(list, format!("{prefix}.input"), g * width);
        matrix(list, format!("{prefix}.state"), g * width, width);
    };
    push(&mut list, SOURCE_EMBEDDING.into(), vec![r.source_vocabulary, r.source_embedding], false);
    for (prefix, inputs, width) in r.source_cells() {
        cell(&mut list, &prefix, inputs, width);
    }
    matrix(&mut list, "start".into(), w, c);
    bias(&mut list, "start".into(), w);
    push(&mut list, TARGET_EMBEDDING.into(), vec![r.target_vocabulary, e], false);
    cell(&mut list, "decoder", e, w);
    matrix(&mut list, "decoder.context".into(), g * w, c);
    matrix(&mut list, "attention.state".into(), a, w);
    matrix(&mut list, "attention.input".into(), a, e);
    matrix(&mut list, "attention.key".into(), a, c);
    for k in 0..r.dense_layers {
        let inputs = if k == 0 { w } else { r.dense_width };
        matrix(&mut list, format!("dense.{k}"), r.dense_width, inputs);
        bias(&mut list, format!("dense.{k}"), r.dense_width);
    }
    match r.top {
        Top::None => {}
        Top::Tanh => {
            matrix(&mut list, "top".into(), r.top_width, r.inner_width());
            bias(&mut list, "top".into(), r.top_width);
        }
        Top::Recurrent(layers) => {
            for k in 0..layers {
                let inputs = if k == 0 { r.inner_width() } else { r.top_width };
                cell(&mut list, &format!("top.{k}"), inputs, r.top_width);
            }
        }
    }
    push(&mut list, OUTPUT_WEIGHT.into(), vec![r.target_vocabulary, r.output_width()], false);
    push(&mut list, OUTPUT_BIAS.into(), vec![r.target_vocabulary], true);
    list
}
