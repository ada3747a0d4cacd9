//! Canonical names to those of `MarianMTModel`: `encoder.0.self.query.weight` is
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
    let [side, layer, block, ref rest @ ..] = parts[..] else { return None };
    let layer: usize = layer.parse().ok()?;
    Some(format!("model.{side}.layers.{layer}.{}", in_block(block, rest)?))
}

fn in_block(block: &str, rest: &[&str]) -> Option<String> {
    let (attention, norm) = match block {
        "self" => ("self_attn", "self_attn_layer_norm"),
        "cross" => ("encoder_attn", "encoder_attn_layer_norm"),
        "ffn" => ("", "final_layer_norm"),
        _ => return None,
    };
    match *rest {
        ["post", "norm", "scale"] => Some(format!("{norm}.weight")),
        ["post", "norm", "bias"] => Some(format!("{norm}.bias")),
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
        ] {
            assert_eq!(places(canonical), [name]);
        }
        assert!(places("decoder.0.ssru.forget.bias").is_empty());
        assert_eq!(places("output.weight").last().unwrap(), "model.shared.weight");
    }
}
