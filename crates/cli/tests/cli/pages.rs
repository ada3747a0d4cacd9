//! What the pages name is there: links, their headings, and files of the repository.

use std::path::{Path, PathBuf};

/// Folders of the repository, as paths between backticks begin.
const FOLDERS: [&str; 7] = ["crates/", "docs/", "bench/", "fuzz/", "tests/", "python/", ".ci/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages that people read, but for the history of measurements.
fn pages() -> Vec<PathBuf> {
    let pages_in = |folder: PathBuf| {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"))
    };
    let folders = ["", "docs", "bench", "fuzz"].map(|folder| root().join(folder));
    folders.into_iter().flat_map(pages_in).collect()
}

/// The targets of links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://"))
}

/// The files and folders between backticks, without patterns and placeholders.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let first_words = quoted.filter_map(|quoted| quoted.split([' ', ':']).next());
    let is_placeholder =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    first_words.filter(move |path| {
        FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !path.contains(['*', '{', '<', '$'])
            && !path.split('/').any(|name| !name.is_empty() && is_placeholder(name))
    })
}

/// The headings of a page, as links name them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let letters = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(|&c| letters(c)).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn what_pages_name_is_there() {
    let mut missing = Vec::new();
    let mut looked_at = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut miss = |name: &str| missing.push(format!("{}: {name}", page.display()));
        for link in links(&text) {
            looked_at += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let has_anchor = || {
                let text = std::fs::read_to_string(&target).unwrap();
                anchors(&text).iter().any(|other| other == anchor)
            };
            if !target.exists() || !anchor.is_empty() && !has_anchor() {
                miss(link);
            }
        }
        for path in paths(&text) {
            looked_at += 1;
            let beside = page.parent().unwrap().join(path);
            if !root().join(path).exists() && !beside.exists() {
                miss(path);
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(looked_at > 400, "only {looked_at} names");
}
