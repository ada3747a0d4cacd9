//! The input of self-attention's keys in a pre-norm model, by Marian's version.
//!
//! In February 2022 Marian changed the input of self-attention's keys and values in pre-norm
//! blocks: the raw input before, the normalised input since. A model must be run as it was trained.

use crate::marian::yaml::Yaml;
use crate::{ModelError, SelfKeys};

/// The year and month of the change to normalised keys.
const CHANGED: (u32, u32) = (2022, 2);
/// The release after the change, for versions without a date.
const RELEASED: [u32; 2] = [1, 11];

/// The rule a pre-norm model was trained with; adds a note that names it.
pub(crate) fn self_keys(options: &Yaml, notes: &mut Vec<String>) -> Result<SelfKeys, ModelError> {
    let version = options.text("version")?;
    let path = options.path().display();
    let (keys, note) = match version.as_deref().map(|v| (v, is_before_change(v))) {
        Some((version, Some(true))) => (
            SelfKeys::Raw,
            format!("trained by Marian {version}, with keys that are not normalised"),
        ),
        Some((version, Some(false))) => {
            (SelfKeys::Processed, format!("trained by Marian {version}, with normalised keys"))
        }
        _ => (SelfKeys::Processed, "no Marian version; taken to have normalised keys".into()),
    };
    let other = if keys == SelfKeys::Raw { "normalised-keys" } else { "raw-keys" };
    notes.push(format!("{path}: pre-norm model {note} (the other rule: --compat {other})"));
    Ok(keys)
}

/// Whether a version such as `v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100` is older than the change,
/// by its date or, without one, by its number.
fn is_before_change(version: &str) -> Option<bool> {
    if let Some(date) = version.split_whitespace().find_map(year_and_month) {
        return Some(date < CHANGED);
    }
    let number = version.split_whitespace().next()?.trim_start_matches('v');
    let parts: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    (!parts.is_empty()).then(|| parts[..] < RELEASED[..])
}

fn year_and_month(word: &str) -> Option<(u32, u32)> {
    let mut parts = word.split('-').map(|part| part.parse().ok());
    match (parts.next()??, parts.next()??, parts.next()??) {
        (year @ 2000..=2999, month @ 1..=12, 1..=31) => Some((year, month)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_before_change;

    #[test]
    fn the_date_decides_and_then_the_number() {
        for (version, before) in [
            ("v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100", Some(true)),
            ("v1.11.0 f00cb29f 2022-02-08 09:00:00 +0000", Some(false)),
            ("v1.11.0 f00cb29f 2022-01-31 09:00:00 +0000", Some(true)),
            ("v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700", Some(false)),
            ("v1.10.42", Some(true)),
            ("v1.9", Some(true)),
            ("v1.11.0", Some(false)),
            ("1.12.0 abc", Some(false)),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(is_before_change(version), before, "{version}");
        }
    }
}
