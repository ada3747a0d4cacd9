//! Marian's recurrent models: options to a description, parameters to canonical weights.
//!
//! The cells of the different model types differ only in where the bias is added; here it is moved
//! to where the canonical form has it (see [`Recurrent`]).

use std::path::Path;

use crate::marian::stored::Stored;
use crate::marian::yaml::Yaml;
use crate::names::{OUTPUT_BIAS, OUTPUT_WEIGHT, SOURCE_EMBEDDING, TARGET_EMBEDDING};
use crate::tensors::{as_vector, blocks, joined, rows_of, transposed};
use crate::{
    Architecture, CellKind, CellPlace, EncoderKind, Member, ModelError, Recurrent,
    RecurrentDecoder, RecurrentEncoder, RecurrentNorm, SourceFrame, StartCell, Weight, Weights,
    check,
};

/// A network's shape, and its file's conventions for names and orders.
pub(crate) struct Shape {
    pub encoder_kind: EncoderKind,
    pub encoder_layers: usize,
    pub forward: Vec<CellKind>,
    pub backward: Vec<CellKind>,
    pub base: Vec<CellKind>,
    pub high_layers: usize,
    pub high: Vec<CellKind>,
    pub skip: bool,
    pub cell_norm: RecurrentNorm,
    pub dense_norm: RecurrentNorm,
    /// Whether LSTMs follow Amun: gates f, i, o, candidate; other bias names; zeros as first cell
    /// vector.
    pub amun: bool,
    pub needs_output_bias: bool,
}

/// Whether a model type is recurrent.
pub(crate) fn is_recurrent(kind: &str) -> bool {
    matches!(kind, "s2s" | "nematus" | "amun")
}

/// The shape given by Marian's options.
pub(crate) fn shape(options: &Yaml) -> Result<Shape, ModelError> {
    let kind = options.text("type")?.unwrap_or_else(|| "amun".into());
    let shallow = kind == "amun";
    let count = |key: &str, default: usize| -> Result<usize, ModelError> {
        Ok(if shallow { default } else { options.count(key)?.unwrap_or(default) })
    };
    let cell = |key: &str| -> Result<(CellKind, bool), ModelError> {
        match kind.as_str() {
            "amun" => Ok((CellKind::Gru, false)),
            "nematus" => Ok((CellKind::Gru, true)),
            _ => cell_kind(options, key),
        }
    };
    let (encoder, encoder_nematus) = cell("enc-cell")?;
    let (decoder, decoder_nematus) = cell("dec-cell")?;
    let normalises = options.flag("layer-normalization")?;
    if normalises && encoder_nematus != decoder_nematus {
        let what = "layer-normalization with gru-nematus cells on one side only is not supported";
        return Err(ModelError::unsupported(options.path(), what));
    }
    let norm = |nematus: bool| match (normalises, nematus) {
        (false, _) => RecurrentNorm::None,
        (true, true) => RecurrentNorm::Nematus,
        (true, false) => RecurrentNorm::Marian,
    };
    let encoder_kind = match options.text("enc-type")?.as_deref() {
        _ if kind != "s2s" => EncoderKind::Bidirectional,
        None | Some("bidirectional") => EncoderKind::Bidirectional,
        Some("alternating") => EncoderKind::Alternating,
        Some(_) => EncoderKind::BiUnidirectional,
    };
    let layers = count("enc-depth", 1)?;
    let depth = count("enc-cell-depth", 1)?;
    let high_layers = count("dec-depth", 1)?.saturating_sub(1);
    let high_depth = count("dec-cell-high-depth", 1)?;
    let uni = encoder_kind == EncoderKind::BiUnidirectional && layers > 1;
    let broken = (encoder_nematus && uni && depth > 1)
        || (decoder_nematus && high_layers > 0 && high_depth > 1);
    if broken {
        let what = "gru-nematus cells without input above the first layer: Marian's are broken";
        return Err(ModelError::unsupported(options.path(), what));
    }
    Ok(Shape {
        encoder_kind,
        encoder_layers: layers,
        forward: repeated(options, encoder, depth)?,
        backward: repeated(options, encoder, depth)?,
        base: repeated(options, decoder, count("dec-cell-base-depth", 2)?)?,
        high_layers,
        high: repeated(options, decoder, high_depth)?,
        skip: !shallow && options.flag("skip")?,
        cell_norm: norm(encoder_nematus),
        dense_norm: norm(kind == "nematus"),
        amun: false,
        needs_output_bias: !options.flag("output-omit-bias")?,
    })
}

fn repeated(options: &Yaml, cell: CellKind, depth: usize) -> Result<Vec<CellKind>, ModelError> {
    if depth > 1000 {
        return Err(ModelError::invalid(options.path(), format!("{depth} cells in a layer")));
    }
    Ok(vec![cell; depth])
}

/// A cell by Marian's name, and whether it is the Nematus variant.
fn cell_kind(options: &Yaml, key: &str) -> Result<(CellKind, bool), ModelError> {
    let kind = match options.text(key)?.as_deref().unwrap_or("gru") {
        "gru" => CellKind::Gru,
        "gru-nematus" => return Ok((CellKind::Gru, true)),
        "lstm" => CellKind::Lstm,
        "mlstm" => CellKind::Mlstm,
        "mgru" => CellKind::Mgru,
        "tanh" => CellKind::Tanh,
        "relu" => CellKind::Relu,
        "sru" => CellKind::Sru,
        "ssru" => CellKind::Ssru,
        _ => return Err(options.unsupported(key)),
    };
    Ok((kind, false))
}

/// Builds a network from a file whose parameters have Marian's names.
pub(crate) fn member(
    path: &Path,
    stored: &Stored,
    shape: &Shape,
    source_end: u32,
) -> Result<Member, ModelError> {
    let mut file = File { path, stored, problems: Vec::new() };
    let description = description(&mut file, shape, source_end)?;
    if let Some(problem) = description.nonsense() {
        return Err(ModelError::invalid(path, problem));
    }
    let mut weights = Weights::default();
    file.tables(shape, &mut weights)?;
    let d = description.width;
    let encoder = [
        description.encoder_direction(false),
        description.encoder_direction(true),
        description.top(),
    ];
    for cell in encoder.iter().flatten().flatten() {
        file.cell(shape, cell, d, false, &mut weights)?;
    }
    for (layer, cells) in description.decoder_cells().iter().enumerate() {
        for (j, cell) in cells.iter().enumerate() {
            file.cell(shape, cell, d, layer == 0 && j > 0, &mut weights)?;
        }
    }
    file.attention_and_output(shape, &mut weights)?;
    if !file.problems.is_empty() {
        return Err(ModelError::Weights { path: path.into(), problems: file.problems });
    }
    let architecture = Architecture::Recurrent(description);
    let weights = check::gather_known(path, &architecture, &weights)?;
    Ok(Member { path: path.into(), architecture, weights })
}

/// The description, with sizes from the parameters, because Nematus files have no options.
fn description(
    file: &mut File<'_>,
    shape: &Shape,
    source_end: u32,
) -> Result<Recurrent, ModelError> {
    let source = file.need(&file.embedding("encoder"))?;
    let target = file.need(&file.embedding("decoder"))?;
    let state = file.need("decoder_cell1_U")?;
    let query = file.need("decoder_W_comb_att")?;
    if !file.problems.is_empty() {
        let problems = std::mem::take(&mut file.problems);
        return Err(ModelError::Weights { path: file.path.into(), problems });
    }
    Ok(Recurrent {
        width: state.rows(),
        source_embedding: source.columns(),
        target_embedding: target.columns(),
        source_vocabulary: source.rows(),
        target_vocabulary: target.rows(),
        source_frame: SourceFrame { begin: None, end: Some(source_end), after_end: None },
        encoder: RecurrentEncoder {
            kind: shape.encoder_kind,
            layers: shape.encoder_layers,
            forward: shape.forward.clone(),
            backward: shape.backward.clone(),
            skip: shape.skip,
        },
        decoder: RecurrentDecoder {
            base: shape.base.clone(),
            high_layers: shape.high_layers,
            high: shape.high.clone(),
            skip: shape.skip,
            start_cell: if shape.amun { StartCell::Zero } else { StartCell::State },
        },
        attention_width: query.columns(),
        cell_norm: shape.cell_norm,
        dense_norm: shape.dense_norm,
    })
}

/// A file being read; missing parameters are collected and reported together.
struct File<'a> {
    path: &'a Path,
    stored: &'a Stored,
    problems: Vec<String>,
}

impl File<'_> {
    fn embedding(&self, side: &str) -> String {
        let own = format!("{side}_Wemb");
        if self.stored.has(&own) { own } else { "Wemb".into() }
    }

    fn maybe(&self, name: &str) -> Result<Option<Weight>, ModelError> {
        self.stored.weight(self.path, name, false)
    }

    /// A parameter as stored. A missing one is recorded and replaced by an empty one.
    fn need(&mut self, name: &str) -> Result<Weight, ModelError> {
        match self.maybe(name)? {
            Some(weight) => Ok(weight),
            None => {
                self.problems.push(format!("missing tensor {name}"));
                Ok(Weight::from_f32(vec![0, 0], &[]))
            }
        }
    }

    /// A matrix in canonical orientation.
    fn matrix(&mut self, name: &str) -> Result<Weight, ModelError> {
        Ok(transposed(&self.need(name)?))
    }

    fn vector(&mut self, name: &str) -> Result<Weight, ModelError> {
        Ok(as_vector(self.need(name)?))
    }

    fn tables(&mut self, shape: &Shape, weights: &mut Weights) -> Result<(), ModelError> {
        let target = self.embedding("decoder");
        let source = self.embedding("encoder");
        weights.insert(SOURCE_EMBEDDING, self.need(&source)?);
        weights.insert(TARGET_EMBEDDING, self.need(&target)?);
        let output = if self.stored.has("decoder_ff_logit_l2_W") {
            self.matrix("decoder_ff_logit_l2_W")?
        } else if self.stored.has("decoder_ff_logit_l2_Wt") {
            self.need("decoder_ff_logit_l2_Wt")?
        } else {
            self.need(&target)?
        };
        weights.insert(OUTPUT_WEIGHT, output);
        const BIAS: &str = "decoder_ff_logit_l2_b";
        if shape.needs_output_bias || self.stored.has(BIAS) {
            weights.insert(OUTPUT_BIAS, self.vector(BIAS)?);
        }
        Ok(())
    }

    /// Reads one cell. A `last` cell follows attention in the decoder's first layer, and its bias
    /// belongs to the state part.
    fn cell(
        &mut self,
        shape: &Shape,
        cell: &CellPlace,
        d: usize,
        last: bool,
        weights: &mut Weights,
    ) -> Result<(), ModelError> {
        let p = marian_prefix(&cell.prefix);
        let has_input = cell.input.is_some();
        let lstm = matches!(cell.kind, CellKind::Lstm | CellKind::Mlstm);
        let parts: &[&str] = match cell.kind {
            CellKind::Gru | CellKind::Mgru => &["", "x"],
            CellKind::Lstm | CellKind::Mlstm if self.stored.has(&format!("{p}_Ux")) => &["", "x"],
            CellKind::Sru => &["", "f", "r"],
            CellKind::Ssru => &["", "f"],
            _ => &[""],
        };
        let ordered = |weight: Weight| match shape.amun && lstm {
            true => blocks(&weight, 4, &[0, 1, 3, 2]),
            false => weight,
        };
        if has_input {
            let w = self.side_by_side(&p, "W", parts)?;
            weights.insert(format!("{}.input.weight", cell.prefix), ordered(w));
        }
        if cell.kind.has_state_product() {
            let u = self.side_by_side(&p, "U", parts)?;
            weights.insert(format!("{}.state.weight", cell.prefix), ordered(u));
        }
        let bias = match cell.kind.has_state_product() {
            true => self.joined_vectors(&p, "b", parts)?,
            // The candidate of an SRU or SSRU has no bias.
            false => {
                let gates = self.joined_vectors(&p, "b", &parts[1..])?;
                joined(&[Weight::from_f32(vec![d], &vec![0.0; d]), gates])
            }
        };
        self.place_biases(shape, cell, d, last, ordered(bias), weights)?;
        if cell.kind.is_multiplicative() && has_input {
            self.multiply(shape, &p, &cell.prefix, weights)?;
        }
        Ok(())
    }

    fn place_biases(
        &mut self,
        shape: &Shape,
        cell: &CellPlace,
        d: usize,
        last: bool,
        bias: Weight,
        weights: &mut Weights,
    ) -> Result<(), ModelError> {
        let (p, name) = (marian_prefix(&cell.prefix), &cell.prefix);
        let has_input = cell.input.is_some();
        let width = cell.kind.parts() * d;
        // For LSTMs and plain cells it makes no difference which part has the bias.
        let on_state = last && matches!(cell.kind, CellKind::Gru | CellKind::Mgru);
        let side = if on_state { "state" } else { "input" };
        match shape.cell_norm {
            RecurrentNorm::None => weights.insert(format!("{name}.{side}.bias"), bias),
            RecurrentNorm::Marian => {
                if !cell.kind.has_state_product() {
                    let suffixes = &["", "f", "r"][..cell.kind.parts()];
                    let scale = self.joined_vectors(&p, "gamma", suffixes)?;
                    weights.insert(format!("{name}.input.norm.scale"), scale);
                    weights.insert(format!("{name}.input.norm.bias"), bias);
                    return Ok(());
                }
                if has_input {
                    let scale = first(&self.vector(&format!("{p}_gamma1"))?, width);
                    weights.insert(format!("{name}.input.norm.scale"), scale);
                }
                let scale = first(&self.vector(&format!("{p}_gamma2"))?, width);
                weights.insert(format!("{name}.state.norm.scale"), scale);
                // The bias of a cell without input is a constant input part.
                let place = if has_input || on_state { ".norm" } else { "" };
                weights.insert(format!("{name}.{side}{place}.bias"), bias);
            }
            RecurrentNorm::Nematus => {
                for (part, letter) in [("input", "W"), ("state", "U")] {
                    if part == "input" && !has_input {
                        continue;
                    }
                    for (ours, theirs) in [("scale", "_lns"), ("bias", "_lnb")] {
                        let gates = self.vector(&format!("{p}_{letter}{theirs}"))?;
                        let candidate = self.vector(&format!("{p}_{letter}x{theirs}"))?;
                        let both = joined(&[gates, candidate]);
                        weights.insert(format!("{name}.{part}.norm.{ours}"), both);
                    }
                }
                weights.insert(format!("{name}.{side}.bias"), bias);
            }
        }
        Ok(())
    }

    /// Reads the factors of a multiplicative cell.
    fn multiply(
        &mut self,
        shape: &Shape,
        p: &str,
        name: &str,
        weights: &mut Weights,
    ) -> Result<(), ModelError> {
        let biases = if shape.amun { ["bm", "bmu"] } else { ["bwm", "bm"] };
        let sides = [("input", "Wm", biases[0], "1m"), ("state", "Um", biases[1], "2m")];
        for (side, matrix, bias, gamma) in sides {
            let prefix = format!("{name}.multiply.{side}");
            weights.insert(format!("{prefix}.weight"), self.matrix(&format!("{p}_{matrix}"))?);
            weights.insert(format!("{prefix}.bias"), self.vector(&format!("{p}_{bias}"))?);
            if shape.cell_norm != RecurrentNorm::None {
                let scale = self.vector(&format!("{p}_gamma{gamma}"))?;
                weights.insert(format!("{prefix}.norm.scale"), scale);
            }
        }
        Ok(())
    }

    /// Concatenates the outputs of matrices that have the same input.
    fn side_by_side(
        &mut self,
        p: &str,
        letter: &str,
        suffixes: &[&str],
    ) -> Result<Weight, ModelError> {
        let parts: Result<Vec<_>, _> =
            suffixes.iter().map(|suffix| self.matrix(&format!("{p}_{letter}{suffix}"))).collect();
        self.join(p, parts?)
    }

    fn joined_vectors(
        &mut self,
        p: &str,
        letter: &str,
        suffixes: &[&str],
    ) -> Result<Weight, ModelError> {
        let parts: Result<Vec<_>, _> =
            suffixes.iter().map(|suffix| self.vector(&format!("{p}_{letter}{suffix}"))).collect();
        self.join(p, parts?)
    }

    fn join(&mut self, p: &str, parts: Vec<Weight>) -> Result<Weight, ModelError> {
        let columns = parts.first().map_or(0, Weight::columns);
        if parts.iter().any(|part| part.columns() != columns) && self.problems.is_empty() {
            self.problems.push(format!("the parameters {p}_… do not fit each other"));
        }
        Ok(if self.problems.is_empty() { joined(&parts) } else { parts[0].clone() })
    }

    fn attention_and_output(
        &mut self,
        shape: &Shape,
        weights: &mut Weights,
    ) -> Result<(), ModelError> {
        let state = ("decoder_ff_state_W", Some("decoder_ff_state_b"));
        self.dense(
            shape,
            "start",
            state,
            ["decoder_ff_state_gamma", "decoder_ff_state_ln_s", "decoder_ff_state_ln_b"],
            weights,
        )?;
        let key = ("decoder_Wc_att", Some("decoder_b_att"));
        self.dense(
            shape,
            "attention.key",
            key,
            ["decoder_att_gamma1", "decoder_Wc_att_lns", "decoder_Wc_att_lnb"],
            weights,
        )?;
        let query = ("decoder_W_comb_att", None);
        self.dense(
            shape,
            "attention.query",
            query,
            ["decoder_att_gamma2", "decoder_W_comb_att_lns", "decoder_W_comb_att_lnb"],
            weights,
        )?;
        weights.insert("attention.energy", self.vector("decoder_U_att")?);
        for (i, name) in ["deep.previous", "deep.state", "deep.context"].into_iter().enumerate() {
            let own = |part: &str| format!("decoder_ff_logit_l1_{part}{i}");
            let bias = own("b");
            let norms = [own("gamma"), own("ln_s"), own("ln_b")];
            let norms = [&*norms[0], &*norms[1], &*norms[2]];
            self.dense(shape, name, (&own("W"), Some(&bias)), norms, weights)?;
        }
        Ok(())
    }

    /// Reads a dense layer; `norms` are the names of Marian's scale and of Nematus' scale and bias.
    fn dense(
        &mut self,
        shape: &Shape,
        name: &str,
        (matrix, bias): (&str, Option<&str>),
        norms: [&str; 3],
        weights: &mut Weights,
    ) -> Result<(), ModelError> {
        weights.insert(format!("{name}.weight"), self.matrix(matrix)?);
        let bias = bias.map(|bias| self.vector(bias)).transpose()?;
        let place = if shape.dense_norm == RecurrentNorm::Marian { ".norm" } else { "" };
        if let Some(bias) = bias {
            weights.insert(format!("{name}{place}.bias"), bias);
        }
        match shape.dense_norm {
            RecurrentNorm::None => {}
            RecurrentNorm::Marian => {
                weights.insert(format!("{name}.norm.scale"), self.vector(norms[0])?);
            }
            RecurrentNorm::Nematus => {
                weights.insert(format!("{name}.norm.scale"), self.vector(norms[1])?);
                weights.insert(format!("{name}.norm.bias"), self.vector(norms[2])?);
            }
        }
        Ok(())
    }
}

/// The first elements of a vector; `tanh` cells store more than they use.
fn first(vector: &Weight, count: usize) -> Weight {
    rows_of(vector, 0, count).unwrap_or_else(|| vector.clone())
}

/// Marian's name of a cell.
fn marian_prefix(canonical: &str) -> String {
    let parts: Vec<&str> = canonical.split('.').collect();
    let number = |text: &str| text.parse::<usize>().unwrap_or(0);
    match parts[..] {
        ["encoder", "top", l, j] => format!("encoder_l{}_cell{}", number(l) + 2, number(j) + 1),
        ["encoder", direction, l, j] => {
            let tag = if direction == "backward" { "encoder_bi_r" } else { "encoder_bi" };
            match (number(l), number(j)) {
                (0, 0) => tag.into(),
                (0, j) => format!("{tag}_cell{}", j + 1),
                (l, j) => format!("{tag}_l{}_cell{}", l + 1, j + 1),
            }
        }
        ["decoder", "0", j] => format!("decoder_cell{}", number(j) + 1),
        ["decoder", l, j] => format!("decoder_l{}_cell{}", number(l) + 1, number(j) + 1),
        _ => canonical.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_marians_names() {
        for (canonical, marian) in [
            ("encoder.forward.0.0", "encoder_bi"),
            ("encoder.backward.0.1", "encoder_bi_r_cell2"),
            ("encoder.forward.1.0", "encoder_bi_l2_cell1"),
            ("encoder.top.0.0", "encoder_l2_cell1"),
            ("decoder.0.3", "decoder_cell4"),
            ("decoder.1.0", "decoder_l2_cell1"),
        ] {
            assert_eq!(marian_prefix(canonical), marian);
        }
    }
}
