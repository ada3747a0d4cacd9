//! Canonical names to those of `transformers`, which are the same in all classes: `encoder.0.self.query.weight` is
//! `model.encoder.layers.0.self_attn.q_proj.weight`.

/// The tensors that may hold a weight, preferred first. Files leave out copies of tied tables.
pub(crate) fn places(canonical: &str) -> Vec<String> {
    const SHARED: &str = "model.shared.weight";
    let embedding = |side: &str| format!("model.{side}.embed_tokens.weight");
    match canonical {
        "source.embedding" => vec![embedding("encoder"), SHARED.into()],
        "target.embedding" => vec![embedding("decoder"), SHARED.into()],
        "output.weight" => vec!["lm_head.weight".into(), embedding("decoder"), SHARED.into()],
        "output.bias" => vec!["final_logits_bias".into()],
        _ => layer_place(canonical).into_iter().collect(),
    }
}

fn layer_place(canonical: &str) -> Option<String> {
    let parts: Vec<&str> = canonical.split('.').collect();
    match parts[..] {
        [side, "positions"] => Some(format!("model.{side}.embed_positions.weight")),
        [side, "embedding", "norm", part] => {
            Some(format!("model.{side}.layernorm_embedding.{}", norm_part(part)?))
        }
        [side, "top", "norm", part] => {
            Some(format!("model.{side}.layer_norm.{}", norm_part(part)?))
        }
        [side, layer, block, ref rest @ ..] => {
            let layer: usize = layer.parse().ok()?;
            Some(format!("model.{side}.layers.{layer}.{}", in_block(block, rest)?))
        }
        _ => None,
    }
}

fn norm_part(part: &str) -> Option<&'static str> {
    match part {
        "scale" => Some("weight"),
        "bias" => Some("bias"),
        _ => None,
    }
}

fn in_block(block: &str, rest: &[&str]) -> Option<String> {
    let (attention, norm) = match block {
        "self" => ("self_attn", "self_attn_layer_norm"),
        "cross" => ("encoder_attn", "encoder_attn_layer_norm"),
        "ffn" => ("", "final_layer_norm"),
        _ => return None,
    };
    match *rest {
        ["pre" | "post", "norm", part] => Some(format!("{norm}.{}", norm_part(part)?)),
        [linear, kind @ ("weight" | "bias")] => {
            let linear = match (block, linear) {
                ("ffn", "0") => return Some(format!("fc1.{kind}")),
                ("ffn", "1") => return Some(format!("fc2.{kind}")),
                ("self" | "cross", "query") => "q_proj",
                ("self" | "cross", "key") => "k_proj",
                ("self" | "cross", "value") => "v_proj",
                ("self" | "cross", "output") => "out_proj",
                _ => return None,
            };
            Some(format!("{attention}.{linear}.{kind}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn names_are_those_of_the_class() {
        for (canonical, name) in [
            ("output.bias", "final_logits_bias"),
            ("encoder.0.self.query.weight", "model.encoder.layers.0.self_attn.q_proj.weight"),
            ("decoder.5.cross.output.bias", "model.decoder.layers.5.encoder_attn.out_proj.bias"),
            ("decoder.5.ffn.1.weight", "model.decoder.layers.5.fc2.weight"),
            ("decoder.5.ffn.post.norm.bias", "model.decoder.layers.5.final_layer_norm.bias"),
            ("encoder.1.self.pre.norm.scale", "model.encoder.layers.1.self_attn_layer_norm.weight"),
            ("encoder.top.norm.bias", "model.encoder.layer_norm.bias"),
            ("decoder.embedding.norm.scale", "model.decoder.layernorm_embedding.weight"),
            ("decoder.positions", "model.decoder.embed_positions.weight"),
        ] {
            assert_eq!(places(canonical), [name]);
        }
        assert!(places("decoder.0.ssru.forget.bias").is_empty());
        assert_eq!(places("output.weight").last().unwrap(), "model.shared.weight");
    }
}
