//! Reads RNN+FC networks from safetensors files of the format "rnnfc-1".
//!
//! In these files every matrix is (inputs, outputs) and every gate is a separate tensor: u, r and h
//! become the parts z, r and candidate of a GRU.

use std::path::Path;
use std::sync::Arc;

use peregrine_formats::{Source, Tensors, safetensors};

use crate::marian::Pair;
use crate::names::{OUTPUT_BIAS, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};
use crate::tensors::{float_weight, joined, transposed};
use crate::{
    Architecture, CellKind, Dialect, Member, Model, ModelError, RnnFc, Search, SourceFrame, Top,
    Weight, Weights, check,
};

/// The format that is read.
const FORMAT: &str = "rnnfc-1";

/// Whether a file is such a network. An unreadable file counts as another format.
pub(crate) fn is_network(path: &Path) -> Result<bool, ModelError> {
    let Ok(file) = safetensors::read(&Source::open(path)?) else { return Ok(false) };
    Ok(file.metadata.get("format").is_some_and(|format| format.starts_with("rnnfc-")))
}

/// Checks that a file is a valid network, without its vocabularies.
pub(crate) fn examine(path: &Path) -> Result<(), ModelError> {
    member(path, 0).map(|_| ())
}

/// Opens a model of one network.
pub(crate) fn open(path: &Path, vocabularies: &Pair) -> Result<Model, ModelError> {
    let (source, target) = vocabularies.tokenizers(0)?;
    Ok(Model {
        dialect: Dialect::Devlin,
        members: vec![member(path, source.eos())?],
        member_weights: vec![1.0],
        source: Arc::clone(&source),
        target,
        search: Search::of(Dialect::Devlin),
        shortlist: None,
        languages: None,
        notes: Vec::new(),
    })
}

fn member(path: &Path, source_end: u32) -> Result<Member, ModelError> {
    let file = safetensors::read(&Source::open(path)?)?;
    let metadata = |key: &str| file.metadata.get(key).map(String::as_str).unwrap_or_default();
    if metadata("format") != FORMAT {
        let what = format!("format {:?}; this program reads {FORMAT:?}", metadata("format"));
        return Err(ModelError::unsupported(path, what));
    }
    let count = |key: &str| {
        let wrong = || ModelError::invalid(path, format!("metadata: {key}: {:?}", metadata(key)));
        metadata(key).parse::<usize>().ok().filter(|&n| n <= 1000).ok_or_else(wrong)
    };
    let (source_layers, dense_layers) = (count("src_layers")?, count("fc_layers")?);
    let top = match metadata("top") {
        "none" => Top::None,
        "tanh" => Top::Tanh,
        "gru" => Top::Recurrent(1),
        other => {
            let problem = format!("metadata: top: {other:?}: expected none, tanh or gru");
            return Err(ModelError::invalid(path, problem));
        }
    };
    let mut reader = Reader { path, tensors: &file.tensors, problems: Vec::new() };
    let size = |name: &str, axis: usize| {
        file.tensors.get(name).and_then(|t| t.shape.get(axis)).copied().unwrap_or(0)
    };
    let description = RnnFc {
        source_vocabulary: size("src.emb", 0),
        target_vocabulary: size("trg.emb", 0),
        source_frame: SourceFrame { begin: None, end: Some(source_end), after_end: None },
        source_embedding: size("src.emb", 1),
        target_embedding: size("trg.emb", 1),
        cell: CellKind::Gru,
        source_width: size("src.l0.fwd.Wu", 0),
        source_layers,
        source_single_layers: 0,
        width: size("trg.att.Wu", 0),
        attention_width: size("trg.att.Wa", 1),
        dense_layers,
        dense_width: size("trg.fc1.W", 1),
        top,
        top_width: size(if top == Top::Tanh { "trg.top.W" } else { "trg.top.Wu" }, 1),
    };
    let weights = reader.weights(&description)?;
    if !reader.problems.is_empty() {
        return Err(ModelError::Weights { path: path.into(), problems: reader.problems });
    }
    let architecture = Architecture::RnnFc(description);
    let weights = check::gather_known(path, &architecture, &weights)?;
    Ok(Member { path: path.into(), architecture, weights })
}

struct Reader<'a> {
    path: &'a Path,
    tensors: &'a Tensors,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn tensor(&mut self, name: &str) -> Result<Weight, ModelError> {
        match self.tensors.get(name) {
            Some(tensor) => float_weight(self.path, name, tensor),
            None => {
                self.problems.push(format!("missing tensor {name}"));
                Ok(Weight::from_f32(vec![0, 0], &[]))
            }
        }
    }

    fn matrix(&mut self, name: &str) -> Result<Weight, ModelError> {
        Ok(transposed(&self.tensor(name)?))
    }

    /// The parts of a cell, in canonical order.
    fn gates(&mut self, prefix: &str, letter: char) -> Result<Weight, ModelError> {
        let mut parts = Vec::new();
        for gate in ['r', 'u', 'h'] {
            let name = format!("{prefix}.{letter}{gate}");
            parts.push(if letter == 'b' { self.tensor(&name)? } else { self.matrix(&name)? });
        }
        let columns = parts[0].columns();
        if parts.iter().any(|part| part.columns() != columns) {
            self.problems.push(format!("the tensors {prefix}.{letter}… do not fit each other"));
            return Ok(parts[0].clone());
        }
        Ok(joined(&parts))
    }

    fn cell(&mut self, from: &str, to: &str, weights: &mut Weights) -> Result<(), ModelError> {
        weights.insert(format!("{to}.input.weight"), self.gates(from, 'V')?);
        weights.insert(format!("{to}.input.bias"), self.gates(from, 'b')?);
        weights.insert(format!("{to}.state.weight"), self.gates(from, 'W')?);
        Ok(())
    }

    fn dense(&mut self, from: &str, to: &str, weights: &mut Weights) -> Result<(), ModelError> {
        weights.insert(format!("{to}.weight"), self.matrix(&format!("{from}.W"))?);
        weights.insert(format!("{to}.bias"), self.tensor(&format!("{from}.b"))?);
        Ok(())
    }

    fn weights(&mut self, d: &RnnFc) -> Result<Weights, ModelError> {
        let mut weights = Weights::default();
        weights.insert(SOURCE_EMBEDDING, self.tensor("src.emb")?);
        weights.insert(TARGET_EMBEDDING, self.tensor("trg.emb")?);
        for layer in 0..d.source_layers {
            for (theirs, ours) in [("fwd", "forward"), ("bwd", "backward")] {
                let (from, to) =
                    (format!("src.l{layer}.{theirs}"), format!("encoder.{ours}.{layer}"));
                self.cell(&from, &to, &mut weights)?;
            }
        }
        self.dense("trg.init", "start", &mut weights)?;
        self.cell("trg.att", "decoder", &mut weights)?;
        weights.insert("decoder.context.weight", self.gates("trg.att", 'U')?);
        for (theirs, ours) in [("Wa", "state"), ("Va", "input"), ("Ua", "key")] {
            let weight = self.matrix(&format!("trg.att.{theirs}"))?;
            weights.insert(format!("attention.{ours}.weight"), weight);
        }
        for k in 0..d.dense_layers {
            self.dense(&format!("trg.fc{}", k + 1), &format!("dense.{k}"), &mut weights)?;
        }
        match d.top {
            Top::None => {}
            Top::Tanh => self.dense("trg.top", "top", &mut weights)?,
            Top::Recurrent(_) => self.cell("trg.top", "top.0", &mut weights)?,
        }
        weights.insert(OUTPUT_WEIGHT, self.matrix("out.W")?);
        weights.insert(OUTPUT_BIAS, self.tensor("out.b")?);
        Ok(weights)
    }
}
