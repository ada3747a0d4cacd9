//! Everything that can change a byte of what `translate` writes.
//!
//! A job may only be resumed with the model and the options it was begun with. What these are follows from the
//! options of the command itself: every option counts by its value unless it is listed below, with the reason
//! why it does not. A new option counts as long as nobody lists it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use clap::{ArgMatches, Command};
use peregrine::Translator;
use peregrine::settings::SETTINGS;

use crate::io::resume::Settings;
use peregrine_args::hash::Hash;

/// Why the value of an option does not count as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It cannot change the words.
    Harmless,
    /// What it names is part of the model's digest.
    InModel,
    /// What is computed with counts, not how it was asked for.
    Settled,
    /// Each setting counts by itself, if it can change results.
    BySetting,
    /// It names a file whose content counts.
    Content,
}

/// The options whose value does not count, by their names in the program.
const FATES: [(&str, Fate); 33] = [
    // The input has a hash of its own in the checkpoint, and the output is what is written.
    ("text", Fate::Harmless),
    ("input", Fate::Harmless),
    ("output", Fate::Harmless),
    ("resume", Fate::Harmless),
    ("stats", Fate::Harmless),
    ("quiet", Fate::Harmless),
    // A document is no job that can be resumed.
    ("format", Fate::Harmless),
    ("attributes", Fate::Harmless),
    ("in_place", Fate::Harmless),
    ("retranslate", Fate::Harmless),
    ("keys", Fate::Harmless),
    // Translations do not depend on the batch, the order or the number of threads.
    ("memory", Fate::Harmless),
    ("batch_sentences", Fate::Harmless),
    ("batch_tokens", Fate::Harmless),
    ("threads", Fate::Harmless),
    ("threads_per_sentence", Fate::Harmless),
    ("model", Fate::InModel),
    ("then", Fate::InModel),
    ("models", Fate::InModel),
    ("from", Fate::InModel),
    ("to", Fate::InModel),
    ("vocab", Fate::InModel),
    ("config", Fate::InModel),
    ("weights", Fate::InModel),
    ("shortlist", Fate::InModel),
    ("compat", Fate::InModel),
    ("device", Fate::Settled),
    ("precision", Fate::Settled),
    ("set", Fate::BySetting),
    ("prefix", Fate::Content),
    ("replace_unknown", Fate::Content),
    ("glossary", Fate::Content),
    ("quality", Fate::Content),
];

/// How an option counts; by its value where nothing is said.
fn fate(option: &str) -> Option<Fate> {
    FATES.iter().find(|(name, _)| *name == option).map(|(_, fate)| *fate)
}

/// All settings of a job: `command` has the options, `matches` their values, and `model` is the model's
/// digest.
pub(crate) fn fingerprint(
    command: &Command,
    matches: &ArgMatches,
    translator: &Translator,
    model: u64,
) -> anyhow::Result<Settings> {
    let mut settings = Settings::new();
    settings.insert("a model with the digest".into(), format!("{model:016x}"));
    settings.insert("--precision".into(), translator.precision().into());
    // In integers all instruction sets give the same bits.
    let set = assigned(matches);
    let exact = set.get("sums").is_none_or(|sums| *sums == "exact");
    if !(translator.precision().starts_with("int")
        && exact
        && translator.device().starts_with("CPU"))
    {
        settings.insert("--device".into(), translator.device().into());
    }
    for setting in SETTINGS.iter().filter(|setting| setting.changes_results) {
        let value = set.get(setting.name).copied().unwrap_or(setting.default);
        settings.insert(format!("--set {}", setting.name), value.to_owned());
    }
    for option in command.get_arguments() {
        let option = option.get_id().as_str();
        let Some(values) = matches.get_raw(option) else { continue };
        let values: Vec<OsString> = values.map(OsString::from).collect();
        let value = match fate(option) {
            Some(Fate::Content) => content(&values)?,
            Some(_) => continue,
            None => values.join(" ".as_ref()).to_string_lossy().into_owned(),
        };
        settings.insert(format!("--{}", option.replace('_', "-")), value);
    }
    Ok(settings)
}

/// Laboratory settings by name. The last value of each counts.
fn assigned(matches: &ArgMatches) -> BTreeMap<&str, &str> {
    let values = matches.get_many::<String>("set").into_iter().flatten();
    values.filter_map(|assignment| assignment.split_once('=')).collect()
}

/// A hash of the files named.
fn content(paths: &[OsString]) -> anyhow::Result<String> {
    let mut hash = Hash::default();
    for path in paths.iter().map(Path::new).filter(|path| !path.as_os_str().is_empty()) {
        hash.add(&std::fs::read(path).with_context(|| path.display().to_string())?);
    }
    Ok(format!("with the hash {:016x}", hash.value()))
}

// Whole builds have all options, and a model to ask with.
#[cfg(all(test, feature = "cuda", feature = "builtin"))]
mod tests;
