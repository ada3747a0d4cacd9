//! `--set NAME=VALUE`, from the library's table of settings.

use clap::builder::{PossibleValue, TypedValueParser};
use peregrine::settings::{SETTINGS, Settings};

/// Laboratory settings.
#[derive(clap::Args)]
pub struct SettingArgs {
    /// Change a laboratory setting (`peregrine help settings` lists them)
    #[arg(long, value_name = "NAME=VALUE", value_parser = Assignments, hide_possible_values = true, help_heading = "Model")]
    pub set: Vec<String>,
}

impl SettingArgs {
    /// The settings after all assignments. The last value of a name counts.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for assignment in &self.set {
            // The command line's parser has already checked each assignment.
            let _ = settings.set(assignment);
        }
        settings
    }

    /// Whether a setting was named.
    pub fn names(&self, name: &str) -> bool {
        self.set.iter().any(|assignment| assignment.split('=').next() == Some(name))
    }
}

/// Parses assignments to settings, and lists them for shell completions.
#[derive(Clone)]
struct Assignments;

impl TypedValueParser for Assignments {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let try_it = |text: &str| Settings::default().set(text).map(|()| text.to_owned());
        clap::builder::StringValueParser::new()
            .try_map(move |text| try_it(&text))
            .parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = SETTINGS.iter().flat_map(|setting| {
            let choices = setting.choices();
            let choices = if choices.is_empty() { vec![""] } else { choices };
            choices.into_iter().map(|value| PossibleValue::new(format!("{}={value}", setting.name)))
        });
        Some(Box::new(values))
    }
}

/// The table of settings as text, `width` columns wide.
pub fn table(width: usize) -> String {
    let mut text = String::new();
    for setting in SETTINGS {
        text += &format!("  {}={}\n", setting.name, setting.values);
        let about = format!("{} [default: {}]", setting.about, setting.default);
        text += &wrapped(&about, 10, width);
    }
    text
}

/// Wraps text to lines of `width` columns, each with a margin.
fn wrapped(text: &str, margin: usize, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), " ".repeat(margin));
    for word in text.split(' ') {
        if line.chars().count() + word.chars().count() > width && line.trim() != "" {
            lines += line.trim_end();
            lines.push('\n');
            line = " ".repeat(margin);
        }
        line += word;
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}
