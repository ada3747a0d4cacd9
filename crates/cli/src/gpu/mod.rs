//! What only a GPU has: options, commands, and what `doctor` says of it. In builds without the feature `cuda`,
//! `no_gpu.rs` stands in for it.

mod amun;
pub(crate) mod bench;
mod company;
pub(crate) mod doctor;
pub(crate) mod selftest;

use peregrine::measure::OutputLayer;
use peregrine::{Compute, Device};

/// Options of a GPU.
#[derive(clap::Args)]
pub(crate) struct GpuArgs {
    /// How a GPU finds the best words: in the `epilogue` of the output product, or from logits in memory,
    /// by one `fused` kernel, by `separate` ones, or the `best` word alone, without softmax (docs/gpu.md)
    #[arg(long, value_parser = |name: &str| name.parse::<OutputLayer>(), value_name = "epilogue|fused|separate|best", default_value = "epilogue")]
    output_layer: OutputLayer,

    /// Have a GPU encode the sentences that will join a running batch beside the steps of that batch
    #[arg(long, value_parser = ["on", "off"], default_value = "on")]
    encode_beside: String,
}

impl GpuArgs {
    /// The same with these options.
    pub(crate) fn apply(&self, compute: Compute) -> Compute {
        let encode_in_turn = self.encode_beside == "off";
        Compute { output_layer: self.output_layer, encode_in_turn, ..compute }
    }
}

/// Reads the name of a device.
pub(crate) fn parse_device(name: &str) -> Result<Device, String> {
    name.parse()
}
