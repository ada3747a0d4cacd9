//! `peregrine completions`

use clap_complete::Shell;

/// Print a script that completes this command in a shell
///
/// For bash: `peregrine completions bash > ~/.local/share/bash-completion/completions/peregrine`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "peregrine", &mut script);
    peregrine_args::console::print(format_args!("{}", String::from_utf8_lossy(&script)));
    Ok(())
}
