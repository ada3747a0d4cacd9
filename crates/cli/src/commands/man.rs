//! `peregrine man`

use anyhow::bail;
use clap_mangen::Man;

/// Print the manual page of this command, or of one of its commands
///
/// To read it: `peregrine man translate | man -l -`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which command, such as `translate` or `bench service`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    command.build();
    let mut name = "peregrine".to_owned();
    for part in &args.command {
        let Some(found) = command.find_subcommand(part) else {
            bail!("{part}: {name} has no such command");
        };
        name = format!("{name}-{part}");
        command = found.clone();
    }
    let mut page = Vec::new();
    Man::new(command.name(name)).render(&mut page)?;
    peregrine_args::console::print(format_args!("{}", String::from_utf8_lossy(&page)));
    Ok(())
}
