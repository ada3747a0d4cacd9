//! Finds models in a folder, and their languages by metadata or names.

use std::fs;
use std::path::{Path, PathBuf};

use peregrine_text::{Language, pair_from_name};

use super::{ModelEntry, Pair};

/// The languages of a model, by its metadata (Argos' `metadata.json`, the tokenizer of Hugging
/// Face) or else by its name: `enpt`, `opus-mt-en-de`, `translate-zh_en-1_9`. `None` if neither
/// tells.
pub fn languages_of(path: &Path) -> Option<Pair> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    let read = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()
    };
    let pair = |value: serde_json::Value, from: &str, to: &str| {
        let code = |key: &str| Some(Language::find(value.get(key)?.as_str()?)?.code);
        Some(Pair::new(code(from)?, code(to)?))
    };
    let stated = read("metadata.json").and_then(|value| pair(value, "from_code", "to_code"));
    let stated = stated.or_else(|| {
        read("tokenizer_config.json").and_then(|value| pair(value, "source_lang", "target_lang"))
    });
    let named = |path: &Path| {
        let (from, to) = pair_from_name(path.file_name()?.to_str()?)?;
        Some(Pair::new(from, to))
    };
    // A file may be called `model.npz`; then the folder's name counts.
    stated.or_else(|| named(path)).or_else(|| named(folder))
}

impl ModelEntry {
    /// The entry of a model by what its files tell; `None` if its languages are not known.
    pub fn of(name: String, path: &Path) -> Option<ModelEntry> {
        let mut languages = Vec::new();
        for code in peregrine_model::peek_languages(path).unwrap_or_default() {
            // Of two that have one name in other tools, the second keeps the model's own.
            let usual = Language::find(&code).map(|language| language.code.to_owned());
            let usual = usual.filter(|usual| !languages.contains(usual));
            languages.push(usual.unwrap_or(code));
        }
        let pairs = match languages.is_empty() {
            true => vec![languages_of(path)?],
            false => Vec::new(),
        };
        Some(ModelEntry { name, path: Some(path.to_owned()), pairs, languages })
    }
}

/// The models in a folder, which are files or directories. Entries that are not models, or whose
/// languages are unknown, are listed with the reason.
pub fn find_models(folder: &Path) -> std::io::Result<(Vec<ModelEntry>, Vec<String>)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let (mut models, mut left_out) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || !is_model(&path) {
            continue;
        }
        match ModelEntry::of(name, &path) {
            Some(entry) => models.push(entry),
            None => left_out.push(format!(
                "{}: its languages are not known: name them by --model PAIR=PATH",
                path.display()
            )),
        }
    }
    Ok((models, left_out))
}

/// Whether a path looks like a model: a file of a known ending, or a directory with one in it.
fn is_model(path: &Path) -> bool {
    let ending = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_table = name.starts_with("lex.") || name.contains("shortlist");
        !is_table
            && [".bin", ".npz", ".peregrine", ".safetensors"].iter().any(|e| name.ends_with(e))
    };
    match path.is_dir() {
        false => ending(path),
        // Argos packages have the network in a subfolder.
        true => [path.to_owned(), path.join("model")].iter().any(|folder| {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            files.map(|entry| entry.path()).any(|path| path.is_file() && ending(&path))
        }),
    }
}
