//! Short cuts of recurrent networks, each with a switch.

use peregrine::Speedups;
use peregrine::measure::Functions;

/// Short cuts of recurrent networks, see docs/recurrent.md. Transformers take no notice.
#[derive(clap::Args)]
#[command(next_help_heading = "Recurrent networks")]
pub(crate) struct SpeedupArgs {
    /// Compute the products of this many first words' embeddings ahead; 0 is off
    #[arg(long, value_name = "WORDS", default_value_t = 8000)]
    precompute_embeddings: usize,

    /// Compute what is done with attended source words once a sentence
    #[arg(long, value_name = "on|off", value_parser = parse_switch, default_value = "on", action = clap::ArgAction::Set)]
    precompute_attention: bool,

    /// Compute the products of a state once for all hypotheses that share it
    #[arg(long, value_name = "on|off", value_parser = parse_switch, default_value = "on", action = clap::ArgAction::Set)]
    merge_states: bool,

    /// Keep working memory from step to step
    #[arg(long, value_name = "on|off", value_parser = parse_switch, default_value = "on", action = clap::ArgAction::Set)]
    reuse_memory: bool,

    /// Sigmoid and tanh by polynomial, many at a time (`fast`), or one by one (`library`)
    #[arg(long, value_name = "fast|library", value_parser = parse_functions, default_value = "fast")]
    functions: Functions,
}

impl SpeedupArgs {
    pub(crate) fn speedups(&self) -> Speedups {
        Speedups {
            embeddings: self.precompute_embeddings,
            attention: self.precompute_attention,
            merge: self.merge_states,
            reuse: self.reuse_memory,
        }
    }

    pub(crate) fn functions(&self) -> Functions {
        self.functions
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "yes" => Ok(true),
        "off" | "false" | "no" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

fn parse_functions(text: &str) -> Result<Functions, String> {
    match text {
        "fast" => Ok(Functions::Fast),
        "library" => Ok(Functions::Library),
        _ => Err("expected fast or library".into()),
    }
}
