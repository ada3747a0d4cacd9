//! `peregrine help`

use anyhow::bail;
use peregrine_args::{console, settings};

/// Columns of the table of settings.
const WIDTH: usize = 100;

/// Print the help of a command, or the laboratory settings (`help settings`)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A command such as `translate` or `bench service`, or `settings`
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    if args.topic == ["settings"] {
        console::print(format_args!("{SETTINGS}\n{}", settings::table(WIDTH)));
        return Ok(());
    }
    command.build();
    for part in &args.topic {
        let Some(found) = command.find_subcommand(part) else {
            bail!("{part}: no such command; `peregrine help` lists them");
        };
        command = found.clone();
    }
    console::print(format_args!("{}", command.render_long_help()));
    Ok(())
}

const SETTINGS: &str = "\
Laboratory settings, for measuring and comparing: `--set NAME=VALUE`, as often as needed, with every
command that opens a model. The defaults are the fastest known.
";
