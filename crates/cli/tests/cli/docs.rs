//! docs/cli.md shows what `--help` prints, and the table of settings. `UPDATE_DOCS=1 cargo test -p peregrine-cli --test cli docs::`
//! writes it anew.

use std::path::Path;

use crate::common::{run, stdout};
use peregrine::settings::SETTINGS;

/// The commands whose help lists commands.
const GROUPS: [&str; 2] = ["bench", "shortlist"];

/// All commands, the program itself first, as its help lists them.
fn commands() -> Vec<String> {
    let mut commands = vec![String::new()];
    for command in listed("") {
        commands.push(command.clone());
        if GROUPS.contains(&command.as_str()) {
            commands.extend(listed(&command).into_iter().map(|inner| format!("{command} {inner}")));
        }
    }
    commands
}

/// The commands in the help of a command.
fn listed(command: &str) -> Vec<String> {
    let help = help(command, "-h");
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Descriptions go on behind a wider margin.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn help(command: &str, how: &str) -> String {
    stdout(run(&command.split_whitespace().chain([how]).collect::<Vec<_>>()))
}

/// The page as it should be.
fn page() -> String {
    let mut page = String::from(
        "# The command line\n\n\
         What each command's `--help` prints, and all laboratory settings. A test holds this page to the program.\n",
    );
    for command in commands() {
        let name = if command.is_empty() { "peregrine" } else { &command };
        let help = help(&command, "--help");
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        page += &format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    }
    page += "\n## Settings\n\n\
             `--set NAME=VALUE` changes a laboratory setting. `peregrine help settings` prints this table.\n\n\
             | setting | values | default | what it does |\n|---|---|---|---|\n";
    for setting in SETTINGS {
        let values = setting.values.replace('|', "\\|");
        page += &format!(
            "| `{}` | `{values}` | {} | {} |\n",
            setting.name, setting.default, setting.about
        );
    }
    page
}

#[test]
fn the_page_shows_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = page();
    if std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &page).unwrap();
    }
    let again = "UPDATE_DOCS=1 cargo test -p peregrine-cli --test cli docs::";
    assert!(std::fs::read_to_string(&path).unwrap() == page, "docs/cli.md: run `{again}`");
}

/// The short help is one page, under four headings.
#[test]
fn the_short_help_of_translate_is_short() {
    let help = help("translate", "-h");
    assert!(help.lines().count() <= 60, "{} lines", help.lines().count());
    let headings: Vec<&str> =
        help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    assert_eq!(
        headings,
        ["Arguments:", "Options:", "Model:", "Input and output:", "Search:", "Speed:"]
    );
}

/// Every setting is in the help of settings and in the completions, and is no option of its own any more.
#[test]
fn help_and_completions_have_every_setting() {
    let (listed, completed) =
        (stdout(run(&["help", "settings"])), stdout(run(&["completions", "bash"])));
    let options = help("translate", "--help");
    for setting in SETTINGS {
        assert!(
            listed.contains(&format!("  {}={}", setting.name, setting.values)),
            "{}",
            setting.name
        );
        assert!(completed.contains(&format!("{}=", setting.name)), "{}", setting.name);
        assert!(!options.contains(&format!("--{} ", setting.name)), "{}", setting.name);
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(run(&["completions", shell])).contains("translate"), "{shell}");
    }
    assert!(stdout(run(&["man"])).contains(".TH peregrine"));
    assert!(stdout(run(&["man", "bench", "service"])).contains("peregrine-bench-service"));
    assert_eq!(run(&["man", "nothing"]).status.code(), Some(2));
    assert_eq!(run(&["help", "nothing"]).status.code(), Some(2));
    assert_eq!(stdout(run(&["help", "bench", "gpu"])), help("bench gpu", "--help"));
}
