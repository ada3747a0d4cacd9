//! Canonical names to CTranslate2's: `encoder.0.self.key.weight` is the middle third of the rows of
//! `encoder/layer_0/self_attention/linear_0/weight`.

/// A range of rows of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The variable.
    pub name: String,
    /// The index of the group of rows.
    pub part: usize,
    /// The number of equal groups that the rows form.
    pub parts: usize,
}

impl Place {
    fn whole(name: impl Into<String>) -> Place {
        Place { name: name.into(), part: 0, parts: 1 }
    }
}

/// The place of a weight in a CTranslate2 file; `None` for weights it has no variable for.
pub(crate) fn place(canonical: &str) -> Option<Place> {
    let parts: Vec<&str> = canonical.split('.').collect();
    match parts[..] {
        ["source", "embedding"] => Some(Place::whole("encoder/embeddings_0/weight")),
        ["target", "embedding"] => Some(Place::whole("decoder/embeddings/weight")),
        ["output", part @ ("weight" | "bias")] => {
            Some(Place::whole(format!("decoder/projection/{part}")))
        }
        [side, "positions"] => Some(Place::whole(format!("{side}/position_encodings/encodings"))),
        [side, "embedding", "norm", part] => {
            Some(Place::whole(format!("{side}/layernorm_embedding/{}", norm(part)?)))
        }
        [side, "top", "norm", part] => {
            Some(Place::whole(format!("{side}/layer_norm/{}", norm(part)?)))
        }
        [side, layer, block, ref rest @ ..] => {
            let layer: usize = layer.parse().ok()?;
            let (name, part, parts) = in_block(block, rest)?;
            Some(Place { name: format!("{side}/layer_{layer}/{name}"), part, parts })
        }
        _ => None,
    }
}

/// The variable of a weight within a block. Pre-norm and post-norm blocks use the same name for
/// their norm.
fn in_block(block: &str, rest: &[&str]) -> Option<(String, usize, usize)> {
    let folder = match block {
        "self" => "self_attention",
        "cross" => "attention",
        "ffn" => "ffn",
        _ => return None,
    };
    let (linear, kind) = match *rest {
        ["pre" | "post", "norm", kind] => {
            return Some((format!("{folder}/layer_norm/{}", norm(kind)?), 0, 1));
        }
        [linear, kind @ ("weight" | "bias")] => (linear, kind),
        _ => return None,
    };
    let (number, part, parts) = match (block, linear) {
        ("self", "query") => (0, 0, 3),
        ("self", "key") => (0, 1, 3),
        ("self", "value") => (0, 2, 3),
        ("self", "output") => (1, 0, 1),
        ("cross", "query") => (0, 0, 1),
        ("cross", "key") => (1, 0, 2),
        ("cross", "value") => (1, 1, 2),
        ("cross", "output") => (2, 0, 1),
        ("ffn", "0") => (0, 0, 1),
        ("ffn", "1") => (1, 0, 1),
        _ => return None,
    };
    Some((format!("{folder}/linear_{number}/{kind}"), part, parts))
}

fn norm(part: &str) -> Option<&'static str> {
    match part {
        "scale" => Some("gamma"),
        "bias" => Some("beta"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ctranslate2s() {
        for (canonical, name, part, parts) in [
            ("source.embedding", "encoder/embeddings_0/weight", 0, 1),
            ("output.bias", "decoder/projection/bias", 0, 1),
            ("decoder.positions", "decoder/position_encodings/encodings", 0, 1),
            ("encoder.top.norm.scale", "encoder/layer_norm/gamma", 0, 1),
            ("encoder.embedding.norm.bias", "encoder/layernorm_embedding/beta", 0, 1),
            ("encoder.3.self.key.weight", "encoder/layer_3/self_attention/linear_0/weight", 1, 3),
            ("decoder.0.cross.value.bias", "decoder/layer_0/attention/linear_1/bias", 1, 2),
            ("decoder.0.cross.output.bias", "decoder/layer_0/attention/linear_2/bias", 0, 1),
            ("decoder.0.ffn.post.norm.scale", "decoder/layer_0/ffn/layer_norm/gamma", 0, 1),
            ("decoder.0.ffn.1.weight", "decoder/layer_0/ffn/linear_1/weight", 0, 1),
        ] {
            assert_eq!(place(canonical), Some(Place { name: name.into(), part, parts }));
        }
        for canonical in ["decoder.0.ssru.forget.bias", "encoder.0.self.post.rms.scale", "x"] {
            assert_eq!(place(canonical), None);
        }
    }
}
