//! Values of options: how they are read from text.

use std::path::PathBuf;
use std::time::Duration;

/// A model given by name: `en-pt=PATH` or `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedModel {
    /// The languages, if they are given.
    pub pair: Option<(String, String)>,
    /// The file or directory.
    pub path: PathBuf,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// JSON, one object a line.
    Json,
    /// Nothing but warnings.
    Off,
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "1" | "yes" => Ok(true),
        "off" | "false" | "0" | "no" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

pub(super) fn number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| match most {
        usize::MAX => format!("expected a whole number, at least {least}"),
        _ => format!("expected a whole number from {least} to {most}"),
    })
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=1e6).contains(seconds));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| "expected a number of seconds".to_owned())
}

/// Reads `200M`, `1.5G` or a number of bytes.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(['B', 'b', 'i']);
    let (digits, unit) = match digits.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => (&digits[..at], letter),
        _ => (digits, ' '),
    };
    let factor = match unit.to_ascii_uppercase() {
        ' ' => 1.0,
        'K' => 1024.0,
        'M' => 1048576.0,
        'G' => 1073741824.0,
        _ => 0.0,
    };
    let bytes = digits.parse::<f64>().ok().map(|number| number * factor);
    let bytes = bytes.filter(|&bytes| factor > 0.0 && (0.0..1e18).contains(&bytes));
    bytes.map(|bytes| bytes as usize).ok_or_else(|| "expected a size such as 200M".to_owned())
}

/// Reads `en-pt=PATH` or `PATH`.
pub(super) fn named_model(text: &str) -> NamedModel {
    let pair = text.split_once('=').and_then(|(pair, path)| {
        let (from, to) = pair.split_once(['-', ':', '>'])?;
        let is_code = |code: &str| {
            (2..=12).contains(&code.len())
                && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        (is_code(from) && is_code(to)).then(|| (from.to_owned(), to.to_owned(), path))
    });
    match pair {
        Some((from, to, path)) => NamedModel { pair: Some((from, to)), path: PathBuf::from(path) },
        None => NamedModel { pair: None, path: PathBuf::from(text) },
    }
}

/// Reads the name of a form of log lines.
pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "off" => Ok(LogFormat::Off),
        _ => Err("expected auto, text, json or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("200M"), Ok(200 << 20));
        assert_eq!(size("1.5GiB"), Ok(3 << 29));
        assert_eq!(size("17"), Ok(17));
        assert!(size("M").is_err() && size("-1").is_err() && size("").is_err());
    }
}
