//! `peregrine serve`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use peregrine_args::console::show;
use peregrine_server::{Config, OPTIONS, check, run as serve};

/// What was said on the command line: values by the name of their option.
pub(crate) struct Args {
    values: BTreeMap<String, Vec<String>>,
    config: Option<PathBuf>,
    check: bool,
}

const ABOUT: &str = "Translate over HTTP: a page, an API, and the APIs that clients already speak";

const LONG_ABOUT: &str = "Translate over HTTP: a page, an API, and the APIs that clients already speak\n\n\
    Without a model the built-in one is served. Every option may also stand in the file of --config, without the dashes \
    (`url-prefix = \"/mt\"`), or in a variable (PEREGRINE_URL_PREFIX). A flag counts more than a variable, and a variable more than \
    the file. docs/serve.md has the APIs, and how to run it.";

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let config =
            Arg::new("config").long("config").value_name("FILE").help("Configuration file (TOML)");
        let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
        let check = check.help("Check the configuration and the models, and end");
        let command = command.about(ABOUT).long_about(LONG_ABOUT).args([config, check]);
        OPTIONS.iter().fold(command, |command, option| {
            let help = match option.default {
                "none" => option.help.to_owned(),
                default => format!("{} [default: {default}]", option.help),
            };
            let action = if option.many { ArgAction::Append } else { ArgAction::Set };
            let arg = Arg::new(option.name)
                .long(option.name)
                .value_name(option.value)
                .help(help)
                .action(action);
            command.arg(if option.name == "model" { arg.short('m') } else { arg })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let given = |name: &str| {
            let values = matches.get_many::<String>(name)?;
            Some((name.to_owned(), values.cloned().collect()))
        };
        let values = OPTIONS.iter().filter_map(|option| given(option.name)).collect();
        let config = matches.get_one::<String>("config").map(PathBuf::from);
        Ok(Args { values, config, check: matches.get_flag("check") })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let file = args.config.clone().or_else(|| variable("PEREGRINE_CONFIG").map(PathBuf::from));
    let config = Config::read(file.as_deref(), variable, &args.values)?;
    if args.check {
        for line in check(config)? {
            show!("{line}");
        }
        return Ok(());
    }
    let prefix = config.url_prefix.clone();
    serve(config, |address| show!("http://{address}{prefix}/"))?;
    Ok(())
}
