//! Replaces `gpu` in builds without the feature `cuda`: commands that refuse to run.

use anyhow::bail;

/// Needs a GPU, and this build has no CUDA backend
#[derive(clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<String>,
}

/// Fails with the reason.
pub fn run(_: &Args) -> anyhow::Result<()> {
    bail!("this build has no CUDA backend")
}

pub(crate) mod bench {
    pub(crate) use super::{Args, run};
}

pub mod selftest {
    //! `peregrine selftest`
    pub use super::{Args, run};
}
