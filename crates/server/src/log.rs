//! Log lines on standard error: text for people, JSON for programs. No line ever holds a user's text or key.

use std::io::{IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::config::LogFormat;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warning,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    json: bool,
    only_warnings: bool,
}

impl Log {
    pub(crate) fn new(format: LogFormat) -> Log {
        let json = match format {
            LogFormat::Json => true,
            LogFormat::Text | LogFormat::Off => false,
            LogFormat::Auto => !std::io::stderr().is_terminal(),
        };
        Log { json, only_warnings: format == LogFormat::Off }
    }

    pub(crate) fn info(&self, message: &str, fields: &[(&str, Value)]) {
        self.write(Level::Info, message, fields);
    }

    pub(crate) fn warning(&self, message: &str, fields: &[(&str, Value)]) {
        self.write(Level::Warning, message, fields);
    }

    fn write(&self, level: Level, message: &str, fields: &[(&str, Value)]) {
        if self.only_warnings && level == Level::Info {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line =
            self.line(level, message, fields, &timestamp(now.as_secs(), now.subsec_millis()));
        // A full disk or a closed pipe must not stop the server.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn line(&self, level: Level, message: &str, fields: &[(&str, Value)], time: &str) -> String {
        let name = match level {
            Level::Info => "info",
            Level::Warning => "warning",
        };
        if self.json {
            let mut object = Map::new();
            object.insert("time".to_owned(), time.into());
            object.insert("level".to_owned(), name.into());
            object.insert("message".to_owned(), message.into());
            object.extend(fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
            return format!("{}\n", Value::Object(object));
        }
        let mut line = format!("{time} {name} {message}");
        for (key, value) in fields {
            match value {
                Value::String(text) if !text.contains([' ', '"', '\n']) => {
                    line.push_str(&format!(" {key}={text}"))
                }
                value => line.push_str(&format!(" {key}={value}")),
            }
        }
        line.push('\n');
        line
    }
}

/// A time in the format of RFC 3339, in UTC with milliseconds. The date is computed as in
/// "chrono-Compatible Low-Level Date Algorithms" (H. Hinnant), with years that begin in March.
pub(crate) fn timestamp(seconds: u64, millis: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(timestamp(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_400, 5), "2000-02-29T00:00:00.005Z");
        assert_eq!(timestamp(1_767_225_599, 999), "2025-12-31T23:59:59.999Z");
    }

    #[test]
    fn lines() {
        let fields = [("status", Value::from(200)), ("path", Value::from("/a b"))];
        let text =
            Log { json: false, only_warnings: false }.line(Level::Info, "request", &fields, "T");
        assert_eq!(text, "T info request status=200 path=\"/a b\"\n");
        let json = Log { json: true, only_warnings: false }.line(Level::Warning, "x", &fields, "T");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (read["level"].as_str(), read["path"].as_str()),
            (Some("warning"), Some("/a b"))
        );
    }
}
