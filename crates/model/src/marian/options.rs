//! Marian's model options (`special:model.yml`) as a description.
//!
//! Keys that a file lacks have Marian's defaults. A key that changes the network in an unsupported
//! way is refused by name, never ignored.

use crate::compat::{MARIAN_EPSILON, MARIAN_POSITIONS, normalises};
use crate::marian::version;
use crate::marian::yaml::Yaml;
use crate::{
    Activation, AlignmentHeads, Autoregression, FeedForward, ModelError, Op, Positions, SelfKeys,
    SourceFrame, Stack, Start, Transformer,
};

/// A description and the tied embeddings.
pub(crate) struct Described {
    pub transformer: Transformer,
    pub tied: Tied,
    pub notes: Vec<String>,
}

/// The tables that are tied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tied {
    /// Source and target embeddings are `Wemb`.
    pub source: bool,
    /// The output matrix is the target embedding.
    pub output: bool,
}

/// Reads a description. `sizes` are the rows of the embeddings, used where the options do not give
/// them.
pub(crate) fn describe(
    options: &Yaml,
    sizes: (usize, usize),
    source_end: u32,
) -> Result<Described, ModelError> {
    check_type(options)?;
    refuse_unknown_parts(options)?;
    let width = options.count("dim-emb")?.unwrap_or(512);
    let (source_vocabulary, target_vocabulary) = vocabulary_sizes(options, sizes)?;
    let mut notes = Vec::new();
    let (encoder, decoder) = stacks(options, width, &mut notes)?;
    let transformer = Transformer {
        width,
        source_vocabulary,
        target_vocabulary,
        source_frame: SourceFrame { begin: None, end: Some(source_end), after_end: None },
        autoregression: autoregression(options)?,
        decoder_parameters: tied_layers(options, decoder.layers)?,
        start: Start::Zero,
        alignment: AlignmentHeads { layer: alignment_layer(options, decoder.layers)?, heads: 1 },
        position_limit: None,
        encoder,
        decoder,
    };
    Ok(Described { transformer, tied: tied(options)?, notes })
}

/// The tables that the options tie.
pub(crate) fn tied(options: &Yaml) -> Result<Tied, ModelError> {
    let all = options.flag("tied-embeddings-all")?;
    Ok(Tied {
        source: all || options.flag("tied-embeddings-src")?,
        output: all || options.flag("tied-embeddings")?,
    })
}

/// Refuses types other than the transformer.
fn check_type(options: &Yaml) -> Result<(), ModelError> {
    // Files without the key were written by programs that knew only this type.
    let kind = options.text("type")?.unwrap_or_else(|| "amun".into());
    let why = match kind.as_str() {
        "transformer" => return Ok(()),
        "multi-s2s" | "shared-multi-s2s" | "char-s2s" | "lm" | "transformer_s2s" => {
            "models with several encoders or none are not supported"
        }
        _ => "is not supported; \"transformer\" is",
    };
    let separator = if why.starts_with("is") { "" } else { ":" };
    Err(ModelError::unsupported(options.path(), format!("model type {kind:?}{separator} {why}")))
}

pub(crate) fn refuse_unknown_parts(options: &Yaml) -> Result<(), ModelError> {
    for key in ["transformer-pool", "ulr", "right-left", "transformer-train-positions"] {
        if options.flag(key)? {
            return Err(options.unsupported(key));
        }
    }
    for key in ["lemma-dim-emb", "factors-dim-emb"] {
        if options.count(key)?.unwrap_or(0) > 0 {
            return Err(options.unsupported(key));
        }
    }
    for (key, usual) in [
        ("lemma-dependency", ""),
        ("factors-combine", "sum"),
        ("transformer-attention-mask", "default"),
    ] {
        if options.text(key)?.is_some_and(|value| value != usual) {
            return Err(options.unsupported(key));
        }
    }
    if options.list("input-types")?.iter().any(|kind| kind != "sequence") {
        return Err(options.unsupported("input-types"));
    }
    Ok(())
}

fn vocabulary_sizes(options: &Yaml, rows: (usize, usize)) -> Result<(usize, usize), ModelError> {
    let sizes: Vec<usize> = options.numbers("dim-vocabs")?;
    let or_rows = |size, rows| if size == 0 { rows } else { size };
    match sizes[..] {
        [] => Ok(rows),
        [source, target] => Ok((or_rows(source, rows.0), or_rows(target, rows.1))),
        _ => Err(options.complain("dim-vocabs", "expected one source and one target size")),
    }
}

fn stacks(
    options: &Yaml,
    width: usize,
    notes: &mut Vec<String>,
) -> Result<(Stack, Stack), ModelError> {
    let without_positions = options.flag("transformer-disable-position-embeddings")?;
    let before_block = ops(options, "transformer-preprocess", "", "dnr")?;
    let keys = if normalises(&before_block) {
        version::self_keys(options, notes)?
    } else {
        SelfKeys::Processed
    };
    let encoder = Stack {
        layers: options.count("enc-depth")?.unwrap_or(1),
        heads: options.count("transformer-heads")?.unwrap_or(8),
        feed_forward: FeedForward {
            width: options.count("transformer-dim-ffn")?.unwrap_or(2048),
            depth: options.count("transformer-ffn-depth")?.unwrap_or(2),
            activation: activation(options, "transformer-ffn-activation")?,
        },
        embedding_scale: if without_positions { 1.0 } else { (width as f32).sqrt() },
        positions: if without_positions { Positions::None } else { MARIAN_POSITIONS },
        after_embedding: ops(options, "transformer-postprocess-emb", "d", "dnr")?,
        before_block,
        after_block: ops(options, "transformer-postprocess", "dan", "dahnr")?,
        after_stack: ops(options, "transformer-postprocess-top", "", "dahnr")?,
        norm_epsilon: MARIAN_EPSILON,
        attention_projection: !options.flag("transformer-no-projection")?,
        self_keys: keys,
    };
    let own = |key, same| {
        let count = options.count(key)?.filter(|&count| count > 0);
        Ok::<_, ModelError>(count.unwrap_or(same))
    };
    let decoder = Stack {
        layers: options.count("dec-depth")?.unwrap_or(1),
        feed_forward: FeedForward {
            width: own("transformer-decoder-dim-ffn", encoder.feed_forward.width)?,
            depth: own("transformer-decoder-ffn-depth", encoder.feed_forward.depth)?,
            activation: encoder.feed_forward.activation,
        },
        ..encoder.clone()
    };
    Ok((encoder, decoder))
}

/// The ops of a processing string; `d`, dropout, has no effect in translation.
fn ops(options: &Yaml, key: &str, default: &str, legal: &str) -> Result<Vec<Op>, ModelError> {
    let letters = options.text(key)?.unwrap_or_else(|| default.into());
    let mut ops = Vec::new();
    for letter in letters.chars() {
        if !legal.contains(letter) {
            return Err(options.complain(key, &format!("letter {letter:?} is not one of {legal}")));
        }
        ops.extend(match letter {
            'a' => Some(Op::Add),
            'h' => Some(Op::Highway),
            'n' => Some(Op::Norm),
            'r' => Some(Op::RmsNorm),
            _ => None,
        });
    }
    Ok(ops)
}

fn activation(options: &Yaml, key: &str) -> Result<Activation, ModelError> {
    match options.text(key)?.as_deref().unwrap_or("swish") {
        "swish" => Ok(Activation::Swish),
        "relu" => Ok(Activation::Relu),
        "gelu" => Ok(Activation::Gelu),
        "sigmoid" => Ok(Activation::Sigmoid),
        _ => Err(options.unsupported(key)),
    }
}

fn autoregression(options: &Yaml) -> Result<Autoregression, ModelError> {
    let key = "transformer-decoder-autoreg";
    match options.text(key)?.as_deref().unwrap_or("self-attention") {
        "self-attention" => Ok(Autoregression::SelfAttention),
        "average-attention" => Ok(Autoregression::Average {
            feed_forward: FeedForward {
                width: options.count("transformer-dim-aan")?.unwrap_or(2048),
                depth: options.count("transformer-aan-depth")?.unwrap_or(2),
                activation: activation(options, "transformer-aan-activation")?,
            },
            gate: !options.flag("transformer-aan-nogate")?,
        }),
        "rnn" if options.text("dec-cell")?.as_deref() == Some("ssru") => Ok(Autoregression::Ssru {
            layer_norm: options.flag("layer-normalization")?,
            projection: options.flag("transformer-rnn-projection")?,
        }),
        "rnn" => {
            let cell = options.text("dec-cell")?.unwrap_or_else(|| "gru".into());
            let what = format!("dec-cell: {cell:?} in a transformer is not supported; \"ssru\" is");
            Err(ModelError::unsupported(options.path(), what))
        }
        _ => Err(options.unsupported(key)),
    }
}

fn tied_layers(options: &Yaml, layers: usize) -> Result<Vec<usize>, ModelError> {
    let key = "transformer-tied-layers";
    let sets: Vec<usize> = options.numbers(key)?;
    if sets.is_empty() {
        // An invalid length is reported when the whole description is checked.
        return Ok((0..layers.min(1 << 16)).collect());
    }
    if sets.len() != layers || sets.contains(&0) {
        return Err(options.complain(key, &format!("expected {layers} layer numbers from 1 on")));
    }
    Ok(sets.iter().map(|set| set - 1).collect())
}

fn alignment_layer(options: &Yaml, layers: usize) -> Result<usize, ModelError> {
    let key = "transformer-guided-alignment-layer";
    match options.text(key)?.as_deref() {
        None | Some("last") => Ok(layers.saturating_sub(1)),
        Some(number) => match number.parse::<usize>() {
            Ok(n) if n >= 1 && n <= layers => Ok(n - 1),
            _ => Err(options.complain(key, &format!("expected \"last\" or 1 to {layers}"))),
        },
    }
}
