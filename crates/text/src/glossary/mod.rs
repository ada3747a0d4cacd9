//! Glossaries: prescribed translations of terms.
//!
//! A file has a term a line: `source<TAB>target`, and optional flags. Terms are matched by their
//! surface form, whole words only, the longest first. How they are applied is not decided here.
//!
//! ```
//! use peregrine_text::Glossary;
//!
//! let file = "# Portugal\nscreen\tecrã|ecrãs\nbus\tautocarro\nBMW\t\n";
//! let glossary = Glossary::read("terms.tsv", file.as_bytes())?;
//! assert_eq!(glossary.entries()[0].targets, ["ecrã", "ecrãs"]);
//! assert!(glossary.entries()[2].is_kept());
//!
//! let text = "Bus drivers and buses: a BMW.";
//! let found: Vec<&str> = glossary.find(text).into_iter().map(|found| &text[found.range]).collect();
//! assert_eq!(found, ["Bus", "BMW"]);
//! # Ok::<(), peregrine_text::Error>(())
//! ```

mod find;
mod read;

use std::collections::HashMap;
use std::sync::Arc;

use crate::Error;
pub use find::Found;
use find::Index;

/// The most bytes of a term.
pub const LONGEST_TERM: usize = 1024;

/// A term and its prescribed translation.
///
/// ```
/// use peregrine_text::Entry;
/// let entry = Entry::new("file", "ficheiro|ficheiros");
/// assert_eq!(entry.targets, ["ficheiro", "ficheiros"]);
/// assert!(Entry::new("BMW", "").is_kept());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The term in the source language.
    pub source: String,
    /// The allowed forms in the translation. Without any, the term is copied.
    pub targets: Vec<String>,
    /// Whether matching is case-sensitive. It always is for a source with a capital within a word,
    /// and for one in capitals.
    pub case: bool,
    /// Whether the term is copied.
    pub keep: bool,
    /// Whether the targets must not be in the translation.
    pub forbid: bool,
    /// Whether the term may be a prefix of a word.
    pub prefix: bool,
}

impl Entry {
    /// A term and its target; `|` separates several forms. A term with an empty target is copied.
    pub fn new(source: &str, target: &str) -> Entry {
        let form = |form: &str| form.trim().to_owned();
        let targets = if target.trim().is_empty() {
            Vec::new()
        } else {
            target.split('|').map(form).collect()
        };
        Entry { source: source.trim().to_owned(), targets, ..Entry::default() }
    }

    /// The same entry with a flag: `case`, `keep`, `forbid` or `prefix`. `None` for other flags.
    pub fn with_flag(mut self, flag: &str) -> Option<Entry> {
        match flag {
            "case" => self.case = true,
            "keep" => self.keep = true,
            "forbid" => self.forbid = true,
            "prefix" => self.prefix = true,
            _ => return None,
        }
        Some(self)
    }

    /// Whether the term is copied.
    pub fn is_kept(&self) -> bool {
        !self.forbid && self.targets.iter().all(|target| *target == self.source)
    }

    /// Whether matching is case-sensitive.
    pub fn is_cased(&self) -> bool {
        let mut letters = self.source.chars().filter(|c| c.is_alphabetic()).peekable();
        let in_capitals = letters.peek().is_some() && letters.all(char::is_uppercase);
        let pairs = self.source.chars().zip(self.source.chars().skip(1));
        let mut inner = pairs.filter(|(before, c)| before.is_alphabetic() && c.is_uppercase());
        self.case || in_capitals || inner.next().is_some()
    }

    /// The reason why the entry is invalid, if it is.
    fn problem(&self) -> Option<String> {
        let longest = self.targets.iter().chain([&self.source]).map(String::len).max().unwrap_or(0);
        if self.source.is_empty() {
            Some("the source term is empty".to_owned())
        } else if self.targets.iter().any(String::is_empty) {
            Some("a form of the target is empty; expected `form|form`".to_owned())
        } else if longest > LONGEST_TERM {
            Some(format!("a term of {longest} bytes; expected {LONGEST_TERM} at most"))
        } else if self.forbid && self.targets.is_empty() {
            Some("`forbid` without a target".to_owned())
        } else if self.keep && !self.is_kept() {
            Some("`keep` with another target or with `forbid`; expected an empty target".to_owned())
        } else {
            None
        }
    }
}

/// Terms with prescribed translations. Clones share their entries.
#[derive(Clone, Default)]
pub struct Glossary {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    entries: Vec<Entry>,
    index: Index,
}

impl Glossary {
    /// A glossary of these entries. A source that occurs twice with different targets is an error,
    /// unless one of them is forbidden.
    ///
    /// ```
    /// use peregrine_text::{Entry, Glossary};
    /// let twice = Glossary::new([Entry::new("bus", "autocarro"), Entry::new("bus", "ônibus")]);
    /// assert_eq!(twice.unwrap_err().to_string(), "glossary: entry 2: `bus` has another target in entry 1");
    /// ```
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<Glossary, Error> {
        let place = |number: usize| format!("entry {}", number + 1);
        let entries = entries.into_iter().enumerate();
        Glossary::checked("glossary", entries.map(|(number, entry)| (place(number), entry)))
    }

    /// Reads a file: CSV if its name ends in `.csv`, else TSV.
    ///
    /// TSV: `source<TAB>target[<TAB>flags]`, no quoting, and lines that begin with `#` are
    /// comments. CSV: the same columns, quoted as in RFC 4180. Flags are separated by commas or
    /// blanks. Columns after the second that look like language codes are ignored.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Glossary, Error> {
        Glossary::checked(name, read::entries(name, bytes)?)
    }

    fn checked(
        name: &str,
        placed: impl IntoIterator<Item = (String, Entry)>,
    ) -> Result<Glossary, Error> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut places: HashMap<String, (usize, String)> = HashMap::new();
        for (place, entry) in placed {
            if let Some(problem) = entry.problem() {
                return Err(Error::new(name, place, problem));
            }
            if !entry.forbid {
                if let Some((known, earlier)) = places.get(&entry.source) {
                    if entries[*known].targets != entry.targets {
                        let problem = format!("`{}` has another target in {earlier}", entry.source);
                        return Err(Error::new(name, place, problem));
                    }
                    continue;
                }
                places.insert(entry.source.clone(), (entries.len(), place));
            }
            entries.push(entry);
        }
        let index = Index::new(&entries);
        Ok(Glossary { shared: Arc::new(Shared { entries, index }) })
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.shared.entries
    }

    /// The same terms, all copied.
    pub fn kept(&self) -> Glossary {
        let wanted = self.entries().iter().filter(|entry| !entry.forbid);
        let kept = wanted.map(|entry| Entry { targets: Vec::new(), keep: true, ..entry.clone() });
        let entries: Vec<Entry> = kept.collect();
        let index = Index::new(&entries);
        Glossary { shared: Arc::new(Shared { entries, index }) }
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.shared.entries.is_empty()
    }

    /// The terms in a text, in order. They do not overlap: the earlier one takes precedence, then
    /// the longer one.
    pub fn find(&self, text: &str) -> Vec<Found> {
        self.shared.index.find(&self.shared.entries, text)
    }
}

impl std::fmt::Debug for Glossary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Glossary of {} entries", self.shared.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_counts_within_words_and_for_capitals() {
        let cased = |source: &str| Entry::new(source, "x").is_cased();
        assert!(cased("iPhone") && cased("IT") && cased("McDonald") && cased("NATO-Staat"));
        assert!(!cased("bus") && !cased("Bus") && !cased("New York") && !cased("3.5"));
        assert!(Entry { case: true, ..Entry::new("bus", "x") }.is_cased());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told = |entries: Vec<Entry>| Glossary::new(entries).map_err(|error| error.to_string());
        let flagged = |target: &str, flag: &str| {
            Entry::new("a", target).with_flag(flag).into_iter().collect()
        };
        assert!(
            told(vec![Entry::new(" ", "x")])
                .is_err_and(|e| e.contains("entry 1: the source term is empty"))
        );
        assert!(
            told(vec![Entry::new("a", "x||y")])
                .is_err_and(|e| e.contains("a form of the target is empty"))
        );
        let long = "é".repeat(600);
        assert!(
            told(vec![Entry::new("a", &long)])
                .is_err_and(|e| e.contains("1200 bytes; expected 1024"))
        );
        assert!(
            told(flagged("", "forbid")).is_err_and(|e| e.contains("`forbid` without a target"))
        );
        assert!(
            told(flagged("b", "keep")).is_err_and(|e| e.contains("`keep` with another target"))
        );
        assert!(
            told(flagged("a", "keep")).is_ok() && Entry::new("a", "b").with_flag("kept").is_none()
        );
    }

    #[test]
    fn a_source_may_have_a_target_and_others_that_are_forbidden() {
        let forbidden = Entry::new("bus", "ônibus").with_flag("forbid").expect("a flag");
        let entries =
            vec![Entry::new("bus", "autocarro"), forbidden.clone(), Entry::new("bus", "autocarro")];
        let glossary = Glossary::new(entries).expect("a glossary");
        assert_eq!(glossary.entries().len(), 2, "what is there twice counts once");
        let found = glossary.find("the bus");
        assert_eq!((found[0].entry, &found[0].forbidden), (Some(0), &vec![1]));
        let found = Glossary::new([forbidden]).expect("a glossary").find("bus");
        assert_eq!((found[0].entry, &found[0].forbidden), (None, &vec![0]));
    }
}
