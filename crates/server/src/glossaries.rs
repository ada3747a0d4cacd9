//! Glossaries that clients create, stored in memory and in the folder if one is configured.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use peregrine::Glossary;
use serde_json::{Value, json};

use crate::config::ConfigError;
use crate::files::secret;
use crate::problem::{Kind, Outcome, Problem};

/// The most glossaries of a server.
const MOST: usize = 1000;
/// The most bytes of the entries of a dictionary.
const MOST_BYTES: usize = 10 << 20;

/// Terms of one direction.
#[derive(Debug, Clone)]
pub(crate) struct Dictionary {
    /// The codes of the languages, without regions.
    pub(crate) from: String,
    pub(crate) to: String,
    /// Target by source of each term, unchanged.
    entries: BTreeMap<String, String>,
}

/// The glossary of a request. Two are equal if they have the same entries.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    key: Arc<str>,
    pub(crate) glossary: Glossary,
}

impl PartialEq for Terms {
    fn eq(&self, other: &Terms) -> bool {
        self.key == other.key
    }
}

impl Eq for Terms {}

impl Hash for Terms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Terms {
    /// Reads terms in TSV.
    pub(crate) fn read(tsv: &str) -> Outcome<Terms> {
        let glossary = Glossary::read("glossary.tsv", tsv.as_bytes());
        let glossary = glossary.map_err(|error| Problem::bad(error.to_string()))?;
        Ok(Terms { key: tsv.into(), glossary })
    }

    /// The terms with these pairs of source and target.
    pub(crate) fn of<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> Outcome<Terms> {
        Terms::read(&tsv(entries))
    }
}

/// Entries as lines of TSV. Tabs and line breaks become blanks.
fn tsv<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> String {
    let plain = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    entries
        .into_iter()
        .map(|(source, target)| format!("{}\t{}\n", plain(source), plain(target)))
        .collect()
}

impl Dictionary {
    /// Reads a dictionary from its entries in TSV or CSV.
    pub(crate) fn read(from: &str, to: &str, format: &str, entries: &str) -> Outcome<Dictionary> {
        if entries.len() > MOST_BYTES {
            return Err(Problem::new(Kind::TooLarge, "The entries are longer than 10 MiB"));
        }
        let name = match format {
            "tsv" | "csv" => format!("entries.{format}"),
            _ => return Err(Problem::bad("Value for 'entries_format' not supported: tsv or csv")),
        };
        let glossary = Glossary::read(&name, entries.as_bytes());
        let glossary = glossary.map_err(|error| Problem::bad(error.to_string()))?;
        let pair = |entry: &peregrine::Entry| (entry.source.clone(), entry.targets.join("|"));
        Dictionary::of(from, to, glossary.entries().iter().map(pair).collect())
    }

    fn of(from: &str, to: &str, entries: BTreeMap<String, String>) -> Outcome<Dictionary> {
        if entries.is_empty() {
            return Err(Problem::bad("Bad request. Reason: the glossary has no entries"));
        }
        let dictionary = Dictionary { from: base(from), to: base(to), entries };
        Terms::of(dictionary.entries())?;
        Ok(dictionary)
    }

    /// The entries in TSV, a line each.
    pub(crate) fn tsv(&self) -> String {
        tsv(self.entries())
    }

    /// Source and target of each term.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(source, target)| (source.as_str(), target.as_str()))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn is_of(&self, from: &str, to: &str) -> bool {
        self.from == base(from) && self.to == base(to)
    }
}

/// The code of a language without its region.
pub(crate) fn base(code: &str) -> String {
    code.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

/// A glossary that a client has made.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Seconds and thousandths since 1970.
    pub(crate) created: (u64, u32),
    pub(crate) dictionaries: Vec<Dictionary>,
}

impl Stored {
    /// The dictionary of a direction.
    pub(crate) fn dictionary(&self, from: &str, to: &str) -> Option<&Dictionary> {
        self.dictionaries.iter().find(|dictionary| dictionary.is_of(from, to))
    }

    /// Replaces the dictionary of the same direction.
    pub(crate) fn put(&mut self, dictionary: Dictionary) {
        self.dictionaries.retain(|other| !other.is_of(&dictionary.from, &dictionary.to));
        self.dictionaries.push(dictionary);
    }

    /// Adds the entries of a dictionary to the one of the same direction.
    pub(crate) fn add(&mut self, dictionary: Dictionary) -> Outcome<()> {
        let known = self.dictionary(&dictionary.from, &dictionary.to);
        let mut entries = known.map(|known| known.entries.clone()).unwrap_or_default();
        entries.extend(dictionary.entries);
        self.put(Dictionary::of(&dictionary.from, &dictionary.to, entries)?);
        Ok(())
    }

    fn to_json(&self) -> Value {
        let dictionary = |d: &Dictionary| json!({"from": d.from, "to": d.to, "entries": d.entries});
        let dictionaries: Vec<Value> = self.dictionaries.iter().map(dictionary).collect();
        json!({"id": self.id, "name": self.name, "created": self.created, "dictionaries": dictionaries})
    }

    fn from_json(value: &Value) -> Option<Stored> {
        let dictionary = |value: &Value| {
            let entries = serde_json::from_value(value["entries"].clone()).ok()?;
            Dictionary::of(value["from"].as_str()?, value["to"].as_str()?, entries).ok()
        };
        Some(Stored {
            id: value["id"].as_str()?.to_owned(),
            name: value["name"].as_str()?.to_owned(),
            created: serde_json::from_value(value["created"].clone()).ok()?,
            dictionaries: value["dictionaries"]
                .as_array()?
                .iter()
                .map(dictionary)
                .collect::<Option<_>>()?,
        })
    }
}

/// Glossaries by id.
#[derive(Debug, Default)]
pub(crate) struct Glossaries {
    stored: Mutex<BTreeMap<String, Stored>>,
    folder: Option<PathBuf>,
}

impl Glossaries {
    /// Opens the glossaries of a folder, which is created if it does not exist.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Glossaries, ConfigError> {
        let Some(folder) = folder else { return Ok(Glossaries::default()) };
        let problem = |path: &Path, what: &dyn std::fmt::Display| {
            ConfigError::new(path.display().to_string(), what.to_string())
        };
        std::fs::create_dir_all(folder).map_err(|error| problem(folder, &error))?;
        let mut stored = BTreeMap::new();
        let entries = folder.read_dir().map_err(|error| problem(folder, &error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| problem(&path, &error))?;
            let value: Option<Value> = serde_json::from_slice(&bytes).ok();
            let glossary = value.as_ref().and_then(Stored::from_json);
            let glossary = glossary
                .ok_or_else(|| problem(&path, &"expected a glossary as this server writes it"))?;
            stored.insert(glossary.id.clone(), glossary);
        }
        Ok(Glossaries { stored: Mutex::new(stored), folder: Some(folder.to_owned()) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All glossaries, the oldest first.
    pub(crate) fn list(&self) -> Vec<Stored> {
        let mut list: Vec<Stored> = self.lock().values().cloned().collect();
        list.sort_by_key(|stored| stored.created);
        list
    }

    pub(crate) fn get(&self, id: &str) -> Outcome<Stored> {
        self.lock().get(id).cloned().ok_or_else(missing)
    }

    /// Creates a glossary.
    pub(crate) fn make(&self, name: &str, dictionaries: Vec<Dictionary>) -> Outcome<Stored> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut stored = Stored {
            id: uuid(&secret()?),
            name: name.to_owned(),
            created: (now.as_secs(), now.subsec_millis()),
            dictionaries: Vec::new(),
        };
        dictionaries.into_iter().for_each(|dictionary| stored.put(dictionary));
        let mut all = self.lock();
        if all.len() >= MOST {
            return Err(Problem::new(Kind::TooLarge, "Too many glossaries"));
        }
        self.write(&stored)?;
        all.insert(stored.id.clone(), stored.clone());
        Ok(stored)
    }

    /// Changes a glossary; if the change fails, the glossary is unchanged.
    pub(crate) fn change(
        &self,
        id: &str,
        change: impl FnOnce(&mut Stored) -> Outcome<()>,
    ) -> Outcome<Stored> {
        let mut all = self.lock();
        let stored = all.get_mut(id).ok_or_else(missing)?;
        let mut changed = stored.clone();
        change(&mut changed)?;
        self.write(&changed)?;
        *stored = changed.clone();
        Ok(changed)
    }

    pub(crate) fn remove(&self, id: &str) -> Outcome<()> {
        let mut all = self.lock();
        all.remove(id).ok_or_else(missing)?;
        if let Some(folder) = &self.folder {
            std::fs::remove_file(folder.join(format!("{id}.json"))).map_err(|_| unwritable())?;
        }
        Ok(())
    }

    fn write(&self, stored: &Stored) -> Outcome<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(format!("{}.json", stored.id));
        let text = format!("{:#}\n", stored.to_json());
        peregrine::model::write_whole(&path, text.as_bytes()).map_err(|_| unwritable())
    }
}

fn missing() -> Problem {
    Problem::new(Kind::NotFound, "There is no such glossary")
}

fn unwritable() -> Problem {
    Problem::new(Kind::Internal, "The glossary cannot be written")
}

/// Formats thirty-two hexadecimal digits as a UUID.
fn uuid(digits: &str) -> String {
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(entries: &str) -> Dictionary {
        Dictionary::read("EN-US", "pt-BR", "tsv", entries).unwrap()
    }

    #[test]
    fn glossaries_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("glossaries");
        let first = Glossaries::open(Some(&path)).unwrap();
        let made =
            first.make("mine", vec![dictionary("bus\tautocarro\nscreen\tecrã|ecrãs\n")]).unwrap();
        let gone = first.make("gone", vec![dictionary("a\tb\n")]).unwrap();
        first.remove(&gone.id).unwrap();
        first.change(&made.id, |stored| stored.add(dictionary("file\tficheiro\n"))).unwrap();
        let second = Glossaries::open(Some(&path)).unwrap();
        assert_eq!(second.list().len(), 1);
        let known = second.get(&made.id).unwrap();
        assert_eq!((known.name.as_str(), known.created), ("mine", made.created));
        let entries = known.dictionary("en", "PT").unwrap().tsv();
        assert_eq!(entries, "bus\tautocarro\nfile\tficheiro\nscreen\tecrã|ecrãs\n");
        std::fs::write(path.join("broken.json"), "{}").unwrap();
        assert!(
            Glossaries::open(Some(&path)).is_err_and(|e| e.to_string().contains("broken.json"))
        );
    }

    #[test]
    fn what_is_no_glossary_is_refused() {
        let refused =
            |format, entries| Dictionary::read("en", "pt", format, entries).unwrap_err().message;
        assert!(refused("xml", "a\tb").contains("entries_format"));
        assert!(refused("tsv", "").contains("no entries"));
        assert!(refused("tsv", "a b").contains("line 1"));
        assert!(refused("csv", "a,b\na,c\n").contains("another target"));
    }

    #[test]
    fn equal_entries_are_equal_terms() {
        let terms = |target| Terms::of([("a", target)]).unwrap();
        assert_eq!(terms("b"), terms("b"));
        assert_ne!(terms("b"), terms("c"));
    }
}
