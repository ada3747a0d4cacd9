//! docs/cli.md shows what `--help` prints. `UPDATE_DOCS=1 cargo test -p peregrine-cli --test docs`
//! writes it anew.

mod common;

use std::path::Path;

use common::{run, stdout};

const COMMANDS: [&str; 14] = [
    "",
    "translate",
    "score",
    "inspect",
    "convert",
    "bench",
    "bench batching",
    "bench gpu",
    "shortlist build",
    "shortlist inspect",
    "shortlist check",
    "tune",
    "doctor",
    "selftest",
];

/// The help of a command as it stands in the page, between its marker and the end of the block.
fn block(command: &str) -> String {
    let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
    let help = stdout(run(&arguments));
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    format!("{}\n```text\n{}\n```\n", marker(command), help.join("\n").trim_end())
}

fn marker(command: &str) -> String {
    let name = if command.is_empty() { "peregrine" } else { command };
    format!("<!-- help of {name} -->")
}

#[test]
fn the_page_shows_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    for command in COMMANDS {
        let (marker, block) = (marker(command), block(command));
        let start = page.find(&marker).unwrap_or_else(|| panic!("docs/cli.md lacks {marker}"));
        let opening = page[start..].find("```text\n").unwrap() + start + "```text\n".len();
        let end = page[opening..].find("```\n").unwrap() + opening + "```\n".len();
        if update {
            page.replace_range(start..end, &block);
        } else {
            let again = "UPDATE_DOCS=1 cargo test -p peregrine-cli --test docs";
            assert!(page[start..end] == block, "docs/cli.md, {marker}: run `{again}`");
        }
    }
    if update {
        std::fs::write(&path, page).unwrap();
    }
}
