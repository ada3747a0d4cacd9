//! Canonical names of a transformer's weights.
//!
//! Matrices have the shape (outputs, inputs): a row is an output, so `y = x · Wᵀ + b`, per-row
//! scales are per-channel scales, and embedding tables and output layers have one form. Vectors
//! have one dimension. Layers count from 0.
//!
//! | name | shape |
//! |---|---|
//! | `source.embedding`, `target.embedding`, `output.weight` | (V, D) |
//! | `output.bias` (may be missing) | (V) |
//! | `encoder.positions`, `decoder.positions` (stored positions only) | (P, D) |
//! | `encoder.L.self.{query,key,value,output}.{weight,bias}` | (D, D), (D) |
//! | `decoder.L.self.…`, `decoder.L.cross.…` | the same |
//! | `encoder.L.ffn.J.{weight,bias}`, `decoder.L.ffn.J.…` | dense layer J |
//! | `decoder.L.average.J.{weight,bias}` | dense layer J of average attention |
//! | `decoder.L.average.{input_gate,average_gate}.{weight,bias}` | (D, D), (D) |
//! | `decoder.L.ssru.{candidate.weight, forget.weight, forget.bias}` | (D, D), (D) |
//! | `decoder.L.ssru.{candidate,forget}.norm.scale` | (D) |
//! | `decoder.L.ssru.projection.{weight,bias}` | (D, D), (D) |
//! | PLACE`.norm.{scale,bias}`, PLACE`.rms.scale`, PLACE`.highway.{weight,bias}` | processing ops |
//!
//! A processing PLACE is `encoder.embedding`, `encoder.top` (likewise `decoder.`), or a block's
//! name (`encoder.L.self`, `decoder.L.cross`, `….ffn`, `….average`, `….ssru`) followed by `.pre`
//! or `.post`. Attention without a projection has no `output`. Tied layers are stored once.
//!
//! A matrix called NAME`.weight` may have a companion NAME`.alpha`, a single number: the fixed
//! multiplier with which its input was quantised when the model was tuned (Bergamot's
//! `QuantMultA`). The output layer's is `output.alpha`.

use crate::architecture::{Autoregression, Op, Stack, Transformer};

/// Name of a source embedding table.
pub const SOURCE_EMBEDDING: &str = "source.embedding";
/// Name of a target embedding table.
pub const TARGET_EMBEDDING: &str = "target.embedding";
/// Name of the output matrix.
pub const OUTPUT_WEIGHT: &str = "output.weight";
/// Name of the output bias.
pub const OUTPUT_BIAS: &str = "output.bias";

/// A weight that a description needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Canonical name.
    pub name: String,
    /// Canonical shape.
    pub shape: Vec<usize>,
    /// Whether the network can do without it.
    pub optional: bool,
}

/// Every weight a network needs.
pub fn weights(architecture: &crate::Architecture) -> Vec<Expected> {
    match architecture {
        crate::Architecture::Transformer(t) => transformer_weights(t),
        crate::Architecture::Recurrent(r) => crate::recurrent_weights(r),
        crate::Architecture::RnnFc(r) => crate::rnnfc_weights(r),
    }
}

/// Every weight a transformer needs, in the order of computation.
pub fn transformer_weights(t: &Transformer) -> Vec<Expected> {
    let mut list = List::default();
    let d = t.width;
    list.matrix(SOURCE_EMBEDDING.into(), t.source_vocabulary, d);
    list.stack("encoder", t, &t.encoder);
    for layer in 0..t.encoder.layers {
        list.attention(&format!("encoder.{layer}.self"), &t.encoder, d);
        list.dense_block(&format!("encoder.{layer}.ffn"), &t.encoder, d);
    }
    list.matrix(TARGET_EMBEDDING.into(), t.target_vocabulary, d);
    list.stack("decoder", t, &t.decoder);
    let sets = t.decoder_parameters.iter().max().map_or(0, |&last| last + 1);
    for layer in (0..sets).filter(|l| t.decoder_parameters.contains(l)) {
        list.autoregression(layer, t);
        list.attention(&format!("decoder.{layer}.cross"), &t.decoder, d);
        list.dense_block(&format!("decoder.{layer}.ffn"), &t.decoder, d);
    }
    list.matrix(OUTPUT_WEIGHT.into(), t.target_vocabulary, d);
    list.optional(OUTPUT_BIAS.into(), vec![t.target_vocabulary]);
    list.0
}

#[derive(Default)]
struct List(Vec<Expected>);

impl List {
    fn push(&mut self, name: String, shape: Vec<usize>) {
        self.0.push(Expected { name, shape, optional: false });
    }

    fn optional(&mut self, name: String, shape: Vec<usize>) {
        self.0.push(Expected { name, shape, optional: true });
    }

    fn matrix(&mut self, name: String, outputs: usize, inputs: usize) {
        self.push(name, vec![outputs, inputs]);
    }

    /// A matrix and its bias.
    fn linear(&mut self, name: &str, outputs: usize, inputs: usize) {
        self.matrix(format!("{name}.weight"), outputs, inputs);
        self.push(format!("{name}.bias"), vec![outputs]);
    }

    fn ops(&mut self, place: &str, ops: &[Op], d: usize) {
        for op in ops {
            match op {
                Op::Add => {}
                Op::Norm => {
                    self.push(format!("{place}.norm.scale"), vec![d]);
                    self.push(format!("{place}.norm.bias"), vec![d]);
                }
                Op::RmsNorm => self.push(format!("{place}.rms.scale"), vec![d]),
                Op::Highway => self.linear(&format!("{place}.highway"), d, d),
            }
        }
    }

    fn around(&mut self, block: &str, stack: &Stack, d: usize) {
        self.ops(&format!("{block}.pre"), &stack.before_block, d);
        self.ops(&format!("{block}.post"), &stack.after_block, d);
    }

    fn stack(&mut self, side: &str, t: &Transformer, stack: &Stack) {
        if let (crate::Positions::Table, Some(rows)) = (stack.positions, t.position_limit) {
            self.matrix(format!("{side}.positions"), rows, t.width);
        }
        self.ops(&format!("{side}.embedding"), &stack.after_embedding, t.width);
        self.ops(&format!("{side}.top"), &stack.after_stack, t.width);
    }

    fn attention(&mut self, block: &str, stack: &Stack, d: usize) {
        for part in ["query", "key", "value"] {
            self.linear(&format!("{block}.{part}"), d, d);
        }
        if stack.attention_projection {
            self.linear(&format!("{block}.output"), d, d);
        }
        self.around(block, stack, d);
    }

    fn dense(&mut self, block: &str, shapes: &[(usize, usize)]) {
        for (j, &(inputs, outputs)) in shapes.iter().enumerate() {
            self.linear(&format!("{block}.{j}"), outputs, inputs);
        }
    }

    fn dense_block(&mut self, block: &str, stack: &Stack, d: usize) {
        self.dense(block, &stack.feed_forward.dense_shapes(d));
        self.around(block, stack, d);
    }

    fn autoregression(&mut self, layer: usize, t: &Transformer) {
        let d = t.width;
        match &t.autoregression {
            Autoregression::SelfAttention => {
                self.attention(&format!("decoder.{layer}.self"), &t.decoder, d);
            }
            Autoregression::Average { feed_forward, gate } => {
                let block = format!("decoder.{layer}.average");
                self.dense(&block, &feed_forward.average_shapes(d));
                if *gate {
                    self.linear(&format!("{block}.input_gate"), d, d);
                    self.linear(&format!("{block}.average_gate"), d, d);
                }
                self.around(&block, &t.decoder, d);
            }
            Autoregression::Ssru { layer_norm, projection } => {
                let block = format!("decoder.{layer}.ssru");
                self.matrix(format!("{block}.candidate.weight"), d, d);
                self.linear(&format!("{block}.forget"), d, d);
                if *layer_norm {
                    self.push(format!("{block}.candidate.norm.scale"), vec![d]);
                    self.push(format!("{block}.forget.norm.scale"), vec![d]);
                }
                if *projection {
                    self.linear(&format!("{block}.projection"), d, d);
                }
                self.around(&block, &t.decoder, d);
            }
        }
    }
}
