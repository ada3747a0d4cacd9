//! Lists and maps of tokens: Marian's YAML, JSON and text vocabularies, and CTranslate2's lists.

mod json;
mod yaml;

use crate::Error;
use crate::error::check_size;
use crate::trie::Trie;

/// The largest id a map may name. Holes take room, and a short file must not ask for gigabytes.
const LARGEST_ID: u64 = (1 << 22) - 1;

/// The end symbol and the unknown symbol, as Marian and its relatives name them.
pub(crate) const EOS: &str = "</s>";
pub(crate) const UNK: &str = "<unk>";

/// Tokens and their ids.
///
/// ```
/// use peregrine_text::Vocabulary;
///
/// let vocabulary = Vocabulary::from_named("vocab.yml", b"</s>: 0\n<unk>: 1\n\"\\u00e9t\\xe9\": 3\n")?;
/// assert_eq!(vocabulary.id("été"), Some(3));
/// assert_eq!(vocabulary.token(2), Some("")); // a hole
/// assert_eq!(vocabulary.len(), 4);
/// # Ok::<(), peregrine_text::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// All tokens, end to end.
    text: String,
    /// By id: where the token lies in `text`; an empty range is a hole.
    tokens: Vec<(u32, u32)>,
    ids: Trie,
    eos: Option<u32>,
    unk: Option<u32>,
    /// Ids from here on are not found by name.
    limit: usize,
}

/// A token as read, before numbering is checked.
struct Entry {
    token: String,
    id: u64,
    /// False for a token that was not valid UTF-8: it prints, but no text can match it.
    matchable: bool,
}

impl Vocabulary {
    /// Reads a file of the format its name tells: `.yml`, `.yaml`, `.json`, or else a text list.
    pub fn from_named(path_name: &str, bytes: &[u8]) -> Result<Self, Error> {
        match ending(path_name).as_str() {
            "yml" | "yaml" => Self::from_yaml(path_name, bytes),
            "json" => Self::from_json(path_name, bytes),
            "fsv" => {
                Err(Error::new(path_name, "file name", "factored vocabularies are not supported"))
            }
            _ => Self::from_text(path_name, bytes),
        }
    }

    /// Reads a YAML map of tokens to ids, as Marian writes it (a JSON map is YAML too).
    ///
    /// Every key is a string, whatever YAML would make of `1`, `no` or `<<`. Of a repeated key the first
    /// counts.
    pub fn from_yaml(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        check_size(name, bytes)?;
        if yaml::is_flow_map(bytes) {
            return Self::from_json(name, bytes);
        }
        Self::from_map(name, yaml::parse(name, bytes)?)
    }

    /// Reads JSON: a map of tokens to ids, or an array of tokens (CTranslate2), of which equal ones keep
    /// the first id.
    pub fn from_json(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        check_size(name, bytes)?;
        match json::parse(name, bytes)? {
            json::Contents::Map(entries) => Self::from_map(name, entries),
            json::Contents::List(tokens) => Ok(Self::from_tokens(tokens)),
        }
    }

    /// Reads a text list by Marian's rules: one token a line, none empty, none twice.
    pub fn from_text(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        check_size(name, bytes)?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(lines(bytes)) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return Err(Error::new(name, format!("line {number}"), "an empty line"));
            }
            tokens.push(String::from_utf8_lossy(line).into_owned());
        }
        let vocabulary = Self::from_tokens(tokens);
        match vocabulary.first_duplicate() {
            Some(id) => {
                let token = vocabulary.token(id).unwrap_or_default();
                let problem = format!("the token {token:?} occurs twice");
                Err(Error::new(name, format!("line {}", id + 1), problem))
            }
            None if vocabulary.tokens.is_empty() => Err(no_tokens(name)),
            None => Ok(vocabulary),
        }
    }

    /// Reads a text list by CTranslate2's rules: one token a line, repeated ones keep the first id.
    pub fn from_list(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        check_size(name, bytes)?;
        let lines: Vec<&[u8]> = lines(bytes).collect();
        let windows = lines.iter().all(|line| line.ends_with(b"\r"));
        let token = |line: &&[u8]| {
            let line = if windows { &line[..line.len() - 1] } else { line };
            String::from_utf8_lossy(line).into_owned()
        };
        Ok(Self::from_tokens(lines.iter().map(token).collect()))
    }

    /// Numbers the tokens from 0; equal ones keep the first id.
    pub fn from_tokens(tokens: Vec<String>) -> Self {
        let entry = |(id, token)| Entry { token, id, matchable: true };
        Self::new((0..).zip(tokens).map(entry).collect())
    }

    fn from_map(name: &str, entries: Vec<Entry>) -> Result<Self, Error> {
        if entries.is_empty() {
            return Err(no_tokens(name));
        }
        if let Some(entry) = entries.iter().find(|entry| entry.id > LARGEST_ID) {
            let problem = format!("id {}, the largest possible is {LARGEST_ID}", entry.id);
            return Err(Error::new(name, format!("token {:?}", entry.token), problem));
        }
        let mut vocabulary = Self::new(entries);
        vocabulary.eos = vocabulary.nematus_id(0, "eos").or(vocabulary.eos);
        vocabulary.unk = vocabulary.nematus_id(1, "UNK").or(vocabulary.unk);
        Ok(vocabulary)
    }

    fn new(entries: Vec<Entry>) -> Self {
        let size = entries.iter().map(|entry| entry.id as usize + 1).max().unwrap_or(0);
        let mut text = String::new();
        let mut tokens = vec![(0, 0); size];
        for entry in &entries {
            let range = &mut tokens[entry.id as usize];
            if range.0 == range.1 {
                let start = text.len() as u32;
                text.push_str(&entry.token);
                *range = (start, text.len() as u32);
            }
        }
        let ids = index(&entries);
        let (eos, unk) = (ids.get(EOS.as_bytes()), ids.get(UNK.as_bytes()));
        Self { text, tokens, ids, eos, unk, limit: usize::MAX }
    }

    /// Maps in the tradition of Nematus reserve ids 0 and 1, by other names or by none.
    fn nematus_id(&self, id: u32, token: &str) -> Option<u32> {
        matches!(self.token(id), Some(found) if found.is_empty() || found == token).then_some(id)
    }

    fn first_duplicate(&self) -> Option<u32> {
        (0..self.tokens.len() as u32)
            .find(|&id| self.token(id).and_then(|t| self.id(t)) != Some(id))
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.id_of_bytes(token.as_bytes())
    }

    pub(crate) fn id_of_bytes(&self, token: &[u8]) -> Option<u32> {
        self.ids.get(token).filter(|&id| (id as usize) < self.limit)
    }

    /// The token with this id, empty for a hole; `None` beyond the last id.
    pub fn token(&self, id: u32) -> Option<&str> {
        let &(start, end) = self.tokens.get(id as usize)?;
        Some(&self.text[start as usize..end as usize])
    }

    /// All tokens in order of their ids.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        (0..self.tokens.len() as u32).map(|id| self.token(id).unwrap_or_default())
    }

    /// The greatest id plus one.
    pub fn len(&self) -> usize {
        self.tokens.len().min(self.limit)
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the end symbol: `</s>`, or id 0 of a map that calls it `eos` or nothing.
    pub fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    /// The id of the unknown symbol: `<unk>`, or id 1 of a map that calls it `UNK` or nothing.
    pub fn unk_id(&self) -> Option<u32> {
        self.unk
    }

    /// Drops tokens with ids of `size` and above, as Marian does on the source side.
    pub fn limit(&mut self, size: usize) {
        self.limit = self.limit.min(size);
    }

    /// Adds `<unk>` as the last token unless there is an unknown symbol, as CTranslate2 does.
    pub(crate) fn with_unknown(self) -> Self {
        if self.unk.is_some() {
            return self;
        }
        let tokens = self.tokens().map(str::to_owned).chain([UNK.to_owned()]);
        Self::from_tokens(tokens.collect())
    }
}

/// Token to id; of equal tokens the first entry counts.
fn index(entries: &[Entry]) -> Trie {
    let mut sorted: Vec<(&[u8], u32)> = entries
        .iter()
        .filter(|entry| entry.matchable && !entry.token.is_empty())
        .map(|entry| (entry.token.as_bytes(), entry.id as u32))
        .collect();
    Trie::sort(&mut sorted);
    Trie::from_sorted(&sorted)
}

fn no_tokens(name: &str) -> Error {
    Error::new(name, "file", "no tokens in this vocabulary")
}

/// The lines of a file; a newline at its very end starts no further line.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let empty = bytes.is_empty();
    text.split(|&byte| byte == b'\n').filter(move |_| !empty)
}

/// The file name's ending in lower case, without the dot.
pub(crate) fn ending(path_name: &str) -> String {
    path_name.rsplit_once('.').map_or_else(String::new, |(_, ending)| ending.to_lowercase())
}
