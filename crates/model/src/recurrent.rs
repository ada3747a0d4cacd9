//! Recurrent networks with attention, as data: Marian's `s2s`, Nematus, Amun.
//!
//! The tools differ in where biases are added, in the order of gates and in names. Importers
//! convert all of them to one form, so that only the shape is described here. A cell computes
//!
//! ```text
//! X = norm(x · Wᵀ + b)      input part; a cell without input has a constant b or nothing
//! S = norm(h · Uᵀ + b')     state part
//! gru:   r = σ(X₀+S₀), z = σ(X₁+S₁), n = tanh(X₂ + r∘S₂), h' = (1−z)∘n + z∘h
//! lstm:  f, i, g, o = σ(X₀+S₀), σ(X₁+S₁), tanh(X₂+S₂), σ(X₃+S₃), c' = f∘c + i∘g, h' = o∘tanh(c')
//! tanh, relu:  h' = act(X + S)
//! sru:   f, r = σ(X₁), σ(X₂), c' = f∘c + (1−f)∘X₀, h' = r∘tanh(c') + (1−r)∘x
//! ssru:  f = σ(X₁), c' = f∘c + (1−f)∘X₀, h' = max(0, c')
//! mgru, mlstm:  m = norm(x · Wmᵀ + b)∘norm(h · Umᵀ + b'), then gru or lstm with m in place of h
//! ```
//!
//! Canonical names of the weights, P being a cell:
//!
//! | name | shape |
//! |---|---|
//! | `source.embedding`, `target.embedding`, `output.weight` | (V, E) |
//! | `output.bias` (may be missing) | (V) |
//! | P: `encoder.forward.L.J`, `encoder.backward.L.J`, `encoder.top.L.J`, `decoder.L.J` | layer L, cell J |
//! | P`.input.weight`, P`.state.weight` | (G·D, I), (G·D, D), G parts in the order above |
//! | P`.input.bias`, P`.state.bias` (each may be missing) | (G·D) |
//! | P`.multiply.{input,state}.{weight,bias}` | (D, I), (D, D), (D) |
//! | `start` | (D, C), the decoder's first state from the mean context |
//! | `attention.key`, `attention.query` | (A, C), (A, D) |
//! | `attention.energy` | (A) |
//! | `deep.previous`, `deep.state`, `deep.context` | (O, E), (O, D), (O, C) |
//!
//! Every dense part NAME has `.weight` and may have `.bias`; where the description asks for norms
//! it has `.norm.scale` and may have `.norm.bias`, of the width of its outputs.

use serde::{Deserialize, Serialize};

use crate::SourceFrame;
use crate::names::{Expected, OUTPUT_BIAS, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};

/// An encoder of recurrent layers, and a decoder with attention after its first cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurrent {
    /// Width of states (D).
    pub width: usize,
    /// Width of source embeddings.
    pub source_embedding: usize,
    /// Width of target embeddings (E) and of the input of the output layer (O).
    pub target_embedding: usize,
    /// Rows of the source embedding.
    pub source_vocabulary: usize,
    /// Rows of the target embedding and of the output layer.
    pub target_vocabulary: usize,
    /// The ids added around the source ids.
    pub source_frame: SourceFrame,
    /// The encoder.
    pub encoder: RecurrentEncoder,
    /// The decoder.
    pub decoder: RecurrentDecoder,
    /// Width of attention's keys and queries (A).
    pub attention_width: usize,
    /// Norms inside cells.
    pub cell_norm: RecurrentNorm,
    /// Norms of attention, start state and deep output.
    pub dense_norm: RecurrentNorm,
}

/// The encoder of a [`Recurrent`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecurrentEncoder {
    /// How layers are stacked.
    pub kind: EncoderKind,
    /// Number of layers.
    pub layers: usize,
    /// Cells of a layer that reads left to right; all but the first have no input.
    pub forward: Vec<CellKind>,
    /// Cells of a layer that reads right to left; all but the first have no input.
    pub backward: Vec<CellKind>,
    /// Whether layers have a residual connection, from the second of a stack on.
    pub skip: bool,
}

/// The decoder of a [`Recurrent`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecurrentDecoder {
    /// Cells of the first layer; attention comes between the first and the second.
    pub base: Vec<CellKind>,
    /// Number of layers above the first.
    pub high_layers: usize,
    /// Cells of each layer above the first.
    pub high: Vec<CellKind>,
    /// Whether layers above the first have a residual connection.
    pub skip: bool,
    /// The cell vectors at the first step.
    pub start_cell: StartCell,
}

/// How encoder layers are stacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// A stack that reads left to right beside one that reads right to left.
    Bidirectional,
    /// Like [`EncoderKind::Bidirectional`], but each layer of a stack reads in the direction
    /// opposite to the layer below.
    Alternating,
    /// One bidirectional layer, and a stack above it that reads left to right.
    BiUnidirectional,
}

/// A recurrent cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellKind {
    /// Gated recurrent unit.
    Gru,
    /// Long short-term memory.
    Lstm,
    /// Multiplicative GRU.
    Mgru,
    /// Multiplicative LSTM.
    Mlstm,
    /// Plain cell with tanh.
    Tanh,
    /// Plain cell with ReLU.
    Relu,
    /// Simple recurrent unit (SRU).
    Sru,
    /// Simpler simple recurrent unit (SSRU).
    Ssru,
}

/// The first cell vectors of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartCell {
    /// The start state (Marian).
    State,
    /// Zeros (Amun).
    Zero,
}

/// The placement of norms in cells, and their epsilon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecurrentNorm {
    /// Nowhere.
    None,
    /// Over all parts of a product at once (separately in sru and ssru), epsilon 1e-9.
    Marian,
    /// Over a GRU's gates and its candidate separately, epsilon 1e-5.
    Nematus,
}

impl RecurrentNorm {
    /// The epsilon that is added to the variance.
    pub fn epsilon(self) -> f32 {
        match self {
            RecurrentNorm::Nematus => 1e-5,
            _ => 1e-9,
        }
    }

    /// The widths of the column groups that are normalised together.
    pub fn groups(self, kind: CellKind, width: usize) -> Vec<usize> {
        match (self, kind) {
            (RecurrentNorm::None, _) => Vec::new(),
            (_, CellKind::Sru) => vec![width; 3],
            (_, CellKind::Ssru) => vec![width; 2],
            (RecurrentNorm::Nematus, CellKind::Gru | CellKind::Mgru) => vec![2 * width, width],
            _ => vec![kind.parts() * width],
        }
    }
}

impl CellKind {
    /// Number of parts of a product (G).
    pub fn parts(self) -> usize {
        match self {
            CellKind::Gru | CellKind::Mgru | CellKind::Sru => 3,
            CellKind::Lstm | CellKind::Mlstm => 4,
            CellKind::Tanh | CellKind::Relu => 1,
            CellKind::Ssru => 2,
        }
    }

    /// Whether it multiplies input and state first.
    pub fn is_multiplicative(self) -> bool {
        matches!(self, CellKind::Mgru | CellKind::Mlstm)
    }

    /// Whether the state goes through a product.
    pub fn has_state_product(self) -> bool {
        !matches!(self, CellKind::Sru | CellKind::Ssru)
    }

    /// Whether it keeps a cell vector beside the state.
    pub fn has_cell(self) -> bool {
        matches!(self, CellKind::Lstm | CellKind::Mlstm | CellKind::Sru | CellKind::Ssru)
    }

    /// Whether the cell needs an input.
    pub fn needs_input(self) -> bool {
        self.is_multiplicative() || !self.has_state_product()
    }
}

/// A cell's place in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPlace {
    /// Canonical prefix of its weights.
    pub prefix: String,
    /// The kind of cell.
    pub kind: CellKind,
    /// Width of its input, if it has one.
    pub input: Option<usize>,
}

/// A chain of cells, the first of which has an input of width `input`.
fn chain(prefix: &str, cells: &[CellKind], input: usize) -> Vec<CellPlace> {
    let place = |(j, &kind): (usize, &CellKind)| CellPlace {
        prefix: format!("{prefix}.{j}"),
        kind,
        input: (j == 0).then_some(input),
    };
    cells.iter().enumerate().map(place).collect()
}

impl Recurrent {
    /// Width of the context that the decoder attends to (C).
    pub fn context_width(&self) -> usize {
        match self.encoder.kind {
            EncoderKind::BiUnidirectional if self.encoder.layers > 1 => self.width,
            _ => 2 * self.width,
        }
    }

    /// Number of layers of each direction of the encoder.
    pub fn paired_layers(&self) -> usize {
        match self.encoder.kind {
            EncoderKind::BiUnidirectional => self.encoder.layers.min(1),
            _ => self.encoder.layers,
        }
    }

    /// The cells of one direction of the encoder, layer by layer.
    pub fn encoder_direction(&self, backward: bool) -> Vec<Vec<CellPlace>> {
        let (name, cells) = match backward {
            false => ("forward", &self.encoder.forward),
            true => ("backward", &self.encoder.backward),
        };
        let input = |layer| if layer == 0 { self.source_embedding } else { self.width };
        (0..self.paired_layers())
            .map(|layer| chain(&format!("encoder.{name}.{layer}"), cells, input(layer)))
            .collect()
    }

    /// The cells of the stack on top of a [`EncoderKind::BiUnidirectional`] layer.
    pub fn top(&self) -> Vec<Vec<CellPlace>> {
        let input = |layer| if layer == 0 { 2 * self.width } else { self.width };
        (0..self.encoder.layers - self.paired_layers())
            .map(|l| chain(&format!("encoder.top.{l}"), &self.encoder.forward, input(l)))
            .collect()
    }

    /// The cells of the decoder, layer by layer.
    pub fn decoder_cells(&self) -> Vec<Vec<CellPlace>> {
        let mut base = chain("decoder.0", &self.decoder.base, self.target_embedding);
        if let Some(second) = base.get_mut(1) {
            second.input = Some(self.context_width());
        }
        let high = |l: usize| chain(&format!("decoder.{l}"), &self.decoder.high, self.width);
        std::iter::once(base).chain((1..=self.decoder.high_layers).map(high)).collect()
    }

    /// All cells.
    fn cells(&self) -> Vec<CellPlace> {
        [
            self.encoder_direction(false),
            self.encoder_direction(true),
            self.top(),
            self.decoder_cells(),
        ]
        .into_iter()
        .flatten()
        .flatten()
        .collect()
    }

    /// The first inconsistency of the description, if it has one.
    pub(crate) fn nonsense(&self) -> Option<String> {
        let sizes = [
            ("state width", self.width),
            ("source embedding width", self.source_embedding),
            ("target embedding width", self.target_embedding),
            ("source vocabulary", self.source_vocabulary),
            ("target vocabulary", self.target_vocabulary),
            ("attention width", self.attention_width),
        ];
        if let Some((name, value)) = sizes.iter().find(|(_, v)| *v == 0 || *v > 1 << 26) {
            return Some(format!("{name} {value} is out of range"));
        }
        let (e, d) = (&self.encoder, &self.decoder);
        let depths = [
            ("encoder layers", e.layers),
            ("cells of an encoder layer", e.forward.len().min(e.backward.len())),
            ("cells of the first decoder layer (at least 2)", d.base.len().saturating_sub(1)),
            ("cells of a decoder layer", d.high.len().max(usize::from(d.high_layers == 0))),
        ];
        if let Some((name, value)) = depths.iter().find(|(_, v)| *v == 0) {
            return Some(format!("{name}: {value} is too few"));
        }
        if e.layers + e.forward.len() + e.backward.len() + d.base.len() + d.high.len() > 1000
            || d.high_layers > 1000
        {
            return Some("more layers than make sense".into());
        }
        for cell in self.cells() {
            let name = &cell.prefix;
            if cell.kind.needs_input() && cell.input.is_none() {
                return Some(format!("{name}: a {:?} cell needs an input", cell.kind));
            }
            if !cell.kind.has_state_product() && cell.input != Some(self.width) {
                return Some(format!("{name}: a {:?} cell of input {:?}", cell.kind, cell.input));
            }
        }
        let frame = self.source_frame;
        let id = frame.begin.iter().chain(&frame.end).copied();
        let id = id.into_iter().find(|&id| id as usize >= self.source_vocabulary)?;
        Some(format!("source frame word {id} is not in the vocabulary"))
    }
}

/// Every weight a recurrent network needs, in the order of computation.
pub fn recurrent_weights(r: &Recurrent) -> Vec<Expected> {
    let mut list = Vec::new();
    let (d, c, a, e) = (r.width, r.context_width(), r.attention_width, r.target_embedding);
    push(&mut list, SOURCE_EMBEDDING.into(), vec![r.source_vocabulary, r.source_embedding], false);
    for cell in r.cells() {
        cell_weights(&mut list, &cell, d, r.cell_norm);
    }
    dense(&mut list, "start", d, c, r.dense_norm);
    push(&mut list, TARGET_EMBEDDING.into(), vec![r.target_vocabulary, e], false);
    dense(&mut list, "attention.key", a, c, r.dense_norm);
    dense(&mut list, "attention.query", a, d, r.dense_norm);
    push(&mut list, "attention.energy".into(), vec![a], false);
    dense(&mut list, "deep.previous", e, e, r.dense_norm);
    dense(&mut list, "deep.state", e, d, r.dense_norm);
    dense(&mut list, "deep.context", e, c, r.dense_norm);
    push(&mut list, OUTPUT_WEIGHT.into(), vec![r.target_vocabulary, e], false);
    push(&mut list, OUTPUT_BIAS.into(), vec![r.target_vocabulary], true);
    list
}

pub(crate) fn push(list: &mut Vec<Expected>, name: String, shape: Vec<usize>, optional: bool) {
    list.push(Expected { name, shape, optional });
}

fn dense(list: &mut Vec<Expected>, name: &str, outputs: usize, inputs: usize, norm: RecurrentNorm) {
    push(list, format!("{name}.weight"), vec![outputs, inputs], false);
    push(list, format!("{name}.bias"), vec![outputs], true);
    norms(list, name, outputs, norm);
}

fn norms(list: &mut Vec<Expected>, name: &str, width: usize, norm: RecurrentNorm) {
    if norm != RecurrentNorm::None {
        push(list, format!("{name}.norm.scale"), vec![width], false);
        push(list, format!("{name}.norm.bias"), vec![width], true);
    }
}

fn cell_weights(list: &mut Vec<Expected>, cell: &CellPlace, d: usize, norm: RecurrentNorm) {
    let (p, outputs) = (&cell.prefix, cell.kind.parts() * d);
    match cell.input {
        Some(input) => dense(list, &format!("{p}.input"), outputs, input, norm),
        None => push(list, format!("{p}.input.bias"), vec![outputs], true),
    }
    if cell.kind.has_state_product() {
        dense(list, &format!("{p}.state"), outputs, d, norm);
    }
    if let (true, Some(input)) = (cell.kind.is_multiplicative(), cell.input) {
        dense(list, &format!("{p}.multiply.input"), d, input, norm);
        dense(list, &format!("{p}.multiply.state"), d, d, norm);
    }
}
