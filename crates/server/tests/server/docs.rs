//! docs/serve.md: its `curl` lines work, and its table of options is the program's. `UPDATE_DOCS=1 cargo test -p peregrine-server
//! --test server docs::` writes the table anew.

use std::path::Path;

use crate::common::{Running, start};
use peregrine_server::OPTIONS;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");

/// The words of a shell line, as far as these lines need it: quotes and blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, ' ') => words.push(String::new()),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Does what `curl` does for a line of the page.
fn curl(server: &Running, line: &str) -> crate::common::Answer {
    let mut words = words(line).into_iter().skip(1);
    let (mut path, mut data, mut headers) = (String::new(), Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "-s" | "-sN" => {}
            "-d" => data.push(words.next().unwrap()),
            "-H" => {
                let header = words.next().unwrap();
                let (name, value) = header.split_once(": ").unwrap();
                headers.push((name.to_owned(), value.to_owned()));
            }
            url => path = url.strip_prefix("http://127.0.0.1:8989").expect(line).to_owned(),
        }
    }
    if !data.is_empty() && !headers.iter().any(|(name, _)| name == "Content-Type") {
        headers.push(("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned()));
    }
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = if data.is_empty() { "GET" } else { "POST" };
    server.send(method, &path, &headers, data.join("&").as_bytes())
}

#[test]
fn the_lines_of_the_page_work() {
    let server = start(&[]);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(lines.len() > 12);
    for line in lines {
        let answer = curl(&server, line);
        assert_eq!(answer.status, 200, "{line}: {}", answer.text());
        assert!(!answer.body.is_empty(), "{line}");
    }
}

#[test]
fn the_table_of_options_is_the_programs() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once("<!-- options -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- /options -->").unwrap();
    let mut table =
        "| option | variable | default | what it does |\n|---|---|---|---|\n".to_owned();
    for option in OPTIONS {
        let value = option.value.replace('|', "\\|");
        table += &format!(
            "| `--{} {value}` | `{}` | {} | {} |\n",
            option.name,
            option.variable(),
            option.default,
            option.help.replace('|', "\\|")
        );
    }
    let wanted = format!("{before}<!-- options -->\n{table}<!-- /options -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(Path::new(PAGE), wanted).unwrap();
        return;
    }
    assert!(
        page == wanted,
        "docs/serve.md is stale: UPDATE_DOCS=1 cargo test -p peregrine-server --test server docs::"
    );
}
