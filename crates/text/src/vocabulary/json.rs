//! JSON vocabularies, read so that order and repeated keys survive.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::Entry;
use crate::Error;

/// What a JSON vocabulary holds.
pub(super) enum Contents {
    /// Token to id, in file order.
    Map(Vec<Entry>),
    /// Tokens in order of id.
    List(Vec<String>),
}

pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Contents, Error> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Error::new(name, place, error.to_string())
    })
}

impl<'de> Deserialize<'de> for Contents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentsVisitor)
    }
}

struct ContentsVisitor;

impl<'de> Visitor<'de> for ContentsVisitor {
    type Value = Contents;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of tokens and ids, or an array of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Contents, A::Error> {
        let mut entries = Vec::new();
        while let Some((token, id)) = map.next_entry()? {
            entries.push(Entry { token, id, matchable: true });
        }
        Ok(Contents::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Contents, A::Error> {
        let mut tokens = Vec::new();
        while let Some(token) = sequence.next_element()? {
            tokens.push(token);
        }
        Ok(Contents::List(tokens))
    }
}
