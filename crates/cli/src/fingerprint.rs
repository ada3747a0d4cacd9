//! Everything that can change a byte of what `translate` writes.
//!
//! A job may only be resumed with the model and the options it was begun with. What these are follows from the
//! options of the command itself: every option counts by its value unless it is listed below, with the reason
//! why it does not. A new option counts as long as nobody lists it.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use clap::{ArgMatches, Command};
use peregrine::Translator;

use crate::io::Hash;
use crate::io::resume::Settings;

/// Why the value of an option does not count as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It cannot change the words.
    Harmless,
    /// What it names is part of the model's digest.
    InModel,
    /// What is computed with counts, not how it was asked for.
    Settled,
    /// It names a file whose content counts.
    Content,
}

/// The options whose value does not count, by their names in the program.
const FATES: [(&str, Fate); 32] = [
    // The input has a hash of its own in the checkpoint, and the output is what is written.
    ("text", Fate::Harmless),
    ("input", Fate::Harmless),
    ("output", Fate::Harmless),
    ("resume", Fate::Harmless),
    ("stats", Fate::Harmless),
    ("quiet", Fate::Harmless),
    // Translations do not depend on the batch, the order or the number of threads.
    ("memory", Fate::Harmless),
    ("batch_sentences", Fate::Harmless),
    ("batch_tokens", Fate::Harmless),
    ("batching", Fate::Harmless),
    ("top_up_threshold", Fate::Harmless),
    ("threads", Fate::Harmless),
    ("threads_per_sentence", Fate::Harmless),
    // Short cuts that leave every bit as it is.
    ("encode_beside", Fate::Harmless),
    ("row_blocks", Fate::Harmless),
    ("screening", Fate::Harmless),
    ("precompute_embeddings", Fate::Harmless),
    ("precompute_attention", Fate::Harmless),
    ("merge_states", Fate::Harmless),
    ("reuse_memory", Fate::Harmless),
    ("model", Fate::InModel),
    ("vocab", Fate::InModel),
    ("config", Fate::InModel),
    ("weights", Fate::InModel),
    ("shortlist", Fate::InModel),
    ("compat", Fate::InModel),
    ("device", Fate::Settled),
    ("precision", Fate::Settled),
    ("isa", Fate::Settled),
    ("tune", Fate::Settled),
    ("prefix", Fate::Content),
    ("replace_unknown", Fate::Content),
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
    let exact = matches.get_one::<String>("sums").is_some_and(|sums| sums == "exact");
    if !(translator.precision().starts_with("int")
        && exact
        && translator.device().starts_with("CPU"))
    {
        settings.insert("--device".into(), translator.device().into());
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
mod tests {
    use super::*;

    fn command() -> Command {
        <crate::translate::Args as clap::Args>::augment_args(Command::new("translate"))
    }

    fn options() -> Vec<String> {
        command().get_arguments().map(|argument| argument.get_id().to_string()).collect()
    }

    /// An option that was renamed or taken away must leave the list.
    #[test]
    fn the_list_names_options_of_translate() {
        let options = options();
        for (name, _) in FATES {
            assert!(options.iter().any(|option| option == name), "{name}: not an option");
        }
    }

    /// For every option that counts by its value, arguments that change it.
    const CHANGES: [(&str, &[&str]); 22] = [
        ("allow_unk", &["--allow-unk"]),
        ("alignment", &["--alignment"]),
        ("beam", &["--beam", "3"]),
        ("cache", &["--cache", "float16"]),
        ("early_stop", &["--early-stop"]),
        ("functions", &["--functions", "library"]),
        ("guards", &["--guards", "off"]),
        ("hidden", &["--hidden", "float32"]),
        ("input_steps", &["--input-steps", "file"]),
        ("json", &["--json"]),
        ("max_length_factor", &["--max-length-factor", "2"]),
        ("n_best", &["--n-best"]),
        ("normalize", &["-n", "0.6"]),
        ("output_layer", &["--output-layer", "fused"]),
        ("shortlist_scope", &["--shortlist-scope", "batch"]),
        ("split", &["--split", "sentence"]),
        ("sums", &["--sums", "saturating"]),
        ("tokens", &["--tokens"]),
        ("without", &["--without", "sixteen-rows"]),
        ("word_penalty", &["--word-penalty", "0.5"]),
        ("word_scores", &["--word-scores"]),
        ("replace_unknown", &["--replace-unknown"]),
    ];

    fn of(translator: &Translator, more: &[&str]) -> Settings {
        let arguments = ["translate"].iter().chain(more).map(OsString::from);
        let arguments = crate::args::values::tie(arguments);
        let matches = command().try_get_matches_from(arguments).expect("options");
        fingerprint(&command(), &matches, translator, 1).expect("settings")
    }

    /// A new option is in the fingerprint, is tested to be, or is said to be harmless.
    #[test]
    fn every_option_counts_or_is_said_not_to() {
        let translator = Translator::builtin().expect("the built-in model");
        let usual = of(&translator, &[]);
        for option in options() {
            let option = option.as_str();
            let change = CHANGES.iter().find(|(name, _)| *name == option);
            match (fate(option), change) {
                (_, Some((_, arguments))) => {
                    assert_ne!(of(&translator, arguments), usual, "{option} does not count");
                }
                (Some(_), None) => {}
                (None, None) => panic!("{option}: list it among FATES, or a change of it here"),
            }
        }
        let harmless = ["--threads", "2", "--batch-sentences", "3", "--memory", "90MB", "-q"];
        assert_eq!(of(&translator, &harmless), usual);
        assert_ne!(
            fingerprint_of_file(&translator, "a\n"),
            fingerprint_of_file(&translator, "b\n")
        );
    }

    /// The settings of a job with a file of prefixes.
    fn fingerprint_of_file(translator: &Translator, text: &str) -> Settings {
        let file = std::env::temp_dir().join(format!("peregrine-prefixes-{}", std::process::id()));
        std::fs::write(&file, text).expect("a file");
        let settings = of(translator, &["--prefix", &file.display().to_string()]);
        let _ = std::fs::remove_file(&file);
        settings
    }
}
