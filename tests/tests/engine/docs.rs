//! The documents keep up with the program.

use std::path::{Path, PathBuf};

use peregrine::Compat;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// All pages: those at the root and those under `docs`.
fn pages() -> Vec<String> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".into(), "CHANGELOG.md".into()];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        names.push(format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    }
    names
}

#[test]
fn every_compatibility_switch_is_explained() {
    let page = page("docs/exactness.md");
    for compat in Compat::ALL {
        let row = format!("| `{}` | {} |", compat.name(), compat.summary());
        assert!(page.contains(&row), "docs/exactness.md lacks the row {row}");
    }
}

#[test]
fn links_lead_somewhere() {
    for name in pages().iter().filter(|name| name.ends_with(".md")) {
        let folder = root().join(name).parent().unwrap().to_path_buf();
        let text = page(name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let is_ours = !link.starts_with("http") && !file.is_empty();
            assert!(!is_ours || folder.join(file).exists(), "{name}: {link}");
        }
    }
}

/// Paths of code and documents that a page names in backquotes exist.
#[test]
fn named_files_exist() {
    for name in pages().iter().filter(|name| name.ends_with(".md")) {
        for word in page(name).split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "tests/", "docs/", "fuzz/", "bench/", "python/"]
                .iter()
                .any(|start| word.starts_with(start));
            let is_plain = !word.contains(['*', ' ', '…']);
            if is_path && is_plain {
                assert!(root().join(word).exists(), "{name}: {word}");
            }
        }
    }
}

/// The first commands a stranger runs are the ones the page promises.
#[test]
fn the_readme_has_the_two_commands() {
    let page = page("README.md");
    for command in [
        r#"echo "Two dogs play in the snow." | cargo run --release -q -- translate"#,
        "cargo test --workspace",
    ] {
        assert!(page.lines().any(|line| line == command), "{command}");
    }
}
