//! Canonical names to Marian's: `encoder.0.self.query.weight` is `encoder_l1_self_Wq`.

use crate::marian::options::Tied;

/// The place of a weight in a Marian file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The parameter's name.
    pub name: String,
    /// Whether the parameter's shape is (inputs, outputs), the transpose of the canonical form.
    pub transposed: bool,
}

/// The place of a weight in a Marian file; `None` for weights Marian has no parameter for (stored
/// positions).
pub(crate) fn place(canonical: &str, tied: Tied) -> Option<Place> {
    let name = parameter(canonical, tied)?;
    let transposed = canonical.ends_with(".weight") && canonical != "output.weight";
    Some(Place { name, transposed })
}

fn parameter(canonical: &str, tied: Tied) -> Option<String> {
    let side_embedding =
        |side: &str| if tied.source { "Wemb".into() } else { format!("{side}_Wemb") };
    let parts: Vec<&str> = canonical.split('.').collect();
    match parts[..] {
        ["source", "embedding"] => Some(side_embedding("encoder")),
        ["target", "embedding"] => Some(side_embedding("decoder")),
        ["output", "weight"] if tied.output => Some(side_embedding("decoder")),
        ["output", "weight"] => Some("decoder_ff_logit_out_Wt".into()),
        ["output", "bias"] => Some("decoder_ff_logit_out_b".into()),
        [side, "embedding", op, part] => Some(format!("{side}_emb{}_pre", op_parameter(op, part)?)),
        [side, "top", op, part] => Some(format!("{side}_top{}", op_parameter(op, part)?)),
        [side, layer, block, ref rest @ ..] => {
            let layer: usize = layer.parse().ok()?;
            let (block, in_block) = in_block(block, rest)?;
            Some(format!("{side}_l{}_{block}{in_block}", layer + 1))
        }
        _ => None,
    }
}

/// Marian's name of a block, and the rest of a parameter's name.
fn in_block(block: &str, rest: &[&str]) -> Option<(&'static str, String)> {
    // `ops` is the part of the name that precedes the block's processing ops.
    let (name, ops) = match (block, rest.first()) {
        ("self", _) => ("self", "_Wo"),
        ("cross", _) => ("context", "_Wo"),
        ("ffn", _) => ("ffn", "_ffn"),
        ("average", _) => ("aan", "_ffn"),
        ("ssru", Some(&"pre")) => ("rnn", ""),
        ("ssru", _) => ("rnn", "_ffn"),
        _ => return None,
    };
    let suffix = match *rest {
        ["pre", op, part] => format!("{ops}{}_pre", op_parameter(op, part)?),
        ["post", op, part] => format!("{ops}{}", op_parameter(op, part)?),
        ["candidate", "norm", "scale"] => "_gamma".into(),
        ["forget", "norm", "scale"] => "_gammaf".into(),
        [linear, part] => format!("_{}{}", letter(part)?, linear_suffix(linear)?),
        _ => return None,
    };
    Some((name, suffix))
}

fn letter(part: &str) -> Option<char> {
    match part {
        "weight" => Some('W'),
        "bias" => Some('b'),
        _ => None,
    }
}

fn linear_suffix(linear: &str) -> Option<String> {
    Some(match linear {
        "query" => "q".into(),
        "key" => "k".into(),
        "value" => "v".into(),
        "output" | "projection" => "o".into(),
        "candidate" => String::new(),
        "forget" | "average_gate" => "f".into(),
        "input_gate" => "i".into(),
        dense => (dense.parse::<usize>().ok()? + 1).to_string(),
    })
}

fn op_parameter(op: &str, part: &str) -> Option<&'static str> {
    match (op, part) {
        ("norm", "scale") => Some("_ln_scale"),
        ("norm", "bias") => Some("_ln_bias"),
        ("rms", "scale") => Some("_rms_scale"),
        ("highway", "weight") => Some("_Wh"),
        ("highway", "bias") => Some("_bh"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_marians() {
        let untied = Tied { source: false, output: false };
        let name = |canonical| place(canonical, untied).unwrap().name;
        for (canonical, marian) in [
            ("source.embedding", "encoder_Wemb"),
            ("output.weight", "decoder_ff_logit_out_Wt"),
            ("encoder.embedding.norm.scale", "encoder_emb_ln_scale_pre"),
            ("decoder.top.rms.scale", "decoder_top_rms_scale"),
            ("encoder.0.self.query.weight", "encoder_l1_self_Wq"),
            ("decoder.1.cross.output.bias", "decoder_l2_context_bo"),
            ("decoder.1.cross.post.norm.scale", "decoder_l2_context_Wo_ln_scale"),
            ("encoder.0.ffn.pre.norm.bias", "encoder_l1_ffn_ffn_ln_bias_pre"),
            ("encoder.2.ffn.1.weight", "encoder_l3_ffn_W2"),
            ("decoder.0.average.input_gate.weight", "decoder_l1_aan_Wi"),
            ("decoder.0.average.average_gate.bias", "decoder_l1_aan_bf"),
            ("decoder.0.average.post.highway.weight", "decoder_l1_aan_ffn_Wh"),
            ("decoder.0.ssru.candidate.weight", "decoder_l1_rnn_W"),
            ("decoder.0.ssru.forget.bias", "decoder_l1_rnn_bf"),
            ("decoder.0.ssru.forget.norm.scale", "decoder_l1_rnn_gammaf"),
            ("decoder.0.ssru.projection.weight", "decoder_l1_rnn_Wo"),
            ("decoder.0.ssru.pre.norm.scale", "decoder_l1_rnn_ln_scale_pre"),
            ("decoder.0.ssru.post.norm.scale", "decoder_l1_rnn_ffn_ln_scale"),
        ] {
            assert_eq!(name(canonical), marian);
        }
        assert_eq!(place("encoder.positions", untied), None);
    }

    #[test]
    fn tied_tables_are_one_parameter_and_never_transposed() {
        let all = Tied { source: true, output: true };
        for canonical in ["source.embedding", "target.embedding", "output.weight"] {
            assert_eq!(
                place(canonical, all),
                Some(Place { name: "Wemb".into(), transposed: false })
            );
        }
        assert!(place("encoder.0.self.query.weight", all).unwrap().transposed);
        let target = Tied { source: false, output: true };
        assert_eq!(place("output.weight", target).unwrap().name, "decoder_Wemb");
    }
}
