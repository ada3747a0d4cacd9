//! Every option counts, or is said not to.

use super::*;

fn command() -> Command {
    <crate::commands::translate::Args as clap::Args>::augment_args(Command::new("translate"))
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
const CHANGES: [(&str, &[&str]); 18] = [
    ("allow_unk", &["--allow-unk"]),
    ("alignment", &["--alignment"]),
    ("beam", &["--beam", "3"]),
    ("carry", &["--carry", "off"]),
    ("early_stop", &["--early-stop"]),
    ("glossary_mode", &["--glossary", "/dev/null", "--glossary-mode", "mask"]),
    ("guards", &["--guards", "off"]),
    ("json", &["--json"]),
    ("max_length_factor", &["--max-length-factor", "2"]),
    ("max_length", &["--max-length", "50"]),
    ("n_best", &["--n-best"]),
    ("normalize", &["-n", "0.6"]),
    ("replace_unknown", &["--replace-unknown"]),
    ("set", &["--set", "sums=saturating"]),
    ("split", &["--split", "sentence"]),
    ("tokens", &["--tokens"]),
    ("word_penalty", &["--word-penalty", "0.5"]),
    ("word_scores", &["--word-scores"]),
];

/// A setting counts if the table says that it can change results, and only then.
#[test]
fn settings_count_if_they_change_results() {
    let translator = Translator::builtin().expect("the built-in model");
    let usual = of(&translator, &[]);
    for setting in SETTINGS {
        let other = match setting.name {
            "without" => "prefetch".to_owned(),
            "precompute-embeddings" => "7".to_owned(),
            "top-up-threshold" => "0.5".to_owned(),
            _ => (*setting.choices().last().expect("values")).to_owned(),
        };
        let other = if other == setting.default { setting.choices()[0].into() } else { other };
        let assignment = format!("{}={other}", setting.name);
        let changed = of(&translator, &["--set", &assignment]) != usual;
        assert_eq!(changed, setting.changes_results, "{assignment}");
    }
}

fn of(translator: &Translator, more: &[&str]) -> Settings {
    let arguments = ["translate"].iter().chain(more).map(OsString::from);
    let arguments = peregrine_args::values::tie(arguments);
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
    assert_ne!(fingerprint_of_file(&translator, "a\n"), fingerprint_of_file(&translator, "b\n"));
}

/// The settings of a job with a file of prefixes.
fn fingerprint_of_file(translator: &Translator, text: &str) -> Settings {
    let file = std::env::temp_dir().join(format!("peregrine-prefixes-{}", std::process::id()));
    std::fs::write(&file, text).expect("a file");
    let settings = of(translator, &["--prefix", &file.display().to_string()]);
    let _ = std::fs::remove_file(&file);
    settings
}
